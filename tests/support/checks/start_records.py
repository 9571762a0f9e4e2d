"""The first records of a call."""

from tests.support.json_values import Json, as_json
from tests.support.worker_calls import start_of

BODY = as_json(
    {
        "model": "demo",
        "stream": True,
        "messages": [{"role": "user", "content": "x"}],
        "tools": [
            {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}
        ],
    }
)
START = start_of(BODY)


def chunk(delta: Json, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + as_json({"id": "x", "model": "m", "choices": [choice]}) + b"\n\n"
