"""Keepalives of clients that count events: numbered events of the answer, in their place again
after a takeover."""

import json
import time
from hashlib import sha256

import msgspec
import pytest

from policy.base import JudgeQuestion
from policy.session.effects import JudgeRequest
from policy.session.session import Session
from protocol.bounds import FIRST_KEEPALIVE_S
from protocol.dialects.table import CLIENTS
from protocol.events import UpstreamFailed
from settings.config import Config, NoticeForm
from streams.layout import Entry, unpack_reply
from tests.support.checks.owned_calls import START, chunk
from tests.support.json_values import as_json
from tests.support.worker_calls import call_info, owned
from workers.policy.call.owned import OwnedCall

BODY = as_json({"model": "demo", "stream": True, "input": "x", "instructions": "long"})
CHAT = {
    "upstreams": {"chat": {"dialect": "openai", "base_url": "http://127.0.0.1:1"}},
    "models": [{"match": "*", "upstream": "chat"}],
}
END = b'data: {"id":"x","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'


def opened(*, released: int = 0, digest: str = "", recorded: int = 0) -> OwnedCall:
    start = msgspec.structs.replace(
        START, dialect="responses", endpoint="responses", body_sha256=sha256(BODY).digest()
    )
    info = call_info(START.call_id, "responses", durable=True, max_arguments_bytes=1000)
    session = Session(info, [], Config.model_validate(CHAT))
    call = owned(start, session, released=released, digest=digest, recorded=recorded)
    call.begin(BODY)
    return call


def answer(call: OwnedCall) -> tuple[bytes, int, str]:
    """What one release sends the client, the number of the next output, and the digest."""
    release = call.next_release(1)
    assert release is not None
    call.answered()
    return unpack_reply(release.reply).data, release.next, release.digest


def silent(call: OwnedCall) -> OwnedCall:
    call.writer.last_sent -= FIRST_KEEPALIVE_S
    call.writer._silent_until -= FIRST_KEEPALIVE_S
    assert call.writer.is_silent(time.monotonic())
    call.ask_keepalive()
    return call


def events(data: bytes) -> list[dict[str, object]]:
    return [json.loads(line[6:]) for line in data.splitlines() if line.startswith(b"data: ")]


def test_keepalives_are_numbered_events_before_and_within_an_answer() -> None:
    call = opened()
    assert not answer(call)[0]
    call.ask_keepalive()
    assert not answer(call)[0], "the head still waits for a true status"
    data = answer(silent(call))[0]
    for seq in 1, 2:
        call.feed_entry(Entry(seq, 1, "chunks", [chunk("a")]))
        data += answer(call)[0]
        call.ask_keepalive()
        data += answer(call)[0]
    call.feed_entry(Entry(3, 1, "chunks", [END]))
    call.feed_entry(Entry(4, 1, "eof"))
    got = events(data + answer(call)[0])
    kinds = [str(event["type"]) for event in got]
    assert [event["sequence_number"] for event in got] == list(range(len(got)))
    assert (
        kinds[0] == "response.created"
        and kinds.count("response.created") == 1
        and kinds.count("response.in_progress") == 3
    )
    assert all(
        isinstance(event["response"], dict)
        for event in got
        if event["type"] == "response.in_progress"
    )
    assert kinds[-1] == "response.completed" and json.dumps(got).count("long") == 3, (
        "the request is repeated by the answer's own events alone"
    )


@pytest.mark.parametrize(
    ("notices", "may_defer", "of_people", "says"),
    [
        ("full", False, False, "a judge, 18 s"),
        ("full", True, False, ""),
        ("plain", False, False, ""),
        ("plain", True, True, "a person, 18 s"),
        ("silent", False, True, ""),
    ],
)
def test_a_keepalive_says_what_is_waited_for_where_notices_may(
    monkeypatch: pytest.MonkeyPatch,
    notices: NoticeForm,
    may_defer: bool,
    of_people: bool,
    says: str,
) -> None:
    call = opened()
    answer(call)
    question = JudgeQuestion("judge", "", "", "", 0.5, None, {})
    ask = JudgeRequest("x", 0, 0, question, is_for_people=of_people)
    monkeypatch.setattr(call.session.out.notices, "form", notices)
    monkeypatch.setattr(type(call.session), "may_defer", may_defer)
    call.waits.open_asks["judge"] = ask
    call.waits.since = time.monotonic() - 18
    data = answer(silent(call))[0]
    assert data.startswith(b": waiting for " + says.encode() if says else b"event: ")
    assert [event["type"] for event in events(data)] == ["response.created", "response.in_progress"]


@pytest.mark.parametrize("early", [False, True])
def test_a_takeover_puts_keepalives_where_they_were(*, early: bool) -> None:
    first = opened()
    answer(first)
    if early:
        answer(silent(first))
    first.feed_entry(Entry(1, 1, "chunks", [chunk("a")]))
    answer(first)
    first.ask_keepalive()
    _, released, digest = answer(first)
    second = opened(released=released, digest=digest, recorded=1)
    second.feed_entry(Entry(1, 1, "chunks", [chunk("a")]))
    second.skip_released()
    assert second.session.checkpoint_digest == digest and released == 4 + 1 + early
    for call in first, second:
        call.feed_entry(Entry(2, 1, "chunks", [chunk("b")]))
    ends = [answer(call) for call in (first, second)]
    assert ends[0] == ends[1]


def test_overload_is_503_to_every_client_that_has_no_word_of_its_own() -> None:
    told = {
        name: CLIENTS[name].failed_response(UpstreamFailed("overloaded_error", "busy", 529))[0]
        for name in CLIENTS
    }
    assert told == {"openai": 503, "anthropic": 529, "responses": 503}
    assert all(CLIENTS[name].statuses.get(503, 503) == 503 for name in CLIENTS)
