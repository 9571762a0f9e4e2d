"""The replaying upstream of the end-to-end tests: what it sends is what it was given, however it is
cut."""

import itertools
import time
from collections.abc import Iterator
from typing import Literal

import httpx2 as httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.upstreams import recordings
from tests.support.upstreams.replay import PATHS, Replay, Reply, pieces, replaying, stream

BODY = b"data: one\n\ndata: two\n\ndata: [DONE]\n\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Replay]:
    with replaying() as made:
        yield made


def post(
    server: Replay, body: bytes = b"{}", path: str = PATHS[0], **headers: str
) -> httpx.Response:
    return httpx.post(server.url + path, content=body, headers=headers, timeout=10)


@given(st.binary(max_size=200), st.sampled_from(["whole", "random", "events"]), st.integers(0, 99))
def test_pieces_are_the_body(
    body: bytes, cutting: Literal["whole", "random", "events"], seed: int
) -> None:
    reply = Reply(body, cutting=cutting, seed=seed)
    assert b"".join(pieces(reply)) == body
    assert pieces(reply) == pieces(reply)


def test_cut_at_events_and_at_random() -> None:
    assert pieces(stream(BODY, cutting="events")) == [
        b"data: one\n\n",
        b"data: two\n\n",
        b"data: [DONE]\n\n",
    ]
    assert pieces(stream(BODY + b"rest", cutting="events"))[-1] == b"rest"
    cuts = {len(pieces(stream(BODY, cutting="random", seed=seed))) for seed in range(5)}
    assert min(cuts) > 3
    assert pieces(stream(BODY, cutting="random", seed=1)) != pieces(
        stream(BODY, cutting="random", seed=2)
    )


@pytest.mark.parametrize("path", PATHS)
def test_remembers_what_it_was_asked(server: Replay, path: str) -> None:
    server.answer(Reply(b'{"a":1}', status=429, headers={"retry-after": "3"}))
    path = path.replace("{model}", "m").replace("{way}", "converse").replace("{model:.+}", "m")
    answer = post(server, b'{"model": "m"}', path, authorization="Bearer k")
    assert (answer.status_code, answer.json(), answer.headers["retry-after"]) == (
        429,
        {"a": 1},
        "3",
    )
    assert [(a.path, a.body, a.headers["authorization"]) for a in server.asked] == [
        (path, {"model": "m"}, "Bearer k")
    ]
    server.answer(Reply())
    assert server.asked == []


def test_answers_one_after_the_other_and_then_the_last(server: Replay) -> None:
    server.answer(Reply(b"1"), Reply(b"2", status=500), Reply(b"3"))
    assert [post(server).text for _ in range(4)] == ["1", "2", "3", "3"]
    assert len(server.asked) == 4


@pytest.mark.parametrize("cutting", ["whole", "random", "events"])
def test_a_stream_arrives_whole(
    server: Replay, cutting: Literal["whole", "random", "events"]
) -> None:
    server.answer(stream(BODY, cutting=cutting, seed=7))
    answer = post(server)
    assert answer.content == BODY
    assert answer.headers["content-type"].startswith("text/event-stream")


def test_a_paced_stream_arrives_piece_by_piece(server: Replay) -> None:
    server.answer(stream(BODY, cutting="events", gap_s=0.05))
    with httpx.stream("POST", server.url + PATHS[0], content=b"{}", timeout=10) as answer:
        arrived = [(time.monotonic(), piece) for piece in answer.iter_raw()]
    assert [piece for _, piece in arrived] == pieces(stream(BODY, cutting="events"))
    assert all(b[0] - a[0] > 0.02 for a, b in itertools.pairwise(arrived))


def test_a_cut_stream_drops_the_connection(server: Replay) -> None:
    server.answer(stream(BODY, ending="cut"))
    with pytest.raises(httpx.RemoteProtocolError):
        post(server)


def test_a_hanging_stream_ends_with_the_server() -> None:
    server = Replay()
    server.start()
    server.answer(stream(b"data: one\n\n", ending="hang"))
    with httpx.stream("POST", server.url + PATHS[0], content=b"{}", timeout=10) as answer:
        parts = answer.iter_raw()
        assert next(parts) == b"data: one\n\n"
        server.stop()
        with pytest.raises(httpx.RemoteProtocolError):
            next(parts)


def test_another_path_is_not_there(server: Replay) -> None:
    server.answer(Reply())
    assert post(server, path="/v1/nowhere").status_code == 404
    assert server.asked == []


def test_framing_of_recorded_events() -> None:
    assert recordings.framed("openai", ['{"a":1}']) == b'data: {"a":1}\n\ndata: [DONE]\n\n'
    framed = recordings.framed("anthropic", ['{"type":"ping"}', '{"type":"message_stop"}'])
    assert (
        framed == b'event: ping\ndata: {"type":"ping"}\n\nevent: message_stop\ndata:'
        b' {"type":"message_stop"}\n\n'
    )


def test_every_recording_has_facts_and_a_body() -> None:
    recordings.need_recordings()
    found = recordings.recordings()
    assert len({r.name for r in found}) == len(found) > 40
    assert all(r.body and (r.facts or r.must) for r in found)
    assert all(r.body.endswith(b"\n\n") for r in found if r.is_stream and r.name.endswith("#0"))
