"""Events to chat/completions answers, streamed and whole (protocol.md 1.3, 1.4).

The SDK's helper wants tool indices dense from 0, id, name and role exactly once, and nothing after the usage chunk.
What upstream said in this same dialect (id, time of creation, the name of the reasoning field) comes out again.
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
from protocol.json_strict import dumps
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
_REASONING_FIELDS = ("reasoning_content", "reasoning")
_SUFFIX = b'},"finish_reason":null}]}\n\n'


def _usage(stop: MessageStop) -> dict[str, Any] | None:
    usage: Usage = stop.usage
    if usage == Usage():
        return None
    read, written = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    prompt, completion = (usage.input_tokens or 0) + read + written, usage.output_tokens or 0
    total = stop.extra.get("total_tokens", prompt + completion)
    body: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}
    if usage.cache_read_tokens is not None or usage.cache_write_tokens is not None:
        body["prompt_tokens_details"] = {"cached_tokens": read}
        if usage.cache_write_tokens:
            body["prompt_tokens_details"]["cache_write_tokens"] = written
    if usage.thinking_tokens is not None:
        body["completion_tokens_details"] = {"reasoning_tokens": usage.thinking_tokens}
    return body


def _text(text: str) -> bytes:
    try:
        return _json(text)
    except UnicodeEncodeError:
        return dumps(text)


class _Encoder:
    content_type = "text/event-stream; charset=utf-8"

    def __init__(self, request: ChatRequest, call_id: str, created: int) -> None:
        self._request = request
        self._id, self._model = f"chatcmpl-{call_id}", request.model
        self._own: dict[str, Any] = {"created": created}
        self._null_content = False
        self._blocks: dict[int, BlockStart] = {}
        self._calls: dict[int, int] = {}
        self._started = self._ended = False

    def _start(self, event: MessageStart) -> None:
        if self._started:
            raise LocalProtocolError("a message began twice")
        self._started = True
        self._model = event.model or self._request.model
        if event.extra.get("dialect") == "openai":
            self._id = event.id or self._id
            self._own |= {k: event.extra[k] for k in _OWN if k in event.extra}
            self._null_content = event.extra.get("content_null", False)

    def _begin(self, event: BlockStart) -> None:
        if not self._started or event.index in self._blocks:
            raise LocalProtocolError(f"block {event.index} began twice or before its message")
        if event.kind is BlockKind.OPAQUE:
            raise LocalProtocolError("an opaque block was about to be released")
        self._blocks[event.index] = event
        if event.kind is BlockKind.TOOL_USE:
            self._calls[event.index] = len(self._calls)

    def _block(self, index: int) -> BlockStart:
        if index not in self._blocks:
            raise LocalProtocolError(f"content for block {index}, which did not begin")
        return self._blocks[index]

    def _call(self, index: int) -> int:
        if index not in self._calls:
            raise LocalProtocolError(f"arguments for block {index}, which is no tool call")
        return self._calls[index]

    def _check(self) -> None:
        if self._ended:
            raise LocalProtocolError("an event after the end of the message")

    def _end(self) -> None:
        if not self._started:
            raise LocalProtocolError("a message ended before it began")
        self._ended = True

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "model": self._model, **self._own}


def _reasoning_field(block: BlockStart) -> str:
    return block.name if block.name in _REASONING_FIELDS else "reasoning_content"


class StreamEncoder(_Encoder):
    """Frames for a client that streams."""

    def __init__(self, request: ChatRequest, call_id: str, created: int) -> None:
        super().__init__(request, call_id, created)
        self._frame = self._delta = b""
        self._prefixes: dict[int, bytes] = {}
        self._with_arguments: set[int] = set()

    def encode(self, events: Sequence[Event]) -> bytes:
        """Return the frames for `events`."""
        out: list[bytes] = []
        for event in events:
            self._check()
            if type(event) is TextDelta and event.index in self._prefixes:
                out += (self._prefixes[event.index], _text(event.text), _SUFFIX)
            else:
                self._other(event, out)
        return b"".join(out)

    def _other(self, event: Event, out: list[bytes]) -> None:
        match event:
            case MessageStart():
                self._start(event)
                self._frame = b"data: " + dumps(self._head("chat.completion.chunk"))[:-1]
                self._delta = self._frame + b',"choices":[{"index":0,"delta":{'
                out += (self._delta, b'"role":"assistant","content":', b"null" if self._null_content else b'""', _SUFFIX)
            case BlockStart():
                self._begin(event)
                self._block_start(event, out)
            case TextDelta():
                raise LocalProtocolError(f"text for block {event.index}, which is not open for it")
            case ArgumentsDelta():
                if event.text:
                    self._with_arguments.add(event.index)
                    self._arguments(event.index, event.text, out)
            case BlockStop():
                if self._block(event.index).kind is BlockKind.TOOL_USE and event.index not in self._with_arguments:
                    self._arguments(event.index, "{}", out)
                self._prefixes.pop(event.index, None)
            case MessageStop():
                self._end()
                out += (self._frame, b',"choices":[{"index":0,"delta":{},"finish_reason":', _json(_FINISH[event.stop_reason]), b"}]}\n\n")
                if self._request.include_usage and (usage := _usage(event)):
                    out += (self._frame, b',"choices":[],"usage":', _json(usage), b"}\n\n")
                out.append(b"data: [DONE]\n\n")
            case UpstreamFailed():
                self._ended = True
                out.append(errors_wire.error_frame("openai", event.kind, event.message, None))
            case _:
                # signatures have no place in this dialect
                pass

    def _block_start(self, event: BlockStart, out: list[bytes]) -> None:
        match event.kind:
            case BlockKind.TEXT:
                self._prefixes[event.index] = self._delta + b'"content":'
            case BlockKind.THINKING:
                self._prefixes[event.index] = self._delta + b'"%s":' % _reasoning_field(event).encode()
            case BlockKind.TOOL_USE:
                function = {"name": event.name, "arguments": ""}
                call = {"index": self._calls[event.index], "id": event.id, "type": "function", "function": function}
                out += (self._delta, b'"tool_calls":[', dumps(call), b"]", _SUFFIX)
            case _:
                # carried whole in the other dialect, invisible in this one
                pass

    def _arguments(self, index: int, text: str, out: list[bytes]) -> None:
        out += (self._delta, b'"tool_calls":[{"index":%d,"function":{"arguments":%s}}]' % (self._call(index), _text(text)), _SUFFIX)

    def keepalive(self) -> bytes:
        """A comment: SDKs skip it."""
        return b": keepalive\n\n"


class WholeEncoder(_Encoder):
    """The one body for a client that does not stream."""

    content_type = "application/json"

    def __init__(self, request: ChatRequest, call_id: str, created: int) -> None:
        super().__init__(request, call_id, created)
        self._texts: dict[str, list[str]] = {"content": []}
        self._arguments: dict[int, list[str]] = {}

    def encode(self, events: Sequence[Event]) -> bytes:
        """Return the body with MessageStop, nothing before."""
        body = b""
        for event in events:
            self._check()
            match event:
                case TextDelta():
                    block = self._block(event.index)
                    if block.kind not in (BlockKind.TEXT, BlockKind.THINKING):
                        raise LocalProtocolError(f"text for block {event.index}, which is not open for it")
                    field = "content" if block.kind is BlockKind.TEXT else _reasoning_field(block)
                    self._texts.setdefault(field, []).append(event.text)
                case ArgumentsDelta():
                    self._call(event.index)
                    self._arguments.setdefault(event.index, []).append(event.text)
                case MessageStart():
                    self._start(event)
                case BlockStart():
                    self._begin(event)
                case MessageStop():
                    self._end()
                    body = self._body(event)
                case UpstreamFailed():
                    self._ended = True
                    body = errors_wire.failed_response("openai", event)[2]
                case _:
                    pass
        return body

    def _body(self, stop: MessageStop) -> bytes:
        content = "".join(self._texts.pop("content"))
        nothing = None if self._calls or self._null_content else ""
        message: dict[str, Any] = {"role": "assistant", "content": content or nothing, "refusal": None}
        message |= {field: "".join(texts) for field, texts in self._texts.items()}
        if self._calls:
            message["tool_calls"] = [self._tool(index) for index in self._calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _FINISH[stop.stop_reason]}
        body = self._head("chat.completion") | {"choices": [choice]}
        if usage := _usage(stop):
            body["usage"] = usage
        return dumps(body)

    def _tool(self, index: int) -> dict[str, Any]:
        block, arguments = self._blocks[index], "".join(self._arguments.get(index, ()))
        return {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": arguments or "{}"}}

    def keepalive(self) -> bytes:
        """None exists in the middle of a body."""
        return b""


def make(request: ChatRequest, *, call_id: str, created: int) -> StreamEncoder | WholeEncoder:
    """Return the encoder that `request` asks for."""
    return (StreamEncoder if request.stream else WholeEncoder)(request, call_id, created)
