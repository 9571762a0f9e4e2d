"""Events to Messages answers, streamed and whole (protocol.md 1.5).

Measured on the SDK: every frame needs its `event:` line, block indices are dense, message_delta has usage. Blocks that
policies dropped leave no gap: the encoder numbers blocks as they begin. One block is open at a time.
"""

import json
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
from protocol.request import ChatRequest


def _json(value: Any) -> bytes:
    # what msgspec refuses (lone surrogates) goes out as JSON escapes, exactly as it came
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def _usage(usage: Usage) -> dict[str, Any]:
    body: dict[str, Any] = {"input_tokens": usage.input_tokens or 0, "output_tokens": usage.output_tokens or 0}
    if usage.cache_write_tokens is not None:
        body["cache_creation_input_tokens"] = usage.cache_write_tokens
    if usage.cache_read_tokens is not None:
        body["cache_read_input_tokens"] = usage.cache_read_tokens
    if usage.thinking_tokens is not None:
        body["output_tokens_details"] = {"thinking_tokens": usage.thinking_tokens}
    return body


def _frame(kind: str, body: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), _json({"type": kind, **body}))


class _Encoder:
    def __init__(self, request: ChatRequest, call_id: str) -> None:
        self._request = request
        self._id = f"msg_{call_id.replace('-', '')}"
        self._open: tuple[int, BlockKind] | None = None
        self._count = 0
        self._ended = False

    def _message(self, start: MessageStart) -> dict[str, Any]:
        if start.id.startswith("msg_"):
            self._id = start.id
        return {
            "id": self._id, "type": "message", "role": "assistant", "model": start.model or self._request.model,
            "content": [], "stop_reason": None, "stop_sequence": None, "usage": _usage(start.usage),
        }  # fmt: skip

    def _begin(self, event: BlockStart) -> int:
        if self._open is not None:
            raise LocalProtocolError("a block began inside an open one")
        self._open = (event.index, event.kind)
        self._count += 1
        return self._count - 1

    def _in(self, index: int) -> BlockKind:
        if self._open is None or self._open[0] != index:
            raise LocalProtocolError("a delta outside its block")
        return self._open[1]


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
        case BlockKind.OPAQUE:
            raise LocalProtocolError("an opaque block was about to be released")


class StreamEncoder(_Encoder):
    """Frames for a client that streams."""

    content_type = "text/event-stream; charset=utf-8"

    def __init__(self, request: ChatRequest, call_id: str) -> None:
        super().__init__(request, call_id)
        self._prefix = b""

    def encode(self, events: Sequence[Event]) -> bytes:
        """Return the frames for `events`."""
        out: list[bytes] = []
        for event in events:
            if self._ended:
                raise LocalProtocolError("an event after the end of the message")
            if type(event) is TextDelta and self._open is not None and self._open[0] == event.index:
                out.append(self._prefix + _json(event.text) + b"}}\n\n")
            else:
                self._other(event, out)
        return b"".join(out)

    def _other(self, event: Event, out: list[bytes]) -> None:
        match event:
            case MessageStart():
                out.append(_frame("message_start", {"message": self._message(event)}))
            case BlockStart():
                at = self._begin(event)
                field = b'"thinking_delta","thinking":' if event.kind is BlockKind.THINKING else b'"text_delta","text":'
                self._prefix = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":%s' % (
                    at,
                    field,
                )
                out.append(_frame("content_block_start", {"index": at, "content_block": _block(event)}))
            case ArgumentsDelta():
                self._in(event.index)
                out.append(
                    _frame(
                        "content_block_delta", {"index": self._count - 1, "delta": {"type": "input_json_delta", "partial_json": event.text}}
                    )
                )
            case SignatureDelta():
                self._in(event.index)
                out.append(
                    _frame(
                        "content_block_delta",
                        {"index": self._count - 1, "delta": {"type": "signature_delta", "signature": event.signature}},
                    )
                )
            case BlockStop():
                self._in(event.index)
                self._open = None
                out.append(_frame("content_block_stop", {"index": self._count - 1}))
            case MessageStop():
                self._ended = True
                delta = {"stop_reason": str(event.stop_reason), "stop_sequence": event.stop_sequence}
                out.append(_frame("message_delta", {"delta": delta, "usage": _usage(event.usage)}))
                out.append(_frame("message_stop", {}))
            case UpstreamFailed():
                self._ended = True
                out.append(errors_wire.error_frame("anthropic", event.kind, event.message, None))
            case TextDelta():
                raise LocalProtocolError("text outside its block")
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
            if self._ended:
                raise LocalProtocolError("an event after the end of the message")
            match event:
                case TextDelta() | ArgumentsDelta():
                    self._in(event.index)
                    self._parts.append(event.text)
                case MessageStart():
                    self._body = self._message(event)
                case BlockStart():
                    self._begin(event)
                    self._parts, self._signature = [], ""
                    self._body["content"].append(_block(event))
                case SignatureDelta():
                    self._signature = event.signature
                case BlockStop():
                    self._end_block(self._in(event.index))
                case MessageStop():
                    self._ended = True
                    self._body |= {
                        "stop_reason": str(event.stop_reason),
                        "stop_sequence": event.stop_sequence,
                        "usage": _usage(event.usage),
                    }
                    out = _json(self._body)
                case UpstreamFailed():
                    self._ended = True
                    out = errors_wire.failed_response("anthropic", event)[2]
                case _:
                    pass
        return out

    def _end_block(self, kind: BlockKind) -> None:
        self._open = None
        block, text = self._body["content"][-1], "".join(self._parts)
        match kind:
            case BlockKind.TEXT:
                block["text"] = text
            case BlockKind.THINKING:
                block["thinking"], block["signature"] = text, self._signature
            case BlockKind.TOOL_USE:
                block["input"] = json.loads(text or "{}")
            case _:
                pass

    def keepalive(self) -> bytes:
        """None exists in the middle of a body."""
        return b""


def make(request: ChatRequest, *, call_id: str, created: int) -> StreamEncoder | WholeEncoder:
    """Return the encoder that `request` asks for. The dialect has no time of creation."""
    return (StreamEncoder if request.stream else WholeEncoder)(request, call_id)
