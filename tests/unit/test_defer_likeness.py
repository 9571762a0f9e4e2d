"""A deferred answer has the fields of a plain one: its client cannot tell them apart by what a
provider adds at the end."""

import json
from typing import Any

import pytest

from policy.base import ALLOW, Block, ToolCall, Verdict
from policy.session.answer.likeness import in_shape
from protocol.request import DialectName
from tests.support.checks.deferred import (
    CASES,
    CHECK,
    DEPLOY,
    DIALECTS,
    OTHER,
    Always,
    Critical,
    begun,
    count_of_dispatches,
    ended,
)
from tests.support.clients.answering import Answer, direct
from tests.support.json_values import Json, as_json
from tests.support.upstreams.bodies import whole_body
from tests.support.upstreams.cases import calls_of, text_of
from tests.support.upstreams.recordings import Recording

DETAILS: dict[DialectName, Json] = {
    "openai": {
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "accepted_prediction_tokens": 0},
    },
    "anthropic": {
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "cache_creation": {"ephemeral_5m_input_tokens": 0},
        "service_tier": "standard",
        "server_tool_use": None,
    },
}


def rich(
    dialect: DialectName,
    said: str,
    call: tuple[str, str, Any] | None,
    tokens: tuple[int, int],
    *,
    bare: bool = False,
) -> bytes:
    """A streamed answer with all that vendors add at its end, or `bare`."""
    details = {} if bare else DETAILS[dialect]
    identity, name, value = call or ("", "", {})
    if dialect == "openai":
        usage = {
            "prompt_tokens": tokens[0],
            "completion_tokens": tokens[1],
            "total_tokens": sum(tokens),
            **details,
        }
        more = (
            {}
            if bare
            else {
                "native_finish_reason": "tool_calls" if call else "stop",
                "content_filter_results": {"hate": {"filtered": False}},
            }
        )
        head = {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "gpt-x",
        }
        function = {
            "index": 0,
            "id": identity,
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(value)},
        }
        choices = [
            {"index": 0, "delta": {"role": "assistant", "content": said}},
            *([{"index": 0, "delta": {"tool_calls": [function]}}] if call else []),
            {"index": 0, "delta": {}, "finish_reason": "tool_calls" if call else "stop", **more},
        ]
        frames = [{**head, "choices": [choice]} for choice in choices]
        last = {**head, "choices": [], "usage": usage} | (
            {} if bare else {"x_groq": {"id": "req_1"}}
        )
        return (
            b"".join(b"data: " + as_json(frame) + b"\n\n" for frame in [*frames, last])
            + b"data: [DONE]\n\n"
        )
    message: Json = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "x",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }
    blocks: list[Json] = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": said}},
        {"type": "content_block_stop", "index": 0},
    ]
    if call:
        block = {"type": "tool_use", "id": identity, "name": name, "input": {}}
        blocks += [
            {"type": "content_block_start", "index": 1, "content_block": block},
            {
                "type": "content_block_delta",
                "index": 1,
                "delta": {"type": "input_json_delta", "partial_json": json.dumps(value)},
            },
            {"type": "content_block_stop", "index": 1},
        ]
    delta = {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None}
    extra: Json = {} if bare else {"context_management": {"applied_edits": []}}
    frames = [
        {
            "type": "message_start",
            "message": {
                **message,
                "usage": {"input_tokens": tokens[0], "output_tokens": 1, **details},
            },
        },
        *blocks,
        {
            "type": "message_delta",
            "delta": delta,
            "usage": {"input_tokens": tokens[0], "output_tokens": tokens[1], **details},
            **extra,
        },
        {"type": "message_stop"},
    ]
    return b"".join(f"event: {f['type']}\ndata: {json.dumps(f)}\n\n".encode() for f in frames)


def shaped(value: Any) -> Any:
    """Names and types, at every depth."""
    if isinstance(value, dict):
        return {name: shaped(item) for name, item in value.items()}
    return [shaped(item) for item in value] if isinstance(value, list) else type(value).__name__


def frames_of(a: Answer, *, streams: bool) -> list[Any]:
    """What the client gets, by its shape; pieces of one text are one."""
    if not streams:
        return [shaped(json.loads(a.data))]
    made = [
        shaped(json.loads(line[6:]))
        for line in a.data.decode().splitlines()
        if line.startswith("data: {")
    ]
    return [shape for n, shape in enumerate(made) if made[n - 1 : n] != [shape]]


def fed(a: Answer, dialect: DialectName, body: bytes, *, streams: bool) -> Answer:
    return a.feed(
        body if streams else whole_body(Recording("case", dialect, body, True, {}), direct),
        streams=streams,
    )


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize(("client", "first", "second"), CASES)
def test_a_deferred_answer_has_the_fields_of_a_plain_one(
    client: DialectName, first: DialectName, second: DialectName, streams: bool, bare: bool
) -> None:
    plain = begun(client, first, Critical(OTHER[second]), streams=streams)
    fed(
        plain,
        first,
        rich(first, "I look.", ("call_1", "look", {"at": "x"}), (50, 30)),
        streams=streams,
    )
    a = begun(client, first, Critical(OTHER[second]), streams=streams)
    fed(a, first, rich(first, "I look.", DEPLOY, (50, 30)), streams=streams)
    fed(a, second, rich(second, "Or so.", CHECK, (70, 7), bare=bare), streams=streams)
    assert (count_of_dispatches(plain), count_of_dispatches(a)) == (1, 2)
    assert frames_of(a, streams=streams) == frames_of(plain, streams=streams)
    said = ended(a) if streams else None
    assert said is None or [name for _, name, _ in calls_of(said)] == ["look"]
    assert b"30" not in a.data and b'"production"' not in a.data


def beside_the_text(a: Answer) -> Any:
    said = json.loads(a.data)
    (said["choices"][0].pop("message") if "choices" in said else said.pop("content"))
    return said


class Blocks(Critical):
    """Blocks what the other defers."""

    def on_tool_call(self, call: ToolCall) -> Verdict:
        return Block("critical", feedback="silent") if call.name == "deploy" else ALLOW


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize(("client", "first", "second"), CASES)
def test_a_call_that_could_not_be_deferred_ends_like_one_that_was_blocked(
    client: DialectName, first: DialectName, second: DialectName, streams: bool
) -> None:
    body = rich(first, "I deploy.", DEPLOY, (50, 30))
    blocked = begun(client, first, Blocks(OTHER[second]), streams=streams)
    fed(blocked, first, body, streams=streams)
    a = fed(
        begun(client, first, Always(OTHER[second]), streams=streams), first, body, streams=streams
    )
    a.refuse(500)
    assert (count_of_dispatches(blocked), count_of_dispatches(a)) == (1, 2)
    if streams:
        assert a.data == blocked.data and "blocked the tool call" in text_of(ended(a))
    else:
        # text that waited is discarded with the call
        assert beside_the_text(a) == beside_the_text(blocked)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_another_end_leaves_out_the_first_models_word_for_its_own(dialect: DialectName) -> None:
    a = begun(dialect, "openai", Critical(OTHER["anthropic"]))
    a.feed(rich("openai", "I look.", DEPLOY, (50, 30))).feed(
        rich("anthropic", "No.", None, (70, 7))
    )
    assert b"native_finish_reason" not in a.data and b'"tool_calls"' not in a.data
    same = begun("openai", "openai", Critical(OTHER["openai"]))
    same.feed(rich("openai", "I look.", DEPLOY, (50, 30))).feed(
        rich("openai", "No.", None, (70, 7))
    )
    assert b'"native_finish_reason":"stop"' in same.data


def test_counts_in_a_shape_are_those_of_what_was_said_and_none_where_it_says_nothing() -> None:
    shape = {
        "input": 5,
        "cost": 0.5,
        "tier": "standard",
        "none": None,
        "details": {"a": 1, "b": 2},
        "on": True,
    }
    said = {
        "input": 7,
        "none": 3,
        "details": {"a": 4, "c": 9},
        "more": 2,
        "nothing": 0,
        "tier": "priority",
        "on": False,
        "other": {"x": 1},
    }
    assert in_shape(shape, said) == {
        "input": 7,
        "cost": 0,
        "tier": "standard",
        "none": 3,
        "details": {"a": 4, "b": 0},
        "on": True,
        "more": 2,
    }
    assert in_shape({"details": {"a": 1}}, {"details": 3}) == {"details": {"a": 0}}
