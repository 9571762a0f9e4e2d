"""The first records of a call."""

import json

from tests.support.types import Json
from tests.support.worker_calls import start_of

BODY = json.dumps(
    {
        "model": "demo",
        "stream": True,
        "messages": [{"role": "user", "content": "x"}],
        "tools": [
            {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}
        ],
    }
).encode()
START = start_of(BODY)


def chunk(delta: Json, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "x", "model": "m", "choices": [choice]}).encode() + b"\n\n"
