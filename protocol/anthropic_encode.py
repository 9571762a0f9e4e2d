"""Events to Messages answers, streamed and whole (protocol.md 1.5).

Measured on the SDK: every frame needs its `event:` line, block indices are dense, message_delta has usage. Blocks that
policies dropped leave no gap: the encoder numbers blocks as they begin. One block is open at a time.
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
    SignatureDelta,
    TextDelta,
    UpstreamFailed,
    Usage,
)
from protocol.json_strict import AmbiguousJson, dumps, loads_arguments, normal_arguments
from protocol.request import ChatRequest

_json = msgspec.json.encode
_DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":"%s":'
_END = b"}}\n\n"


def _text(text: str) -> bytes:
    try:
        return _json(text)
    except UnicodeEncodeError:
        return dumps(text)


def _usage(usage: Usage) -> dict[str, Any]:
    body: dict[str, Any] = {"input_tokens": usage.input_tokens or 0, "output_tokens": usage.output_tokens or 0}
    if usage.cache_write_tokens is not None:
        body["cache_creation_input_tokens"] = usage.cache_write_tokens
    if usage.cache_read_tokens is not None:
        body["cache_read_input_tokens"] = usage.cache_read_tokens
    if usage.thinking_tokens is not None:
        body["output_tokens_details"] = {"thinking_tokens": usage.thinking_tokens}
    return body


def _stop(event: MessageStop) -> dict[str, Any]:
    details = event.extra.get("stop_details")
    return {"stop_reason": str(event.stop_reason), "stop_sequence": event.stop_sequence, **({"stop_details": details} if details else {})}


def _frame(kind: str, body: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), dumps({"type": kind, **body}))


def _block(event: BlockStart) -> dict[str, Any]:
    match event.kind:
        case BlockKind.TEXT:
            return {"type": "text", "text": ""}
        case BlockKind.THINKING:
            return {"type": "thinking", "thinking": "", "signature": ""}
        case BlockKind.TOOL_USE:
            return {"type": "tool_use", "id": event.id, "name": event.name, "input": {}}
        case BlockKind.OTHER:
            return dict(event.body or {})
        case _:
            raise LocalProtocolError("an opaque block was about to be released")


def _input(text: str) -> msgspec.Raw:
    """The arguments as they were decided, to the letter: a number read and written again may be another one."""
    try:
        loads_arguments(text := normal_arguments(text))
    except AmbiguousJson as error:
        raise LocalProtocolError("arguments that are not JSON were about to be released") from error
    return msgspec.Raw(text.encode())


class _Encoder:
    def __init__(self, request: ChatRequest, call_id: str) -> None:
        self._request = request
        self._id = f"msg_{call_id.replace('-', '')}"
        self._open: BlockStart | None = None
        self._count = 0
        self._started = self._ended = False

    def _message(self, start: MessageStart) -> dict[str, Any]:
        if self._started:
            raise LocalProtocolError("a message began twice")
        self._started = True
        same = start.extra.get("dialect") == "anthropic" and start.id
        return {
            "id": start.id if same else self._id, "type": "message", "role": "assistant", "model": start.model or self._request.model,
            "content": [], "stop_reason": None, "stop_sequence": None, "usage": _usage(start.usage),
        }  # fmt: skip

    def _begin(self, event: BlockStart) -> int:
        if not self._started or self._open is not None:
            raise LocalProtocolError("a block began inside an open one or before its message")
        self._open = event
        self._count += 1
        return self._count - 1

    def _in(self, index: int, *kinds: BlockKind) -> BlockStart:
        block = self._open
        if block is None or block.index != index or (kinds and block.kind not in kinds):
            raise LocalProtocolError(f"content for block {index}, which is not open for it")
        return block

    def _check(self) -> None:
        if self._ended:
            raise LocalProtocolError("an event after the end of the message")

    def _end(self) -> None:
        if not self._started or self._open is not None:
            raise LocalProtocolError("a message ended inside a block or before it began")
        self._ended = True


class StreamEncoder(_Encoder):
    """Frames for a client that streams."""

    content_type = "text/event-stream; charset=utf-8"

    def __init__(self, request: ChatRequest, call_id: str) -> None:
        super().__init__(request, call_id)
        self._text_index = -1
        self._prefix = b""

    def encode(self, events: Sequence[Event]) -> bytes:
        """Return the frames for `events`."""
        out: list[bytes] = []
        for event in events:
            self._check()
            if type(event) is TextDelta and event.index == self._text_index:
                out += (self._prefix, _text(event.text), _END)
            else:
                self._other(event, out)
        return b"".join(out)

    def _other(self, event: Event, out: list[bytes]) -> None:
        match event:
            case MessageStart():
                out.append(_frame("message_start", {"message": self._message(event)}))
            case BlockStart():
                out.append(_frame("content_block_start", {"index": self._begin(event), "content_block": _block(event)}))
                if event.kind in (BlockKind.TEXT, BlockKind.THINKING):
                    field = b'text_delta","text' if event.kind is BlockKind.TEXT else b'thinking_delta","thinking'
                    self._text_index, self._prefix = event.index, _DELTA % (self._count - 1, field)
            case TextDelta():
                raise LocalProtocolError(f"text for block {event.index}, which is not open for it")
            case ArgumentsDelta():
                self._in(event.index, BlockKind.TOOL_USE)
                out += (_DELTA % (self._count - 1, b'input_json_delta","partial_json'), _text(event.text), _END)
            case SignatureDelta():
                self._in(event.index, BlockKind.THINKING)
                out += (_DELTA % (self._count - 1, b'signature_delta","signature'), _text(event.signature), _END)
            case BlockStop():
                self._in(event.index)
                self._open, self._text_index = None, -1
                out.append(_frame("content_block_stop", {"index": self._count - 1}))
            case MessageStop():
                self._end()
                out.append(_frame("message_delta", {"delta": _stop(event), "usage": _usage(event.usage)}))
                out.append(_frame("message_stop", {}))
            case UpstreamFailed():
                self._ended = True
                out.append(errors_wire.error_frame("anthropic", event.kind, event.message, None))
            case _:
                pass

    def keepalive(self) -> bytes:
        """The dialect's own ping."""
        return b'event: ping\ndata: {"type": "ping"}\n\n'


class WholeEncoder(_Encoder):
    """The one body for a client that does not stream."""

    content_type = "application/json"

    def __init__(self, request: ChatRequest, call_id: str) -> None:
        super().__init__(request, call_id)
        self._body: dict[str, Any] = {}
        self._parts: list[str] = []
        self._signature = ""

    def encode(self, events: Sequence[Event]) -> bytes:
        """Return the body with MessageStop, nothing before."""
        out = b""
        for event in events:
            self._check()
            match event:
                case TextDelta():
                    self._in(event.index, BlockKind.TEXT, BlockKind.THINKING)
                    self._parts.append(event.text)
                case ArgumentsDelta():
                    self._in(event.index, BlockKind.TOOL_USE)
                    self._parts.append(event.text)
                case SignatureDelta():
                    self._in(event.index, BlockKind.THINKING)
                    self._signature = event.signature
                case MessageStart():
                    self._body = self._message(event)
                case BlockStart():
                    self._begin(event)
                    self._parts, self._signature = [], ""
                    self._body["content"].append(_block(event))
                case BlockStop():
                    self._block_stop(self._in(event.index))
                case MessageStop():
                    self._end()
                    self._body |= {**_stop(event), "usage": _usage(event.usage)}
                    out = dumps(self._body)
                case UpstreamFailed():
                    self._ended = True
                    out = errors_wire.failed_response("anthropic", event)[2]
                case _:
                    pass
        return out

    def _block_stop(self, block: BlockStart) -> None:
        self._open = None
        body, text = self._body["content"][-1], "".join(self._parts)
        match block.kind:
            case BlockKind.TEXT:
                body["text"] = text
            case BlockKind.THINKING:
                body["thinking"], body["signature"] = text, self._signature
            case BlockKind.TOOL_USE:
                body["input"] = _input(text)
            case _:
                pass

    def keepalive(self) -> bytes:
        """None exists in the middle of a body."""
        return b""


def make(request: ChatRequest, *, call_id: str, created: int) -> StreamEncoder | WholeEncoder:
    """Return the encoder that `request` asks for. The dialect has no time of creation."""
    return (StreamEncoder if request.stream else WholeEncoder)(request, call_id)
