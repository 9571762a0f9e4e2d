"""A series that goes on with the model behind a blocked call, and upstreams of every dialect that
make such calls."""

import json
from collections.abc import Sequence
from typing import Any

from policy.base import ALLOW, Block, Policy, ToolCall, Verdict
from protocol.request import DialectName
from settings.config import Config
from tests.support.clients.answering import Answer
from tests.support.json_values import Json, as_json
from tests.support.upstreams import converse, gemini, responses
from tests.support.upstreams.cases import began, chunks, client_call, frames, piece, text
from tests.support.upstreams.frames import delta, start, stop
from tests.support.upstreams.turns import events

CLIENTS: tuple[DialectName, ...] = ("anthropic", "openai", "responses")
UPSTREAMS: tuple[DialectName, ...] = (*CLIENTS, "gemini", "converse")
MODELS: dict[DialectName, str] = {
    "anthropic": "claude-sonnet-4-5",
    "openai": "gpt-x",
    "responses": "gpt-r",
    "gemini": "gemini-3-pro",
    "converse": "nova-x",
}
CONFIG = Config.model_validate(
    {
        "upstreams": {
            name: {"dialect": name, "base_url": "http://127.0.0.1:1", "api_key_env": "X"}
            for name in UPSTREAMS
        },
        "models": [{"match": model, "upstream": name} for name, model in MODELS.items()],
    }
)
NAMES = ("bash", "look")
TOOLS: dict[DialectName, list[Json]] = {
    "openai": [
        {"type": "function", "function": {"name": n, "parameters": {"type": "object"}}}
        for n in NAMES
    ],
    "anthropic": [{"name": n, "input_schema": {"type": "object"}} for n in NAMES],
    "responses": [{"type": "function", "name": n, "parameters": {"type": "object"}} for n in NAMES],
}
SEAL = "c2VhbA=="
"""What seals the thinking of every upstream's answers."""
Calls = Sequence[tuple[str, str, Any]]
BAD = ("toolu_0001", "bash", {"command": "rm -rf ~"})
GOOD = ("toolu_0002", "look", {"at": "status"})


class NoDeletes(Policy):
    """Blocks `rm`, and lets the model go on."""

    name = "no_deletes"

    def __init__(self) -> None:
        self.on_block = "continue"

    def on_tool_call(self, call: ToolCall) -> Verdict:
        is_bad = "rm -rf" in call.arguments
        return Block("destructive", rule="deletes", detail="rm") if is_bad else ALLOW


def begun(
    client: DialectName,
    upstream: DialectName,
    *policies: Policy,
    streams: bool = True,
    **more: Any,
) -> Answer:
    """A call of a client with two tools."""
    asked = {"tools": TOOLS[client], "model": MODELS[upstream], **more}
    series = policies or (NoDeletes(),)
    return Answer(upstream, client, streams=streams, policies=series, config=CONFIG, **asked)


def answered(
    dialect: DialectName, said: str, calls: Calls = (), *, thought: str = "", streams: bool = True
) -> list[bytes]:
    """An upstream's answer as chunks, or whole."""
    made = {
        "anthropic": _anthropic,
        "openai": _openai,
        "responses": _responses,
        "gemini": _gemini,
        "converse": _converse,
    }
    return made[dialect](said, calls, thought, streams)


def _anthropic(said: str, calls: Calls, thought: str, streams: bool) -> list[bytes]:
    reason, usage = ("tool_use" if calls else "end_turn"), {"input_tokens": 50, "output_tokens": 7}
    if not streams:
        content: list[Json] = (
            [{"type": "thinking", "thinking": thought, "signature": SEAL}] if thought else []
        )
        content += [{"type": "text", "text": said}] if said else []
        content += [{"type": "tool_use", "id": i, "name": n, "input": v} for i, n, v in calls]
        head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
        tail = {"stop_reason": reason, "stop_sequence": None, "usage": usage}
        return [as_json({**head, "content": content, **tail})]
    blocks: list[Json] = []
    index = 0
    if thought:
        blocks += [
            start(0, type="thinking", thinking="", signature=""),
            delta(0, "thinking_delta", thinking=thought),
            delta(0, "signature_delta", signature=SEAL),
            stop(0),
        ]
        index += 1
    if said:
        blocks += text(index, said)
        index += 1
    for number, (identity, name, value) in enumerate(calls, index):
        blocks += client_call(number, identity, name, value)
    ends: list[Json] = [
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None},
            "usage": {"output_tokens": 7},
        },
        {"type": "message_stop"},
    ]
    return events(frames(began(usage={"input_tokens": 50, "output_tokens": 1}), *blocks, *ends))


def _openai(said: str, calls: Calls, thought: str, streams: bool) -> list[bytes]:
    finish = "tool_calls" if calls else "stop"
    usage = {"prompt_tokens": 50, "completion_tokens": 7, "total_tokens": 57}
    details = [{"type": "reasoning.encrypted", "data": SEAL, "index": 0}] if thought else None
    if not streams:
        message: Json = {"role": "assistant", "content": said or None}
        if calls:
            message["tool_calls"] = [
                {
                    "id": i,
                    "type": "function",
                    "function": {"name": n, "arguments": json.dumps(v)},
                }
                for i, n, v in calls
            ]
        if details:
            message["reasoning_details"] = details
        choice = {"index": 0, "message": message, "finish_reason": finish}
        head = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m"}
        return [as_json({**head, "choices": [choice], "usage": usage})]
    deltas: list[Json] = [{"role": "assistant", "content": said} if said else {"role": "assistant"}]
    deltas += [{"reasoning_details": details}] if details else []
    for number, (identity, name, value) in enumerate(calls):
        written = json.dumps(value)
        deltas += [piece(number, written[:3], identity, name), piece(number, written[3:])]
    return events(chunks(*deltas, finish=finish, usage=usage))


def _responses(said: str, calls: Calls, thought: str, streams: bool) -> list[bytes]:
    items = [responses.reasoning(SEAL, thought)] if thought else []
    items += [responses.message(said)] if said else []
    items += [responses.function_call(i, n, json.dumps(v)) for i, n, v in calls]
    if not streams:
        return [as_json(responses.response(items))]
    return events(responses.frames(responses.events(items)))


def _gemini(said: str, calls: Calls, thought: str, streams: bool) -> list[bytes]:
    parts: list[Json] = [{"text": said}] if said else []
    for number, (_, name, value) in enumerate(calls):
        parts.append(gemini.call(name, SEAL if thought and not number else "", **value))
    if not streams:
        return [as_json(gemini.answer(*parts))]
    *first, last = parts
    return events(
        gemini.body_of(*(gemini.answer(p, finish=None) for p in first), gemini.answer(last))
    )


def _converse(said: str, calls: Calls, thought: str, streams: bool) -> list[bytes]:
    reason = "tool_use" if calls else "end_turn"
    if not streams:
        content: list[Json] = (
            [{"reasoningContent": {"reasoningText": {"text": thought, "signature": SEAL}}}]
            if thought
            else []
        )
        content += [{"text": said}] if said else []
        content += [{"toolUse": {"toolUseId": i, "name": n, "input": v}} for i, n, v in calls]
        message = {"role": "assistant", "content": content}
        usage = {"inputTokens": 50, "outputTokens": 7, "totalTokens": 57}
        return [as_json({"output": {"message": message}, "stopReason": reason, "usage": usage})]
    made = [converse.begun()]
    index = 0
    if thought:
        made += [
            converse.piece(0, reasoningContent={"text": thought}),
            converse.piece(0, reasoningContent={"signature": SEAL}),
            converse.stopped(0),
        ]
        index += 1
    if said:
        made += [converse.piece(index, text=said), converse.stopped(index)]
        index += 1
    for number, (identity, name, value) in enumerate(calls, index):
        made += [
            converse.call(number, identity, name),
            converse.piece(number, toolUse={"input": json.dumps(value)}),
            converse.stopped(number),
        ]
    made += converse.ended(reason, tokens=(50, 7))
    return [converse.framed(name, body) for name, body in made]
