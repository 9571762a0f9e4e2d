"""Messages answers, streamed and whole, to events. Blocks are addressed by their index, never by "the latest".

Tool calls arrive as deltas, complete in `content_block_start.input`, or inside `message_start.content`: all three give
the same events. Blocks that we do not model are opaque: their deltas are swallowed by index, so they never touch a
client's call. An error frame or a cut stream gives UpstreamFailed, never a stop.
"""

from typing import Any

import msgspec

from protocol.errors import RemoteProtocolError
from protocol.events import (
    ArgumentsDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    MessageStart,
    MessageStop,
    Opaque,
    Ping,
    SignatureDelta,
    StopReason,
    TextDelta,
    UpstreamFailed,
    Usage,
)
from protocol.sse import parse_event

_MAX_MESSAGE = 500


class _Delta(msgspec.Struct):
    type: str = ""
    text: str = ""
    partial_json: str = ""
    thinking: str = ""
    signature: str = ""
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: Any = None


class _Details(msgspec.Struct, gc=False):
    thinking_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: _Details | None = None


class _Message(msgspec.Struct):
    id: str = ""
    model: str = ""
    content: list[dict[str, Any]] = []
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: _Usage | None = None
    type: str = ""
    error: Any = None


class _Frame(msgspec.Struct):
    type: str
    index: int = -1
    delta: _Delta | None = None
    content_block: dict[str, Any] | None = None
    message: _Message | None = None
    usage: _Usage | None = None
    error: Any = None


_frame = msgspec.json.Decoder(_Frame)
_whole = msgspec.json.Decoder(_Message)
_compact = msgspec.json.encode
_REASONS = {str(r): r for r in StopReason}


def _usage(usage: _Usage | None) -> Usage:
    if usage is None:
        return Usage()
    thinking = usage.output_tokens_details.thinking_tokens if usage.output_tokens_details else None
    return Usage(usage.input_tokens, usage.output_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens, thinking)


def _failed(error: Any) -> UpstreamFailed:
    kind, message = "api_error", "the upstream reported an error"
    if isinstance(error, dict):
        kind = error["type"] if isinstance(error.get("type"), str) else kind
        message = error["message"][:_MAX_MESSAGE] if isinstance(error.get("message"), str) else message
    return UpstreamFailed(kind, message)


def _reason(reason: str | None) -> StopReason:
    if reason is None:
        raise RemoteProtocolError("upstream ended its message without a stop reason")
    found = _REASONS.get(reason)
    if found is None:
        raise RemoteProtocolError(f"upstream ended its message with the unknown stop reason {reason[:40]!r}")
    return found


class StreamDecoder:
    """Streamed frames to events."""

    def __init__(self) -> None:
        self._message_id: str | None = None
        self._bare = True
        self._blocks: dict[int, BlockKind] = {}
        self._stop: tuple[str | None, str | None] = (None, None)
        self._usage = Usage()
        self._extra: dict[str, Any] = {}
        self._done = False

    def feed(self, chunk: bytes) -> list[Event]:
        """Decode one SSE event. Raises RemoteProtocolError."""
        name, data = parse_event(chunk)
        if not data:
            return []
        try:
            frame = _frame.decode(data)
        except (msgspec.MsgspecError, RecursionError) as error:
            if name == "error":
                self._done = True
                return [_failed(None)]
            raise RemoteProtocolError("upstream sent a frame that is not one of its dialect") from error
        if self._done:
            return [Opaque("data after the end")]
        return self._take(frame)

    def _take(self, frame: _Frame) -> list[Event]:
        kind = frame.type
        if kind == "content_block_delta":
            return self._delta(frame)
        if kind == "content_block_start":
            return self._start(frame.index, frame.content_block or {})
        if kind == "content_block_stop":
            return self._end(frame.index)
        if kind == "message_delta":
            self._usage = self._usage.updated(_usage(frame.usage))
            if frame.delta is not None and frame.delta.stop_reason is not None:
                self._stop = (frame.delta.stop_reason, frame.delta.stop_sequence)
            return []
        if kind == "message_start":
            return self._message(frame.message or _Message())
        if kind == "message_stop":
            self._done = True
            return [MessageStop(_reason(self._stop[0]), self._usage, self._stop[1], self._extra)]
        if kind == "ping":
            return [Ping()]
        if kind == "error":
            self._done = True
            return [_failed(frame.error)]
        return [Opaque(f"event {kind[:60]}")]

    def _message(self, message: _Message) -> list[Event]:
        if self._message_id is not None:
            if message.id == self._message_id and self._bare:
                return []
            raise RemoteProtocolError("upstream began another message inside an open one")
        self._message_id = message.id
        self._usage = _usage(message.usage)
        self._stop = (message.stop_reason, message.stop_sequence)
        events: list[Event] = [MessageStart(message.id, message.model, self._usage)]
        for index, block in enumerate(message.content):
            events += self._start(index, block)
            events += self._end(index)
        return events

    def _start(self, index: int, block: dict[str, Any]) -> list[Event]:
        if self._message_id is None:
            raise RemoteProtocolError("upstream began a block before its message")
        if index in self._blocks or index < 0:
            raise RemoteProtocolError(f"upstream began block {index} twice")
        self._bare = False
        events = _block_start(index, block)
        first = events[0]
        self._blocks[index] = first.kind if isinstance(first, BlockStart) else BlockKind.OPAQUE
        return events

    def _delta(self, frame: _Frame) -> list[Event]:
        delta, index = frame.delta or _Delta(), frame.index
        block = self._blocks.get(index)
        kind = delta.type
        if kind == "text_delta" and block is BlockKind.TEXT:
            return [TextDelta(index, delta.text)]
        if kind == "input_json_delta" and block is BlockKind.TOOL_USE:
            return [ArgumentsDelta(index, delta.partial_json)] if delta.partial_json else []
        if kind == "thinking_delta" and block is BlockKind.THINKING:
            return [TextDelta(index, delta.thinking)]
        if kind == "signature_delta" and block is BlockKind.THINKING:
            return [SignatureDelta(index, delta.signature)]
        if block is BlockKind.OPAQUE:
            return [Opaque(f"delta {kind[:60]}")]
        if block is None:
            raise RemoteProtocolError(f"upstream sent a delta for block {index}, which is not open")
        if kind in ("text_delta", "input_json_delta", "thinking_delta", "signature_delta"):
            raise RemoteProtocolError(f"upstream sent a {kind} for block {index}, which is a {block} block")
        return [Opaque(f"delta {kind[:60]}")]

    def _end(self, index: int) -> list[Event]:
        block = self._blocks.get(index)
        if block is None:
            raise RemoteProtocolError(f"upstream ended block {index}, which is not open")
        return [] if block is BlockKind.OPAQUE else [BlockStop(index)]

    def finish(self) -> list[Event]:
        """The stream is over. Without message_stop it was cut."""
        if self._done:
            return []
        self._done = True
        return [UpstreamFailed("api_error", "the upstream ended its answer without finishing it")]


def _block_start(index: int, block: dict[str, Any]) -> list[Event]:
    """The events of a block's start, with what it already contains; an unmodelled block is one Opaque."""
    kind = block.get("type")
    if kind == "text":
        events: list[Event] = [BlockStart(index, BlockKind.TEXT)]
        if text := block.get("text"):
            events.append(TextDelta(index, _string(text)))
        if block.get("citations"):
            events.append(Opaque("citations"))
        return events
    if kind == "thinking":
        events = [BlockStart(index, BlockKind.THINKING)]
        if text := block.get("thinking"):
            events.append(TextDelta(index, _string(text)))
        if signature := block.get("signature"):
            events.append(SignatureDelta(index, _string(signature)))
        return events
    if kind == "tool_use":
        events = [BlockStart(index, BlockKind.TOOL_USE, id=_string(block.get("id", "")), name=_string(block.get("name", "")))]
        if block.get("input"):
            events.append(ArgumentsDelta(index, _compact(block["input"]).decode()))
        return events
    if kind == "redacted_thinking":
        return [BlockStart(index, BlockKind.OTHER, name="redacted_thinking", body=block)]
    return [Opaque(f"block {str(kind)[:60]}")]


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise RemoteProtocolError("upstream sent something else where its dialect has a string")
    return value


def decode_whole(body: bytes) -> list[Event]:
    """Decode a whole answer. Raises RemoteProtocolError."""
    try:
        message = _whole.decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise RemoteProtocolError("upstream's answer is not one of its dialect") from error
    if message.type == "error":
        return [_failed(message.error)]
    if message.type != "message":
        raise RemoteProtocolError("upstream's answer is not a message")
    usage = _usage(message.usage)
    events: list[Event] = [MessageStart(message.id, message.model, usage)]
    for index, block in enumerate(message.content):
        started = _block_start(index, block)
        events += started
        if isinstance(started[0], BlockStart):
            events.append(BlockStop(index))
    events.append(MessageStop(_reason(message.stop_reason), usage, message.stop_sequence))
    return events
