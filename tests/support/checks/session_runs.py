"""A session over chunks of chat/completions, and what came out of it."""

import json
from collections.abc import Sequence
from typing import Any

from policy.base import (
    Policy,
)
from policy.session.effects import CallInfo, Output
from policy.session.session import Session
from protocol.events import (
    TextDelta,
)
from settings.config import Config

TOOL = {
    "type": "function",
    "function": {
        "name": "bash",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
    },
}
REQUEST: dict[str, Any] = {
    "model": "demo",
    "stream": True,
    "messages": [{"role": "user", "content": "hi"}],
    "tools": [TOOL],
}


def make(
    policies: Sequence[Policy] = (),
    *,
    durable: bool = False,
    request: dict[str, Any] | None = None,
    dialect: str = "openai",
) -> Session:
    call = CallInfo(
        "c",
        1,
        dialect,
        "chat" if dialect == "openai" else "messages",
        "k",
        "",
        "nonce",
        "gw",
        "p",
        "r",
        durable,
        1_000,
    )
    session = Session(call, policies, Config())
    session.begin(json.dumps(request or REQUEST).encode())
    return session


def chunk(
    delta: dict[str, Any] | None = None,
    *,
    finish: str | None = None,
    usage: dict[str, int] | None = None,
) -> bytes:
    body: dict[str, Any] = {
        "id": "x",
        "model": "m",
        "choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}],
    }
    if usage:
        body = {"id": "x", "choices": [], "usage": usage}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def call_chunk(index: int, name: str, arguments: str) -> bytes:
    return chunk(
        {
            "tool_calls": [
                {
                    "index": index,
                    "id": f"call_{index}",
                    "function": {"name": name, "arguments": arguments},
                }
            ]
        }
    )


DONE = b"data: [DONE]\n\n"


def run(session: Session, chunks: Sequence[bytes]) -> list[Output]:
    outputs = session.drain().outputs
    for number, raw in enumerate(chunks, start=1):
        session.chunks(number, [raw])
        outputs += session.drain().outputs
    return outputs


def texts(outputs: Sequence[Output]) -> str:
    return "".join(o.text for o in outputs if isinstance(o, TextDelta))
