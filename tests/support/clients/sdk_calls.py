"""The official SDKs as users use them: one question, both dialects, whole, iterated and with the
accumulating helpers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import anthropic
import openai

from protocol.request import DialectName
from tests.support.json_values import Json
from tests.support.servers.product import KEY

Mode = Literal["whole", "iterate", "helper"]
DIALECTS: list[DialectName] = ["openai", "anthropic"]
MODES: list[Mode] = ["whole", "iterate", "helper"]
TIMEOUT_S = 30.0
STOPS: dict[DialectName, dict[str, str]] = {
    "openai": {
        "end": "stop",
        "tools": "tool_calls",
        "length": "length",
        "refusal": "content_filter",
    },
    "anthropic": {
        "end": "end_turn",
        "tools": "tool_use",
        "length": "max_tokens",
        "refusal": "refusal",
    },
}


@dataclass(frozen=True)
class Call:
    """A tool call that a client received."""

    id: str
    name: str
    arguments: Json

    @property
    def plain(self) -> tuple[str, Json]:
        """Name and arguments."""
        return self.name, self.arguments


@dataclass(frozen=True)
class Said:
    """What a client received. `tokens` are prompt (with what was cached) and completion; `message`
    is the turn to send back."""

    text: str
    thinking: str
    calls: list[Call]
    stop: str
    tokens: tuple[int, int] | None
    message: Json
    id: str
    model: str

    @property
    def plain_calls(self) -> list[tuple[str, Json]]:
        """Names and arguments."""
        return [c.plain for c in self.calls]


def openai_client(url: str, key: str = KEY) -> openai.OpenAI:
    """The openai SDK, unchanged but for base URL and key; without retries, so that tests see each
    error."""
    return openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=0, timeout=TIMEOUT_S)


def anthropic_client(url: str, key: str = KEY) -> anthropic.Anthropic:
    """The anthropic SDK likewise."""
    return anthropic.Anthropic(base_url=url, api_key=key, max_retries=0, timeout=TIMEOUT_S)


def tool(dialect: DialectName, name: str, **properties: str) -> Json:
    """A tool whose parameters are names and JSON types."""
    schema = {"type": "object", "properties": {n: {"type": t} for n, t in properties.items()}}
    about = {"name": name, "description": f"{name} tool"}
    match dialect:
        case "anthropic":
            return {**about, "input_schema": schema}
        case "responses":
            return {"type": "function", **about, "parameters": schema}
    return {"type": "function", "function": {**about, "parameters": schema}}


def results(dialect: DialectName, said: Said, contents: Sequence[str]) -> list[Json]:
    """The turn of the assistant and the results of its calls, as the next messages of the
    conversation."""
    if dialect == "openai":
        rows = [
            {"role": "tool", "tool_call_id": c.id, "content": text}
            for c, text in zip(said.calls, contents, strict=True)
        ]
        return [said.message, *rows]
    blocks = [
        {"type": "tool_result", "tool_use_id": c.id, "content": text}
        for c, text in zip(said.calls, contents, strict=True)
    ]
    return [said.message, {"role": "user", "content": blocks}]


def ask(
    url: str,
    dialect: DialectName,
    mode: Mode,
    messages: str | Sequence[Mapping[str, Any]],
    *,
    key: str = KEY,
    model: str = "demo",
    tools: Sequence[Mapping[str, Any]] = (),
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> Said:
    """Ask with the dialect's SDK."""
    turns = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
    request: Json = {"model": model, "messages": turns, **more}
    if tools:
        request["tools"] = list(tools)
    if headers:
        request["extra_headers"] = dict(headers)
    return (_ask_openai if dialect == "openai" else _ask_anthropic)(url, key, mode, request)


def _ask_openai(url: str, key: str, mode: Mode, request: Json) -> Said:
    with openai_client(url, key) as client:
        if mode == "whole":
            return _openai_said(client.chat.completions.create(**request))
        request["stream_options"] = {"include_usage": True}
        if mode == "helper":
            with client.chat.completions.stream(**request) as events:
                for _ in events:
                    pass
                return _openai_said(events.get_final_completion())
        with client.chat.completions.create(stream=True, **request) as chunks:
            return _openai_iterated(chunks)


def _reasoning(part: Any) -> str:
    extra = part.model_extra or {}
    return extra.get("reasoning_content") or extra.get("reasoning") or ""


def _openai_iterated(chunks: Any) -> Said:
    text, thinking, stop, usage = "", "", "", None
    calls: dict[int, list[str]] = {}
    identity = model = ""
    for chunk in chunks:
        identity, model = chunk.id, chunk.model
        usage = chunk.usage or usage
        for choice in chunk.choices:
            delta = choice.delta
            text += delta.content or ""
            thinking += _reasoning(delta)
            for part in delta.tool_calls or ():
                if part.index not in calls:
                    assert part.index == len(calls), "indices are dense and in order"
                    calls[part.index] = [part.id, part.function.name, ""]
                calls[part.index][2] += part.function.arguments or ""
            stop = choice.finish_reason or stop
    return _openai_made(
        text, thinking, [calls[n] for n in sorted(calls)], stop, usage, identity, model
    )


def _openai_said(answer: Any) -> Said:
    choice = answer.choices[0]
    message = choice.message
    calls = [[c.id, c.function.name, c.function.arguments] for c in message.tool_calls or ()]
    thinking = _reasoning(message)
    return _openai_made(
        message.content or "",
        thinking,
        calls,
        choice.finish_reason,
        answer.usage,
        answer.id,
        answer.model,
    )


def _openai_made(
    text: str,
    thinking: str,
    calls: list[list[str]],
    stop: str,
    usage: Any,
    identity: str,
    model: str,
) -> Said:
    message: Json = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = [
            {"id": i, "type": "function", "function": {"name": n, "arguments": a}}
            for i, n, a in calls
        ]
    tokens = (usage.prompt_tokens, usage.completion_tokens) if usage else None
    return Said(
        text,
        thinking,
        [Call(i, n, json.loads(a)) for i, n, a in calls],
        stop,
        tokens,
        message,
        identity,
        model,
    )


def _ask_anthropic(url: str, key: str, mode: Mode, request: Json) -> Said:
    request = {"max_tokens": 1000, **request}
    with anthropic_client(url, key) as client:
        if mode == "whole":
            return _anthropic_said(client.messages.create(**request))
        if mode == "helper":
            with client.messages.stream(**request) as events:
                for _ in events.text_stream:
                    pass
                return _anthropic_said(events.get_final_message())
        with client.messages.create(stream=True, **request) as parts:
            return _anthropic_iterated(parts)


def _anthropic_iterated(parts: Any) -> Said:
    blocks: dict[int, Json] = {}
    inputs: dict[int, str] = {}
    start, stop, usage, ended = None, "", None, False
    is_open: int | None = None
    for event in parts:
        if event.type == "message_start":
            start = event.message
        elif event.type == "content_block_start":
            assert event.index == len(blocks) and is_open is None, (
                "blocks are dense, in order, one at a time"
            )
            is_open = event.index
            blocks[event.index] = event.content_block.model_dump(exclude_none=True)
        elif event.type == "content_block_delta":
            assert event.index == is_open
            block, delta = blocks[event.index], event.delta
            if delta.type == "text_delta":
                block["text"] += delta.text
            elif delta.type == "thinking_delta":
                block["thinking"] += delta.thinking
            elif delta.type == "signature_delta":
                block["signature"] = delta.signature
            elif delta.type == "input_json_delta":
                inputs[event.index] = inputs.get(event.index, "") + delta.partial_json
        elif event.type == "content_block_stop":
            assert event.index == is_open
            is_open = None
        elif event.type == "message_delta":
            assert is_open is None
            stop, usage = event.delta.stop_reason, event.usage
        elif event.type == "message_stop":
            ended = True
    assert start is not None and ended
    for index, block in blocks.items():
        if block["type"] == "tool_use":
            block["input"] = json.loads(inputs.get(index) or "{}")
    before, after = start.usage.model_dump(), usage.model_dump() if usage else {}
    counted = before | {k: v for k, v in after.items() if v is not None}
    return _anthropic_made(
        [blocks[n] for n in sorted(blocks)], stop, counted, start.id, start.model
    )


def _anthropic_said(answer: anthropic.types.Message) -> Said:
    blocks = [b.model_dump(exclude_none=True) for b in answer.content]
    return _anthropic_made(
        blocks, answer.stop_reason or "", answer.usage.model_dump(), answer.id, answer.model
    )


def _anthropic_made(blocks: list[Json], stop: str, usage: Json, identity: str, model: str) -> Said:
    for block in blocks:
        block.pop("parsed_output", None)
    prompt = sum(
        usage.get(f) or 0
        for f in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    )
    return Said(
        "".join(b["text"] for b in blocks if b["type"] == "text"),
        "".join(b["thinking"] for b in blocks if b["type"] == "thinking"),
        [Call(b["id"], b["name"], b["input"]) for b in blocks if b["type"] == "tool_use"],
        stop,
        (prompt, usage["output_tokens"]),
        {"role": "assistant", "content": blocks},
        identity,
        model,
    )
