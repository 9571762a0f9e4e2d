"""The beginning of an owned call, and chunks that come for it."""

import json
from hashlib import sha256

from streams.layout import Start

BODY = json.dumps(
    {"model": "demo", "stream": True, "messages": [{"role": "user", "content": "x"}]}
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


def chunk(text: str) -> bytes:
    return (
        b"data: "
        + json.dumps(
            {"id": "x", "model": "m", "choices": [{"index": 0, "delta": {"content": text}}]}
        ).encode()
        + b"\n\n"
    )


def fragment(text: str, *, first: bool = False) -> bytes:
    call = {"index": 0, "function": {"arguments": text} | ({"name": "bash"} if first else {})} | (
        {"id": "c"} if first else {}
    )
    return (
        b"data: "
        + json.dumps(
            {"id": "x", "model": "m", "choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}
        ).encode()
        + b"\n\n"
    )
