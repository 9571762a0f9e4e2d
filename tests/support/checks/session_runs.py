"""A session over chunks of chat/completions, and what came out of it."""

from collections.abc import Sequence

from policy.base import (
    Policy,
)
from policy.session.effects import Output
from policy.session.session import Session
from protocol.events import (
    TextDelta,
)
from settings.config import Config
from tests.support.json_values import Json, as_json
from tests.support.worker_calls import call_info

TOOL = {
    "type": "function",
    "function": {
        "name": "bash",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
    },
}
REQUEST: Json = {
    "model": "demo",
    "stream": True,
    "messages": [{"role": "user", "content": "hi"}],
    "tools": [TOOL],
}


def make(
    policies: Sequence[Policy] = (),
    *,
    durable: bool = False,
    request: Json | None = None,
    dialect: str = "openai",
) -> Session:
    call = call_info("c", dialect, nonce="nonce", durable=durable, max_arguments_bytes=1000)
    session = Session(call, policies, Config())
    session.begin(as_json(request or REQUEST))
    return session


def chunk(
    delta: Json | None = None,
    *,
    finish: str | None = None,
    usage: dict[str, int] | None = None,
) -> bytes:
    body: Json = {
        "id": "x",
        "model": "m",
        "choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}],
    }
    if usage:
        body = {"id": "x", "choices": [], "usage": usage}
    return b"data: " + as_json(body) + b"\n\n"


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
