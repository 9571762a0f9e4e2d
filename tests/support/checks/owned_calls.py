"""The beginning of an owned call, and chunks that come for it."""

from tests.support.json_values import as_json
from tests.support.worker_calls import start_of

BODY = as_json({"model": "demo", "stream": True, "messages": [{"role": "user", "content": "x"}]})
START = start_of(BODY)


def chunk(text: str) -> bytes:
    return (
        b"data: "
        + as_json({"id": "x", "model": "m", "choices": [{"index": 0, "delta": {"content": text}}]})
        + b"\n\n"
    )


def fragment(text: str, *, first: bool = False) -> bytes:
    call = {"index": 0, "function": {"arguments": text} | ({"name": "bash"} if first else {})} | (
        {"id": "c"} if first else {}
    )
    return (
        b"data: "
        + as_json(
            {"id": "x", "model": "m", "choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}
        )
        + b"\n\n"
    )
