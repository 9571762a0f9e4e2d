"""Recorded provider answers through the running product: the record has every byte of them, event
by event."""

from collections.abc import Iterator
from contextlib import suppress

import anthropic
import openai
import pytest

from protocol.bytes.sse import EventSplitter
from protocol.records import to_bytes
from protocol.request import DialectName
from tests.support.clients.sdk_calls import DIALECTS, ask
from tests.support.json_values import Json
from tests.support.servers.stores import Stores
from tests.support.upstreams.product import (
    MODEL,
    Place,
    call_of,
    new_session,
    recorded_bytes,
    recorded_chunks,
    replayed,
)
from tests.support.upstreams.recordings import Recording, own_recordings, recordings
from tests.support.upstreams.replay import Reply, stream

ALL = {r.name: r for r in [*recordings(), *own_recordings()]}
STREAMS = [n for n, r in ALL.items() if r.is_stream]
BODIES = [n for n, r in ALL.items() if not r.is_stream]


@pytest.fixture(scope="module")
def place(stores: Stores) -> Iterator[Place]:
    with replayed(*stores) as made:
        yield made


def send(place: Place, recording: Recording, client: DialectName) -> Json:
    """Send it and return the call on record. What the client is told is the business of
    test_conformance."""
    session = new_session()
    headers = {"x-sluice-policy": "noop", "x-sluice-session": session}
    with suppress(openai.APIError, anthropic.APIError):
        ask(
            place[0].url,
            client,
            "iterate" if recording.is_stream else "whole",
            "go on",
            model=MODEL[recording.dialect],
            headers=headers,
        )
    return call_of(place[0], session)


def events_of(recording: Recording) -> list[bytes]:
    """Its events, as an upstream sends them."""
    splitter = EventSplitter(2**24)
    return [*splitter.feed(recording.body), *splitter.finish()]


def said(chunks: list[bytes]) -> list[bytes]:
    """Without their last line end: cut between CR and LF, the LF is a chunk of its own, since a CR
    alone may end an event."""
    return [chunk.strip(b"\r\n") for chunk in chunks if chunk.strip(b"\r\n")]


@pytest.mark.slow
@pytest.mark.parametrize("name", STREAMS)
def test_each_event_of_a_stream_is_one_chunk(place: Place, seed: int, name: str) -> None:
    recording = ALL[name]
    place[1].answer(stream(recording.body, cutting="random", seed=seed))
    # the client of the upstream's dialect: for others a paused turn goes on
    call_id = send(place, recording, recording.dialect)["call_id"]
    recorded = recorded_chunks(place[0], call_id)
    events = events_of(recording)
    if "spliced" in name:
        # the call ends where the second message begins; more may have come by then
        starts = [
            n for n, event in enumerate(events) if b"message_start" in event.partition(b"\n")[0]
        ]
        assert recorded == events[: len(recorded)] and len(recorded) > starts[1]
    elif "error-with-choices" in name or "stream-with-choices" in name:
        # the call ends with the error, and upstream is closed: what it says behind that may come
        # too late
        [failed] = [n for n, event in enumerate(events) if b'"error"' in event]
        assert said(recorded) == said(events[: len(recorded)]) and len(recorded) > failed
    else:
        assert b"".join(recorded) == recording.body
        assert said(recorded) == said(events)
    listed: list[Json] = []
    cursor = None
    while listed == [] or cursor:
        page = place[0].audit(
            f"calls/{call_id}/chunks", limit=100, **({"cursor": cursor} if cursor else {})
        )
        listed, cursor = listed + page["items"], page["next_cursor"]
    assert [to_bytes(chunk["raw"]) for chunk in listed] == recorded
    assert [chunk["seq"] for chunk in listed] == sorted({chunk["seq"] for chunk in listed})


@pytest.mark.parametrize("client", DIALECTS)
@pytest.mark.parametrize("name", BODIES)
def test_a_whole_answer_is_on_record(place: Place, name: str, client: DialectName) -> None:
    recording = ALL[name]
    place[1].answer(Reply(recording.body, status=recording.facts["http_status"]))
    assert recorded_bytes(place[0], send(place, recording, client)["call_id"]) == recording.body
