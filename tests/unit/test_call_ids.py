"""Ids of tool calls: upstream's own where they tell calls apart, else the session's, the same in
each replay."""

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.base import Block, Policy, ToolCall, Verdict
from policy.session.answer.ids import CallIds, minted
from policy.session.effects import SessionEffects
from policy.session.session import Session
from protocol.bounds import MAX_TOOL_CALLS
from protocol.errors import RemoteProtocolError
from protocol.events import BlockKind, BlockStart
from protocol.records import EventRecord, ToolCallRecord
from protocol.request import DialectName
from settings.config import Config
from tests.support.json_values import Json, as_json
from tests.support.upstreams.responses import function_call, response
from tests.support.worker_calls import call_info

CALL = "019b7600-0000-7000-8000-000000000001"
OURS = "call_agnxmaaaabyabaaaaaaaaaaaae"


class Refuses(Policy):
    name = "refuses"

    def on_tool_call(self, call: ToolCall) -> Verdict:
        return Block("no")


def history(client: DialectName, ids: Sequence[str]) -> list[Json]:
    messages: list[Json] = [{"role": "user", "content": "x"}]
    for identity in ids:
        if client == "openai":
            call = {
                "id": identity,
                "type": "function",
                "function": {"name": "f", "arguments": "{}"},
            }
            messages += [
                {"role": "assistant", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": identity, "content": "y"},
            ]
        else:
            messages += [
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": identity, "name": "f", "input": {}}],
                },
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": identity, "content": "y"}],
                },
            ]
    return messages


def frames(upstream: DialectName, ids: Sequence[str], *, kind: str = "tool_use") -> list[bytes]:
    """A stream with a call of each id; an empty one is left out."""
    if upstream == "openai":
        calls = [
            {"index": n, "id": i or None, "function": {"name": "f", "arguments": "{}"}}
            for n, i in enumerate(ids)
        ]
        steps = [{"delta": {"tool_calls": [call]}} for call in calls] + [
            {"delta": {}, "finish_reason": "tool_calls"}
        ]
        return [
            *(
                f"data: {json.dumps({'id': 'm', 'choices': [{'index': 0, **s}]})}\n\n".encode()
                for s in steps
            ),
            b"data: [DONE]\n\n",
        ]
    events: list[Json] = [
        {"type": "message_start", "message": {"id": "m", "model": "m", "content": []}}
    ]
    for index, identity in enumerate(ids):
        block = {"type": kind, "id": identity, "name": "f", "input": {}}
        events += [
            {"type": "content_block_start", "index": index, "content_block": block},
            {"type": "content_block_stop", "index": index},
        ]
    events += [
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    ]
    return [f"data: {json.dumps(event)}\n\n".encode() for event in events]


def told(
    upstream: DialectName,
    ids: Sequence[str],
    *,
    client: DialectName = "openai",
    before: Sequence[str] = (),
    policies: Sequence[Policy] = (),
    whole: Any = None,
    kind: str = "tool_use",
) -> SessionEffects:
    """What a session does with an answer that has calls of these ids."""
    info = call_info(CALL, client)
    session = Session(info, policies, Config())
    body = {
        "model": f"demo-{upstream}",
        "max_tokens": 5,
        "stream": whole is None,
        "messages": history(client, before),
    }
    session.begin(as_json(body))
    session.turns([])
    if whole is None:
        session.chunks(1, frames(upstream, ids, kind=kind))
        session.eof()
    else:
        session.body(1, as_json(whole))
    return session.drain()


def released(effects: SessionEffects) -> list[str]:
    return [
        o.id for o in effects.outputs if isinstance(o, BlockStart) and o.kind is BlockKind.TOOL_USE
    ]


def recorded(effects: SessionEffects) -> list[str]:
    return [r.tool_call_id for r in effects.records if isinstance(r, ToolCallRecord)]


def notes(effects: SessionEffects) -> list[str]:
    return [
        r.detail for r in effects.records if isinstance(r, EventRecord) and r.kind == "minted_id"
    ]


@pytest.mark.parametrize("upstream", ["openai", "anthropic"])
def test_a_replay_makes_the_same_ids(upstream: DialectName) -> None:
    first, second = (told(upstream, ["", "x", "x"], before=["x"]) for _ in range(2))
    assert first.digest == second.digest and first.records == second.records


@pytest.mark.parametrize("upstream", ["openai", "anthropic"])
@pytest.mark.parametrize("ids", [[""], ["x", "x"]], ids=["empty", "twice"])
def test_policies_decide_on_calls_of_any_id(upstream: DialectName, ids: list[str]) -> None:
    effects = told(upstream, ids, client=upstream, policies=[Refuses()])
    assert released(effects) == []
    assert [r.verdict for r in effects.records if isinstance(r, ToolCallRecord)] == ["block"] * len(
        ids
    )


def test_what_is_noted_of_ids_is_bounded_like_the_calls_that_are_listed() -> None:
    effects = told("openai", ["x"] * 1000)
    assert len(recorded(effects)) == 2 * MAX_TOOL_CALLS
    assert len(notes(effects)) == 2 * MAX_TOOL_CALLS - 1


def test_a_call_that_the_provider_runs_keeps_its_id_and_must_have_one() -> None:
    kept = told("anthropic", ["srvtoolu_1"], client="anthropic", kind="server_tool_use")
    assert recorded(kept) == ["srvtoolu_1"] and not notes(kept)
    refused = told("anthropic", [""], client="anthropic", kind="server_tool_use")
    assert not recorded(refused) and not any(isinstance(o, BlockStart) for o in refused.outputs)


def test_a_call_that_the_provider_runs_must_have_an_id_of_its_own() -> None:
    ids = CallIds(CALL)
    assert ids.of(0, "x") == "x"
    with pytest.raises(RemoteProtocolError, match="two tool calls one id"):
        ids.take("x")


def test_a_minted_id_tells_its_call_and_fits_everywhere() -> None:
    assert minted(CALL, 7) == f"{OURS}7"
    made = {
        minted(str(UUID(int=n)), block) for n in (0, 1, 2**128 - 1) for block in (0, 1, 10, 9999)
    }
    assert len(made) == 12 and max(map(len, made)) <= 40


@given(
    st.lists(st.sampled_from(["", "a", "b", "call_0"]), max_size=6),
    st.lists(st.sampled_from(["a", "b", "c"]), max_size=3, unique=True),
)
def test_no_two_calls_of_a_conversation_have_one_id(ids: list[str], before: list[str]) -> None:
    given_out = [*before, *released(told("openai", ids, before=before))]
    assert len(set(given_out)) == len(given_out) == len(before) + len(ids)


@pytest.mark.parametrize("dialect", ["responses", "openai"])
@pytest.mark.parametrize(("service", "is_ours"), [("bedrock-mantle", True), ("", False)])
def test_who_counts_anew_in_each_answer_gives_no_two_conversations_one_id(
    dialect: DialectName, service: str, is_ours: bool
) -> None:
    door = (
        {"door": "bedrock", "service": service, "region": "us-east-1"}
        if service
        else {"base_url": "http://127.0.0.1:1"}
    )
    upstream = {"dialect": dialect, "api_key_env": "X", **door}
    config = Config.model_validate(
        {"upstreams": {"up": upstream}, "models": [{"match": "*", "upstream": "up"}]}
    )
    given_out = []
    for call_id in (CALL, CALL.replace("0001", "0002")):
        session = Session(
            call_info(call_id, "responses"),
            [],
            config,
        )
        session.begin(b'{"model":"gpt-5.5","input":"x"}')
        if dialect == "responses":
            answer: Json = response([function_call("call_0", "first_tool", "{}")])
        else:
            call = {
                "id": "call_0",
                "type": "function",
                "function": {"name": "first_tool", "arguments": "{}"},
            }
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
            answer = {
                "id": "m",
                "model": "m",
                "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
            }
        session.body(1, as_json(answer))
        effects = session.drain()
        assert released(effects) == recorded(effects)
        given_out += released(effects)
    assert given_out == (
        [minted(CALL, 0), minted(CALL.replace("0001", "0002"), 0)]
        if is_ours
        else ["call_0", "call_0"]
    )
