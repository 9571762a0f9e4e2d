"""Binary event streams: cut anywhere, changed anywhere, against botocore's reading of the same
bytes."""

import random
import struct
import zlib

import pytest
from botocore.eventstream import EventStreamBuffer

from protocol.bounds import MAX_EVENT_VALUES, MAX_MESSAGE_HEADER_BYTES
from protocol.bytes.eventstream import EventStreamSplitter, message, parse_message, readable
from protocol.errors import RemoteProtocolError

MOST = 1 << 20
HEADERS = {
    ":event-type": "contentBlockDelta",
    ":content-type": "application/json",
    ":message-type": "event",
}
MESSAGES = [message(HEADERS, b'{"text": "%d"}' % n) for n in range(4)] + [
    message({}, b""),
    message({"name": "é" * 300}, bytes(range(256))),
]
STREAM = b"".join(MESSAGES)


def headed(raw: bytes, payload: bytes = b"{}") -> bytes:
    """A message with these bytes as headers, its checksums right."""
    lengths = struct.pack(">II", 16 + len(raw) + len(payload), len(raw))
    body = lengths + struct.pack(">I", zlib.crc32(lengths)) + raw + payload
    return body + struct.pack(">I", zlib.crc32(body))


def header(name: bytes, kind: int, value: bytes) -> bytes:
    return bytes((len(name),)) + name + bytes((kind,)) + value


def read_by_botocore(data: bytes) -> list[tuple[dict[str, object], bytes]]:
    buffer = EventStreamBuffer()
    buffer.add_data(data)
    return [(found.headers, found.payload) for found in buffer]


def test_messages_are_read_as_botocore_reads_them() -> None:
    assert [
        (dict(headers), payload) for headers, payload in map(parse_message, MESSAGES)
    ] == read_by_botocore(STREAM)


def test_a_stream_is_cut_into_the_same_messages_wherever_its_pieces_end() -> None:
    assert EventStreamSplitter(MOST).feed(STREAM) == MESSAGES
    for at in range(len(STREAM) + 1):
        splitter = EventStreamSplitter(MOST)
        assert splitter.feed(STREAM[:at]) + splitter.feed(STREAM[at:]) == MESSAGES, at
        assert splitter.finish() == []
    for seed in range(30):
        chance, splitter, cut = random.Random(seed), EventStreamSplitter(MOST), list[bytes]()
        at = 0
        while at < len(STREAM):
            size = chance.choice((0, 1, 2, 11, 12, 13, 40, 500))
            cut += splitter.feed(STREAM[at : at + size])
            at += size
        assert cut == MESSAGES, seed


def test_a_stream_that_ends_early_leaves_a_message_that_is_refused() -> None:
    ends = [sum(map(len, MESSAGES[:n])) for n in range(len(MESSAGES) + 1)]
    for at in range(len(STREAM)):
        splitter = EventStreamSplitter(MOST)
        whole, rest = splitter.feed(STREAM[:at]), splitter.finish()
        assert b"".join(whole + rest) == STREAM[:at]
        assert bool(rest) == (at not in ends), at
        for torn in rest:
            with pytest.raises(RemoteProtocolError):
                parse_message(torn)


@pytest.mark.parametrize("flipped", [1, 0x80, 0xFF])
def test_a_changed_byte_is_never_read(flipped: int) -> None:
    for at in range(len(STREAM)):
        data = bytearray(STREAM)
        data[at] ^= flipped
        splitter, whole = EventStreamSplitter(MOST), list[tuple[object, bytes]]()
        with pytest.raises(RemoteProtocolError):  # noqa: PT012 - what was read before the error counts
            for raw in splitter.feed(bytes(data)):
                whole.append(parse_message(raw))
            for raw in [*splitter.feed(b""), *splitter.finish()]:
                parse_message(raw)
        assert whole == [parse_message(raw) for raw in MESSAGES][: len(whole)], at


def test_what_was_whole_before_wrong_lengths_is_returned_first() -> None:
    splitter = EventStreamSplitter(MOST)
    assert splitter.feed(MESSAGES[0] + b"\0" * 20 + MESSAGES[1]) == MESSAGES[:1]
    with pytest.raises(RemoteProtocolError):
        splitter.feed(MESSAGES[2])


@pytest.mark.parametrize(
    ("total", "headers"),
    [(15, 0), (0, 0), (16, 1), (100, 85), (100, 2**32 - 1), (MOST + 1, 0), (2**32 - 1, 0)],
)
def test_lengths_that_cannot_be_are_refused_before_anything_is_held(
    total: int, headers: int
) -> None:
    lengths = struct.pack(">II", total, headers)
    for rest in (b"", b"x" * 200):
        with pytest.raises(RemoteProtocolError):
            EventStreamSplitter(MOST).feed(lengths + struct.pack(">I", zlib.crc32(lengths)) + rest)


def test_a_message_may_be_as_long_as_the_bound_and_no_longer() -> None:
    longest = message({}, b"x" * (1_000 - 16))
    assert EventStreamSplitter(1_000).feed(longest) == [longest]
    with pytest.raises(RemoteProtocolError, match="1,001 bytes; one may have 1,000"):
        EventStreamSplitter(1_000).feed(message({}, b"x" * (1_001 - 16)))


def test_more_headers_than_a_message_may_have_are_refused() -> None:
    most = header(b"a", 7, struct.pack(">H", 0xFFFF) + b"x" * 0xFFFF)
    fill = MAX_MESSAGE_HEADER_BYTES - len(most)
    right = headed(most + header(b"b", 7, struct.pack(">H", fill - 5) + b"x" * (fill - 5)))
    assert EventStreamSplitter(MOST).feed(right) == [right]
    assert len(parse_message(right)[0]) == 2
    wrong = headed(most + header(b"b", 7, struct.pack(">H", fill - 4) + b"x" * (fill - 4)))
    for read in (EventStreamSplitter(MOST).feed, parse_message):
        with pytest.raises(RemoteProtocolError, match="of headers; one may have"):
            read(wrong)


def test_headers_of_other_types_are_passed_over() -> None:
    sizes = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
    others = b"".join(header(b"h%d" % kind, kind, b"\7" * size) for kind, size in sizes.items())
    raw = headed(others + header(b"h6", 6, b"\0\2ab") + header(b"last", 7, b"\0\2ok"))
    assert parse_message(raw) == ({"last": "ok"}, b"{}")


@pytest.mark.parametrize(
    "raw",
    [
        header(b"a", 10, b""),
        header(b"a", 255, b"\0\0"),
        header(b"", 7, b"\0\1x"),
        header(b"a", 7, b"\0\1x") * 2,
        header(b"a", 7, b"\0\1\xff"),
        header(b"\xff", 7, b"\0\1x"),
        header(b"a", 7, b"\0\2x"),
        header(b"a", 7, b"\0"),
        header(b"a", 9, b"x"),
        header(b"a", 0, b"")[:-1],
        b"\5ab",
        b"\1",
    ],
)
def test_headers_that_cannot_be_read_are_refused(raw: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        parse_message(headed(raw))


def test_a_payload_of_too_many_values_is_refused() -> None:
    assert parse_message(message({}, b"[" + b"1," * (MAX_EVENT_VALUES - 3) + b"1]"))
    with pytest.raises(RemoteProtocolError, match="JSON values"):
        parse_message(message({}, b"[" + b"1," * MAX_EVENT_VALUES + b"1]"))


def test_a_message_is_shown_as_text_also_where_it_is_cut() -> None:
    shown = readable(MESSAGES[1])
    assert shown.startswith(":event-type: contentBlockDelta\n") and shown.endswith(
        '\n\n{"text": "1"}'
    )
    assert readable(MESSAGES[1][:-8]) == shown[:-4]
    assert [readable(raw) for raw in (b"", b"\0" * 40, b"data: x\n\n", STREAM[:20])] == [""] * 4
