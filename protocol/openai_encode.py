"""Events to chat/completions answers, streamed and whole (protocol.md 1.3, 1.4).

The SDK's helper wants tool indices dense from 0, id, name and role exactly once, and nothing after the usage chunk.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from protocol import errors_wire
from protocol.errors import LocalProtocolError
from protocol.events import (
    ArgumentsDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    MessageStart,
    MessageStop,
    StopReason,
    TextDelta,
    UpstreamFailed,
    Usage,
)
from protocol.request import ChatRequest

_json = msgspec.json.encode
_FINISH = {
    StopReason.END_TURN: "stop",
    StopReason.STOP_SEQUENCE: "stop",
    StopReason.TOOL_USE: "tool_calls",
    StopReason.MAX_TOKENS: "length",
    StopReason.CONTEXT_WINDOW: "length",
    StopReason.REFUSAL: "content_filter",
    StopReason.PAUSE_TURN: "length",
    StopReason.COMPACTION: "length",
}
_OWN = ("created", "system_fingerprint", "service_tier")


def _usage(usage: Usage) -> dict[str, Any]:
    read, written = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    prompt, completion = (usage.input_tokens or 0) + read + written, usage.output_tokens or 0
    body: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    if usage.cache_read_tokens is not None or usage.cache_write_tokens is not None:
        body["prompt_tokens_details"] = {"cached_tokens": read}
        if written:
            body["prompt_tokens_details"]["cache_write_tokens"] = written
    if usage.thinking_tokens is not None:
        body["completion_tokens_details"] = {"reasoning_tokens": usage.thinking_tokens}
    return body


def _text(text: str) -> bytes:
    # what msgspec refuses (lone surrogates) goes out as JSON escapes, exactly as it came
    try:
        return _json(text)
    except UnicodeEncodeError:
        import json

        return json.dumps(text).encode()


class _Encoder:
    content_type = "text/event-stream; charset=utf-8"

    def __init__(self, request: ChatRequest, call_id: str, created: int) -> None:
        self._request, self._call_id, self._created = request, call_id, created
        self._kinds: dict[int, BlockKind] = {}
        self._calls: dict[int, int] = {}
        self._with_arguments: set[int] = set()
        self._ended = False
        self._id, self._model, self._extra = f"chatcmpl-{call_id}", request.model, dict[str, Any]()

    def _start(self, event: MessageStart) -> None:
        self._model = event.model or self._request.model
        if "created" in event.extra:
            # only chat/completions messages have it: same dialect, so the ids are upstream's
            self._id = event.id or self._id
            self._extra = {k: event.extra[k] for k in _OWN if k in event.extra}

    def _begin_call(self, event: BlockStart) -> int:
        ordinal = self._calls[event.index] = len(self._calls)
        return ordinal

    def _check(self) -> None:
        if self._ended:
            raise LocalProtocolError("an event after the end of the message")


class StreamEncoder(_Encoder):
    """Frames for a client that streams."""

    def _start(self, event: MessageStart) -> None:
        super()._start(event)
        head = {
            "id": self._id,
            "object": "chat.completion.chunk",
            "created": self._extra.get("created", self._created),
            "model": self._model,
        }
        head |= {k: v for k, v in self._extra.items() if k != "created"}
        self._prefix = b"data: " + _json(head)[:-1] + b',"choices":[{"index":0,"delta":'
        self._head = b"data: " + _json(head)[:-1]

    _prefix = _head = b""
    _SUFFIX = b',"finish_reason":null}]}\n\n'

    def encode(self, events: Sequence[Event]) -> bytes:
        """Return the frames for `events`."""
        out: list[bytes] = []
        for event in events:
            self._check()
            if type(event) is TextDelta:
                if self._kinds.get(event.index) is BlockKind.THINKING:
                    out.append(self._prefix + b'{"reasoning_content":' + _text(event.text) + b"}" + self._SUFFIX)
                else:
                    out.append(self._prefix + b'{"content":' + _text(event.text) + b"}" + self._SUFFIX)
            else:
                self._other(event, out)
        return b"".join(out)

    def _other(self, event: Event, out: list[bytes]) -> None:
        match event:
            case MessageStart():
                self._start(event)
                out.append(self._prefix + b'{"role":"assistant","content":""}' + self._SUFFIX)
            case BlockStart():
                self._kinds[event.index] = event.kind
                if event.kind is BlockKind.TOOL_USE:
                    call = {
                        "index": self._begin_call(event),
                        "id": event.id,
                        "type": "function",
                        "function": {"name": event.name, "arguments": ""},
                    }
                    out.append(self._prefix + _json({"tool_calls": [call]}) + self._SUFFIX)
            case ArgumentsDelta():
                if event.text:
                    self._with_arguments.add(event.index)
                    out.append(self._arguments(event.index, event.text))
            case BlockStop():
                if event.index in self._calls and event.index not in self._with_arguments:
                    out.append(self._arguments(event.index, "{}"))
            case MessageStop():
                self._ended = True
                finish = _json({"delta": {}, "finish_reason": _FINISH[event.stop_reason]})[1:-1]
                out.append(self._head + b',"choices":[{"index":0,' + finish + b"}]}\n\n")
                if self._request.include_usage:
                    out.append(self._head + b',"choices":[],"usage":' + _json(_usage(event.usage)) + b"}\n\n")
                out.append(b"data: [DONE]\n\n")
            case UpstreamFailed():
                self._ended = True
                out.append(errors_wire.error_frame("openai", event.kind, event.message, None))
            case _:
                pass

    def _arguments(self, index: int, text: str) -> bytes:
        call = b'{"tool_calls":[{"index":%d,"function":{"arguments":%s}}]}' % (self._calls[index], _text(text))
        return self._prefix + call + self._SUFFIX

    def keepalive(self) -> bytes:
        """A comment: both SDKs skip it."""
        return b": keepalive\n\n"


class WholeEncoder(_Encoder):
    """The one body for a client that does not stream."""

    content_type = "application/json"

    def __init__(self, request: ChatRequest, call_id: str, created: int) -> None:
        super().__init__(request, call_id, created)
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._tools: list[dict[str, Any]] = []
        self._arguments: dict[int, list[str]] = {}

    def encode(self, events: Sequence[Event]) -> bytes:
        """Return the body with MessageStop, nothing before."""
        body = b""
        for event in events:
            self._check()
            match event:
                case TextDelta():
                    (self._reasoning if self._kinds.get(event.index) is BlockKind.THINKING else self._content).append(event.text)
                case MessageStart():
                    self._start(event)
                case BlockStart():
                    self._kinds[event.index] = event.kind
                    if event.kind is BlockKind.TOOL_USE:
                        self._begin_call(event)
                        self._arguments[event.index] = []
                        self._tools.append({"id": event.id, "type": "function", "function": {"name": event.name, "arguments": event.index}})
                case ArgumentsDelta():
                    self._arguments[event.index].append(event.text)
                case MessageStop():
                    self._ended = True
                    body = self._body(event)
                case UpstreamFailed():
                    self._ended = True
                    body = errors_wire.failed_response("openai", event)[2]
                case _:
                    pass
        return body

    def _body(self, stop: MessageStop) -> bytes:
        for tool in self._tools:
            tool["function"]["arguments"] = "".join(self._arguments[tool["function"]["arguments"]]) or "{}"
        content = "".join(self._content)
        message: dict[str, Any] = {"role": "assistant", "content": content if content or not self._tools else None, "refusal": None}
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if self._tools:
            message["tool_calls"] = self._tools
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _FINISH[stop.stop_reason]}
        body = {"id": self._id, "object": "chat.completion", "created": self._created, "model": self._model} | self._extra
        body |= {"choices": [choice], "usage": _usage(stop.usage)}
        try:
            return _json(body)
        except UnicodeEncodeError:
            import json

            return json.dumps(body).encode()

    def keepalive(self) -> bytes:
        """None exists in the middle of a body."""
        return b""


def make(request: ChatRequest, *, call_id: str, created: int) -> StreamEncoder | WholeEncoder:
    """Return the encoder that `request` asks for."""
    return (StreamEncoder if request.stream else WholeEncoder)(request, call_id, created)
