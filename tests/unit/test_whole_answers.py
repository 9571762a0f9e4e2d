"""A whole answer that waits for decisions is on record once, with its own verdict, whoever ends the
call and whatever came behind it."""

import pytest

from policy.base import Policy
from policy.builtin.text_replace import TextReplace
from policy.session.session import Session
from protocol.records import ChunksRecord, Record, decode_records
from settings.config import Config
from streams import layout
from streams.layout import Entry, Relayed
from tests.support.json_values import Json, as_json
from tests.support.worker_calls import call_info, owned, start_of
from workers.policy.call.owned import OwnedCall

CONFIG = Config.model_validate(
    {
        "upstreams": {"a": {"dialect": "anthropic", "base_url": "http://127.0.0.1:1"}},
        "models": [
            {
                "match": "claude-*",
                "upstream": "a",
                "server_tools": [{"type": "web_search_20250305", "name": "web_search"}],
            },
        ],
    }
)
ANSWER: Json = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "stop_sequence": None,
    "container": {"id": "c_1"},
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
SEARCH = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "web_search",
    "input": {"query": "x"},
}
USE = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}}


def make(
    *, recorded: int = 0, released: int = 0, facts: dict[str, bytes] | None = None
) -> OwnedCall:
    tools = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]
    body = as_json(
        {"model": "claude-x", "messages": [{"role": "user", "content": "x"}], "tools": tools}
    )
    start = start_of(body, layout.new_call_id())
    policies: list[Policy] = [TextReplace(rules=[{"find": "secret", "replace": "other"}])]
    info = call_info(start.call_id, durable=True, server_tools=("web_search",))
    session = Session(info, policies, CONFIG)
    call = owned(start, session, released=released, recorded=recorded)
    if facts is not None:
        call.waits.facts.update(facts)
        call.take_over()
    call.begin(body)
    return call


def body(seq: int, reason: str, *content: Json) -> Entry:
    return Entry(seq, 1, "body", [as_json(ANSWER | {"content": content, "stop_reason": reason})])


def text(said: str) -> Json:
    return {"type": "text", "text": said}


def release(call: OwnedCall) -> list[Record]:
    built = call.next_release(1)
    assert built is not None
    call.answered()
    return decode_records(built.audit) if built.audit else []


def end(call: OwnedCall, seq: int | None) -> list[Record]:
    if seq is not None:
        call.feed_entry(
            Entry(seq, 1, "closed", [layout.pack(Relayed(9, b"x" * 32))], 2, "complete")
        )
    return call.end_records("complete", 9, 5)


def chunks(records: list[Record]) -> list[tuple[int, list[str]]]:
    return [(r.seq, list(r.verdicts)) for r in records if isinstance(r, ChunksRecord)]


PAUSED = body(1, "pause_turn", text("a secret"), SEARCH)
REST = body(2, "end_turn", text("Found it."))


def test_a_paused_answer_keeps_its_verdict_though_the_turn_goes_on() -> None:
    """The next segment's blocks are not what it is about."""
    call = make()
    records = release(call)
    call.feed_entry(PAUSED)
    [block] = call.waits.open_commits
    call.feed_fact(layout.commit_field(block), b"1", 2)
    records += release(call)
    call.feed_entry(REST)
    records += release(call) + end(call, 3)
    assert chunks(records) == [(1, ["replace"]), (2, ["allow"])]


@pytest.mark.parametrize("recorded", [0, 1, 2])
@pytest.mark.parametrize("is_closed", [False, True])
def test_who_takes_a_call_over_records_what_is_missing_and_nothing_twice(
    recorded: int, is_closed: bool
) -> None:
    """The commit is known before the stream is read."""
    call = make(recorded=recorded, facts={layout.commit_field(1): b"1"})
    call.feed_entry(PAUSED)
    call.feed_entry(REST)
    call.catch_up()
    records = release(call) + end(call, 3 if is_closed else None)
    assert chunks(records) == [(1, ["replace"]), (2, ["allow"])][recorded:]


def test_a_session_that_breaks_while_an_answer_waits_leaves_it_on_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = make()
    records = release(call)
    call.feed_entry(body(1, "tool_use", USE))

    def breaks(*args: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(call.session, "committed", breaks)
    monkeypatch.setattr(Session, "whole_verdict", property(breaks))
    [block] = call.waits.open_commits
    call.feed_fact(layout.commit_field(block), b"1", 2)
    assert call.is_broken
    assert chunks(records + end(call, 2)) == [(1, ["withheld"])]


def test_a_session_that_breaks_as_an_answer_begins_to_wait_has_it_on_record_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = make()
    records = release(call)

    def breaks() -> None:
        raise RuntimeError

    monkeypatch.setattr(call.session.out, "drain", breaks)
    call.feed_entry(body(1, "tool_use", USE))
    assert call.is_broken and chunks(records + call.end_records("policy_failed", -1, 5)) == [
        (1, ["withheld"])
    ]
