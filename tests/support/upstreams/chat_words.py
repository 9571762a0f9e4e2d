"""Chunks of chat/completions with words beside their content."""

from protocol.bytes.json_strict import dumps
from protocol.request import DialectName
from tests.support.json_values import Json

CHUNK = {"id": "x", "model": "gpt-x", "object": "chat.completion.chunk", "created": 1}
STOP = {"index": 0, "delta": {}, "finish_reason": "stop"}
TOOLS: dict[DialectName, list[Json]] = {
    "openai": [
        {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}
    ],
    "anthropic": [{"name": "bash", "input_schema": {"type": "object"}}],
    "responses": [{"type": "function", "name": "bash", "parameters": {"type": "object"}}],
}


def stream(first: Json, last: Json, *more: Json) -> bytes:
    chunks = [
        {**CHUNK, "choices": [{"index": 0, "delta": {"content": "hello"}}], **first},
        {**CHUNK, "choices": [STOP], **last},
        *more,
    ]
    return b"".join(b"data: " + dumps(c) + b"\n\n" for c in chunks) + b"data: [DONE]\n\n"


CALL = {
    "index": 0,
    "id": "call_1",
    "type": "function",
    "function": {"name": "bash", "arguments": "{}"},
}
