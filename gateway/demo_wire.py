"""The demo model's answers as wire bytes, as a provider of each dialect sends them: token by token, arguments in fragments."""

import json
from dataclasses import dataclass, field
from typing import Any

from protocol.request import Dialect

_CREATED = 1_767_225_600
_STOPS = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length"}
_KINDS = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error"}
_KINDS |= {413: "request_too_large", 429: "rate_limit_error", 529: "overloaded_error"}
_FRAGMENT = 8
CLOCK = b"@clock;"
"""In a frame: the moment it is sent takes this place, as `@` nanoseconds of the monotonic clock `;` (`sluice bench` reads it)."""
Steps = list[tuple[float, bytes]]


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call."""

    name: str
    arguments: dict[str, Any]


@dataclass(slots=True)
class Answer:
    """One answer: thoughts, then text, then calls. `ending` is "", "error" or "cut"."""

    pieces: list[str]
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


def error_body(dialect: Dialect, status: int, message: str) -> bytes:
    """An error answer."""
    kind = _KINDS.get(status, "invalid_request_error" if status < 500 else "api_error")
    if dialect == "anthropic":
        return json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": None}}).encode()


def whole(dialect: Dialect, answer: Answer) -> bytes:
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


def stream(dialect: Dialect, answer: Answer, *, include_usage: bool) -> Steps:
    """The frames of a streamed answer with their delays."""
    frames = _stream_anthropic(answer) if dialect == "anthropic" else _stream_openai(answer, include_usage=include_usage)
    return [(answer.wait_s if n == 0 else answer.gap_s, frame) for n, frame in enumerate(frames)]


def _data(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def _fragments(arguments: dict[str, Any]) -> list[str]:
    text = json.dumps(arguments)
    return [text[n : n + _FRAGMENT] for n in range(0, len(text), _FRAGMENT)] if arguments else []


def _stream_openai(answer: Answer, *, include_usage: bool) -> list[bytes]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _data({**head, "choices": [choice]})

    head = {"id": f"chatcmpl-{answer.id}", "object": "chat.completion.chunk", "created": _CREATED, "model": answer.model}
    frames = [chunk({"role": "assistant", "content": ""})]
    frames += [chunk({"reasoning_content": piece}) for piece in answer.thoughts]
    frames += [chunk({"content": piece}) for piece in answer.pieces]
    for n, call in enumerate(answer.calls):
        begin = {"index": n, "id": f"call_{answer.id[:8]}{n}", "type": "function", "function": {"name": call.name, "arguments": ""}}
        frames.append(chunk({"tool_calls": [begin]}))
        parts = _fragments(call.arguments) or ["{}"]
        frames += [chunk({"tool_calls": [{"index": n, "function": {"arguments": part}}]}) for part in parts]
    if answer.ending:
        half = frames[: 1 + len(frames) // 2]
        return (
            [*half, _data({"error": {"message": "the demo model fails as asked", "type": "server_error"}})]
            if answer.ending == "error"
            else half
        )
    frames.append(chunk({}, _STOPS[answer.stop]))
    if include_usage:
        frames.append(_data({**head, "choices": [], "usage": _usage_openai(answer)}))
    return [*frames, b"data: [DONE]\n\n"]


def _event(kind: str, **body: Any) -> bytes:
    return b"event: " + kind.encode() + b"\n" + _data({"type": kind, **body})


def _stream_anthropic(answer: Answer) -> list[bytes]:
    usage = {"input_tokens": answer.input_tokens, "output_tokens": 1}
    message = _whole_anthropic(answer) | {"content": [], "stop_reason": None, "usage": usage}
    frames = [_event("message_start", message=message), _event("ping")]
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if answer.thoughts:
        deltas: list[dict[str, Any]] = [{"type": "thinking_delta", "thinking": piece} for piece in answer.thoughts]
        deltas.append({"type": "signature_delta", "signature": _signature(answer)})
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, deltas))
    blocks.append(({"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in answer.pieces]))
    for n, call in enumerate(answer.calls):
        start = {"type": "tool_use", "id": f"toolu_{answer.id[:8]}{n}", "name": call.name, "input": {}}
        blocks.append((start, [{"type": "input_json_delta", "partial_json": part} for part in ["", *_fragments(call.arguments)]]))
    for index, (start, deltas) in enumerate(blocks):
        frames.append(_event("content_block_start", index=index, content_block=start))
        frames += [_event("content_block_delta", index=index, delta=delta) for delta in deltas]
        frames.append(_event("content_block_stop", index=index))
    if answer.ending:
        half = frames[: 2 + len(frames) // 2]
        failed = _event("error", error={"type": "overloaded_error", "message": "the demo model fails as asked"})
        return [*half, failed] if answer.ending == "error" else half
    end = {"stop_reason": answer.stop, "stop_sequence": None}
    return [*frames, _event("message_delta", delta=end, usage={"output_tokens": answer.output_tokens}), _event("message_stop")]
