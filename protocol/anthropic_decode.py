"""Messages answers, streamed and whole, to events. Blocks are addressed by their index, never by "the latest".

Tool calls arrive as deltas, complete in `content_block_start.input`, or inside `message_start.content`: all three give
the same events. Blocks that we do not model are opaque: their deltas are swallowed by index, so they never touch a
client's call. An error frame or a cut stream gives UpstreamFailed, never a stop.
"""

import re
from typing import Any

from protocol.anthropic_wire import KNOWN_BLOCK_FIELDS, Delta, Frame, FrameUsage, Message, read_frame, read_message
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
from protocol.json_strict import dumps
from protocol.sse import parse_event

_MAX_MESSAGE = 500
_MAX_NAME = 60
_REASONS = {str(r): r for r in StopReason}
_MODELLED_DELTAS = frozenset(("text_delta", "input_json_delta", "thinking_delta", "signature_delta"))
_EXTRA = {"dialect": "anthropic"}
_STOP_DETAILS = ("type", "category", "recommended_model")
_WORD = re.compile(r"[A-Za-z0-9._-]{1,80}")


def _usage(usage: FrameUsage | None) -> Usage:
    if usage is None:
        return Usage()
    thinking = usage.output_tokens_details.thinking_tokens if usage.output_tokens_details else None
    return Usage(usage.input_tokens, usage.output_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens, thinking)


def _failed(error: Any) -> UpstreamFailed:
    kind, message = "api_error", "the upstream reported an error"
    if isinstance(error, dict):
        kind = error["type"][:_MAX_NAME] if isinstance(error.get("type"), str) else kind
        message = error["message"][:_MAX_MESSAGE] if isinstance(error.get("message"), str) else message
    return UpstreamFailed(kind, message)


def _reason(reason: str | None) -> StopReason:
    if reason is None:
        raise RemoteProtocolError("upstream ended its message without a stop reason")
    if reason not in _REASONS:
        raise RemoteProtocolError("upstream ended its message with an unknown stop reason")
    return _REASONS[reason]


class StreamDecoder:
    """Streamed frames to events."""

    def __init__(self, unknown: frozenset[str] = frozenset()) -> None:
        self._unknown = unknown
        self._message_id: str | None = None
        self._bare = True
        self._open: dict[int, BlockKind] = {}
        self._seen: set[int] = set()
        self._stop: tuple[str | None, str | None] = (None, None)
        self._usage = Usage()
        self._extra: dict[str, Any] = {}
        self._done = False

    def feed(self, chunk: bytes) -> list[Event]:
        """Decode one SSE event. Raises RemoteProtocolError; what comes after that, or after the end, is withheld."""
        name, data = parse_event(chunk)
        if not data:
            return []
        if self._done:
            return [Opaque("data after the end")]
        try:
            frame, unknown = read_frame(data)
            if frame.type == "content_block_delta" and not unknown:
                return self._delta(frame)
            return [*self._take(frame), *map(Opaque, unknown)]
        except ValueError as error:
            self._done = True
            if name == "error":
                return [_failed(None)]
            raise RemoteProtocolError("upstream sent a frame that is not one of its dialect") from error
        except RemoteProtocolError:
            self._done = True
            raise

    def _take(self, frame: Frame) -> list[Event]:
        match frame.type:
            case "content_block_delta":
                return self._delta(frame)
            case "content_block_start":
                return self._start(frame.index, frame.content_block or {})
            case "content_block_stop":
                return self._end(frame.index)
            case "message_delta":
                return self._message_delta(frame)
            case "message_start":
                return self._message(frame.message or Message())
            case "message_stop":
                return self._message_stop()
            case "ping":
                return [Ping()]
            case "error":
                self._done = True
                return [_failed(frame.error)]
        return [Opaque(f"event {frame.type[:_MAX_NAME]}")]

    def _message(self, message: Message) -> list[Event]:
        if self._message_id is not None:
            if message.id == self._message_id and self._bare:
                return []
            raise RemoteProtocolError("upstream began another message inside an open one")
        self._message_id = message.id
        self._usage = _usage(message.usage)
        self._stop = (message.stop_reason, message.stop_sequence)
        events: list[Event] = [MessageStart(message.id, message.model, self._usage, _EXTRA)]
        for index, block in enumerate(message.content or ()):
            events += self._start(index, block)
            events += self._end(index)
        return events + _withheld_fields(message)

    def _message_delta(self, frame: Frame) -> list[Event]:
        self._in_message()
        self._usage = self._usage.updated(_usage(frame.usage))
        if frame.delta is None:
            return []
        if frame.delta.stop_reason is not None:
            self._stop = (frame.delta.stop_reason, frame.delta.stop_sequence)
        self._extra |= _stop_details(frame.delta.stop_details)
        return _withheld_fields(frame.delta)

    def _message_stop(self) -> list[Event]:
        self._in_message()
        self._done = True
        # recorded: a message cut by max_tokens ends without the stop of its last block
        stops = [BlockStop(index) for index, kind in self._open.items() if kind is not BlockKind.OPAQUE]
        return [*stops, MessageStop(_reason(self._stop[0]), self._usage, self._stop[1], self._extra)]

    def _in_message(self) -> None:
        if self._message_id is None:
            raise RemoteProtocolError("upstream sent content before its message")

    def _start(self, index: int, block: dict[str, Any]) -> list[Event]:
        self._in_message()
        if index in self._seen or index < 0:
            raise RemoteProtocolError(f"upstream began block {index} twice")
        self._bare = False
        self._seen.add(index)
        events = _block_start(index, block)
        first = events[0]
        self._open[index] = first.kind if isinstance(first, BlockStart) else BlockKind.OPAQUE
        return events

    def _delta(self, frame: Frame) -> list[Event]:
        delta, index = frame.delta or Delta(), frame.index
        block = self._open.get(index)
        kind = delta.type
        if kind == "text_delta" and block is BlockKind.TEXT:
            return [TextDelta(index, delta.text)]
        if kind == "input_json_delta" and block is BlockKind.TOOL_USE:
            return [ArgumentsDelta(index, delta.partial_json)] if delta.partial_json else []
        if kind == "thinking_delta" and block is BlockKind.THINKING:
            return [TextDelta(index, delta.thinking)]
        if kind == "signature_delta" and block is BlockKind.THINKING:
            return [SignatureDelta(index, delta.signature)]
        if block is None:
            raise RemoteProtocolError(f"upstream sent a delta for block {index}, which is not open")
        if kind in _MODELLED_DELTAS and block is not BlockKind.OPAQUE:
            raise RemoteProtocolError(f"upstream sent a {kind} for block {index}, which is a {block} block")
        return [Opaque(f"delta {kind[:_MAX_NAME]}")]

    def _end(self, index: int) -> list[Event]:
        block = self._open.pop(index, None)
        if block is None:
            raise RemoteProtocolError(f"upstream ended block {index}, which is not open")
        return [] if block is BlockKind.OPAQUE else [BlockStop(index)]

    def finish(self) -> list[Event]:
        """The stream is over. Without message_stop it was cut."""
        if self._done:
            return []
        self._done = True
        return [UpstreamFailed("api_error", "the upstream ended its answer without finishing it")]


def _stop_details(details: Any) -> dict[str, Any]:
    """Why a refusal was one, as far as it is words of a list and not a text that nobody judged."""
    if not isinstance(details, dict):
        return {}
    found = {k: v for k, v in details.items() if k in _STOP_DETAILS and isinstance(v, str) and _WORD.fullmatch(v)}
    return {"stop_details": found} if found else {}


def _withheld_fields(holder: Message | Delta) -> list[Event]:
    found: list[Event] = [Opaque("container")] if holder.container else []
    details = holder.stop_details
    if isinstance(details, dict):
        found += [Opaque(f"stop_details {str(k)[:_MAX_NAME]}") for k, v in details.items() if v and k not in _STOP_DETAILS]
    return found


def _block_start(index: int, block: dict[str, Any]) -> list[Event]:
    """The events of a block's start, with what it already contains; an unmodelled block is one Opaque."""
    kind = _string(block, "type")
    events: list[Event]
    match kind:
        case "text":
            events = [BlockStart(index, BlockKind.TEXT)]
            if text := _string(block, "text"):
                events.append(TextDelta(index, text))
        case "thinking":
            events = [BlockStart(index, BlockKind.THINKING)]
            if text := _string(block, "thinking"):
                events.append(TextDelta(index, text))
            if signature := _string(block, "signature"):
                events.append(SignatureDelta(index, signature))
        case "tool_use":
            events = [BlockStart(index, BlockKind.TOOL_USE, id=_string(block, "id"), name=_string(block, "name"))]
            if block.get("input"):
                events.append(ArgumentsDelta(index, dumps(block["input"]).decode()))
        case "redacted_thinking":
            return [BlockStart(index, BlockKind.OTHER, name="redacted_thinking", body=block)]
        case _:
            return [Opaque(f"block {kind[:_MAX_NAME]}")]
    return events + _more_fields(block, kind)


def _more_fields(block: dict[str, Any], kind: str) -> list[Event]:
    known = KNOWN_BLOCK_FIELDS[kind]
    found: list[Event] = [Opaque(f"{kind} field {name[:_MAX_NAME]}") for name, value in block.items() if value and name not in known]
    if block.get("citations"):
        found.append(Opaque("citations"))
    if block.get("caller") not in (None, {"type": "direct"}):
        found.append(Opaque("caller"))
    return found


def _string(block: dict[str, Any], name: str) -> str:
    value = block.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise RemoteProtocolError("upstream sent something else where its dialect has a string")
    return value


def decode_whole(body: bytes, unknown: frozenset[str] = frozenset()) -> list[Event]:
    """Decode a whole answer. Raises RemoteProtocolError."""
    try:
        message, found = read_message(body)
    except ValueError as error:
        raise RemoteProtocolError("upstream's answer is not one of its dialect") from error
    if message.type == "error":
        return [_failed(message.error)]
    if message.type != "message":
        raise RemoteProtocolError("upstream's answer is not a message")
    usage = _usage(message.usage)
    events: list[Event] = [MessageStart(message.id, message.model, usage, _EXTRA)]
    for index, block in enumerate(message.content or ()):
        started = _block_start(index, block)
        events += started
        if isinstance(started[0], BlockStart):
            events.append(BlockStop(index))
    events += _withheld_fields(message)
    events.extend(map(Opaque, found))
    events.append(MessageStop(_reason(message.stop_reason), usage, message.stop_sequence, _stop_details(message.stop_details)))
    return events
