"""What must hold for any bytes of a binary event stream, for any events in one, and for what is
written for Converse."""

import random
import zlib

from protocol import codecs
from protocol.bytes import eventstream
from protocol.bytes.json_strict import loads_exact
from protocol.dialects.table import CLIENTS, DIALECTS
from protocol.errors import InvalidRequest, RemoteProtocolError
from protocol.events import BlockStart, BlockStop, Event, MessageStop, UpstreamFailed
from protocol.target import Target
from tests.fuzz.views import MAX_EVENT
from tests.support.upstreams import converse


def decoded(chunks: list[bytes]) -> list[Event]:
    """The events of chunks up to what the dialect forbids, which is a failure; after that the
    decoder says nothing more."""
    decoder, events = DIALECTS["converse"].decoder(), list[Event]()
    try:
        for chunk in chunks:
            events += decoder.feed(chunk)
        return events + decoder.finish()
    except RemoteProtocolError as error:
        assert decoder.finish() == []
        return [*events, UpstreamFailed("api_error", error.message)]


def check_binary(data: bytes) -> None:
    """A binary event stream is cut the same wherever its pieces end, loses no byte, and what its
    decoder says stays the same."""

    def messages(pieces: list[bytes]) -> list[bytes] | None:
        splitter, found = eventstream.EventStreamSplitter(MAX_EVENT), list[bytes]()
        try:
            for piece in [*pieces, b""]:
                found += splitter.feed(piece)
            return found + splitter.finish()
        except RemoteProtocolError:
            return None

    chance = random.Random(zlib.crc32(data))
    places = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randrange(12)))
    whole, apart = (
        messages([data]),
        messages([data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]),
    )
    assert whole == apart and (whole is None or b"".join(whole) == data)
    decoded(whole or [])
    eventstream.readable(data)


def check_messages(data: bytes) -> None:
    """Events of Converse, a line each with its name first, with right checksums: at most one end,
    and blocks that begin and end once."""
    lines = [line.partition(b" ") for line in data.split(b"\n")]
    chunks = [
        eventstream.message(
            {":message-type": "event", ":event-type": name.decode(errors="replace")[:99]}, payload
        )
        for name, _, payload in lines
    ]
    events = decoded(chunks)
    assert sum(isinstance(e, MessageStop | UpstreamFailed) for e in events) == 1
    begun = [e.index for e in events if isinstance(e, BlockStart)]
    ended = [e.index for e in events if isinstance(e, BlockStop)]
    assert (
        len(set(begun)) == len(begun) and len(set(ended)) == len(ended) and set(ended) <= set(begun)
    )
    if isinstance(events[-1], MessageStop):
        assert set(ended) == set(begun)


def check_written(data: bytes) -> None:
    """Whatever a chat client asks is written for Converse, as JSON that is read back, or refused
    with the parameter's name."""
    try:
        request = CLIENTS["openai"].decode_request(data)
        body = codecs.encode_request(request, Target(dialect="converse")).body
    except InvalidRequest:
        return
    found = loads_exact(body or b"")
    assert found["messages"] and all(message["content"] for message in found["messages"])


def message_seeds() -> list[bytes]:
    """The same streams as lines."""
    found = []
    for body in binary_seeds():
        read = map(eventstream.parse_message, eventstream.EventStreamSplitter(MAX_EVENT).feed(body))
        found.append(
            b"\n".join(
                headers.get(":event-type", "x").encode() + b" " + payload
                for headers, payload in read
            )
        )
    return found


def binary_seeds() -> list[bytes]:
    """A tool call with signed thinking, and text."""
    return [
        converse.thought_call(),
        converse.said("Hello ", "there."),
        converse.said("x") + converse.exception("throttlingException", "no"),
    ]
