"""Recorded turns as a fact of an owned call: asked for once, fed once, the same for whoever takes
the call over."""

import json
from typing import Any

import pytest

from policy.session import opening
from policy.session.session import Session
from protocol.dialects.turns import (
    Lost,
    RecordedTurns,
    StoredTurn,
    WantedTurns,
    pack_turns,
    unpack_turns,
)
from protocol.records import EventRecord, decode_records
from protocol.request import ChatRequest, DialectName, ToolResultPart, ToolUsePart, Turn
from protocol.target import Target
from settings.config import Config
from streams import layout
from tests.support.json_values import Json, as_json
from tests.support.worker_calls import call_info, owned, start_of
from workers.policy.call.owned import OwnedCall
from workers.policy.recorded_turns import NONE, pack_newest, unpack_fact

CALL = {"id": "toolu_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
BODY = as_json(
    {
        "model": "claude-x",
        "messages": [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "toolu_1", "content": "y"},
        ],
    }
)
START = start_of(BODY)
THINKING: Json = {"type": "thinking", "thinking": "t", "signature": "s"}
USE: Json = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}
STORED = [StoredTurn("c", [THINKING, USE], "", ("toolu_1",), "claude")]
UPSTREAM = {"dialect": "anthropic", "base_url": "http://127.0.0.1:1", "api_key_env": "X"}


def make(facts: dict[str, bytes] | None = None) -> OwnedCall:
    config = Config.model_validate(
        {"upstreams": {"claude": UPSTREAM}, "models": [{"match": "claude-*", "upstream": "claude"}]}
    )
    info = call_info(START.call_id, durable=True, max_arguments_bytes=1000)
    call = owned(START, Session(info, [], config))
    call.waits.facts.update(facts or {})
    call.begin(BODY)
    return call


def sent(call: OwnedCall) -> Any:
    release = call.next_release(1)
    assert release is not None
    dispatch = layout.unpack_reply(release.reply).dispatch
    assert dispatch is not None and dispatch.body is not None
    return json.loads(dispatch.body)["messages"][1]["content"], release.digest


def looked_up(call: OwnedCall) -> tuple[object, object]:
    return call.waits.lookup, call.waits.new_lookup


def test_ids_to_look_up_are_the_last_each_once_and_only_of_the_other_dialect() -> None:
    def wanted(
        *turns: Turn, client: DialectName = "openai", upstream: DialectName = "anthropic"
    ) -> WantedTurns | None:
        call = call_info(
            START.call_id, client, endpoint="chat", durable=True, max_arguments_bytes=1000
        )
        request = ChatRequest(dialect=client, model="m", turns=turns)
        return opening.lookup(
            call, opening.Destination("u", upstream, Target(dialect=upstream)), request
        )

    def says(*ids: str) -> Turn:
        return Turn("assistant", tuple(ToolUsePart(i, "f", "{}") for i in ids))

    turns = [
        says("a", "b"),
        Turn("user", (ToolResultPart("x", "y"),)),
        says("a", ""),
        Turn("user", (ToolUsePart("u", "f", "{}"),)),
    ]
    assert wanted(*turns) == WantedTurns("anthropic", ("a", "b"))
    assert (
        wanted(*turns, client="anthropic")
        is wanted(*turns, upstream="openai")
        is wanted(says(""))
        is None
    )
    assert wanted(*(says(str(n)) for n in range(1000))) == WantedTurns(
        "anthropic", tuple(map(str, range(744, 1000)))
    )


def test_a_second_owner_sends_what_the_first_found_without_asking() -> None:
    first, value = make(), pack_turns(STORED)
    first.feed_fact(layout.TURNS_FIELD, value, 2)
    second = make({layout.TURNS_FIELD: value})
    assert looked_up(second) == (None, None)
    assert sent(second) == sent(first)


def test_the_first_answer_is_the_only_one() -> None:
    call = make()
    call.feed_fact(layout.TURNS_FIELD, NONE, 2)
    call.feed_fact(layout.TURNS_FIELD, pack_turns(STORED), 3)
    assert sent(call)[0] == [USE]


@pytest.mark.parametrize("value", [b"x", b"{}", b'[{"call_id":1}]', b"\xff", b"[" * 5000])
def test_a_fact_that_cannot_be_read_holds_no_turns_and_says_so(value: bytes) -> None:
    assert unpack_fact(value) == RecordedTurns(lost=["unreadable"])


@pytest.mark.parametrize("lost", ["too large", "read too late", "unreadable"])
def test_turns_that_were_lost_are_named_on_their_call(lost: Lost) -> None:
    """Its provider gets the request as the client has it."""
    first, value = make(), pack_newest(RecordedTurns(lost=[lost, lost]))
    first.feed_fact(layout.TURNS_FIELD, value, 2)
    for call in (first, make({layout.TURNS_FIELD: value})):
        release = call.next_release(1)
        assert release is not None
        events = [
            r.detail
            for r in decode_records(release.audit)
            if isinstance(r, EventRecord) and r.kind == "turns_lost"
        ]
        assert events == [f"0: earlier turns may be missing from the request: {lost}"]
        assert sent(call)[0] == [USE]


def test_a_call_whose_key_has_no_memory_for_its_turns_is_refused() -> None:
    call = make()
    call.feed_fact(layout.TURNS_FIELD, pack_turns([], ["memory"]), 2)
    release = call.next_release(1)
    assert release is not None
    reply = layout.unpack_reply(release.reply)
    assert (reply.status, reply.headers["retry-after"], reply.dispatch, reply.end) == (
        429,
        "2",
        None,
        "key_memory",
    )


def test_the_oldest_turns_are_left_out_where_all_are_too_large() -> None:
    turns = [StoredTurn(str(n), [{"type": "text", "text": "x" * 100}], "", ()) for n in range(5)]
    assert unpack_turns(pack_newest(RecordedTurns(turns))) == RecordedTurns(turns, [])
    packed = pack_newest(RecordedTurns(turns), max_bytes=500)
    assert len(packed) <= 500
    found = unpack_turns(packed)
    assert found == RecordedTurns(turns[-len(found.turns) :], ["too large"]) and found.turns
    assert pack_newest(RecordedTurns(turns), max_bytes=50) == pack_turns([], ["too large"])
