"""Upstream answers of one protocol fault each, built from small pieces, and what a client of either
dialect got, in one shape."""

import json
from typing import Any

from protocol.request import DialectName
from tests.support.checks.outcomes import payloads
from tests.support.json_values import Json
from tests.support.upstreams.frames import delta, message, start, stop
from tests.support.upstreams.recordings import framed


def frames(*parts: Json) -> bytes:
    """A stream of the Messages dialect."""
    return framed("anthropic", [json.dumps(p) for p in parts])


def began(**fields: Any) -> Json:
    """A message_start with usage."""
    return message(**{"usage": {"input_tokens": 5, "output_tokens": 1}, **fields})


def client_call(index: int, identity: str, name: str, value: Any, *, pieces: int = 2) -> list[Json]:
    """A tool call whose input comes in `pieces` deltas."""
    text = json.dumps(value)
    step = -(-len(text) // pieces) if pieces else len(text)
    cuts = [text[n : n + step] for n in range(0, len(text), step)] if pieces else []
    block = start(index, type="tool_use", id=identity, name=name, input={})
    return [block, *(delta(index, "input_json_delta", partial_json=c) for c in cuts), stop(index)]


def text(index: int, said: str) -> list[Json]:
    """A text block."""
    return [start(index, type="text", text=""), delta(index, "text_delta", text=said), stop(index)]


def whole(index: int, block: Json) -> list[Json]:
    """A block that is complete at its start."""
    return [start(index, **block), stop(index)]


def chunks(
    *deltas: Json, finish: str | None = "tool_calls", done: bool = True, **last: Any
) -> bytes:
    """A stream of chat/completions; the finish reason comes in a chunk of its own."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-x"}
    rows: list[Json] = [
        {**head, "choices": [{"index": 0, "delta": d, "finish_reason": None}]} for d in deltas
    ]
    if finish:
        rows.append(
            {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}], **last}
        )
    data = b"".join(f"data: {json.dumps(r)}\n\n".encode() for r in rows)
    return data + b"data: [DONE]\n\n" if done else data


def piece(index: int | None, arguments: str, identity: str = "", name: str = "") -> Json:
    """A delta of a tool call; the first one has id and name."""
    call: Json = {"function": {"arguments": arguments}}
    if identity:
        call = {
            "id": identity,
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
    return {"tool_calls": [call if index is None else {"index": index, **call}]}


def calls_of(said: Json) -> list[tuple[str, str, Any]]:
    """Id, name and arguments of the tool calls that a client of either dialect got, in order."""
    if "calls" in said:
        return [(c["id"], c["name"], c["arguments"]) for c in said["calls"]]
    return [(b["id"], b["name"], b["input"]) for b in said["blocks"] if b["type"] == "tool_use"]


def text_of(said: Json) -> str:
    """All text."""
    content: str = (
        said["content"]
        if "content" in said
        else "".join(b["text"] for b in said["blocks"] if b["type"] == "text")
    )
    return content


def stop_of(said: Json) -> str:
    """Why the answer ended, in the client's word."""
    reason: str = said["finish"] if "finish" in said else said["stop_reason"]
    return reason


def stopped(client: DialectName, openai_word: str, anthropic_word: str) -> str:
    """The word of the client's dialect."""
    return openai_word if client == "openai" else anthropic_word


def so_far(data: bytes, client: DialectName) -> str:
    """The text that came before the error."""
    values = [value for _, value in payloads(data)]
    if client == "openai":
        return "".join(
            c["delta"].get("content") or "" for v in values for c in v.get("choices") or ()
        )
    return "".join(v["delta"].get("text", "") for v in values if v["type"] == "content_block_delta")
