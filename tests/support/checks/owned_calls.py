"""The beginning of an owned call, and chunks that come for it."""

import json

from tests.support.worker_calls import start_of

BODY = json.dumps(
    {"model": "demo", "stream": True, "messages": [{"role": "user", "content": "x"}]}
).encode()
START = start_of(BODY)


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
