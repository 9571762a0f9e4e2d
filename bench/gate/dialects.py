"""What a chunk of text of each dialect takes in a policy worker, as a multiple of the same chunk of
chat/completions.

The streams are made here, with the fields that providers send with each chunk; clients of
chat/completions and of Responses read them.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from bench.gate.paths import Case
from protocol.bytes import eventstream

_WORDS = ("The ", "quick ", "brown ", "fox ", "jumps ", "over ")
_CHUNKS = 150
_PADDING = "abcdefghijklmnop"


def cases() -> dict[str, Case]:
    """A call of each direction, by its name; `reference` has the names of chat/completions'."""
    found = dict[str, Case]()
    for how, together in (("chunks that come alone", 1), ("16 chunks together", 16)):
        for client, upstream, make in _DIRECTIONS:
            name = f"text, {how}: {client} from {upstream}"
            found[name] = Case(client, upstream, make(), together=together)
    return found


def reference(name: str) -> str:
    """The name of the call that this one is measured beside: chat/completions on both sides."""
    return f"{name.rpartition(': ')[0]}: {_DIRECTIONS[0][0]} from {_DIRECTIONS[0][1]}"


def _event(value: Mapping[str, Any], name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(value, separators=(',', ':'))}\n\n".encode()


def _chat() -> list[bytes]:
    head = {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "service_tier": "default",
        "system_fingerprint": "f",
    }

    def chunk(delta: dict[str, Any], finish: str | None = None, padding: str = "") -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _event({**head, "choices": [choice], "usage": None, "obfuscation": padding})

    deltas = [chunk({"content": _WORDS[n % 6]}, padding=_PADDING[: n % 8]) for n in range(_CHUNKS)]
    return [
        chunk({"role": "assistant", "content": ""}),
        *deltas,
        chunk({}, "stop"),
        b"data: [DONE]\n\n",
    ]


def _responses() -> list[bytes]:
    found: list[bytes] = []

    def event(name: str, **fields: Any) -> None:
        found.append(_event({"type": name, "sequence_number": len(found), **fields}, name))

    whole = "".join(_WORDS[n % 6] for n in range(_CHUNKS))
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": ""}
    item = {
        "id": "m",
        "type": "message",
        "status": "in_progress",
        "content": [],
        "role": "assistant",
    }
    done = {**item, "status": "completed", "content": [part | {"text": whole}]}
    at = {"item_id": "m", "output_index": 0, "content_index": 0}
    answer = {
        "id": "r",
        "object": "response",
        "created_at": 1,
        "status": "in_progress",
        "model": "m",
        "output": [],
        "tools": [],
        "usage": None,
    }
    usage = {
        "input_tokens": 1,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 2,
        "total_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    event("response.created", response=answer)
    event("response.output_item.added", output_index=0, item=item)
    event("response.content_part.added", **at, part=part)
    for n in range(_CHUNKS):
        event(
            "response.output_text.delta",
            **at,
            delta=_WORDS[n % 6],
            logprobs=[],
            obfuscation=_PADDING[: n % 16],
        )
    event("response.output_text.done", **at, text=whole, logprobs=[])
    event("response.content_part.done", **at, part=part | {"text": whole})
    event("response.output_item.done", output_index=0, item=done)
    event(
        "response.completed",
        response=answer | {"status": "completed", "output": [done], "usage": usage},
    )
    return found


def _gemini() -> list[bytes]:
    def chunk(n: int) -> bytes:
        candidate: dict[str, Any] = {
            "content": {"parts": [{"text": _WORDS[n % 6]}], "role": "model"},
            "index": 0,
        }
        if n == _CHUNKS - 1:
            candidate["finishReason"] = "STOP"
        usage = {"promptTokenCount": 17, "candidatesTokenCount": n, "totalTokenCount": 17 + n}
        return _event(
            {
                "candidates": [candidate],
                "usageMetadata": usage,
                "modelVersion": "m",
                "responseId": "r",
            }
        )

    return [chunk(n) for n in range(_CHUNKS)]


def _converse() -> list[bytes]:
    def event(name: str, fields: Mapping[str, Any], n: int = 4) -> bytes:
        body = json.dumps({**fields, "p": _PADDING[: n % 16]}, separators=(",", ":")).encode()
        return eventstream.message(
            {":event-type": name, ":content-type": "application/json", ":message-type": "event"},
            body,
        )

    deltas = [
        event("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": _WORDS[n % 6]}}, n)
        for n in range(_CHUNKS)
    ]
    usage = {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}
    ends = [
        event("messageStop", {"stopReason": "end_turn"}),
        event("metadata", {"metrics": {"latencyMs": 5}, "usage": usage}),
    ]
    return [
        event("messageStart", {"role": "assistant"}),
        *deltas,
        event("contentBlockStop", {"contentBlockIndex": 0}),
        *ends,
    ]


_DIRECTIONS: tuple[tuple[str, str, Callable[[], list[bytes]]], ...] = (
    ("openai", "openai", _chat),
    ("openai", "responses", _responses),
    ("openai", "gemini", _gemini),
    ("openai", "converse", _converse),
    ("responses", "openai", _chat),
    ("responses", "responses", _responses),
)
