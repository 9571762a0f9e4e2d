"""The demo model's answers as wire bytes, as a provider of each dialect sends them: token by token, arguments in fragments."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice, repeat
from typing import Any

from protocol.request import DialectName

_CREATED = 1_767_225_600
_STOPS = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length"}
_KINDS = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error"}
_KINDS |= {413: "request_too_large", 429: "rate_limit_error", 529: "overloaded_error"}
_FRAGMENT = 8
CLOCK = b"@clock;"
"""In a frame: the moment it is sent takes this place, as `@` nanoseconds of the monotonic clock `;` (`sluice bench` reads it)."""
Steps = Iterator[tuple[float, bytes]]


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Words:
    """So many words, each made when it is said: `word1 `, `word2 ` and so on, or `same` again and again."""

    count: int
    same: str = ""

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[str]:
        return repeat(self.same, self.count) if self.same else (f"word{n} " for n in range(1, self.count + 1))


@dataclass(slots=True)
class Answer:
    """One answer: thoughts, then text, then calls. `ending` is "", "error" or "cut"."""

    pieces: list[str] | Words
    thoughts: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    stop: str = "end_turn"
    ending: str = ""
    wait_s: float = 0.0
    gap_s: float = 0.0
    id: str = ""
    model: str = ""
    input_tokens: int = 1

    @property
    def output_tokens(self) -> int:
        """One token a piece, and one for every four characters of arguments."""
        return len(self.pieces) + len(self.thoughts) + sum(1 + len(json.dumps(c.arguments)) // 4 for c in self.calls)


def error_body(dialect: DialectName, status: int, message: str) -> bytes:
    """An error answer."""
    kind = _KINDS.get(status, "invalid_request_error" if status < 500 else "api_error")
    if dialect == "anthropic":
        return json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": None}}).encode()


def whole(dialect: DialectName, answer: Answer) -> bytes:
    """The body of an answer that is not streamed. What fails in the middle of a stream fails here as a body that is cut."""
    body = _whole_anthropic(answer) if dialect == "anthropic" else _whole_openai(answer)
    data = json.dumps(body, ensure_ascii=False).encode()
    return data[: len(data) // 2] if answer.ending else data


def _whole_openai(answer: Answer) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": "".join(answer.pieces), "refusal": None}
    if answer.thoughts:
        message["reasoning_content"] = "".join(answer.thoughts)
    if answer.calls:
        message["tool_calls"] = [
            {"id": f"call_{answer.id[:8]}{n}", "type": "function", "function": {"name": c.name, "arguments": json.dumps(c.arguments)}}
            for n, c in enumerate(answer.calls)
        ]
    return {
        "id": f"chatcmpl-{answer.id}",
        "object": "chat.completion",
        "created": _CREATED,
        "model": answer.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": _STOPS[answer.stop]}],
        "usage": _usage_openai(answer),
    }


def _usage_openai(answer: Answer) -> dict[str, int]:
    total = answer.input_tokens + answer.output_tokens
    return {"prompt_tokens": answer.input_tokens, "completion_tokens": answer.output_tokens, "total_tokens": total}


def _whole_anthropic(answer: Answer) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if answer.thoughts:
        content.append({"type": "thinking", "thinking": "".join(answer.thoughts), "signature": _signature(answer)})
    content.append({"type": "text", "text": "".join(answer.pieces)})
    content += [
        {"type": "tool_use", "id": f"toolu_{answer.id[:8]}{n}", "name": c.name, "input": c.arguments} for n, c in enumerate(answer.calls)
    ]
    return {
        "id": f"msg_{answer.id}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": content,
        "stop_reason": answer.stop,
        "stop_sequence": None,
        "usage": {"input_tokens": answer.input_tokens, "output_tokens": answer.output_tokens},
    }


def _signature(answer: Answer) -> str:
    return f"demo-signature-{answer.id}"


def stream(dialect: DialectName, answer: Answer, *, include_usage: bool) -> Steps:
    """The frames of a streamed answer with their delays, each made when it is asked for."""
    frames = _stream_anthropic(answer) if dialect == "anthropic" else _stream_openai(answer, include_usage=include_usage)
    for n, frame in enumerate(frames):
        yield (answer.wait_s if n == 0 else answer.gap_s), frame


def _data(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def _fragments(arguments: dict[str, Any]) -> list[str]:
    text = json.dumps(arguments)
    return [text[n : n + _FRAGMENT] for n in range(0, len(text), _FRAGMENT)] if arguments else []


def _stream_openai(answer: Answer, *, include_usage: bool) -> Iterator[bytes]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _data({**head, "choices": [choice]})

    head = {"id": f"chatcmpl-{answer.id}", "object": "chat.completion.chunk", "created": _CREATED, "model": answer.model}
    deltas = _deltas_openai(answer)
    if answer.ending:
        count = sum(1 for _ in _deltas_openai(answer))
        yield from (chunk(delta) for delta in islice(deltas, 1 + count // 2))
        if answer.ending == "error":
            yield _data({"error": {"message": "the demo model fails as asked", "type": "server_error"}})
        return
    yield from (chunk(delta) for delta in deltas)
    yield chunk({}, _STOPS[answer.stop])
    if include_usage:
        yield _data({**head, "choices": [], "usage": _usage_openai(answer)})
    yield b"data: [DONE]\n\n"


def _deltas_openai(answer: Answer) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    yield from ({"reasoning_content": piece} for piece in answer.thoughts)
    yield from ({"content": piece} for piece in answer.pieces)
    for n, call in enumerate(answer.calls):
        function = {"name": call.name, "arguments": ""}
        yield {"tool_calls": [{"index": n, "id": f"call_{answer.id[:8]}{n}", "type": "function", "function": function}]}
        parts = _fragments(call.arguments) or ["{}"]
        yield from ({"tool_calls": [{"index": n, "function": {"arguments": part}}]} for part in parts)


def _event(kind: str, **body: Any) -> bytes:
    return b"event: " + kind.encode() + b"\n" + _data({"type": kind, **body})


def _stream_anthropic(answer: Answer) -> Iterator[bytes]:
    usage = {"input_tokens": answer.input_tokens, "output_tokens": 1}
    message = _whole_anthropic(answer) | {"content": [], "stop_reason": None, "usage": usage}
    frames = _frames_anthropic(answer)
    yield _event("message_start", message=message)
    yield _event("ping")
    if answer.ending:
        count = 2 + sum(1 for _ in _frames_anthropic(answer))
        yield from (_event(kind, **body) for kind, body in islice(frames, count // 2))
        if answer.ending == "error":
            yield _event("error", error={"type": "overloaded_error", "message": "the demo model fails as asked"})
        return
    yield from (_event(kind, **body) for kind, body in frames)
    end = {"stop_reason": answer.stop, "stop_sequence": None}
    yield _event("message_delta", delta=end, usage={"output_tokens": answer.output_tokens})
    yield _event("message_stop")


def _frames_anthropic(answer: Answer) -> Iterator[tuple[str, dict[str, Any]]]:
    for index, (start, deltas) in enumerate(_blocks_anthropic(answer)):
        yield "content_block_start", {"index": index, "content_block": start}
        yield from (("content_block_delta", {"index": index, "delta": delta}) for delta in deltas)
        yield "content_block_stop", {"index": index}


def _blocks_anthropic(answer: Answer) -> Iterator[tuple[dict[str, Any], Iterator[dict[str, Any]]]]:
    if answer.thoughts:
        yield {"type": "thinking", "thinking": "", "signature": ""}, _thinking_deltas(answer)
    yield {"type": "text", "text": ""}, ({"type": "text_delta", "text": piece} for piece in answer.pieces)
    for n, call in enumerate(answer.calls):
        start = {"type": "tool_use", "id": f"toolu_{answer.id[:8]}{n}", "name": call.name, "input": {}}
        yield start, ({"type": "input_json_delta", "partial_json": part} for part in ["", *_fragments(call.arguments)])


def _thinking_deltas(answer: Answer) -> Iterator[dict[str, Any]]:
    yield from ({"type": "thinking_delta", "thinking": piece} for piece in answer.thoughts)
    yield {"type": "signature_delta", "signature": _signature(answer)}
