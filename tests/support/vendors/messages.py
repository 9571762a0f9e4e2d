"""A provider that speaks Messages."""

import json
from collections.abc import Iterator
from typing import Any

from tests.support.json_values import Json
from tests.support.vendors.checking import (
    cut,
    is_sealed,
    known,
    need,
    seal,
)
from tests.support.vendors.story import Do, Offered, Part, Refused, Result, Say, Seen

_FIELDS = (
    "model",
    "messages",
    "max_tokens",
    "system",
    "tools",
    "tool_choice",
    "stream",
    "temperature",
    "top_p",
    "top_k",
    "stop_sequences",
    "metadata",
    "thinking",
    "output_config",
    "service_tier",
    "container",
    "context_management",
    "mcp_servers",
    "cache_control",
    "diagnostics",
    "speed",
)
_USAGE = {
    "input_tokens": 40,
    "cache_read_input_tokens": 0,
    "cache_creation_input_tokens": 0,
    "output_tokens": 12,
}


def read(body: Json, _: str) -> Seen:
    """Check and read a request. Raises Refused."""
    known(body, _FIELDS, "")
    need(isinstance(body.get("max_tokens"), int), "max_tokens: Field required")
    messages: Any = body.get("messages")
    need(isinstance(messages, list) and messages, "messages: at least one message is required")
    tools = [Offered(t["name"], t.get("input_schema") or {}) for t in body.get("tools") or []]
    need(
        "tool_choice" not in body or tools,
        "tool_choice may only be specified while providing tools",
    )
    seen = Seen(body["model"], bool(body.get("stream")), tools, [])
    seen.thinks = (body.get("thinking") or {}).get("type") in ("enabled", "adaptive")
    need(messages[0]["role"] == "user", "messages: first message must use the user role")
    waiting: list[str] = []
    last = ""
    for number, message in enumerate(messages):
        where = f"messages.{number}"
        need(message["role"] in ("user", "assistant", "system"), f"{where}.role")
        blocks = (
            [{"type": "text", "text": message["content"]}]
            if isinstance(message["content"], str)
            else message["content"]
        )
        need(
            blocks or number == len(messages) - 1,
            f"{where}: all messages must have non-empty content",
        )
        if message["role"] == "assistant":
            need(
                not waiting,
                f"{where}: `tool_use` ids were found without `tool_result` blocks immediately"
                f" after: {waiting}",
            )
            waiting = _assistant(seen, blocks, where)
        elif message["role"] == "user":
            waiting = _user(seen, blocks, waiting if last == "assistant" else [], where)
        last = message["role"]
    need(
        not waiting,
        f"`tool_use` ids were found without `tool_result` blocks immediately after: {waiting}",
    )
    need(
        tools or not seen.calls,
        "Requests which include `tool_use` or `tool_result` blocks must define tools",
    )
    return seen


def _assistant(seen: Seen, blocks: list[Json], where: str) -> list[str]:
    ids: list[str] = []
    for number, block in enumerate(blocks):
        kind = block["type"]
        if kind == "thinking":
            need(
                is_sealed(block.get("signature"), block["thinking"]),
                f"{where}.content.{number}: Invalid `signature` in `thinking` block",
            )
            seen.sealed += 1
        elif kind == "tool_use":
            need(
                isinstance(block["input"], dict),
                f"{where}.content.{number}.tool_use.input: Input should be a valid dictionary",
            )
            ids.append(block["id"])
            seen.calls.append(block["name"])
        else:
            need(
                kind == "text" and block["text"].strip(),
                f"{where}.content.{number}: text content blocks must contain non-whitespace text",
            )
            seen.texts.append(block["text"])
    need(len({*ids}) == len(ids), f"{where}: `tool_use` ids must be unique")
    return ids


def _user(seen: Seen, blocks: list[Json], waiting: list[str], where: str) -> list[str]:
    """Results come first."""
    is_first = True
    left = list(waiting)
    for number, block in enumerate(blocks):
        if block["type"] == "tool_result":
            need(
                block["tool_use_id"] in left,
                f"{where}.content.{number}: unexpected `tool_use_id` found in `tool_result` blocks",
            )
            need(is_first, f"{where}: tool_result blocks must come first")
            left.remove(block["tool_use_id"])
            seen.results.append(Result(block["tool_use_id"], _text(block.get("content", ""))))
        else:
            is_first = False
            need(block["type"] in ("text", "image", "document"), f"{where}.content.{number}.type")
            need(
                block["type"] != "text" or block["text"],
                f"{where}.content.{number}: text content blocks must be non-empty",
            )
            seen.texts.append(block.get("text", ""))
    need(
        not left,
        f"{where}: `tool_use` ids were found without `tool_result` blocks immediately after:"
        f" {left}",
    )
    return []


def _text(content: Any) -> str:
    return (
        content
        if isinstance(content, str)
        else "\n".join(p["text"] for p in content if p["type"] == "text")
    )


def _blocks(seen: Seen, parts: list[Part]) -> list[Json]:
    made: list[Json] = []
    for part in parts:
        if isinstance(part, Say):
            made.append({"type": "text", "text": part.text})
        elif isinstance(part, Do):
            made.append(
                {
                    "type": "tool_use",
                    "id": f"toolu_{part.id}",
                    "name": part.name,
                    "input": part.arguments,
                }
            )
        elif seen.thinks:
            made.append({"type": "thinking", "thinking": part.text, "signature": seal(part.text)})
    return made


def whole(seen: Seen, parts: list[Part]) -> Json:
    """An answer that is not streamed."""
    return {**_head(seen), "content": _blocks(seen, parts), "stop_reason": _stop(parts)}


def _head(seen: Seen) -> Json:
    head: Json = {
        "id": "msg_7",
        "type": "message",
        "role": "assistant",
        "model": seen.model,
        "content": [],
        "stop_reason": None,
    }
    return {**head, "stop_sequence": None, "usage": _USAGE}


def _stop(parts: list[Part]) -> str:
    return "tool_use" if any(isinstance(p, Do) for p in parts) else "end_turn"


def frames(seen: Seen, parts: list[Part]) -> Iterator[bytes]:
    """A streamed answer."""
    yield _event({"type": "message_start", "message": _head(seen)})
    yield _event({"type": "ping"})
    for index, block in enumerate(_blocks(seen, parts)):
        empties: dict[str, Json] = {
            "tool_use": {"input": {}},
            "text": {"text": ""},
            "thinking": {"thinking": "", "signature": ""},
        }
        started = {**block, **empties[block["type"]]}
        yield _event({"type": "content_block_start", "index": index, "content_block": started})
        for delta in _deltas(block):
            yield _event({"type": "content_block_delta", "index": index, "delta": delta})
        yield _event({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": _stop(parts), "stop_sequence": None}
    yield _event({"type": "message_delta", "delta": delta, "usage": _USAGE})
    yield _event({"type": "message_stop"})


def _deltas(block: Json) -> list[Json]:
    if block["type"] == "tool_use":
        return [
            {"type": "input_json_delta", "partial_json": piece}
            for piece in ["", *cut(json.dumps(block["input"]))]
        ]
    if block["type"] == "text":
        return [{"type": "text_delta", "text": piece} for piece in cut(block["text"])]
    said = [{"type": "thinking_delta", "thinking": piece} for piece in cut(block["thinking"])]
    return [*said, {"type": "signature_delta", "signature": block["signature"]}]


def _event(value: Json) -> bytes:
    return f"event: {value['type']}\ndata: {json.dumps(value)}\n\n".encode()


def error(refused: Refused) -> Json:
    """The body of an error."""
    return {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": refused.message},
        "request_id": "req_7",
    }
