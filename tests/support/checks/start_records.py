"""The first records of a call."""

import json
from hashlib import sha256
from typing import Any

from streams.layout import Start

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
START = Start(
    call_id="01990000-0000-7000-8000-000000000000",
    at=1,
    gateway="g",
    dialect="openai",
    endpoint="chat",
    key="k",
    policies=("p",),
    policy="",
    session="",
    nonce="n",
    deadline=2,
    key_id="k",
    policy_sets=(),
    body_sha256=sha256(BODY).digest(),
)


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "x", "model": "m", "choices": [choice]}).encode() + b"\n\n"
