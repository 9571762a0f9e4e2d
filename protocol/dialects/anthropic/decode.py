"""Messages answers, streamed and whole, to events. Blocks are addressed by their index, never by
"the latest".

Tool calls, the client's and the provider's, arrive as deltas, complete in
`content_block_start.input`, or inside `message_start.content`: all three give the same events.
Blocks that we do not model are opaque: their deltas are swallowed by index, so they never touch a
client's call. An error frame or a cut stream gives UpstreamFailed, never a stop.
"""

import re
from typing import Any

from msgspec import UNSET

from protocol.bounds import MAX_BLOCKS
from protocol.bytes.json_strict import loads_foreign
from protocol.bytes.sse import parse_event
from protocol.bytes.unknown import Unknown, named, split_unknown
from protocol.dialects.anthropic.blocks import begin_block
from protocol.dialects.anthropic.cited import read_citation
from protocol.dialects.anthropic.metadata import counts, later_usage, read_extras, read_stop_details
from protocol.dialects.anthropic.wire import DELTAS, Delta, Frame, Message, read_frame, read_message
from protocol.errors import RemoteProtocolError
from protocol.events import (
    ArgumentsDelta,
    AttachmentDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    MessageStart,
    MessageStop,
    Opaque,
    Ping,
    RawDelta,
    SignatureDelta,
    StopReason,
    TextDelta,
    UpstreamFailed,
    Usage,
)

_MAX_MESSAGE = 500
_MAX_NAME = 60
_EVENT_NAME = re.compile(r"[A-Za-z0-9_.-]{1,60}")
_REASONS = {str(r): r for r in StopReason}
# a delta that says nothing: what an unmodelled field of a delta is written with, apart from the
# delta's own content
_EMPTY_DELTAS = {
    "text_delta": "text",
    "input_json_delta": "partial_json",
    "thinking_delta": "thinking",
}


def _failed(error: Any) -> UpstreamFailed:
    kind, message = "api_error", "the upstream reported an error"
    if isinstance(error, dict):
        kind = error["type"][:_MAX_NAME] if isinstance(error.get("type"), str) else kind
        message = (
            error["message"][:_MAX_MESSAGE] if isinstance(error.get("message"), str) else message
        )
    return UpstreamFailed(kind, message)


def _reason(reason: str | None) -> StopReason:
    if reason is None:
        raise RemoteProtocolError("upstream ended its message without a stop reason")
    if reason not in _REASONS:
        raise RemoteProtocolError("upstream ended its message with an unknown stop reason")
    return _REASONS[reason]


class StreamDecoder:
    """Streamed frames to events. `unknown` names what may pass though it is not modelled
    (`Opaque.what`)."""

    def __init__(self, unknown: frozenset[str] = frozenset()) -> None:
        self._unknown = unknown
        self._message_id: str | None = None
        self._bare = True
        self._open: dict[int, BlockKind] = {}
        self._seen: set[int] = set()
        self._shift, self._places = 0, dict[int, int]()
        """How often a block began in an open one's place, and the index that those since then
        have."""
        self._raw: set[int] = set()
        self._compactions: dict[int, BlockStart] = {}
        self._stop: tuple[str | None, str | None] = (None, None)
        self._usage = Usage()
        self._extra: dict[str, Any] = {}
        self._explanation = ""
        self._done = False

    def feed(self, chunk: bytes) -> list[Event]:
        """Decode one SSE event. Raises RemoteProtocolError; what comes after that, or after the
        end, is withheld."""
        name, data = parse_event(chunk)
        if not data:
            return []
        if self._done:
            return [Opaque("data after the end")]
        try:
            frame, unknown_fields = read_frame(data)
            if self._shift and frame.type != "content_block_start":
                frame.index = self._places.get(frame.index, frame.index)
            if frame.type == "content_block_delta" and not unknown_fields:
                return self._delta(frame, data)
            return self._take(frame, data, unknown_fields)
        except (ValueError, RecursionError) as error:
            self._done = True
            if name == "error":
                return [_failed(None)]
            raise RemoteProtocolError(
                "upstream sent a frame that is not one of its dialect"
            ) from error
        except RemoteProtocolError:
            self._done = True
            raise

    def _take(self, frame: Frame, data: bytes, unknown_fields: Unknown) -> list[Event]:
        allowed, withheld = split_unknown(unknown_fields, self._unknown)
        events = self._by_type(frame, data, allowed)
        # what the frame had no place for
        withheld += [named(at, name) for at, fields in allowed.items() for name in fields]
        return [*events, *map(Opaque, withheld)]

    def _by_type(self, frame: Frame, data: bytes, fields: Unknown) -> list[Event]:
        """Decode a frame and take out of `fields`, the unmodelled ones that may pass, those that it
        carries on."""
        match frame.type:
            case "content_block_delta":
                return [*self._raw_fields(frame, fields), *self._delta(frame, data)]
            case "content_block_start":
                return self._start(frame.index, frame.content_block or {})
            case "content_block_stop":
                return self._end(frame.index)
            case "message_delta":
                return self._message_delta(frame, fields)
            case "message_start":
                return self._message(frame.message or Message(), fields)
            case "message_stop":
                self._keep_fields(fields, "last ")
                return self._message_stop()
            case "ping":
                return [Ping()]
            case "error":
                self._done = True
                return [_failed(frame.error)]
        what = named("event", frame.type)
        # its type becomes a line of the client's stream
        writable = self._message_id is not None and _EVENT_NAME.fullmatch(frame.type)
        return [self._unmodelled(what, -1, data) if writable else Opaque(what)]

    def _message(self, message: Message, fields: Unknown) -> list[Event]:
        if self._message_id is not None:
            if message.id == self._message_id and self._bare:
                return []
            raise RemoteProtocolError("upstream began another message inside an open one")
        self._message_id = message.id
        extra, withheld = read_extras(message, self._unknown)
        extra["dialect"] = "anthropic"
        if fields:
            extra["fields"] = dict(fields)
            fields.clear()
        self._usage = counts(message.usage)
        self._stop = (message.stop_reason, message.stop_sequence)
        events: list[Event] = [MessageStart(message.id, message.model, self._usage, extra)]
        for index, block in enumerate(message.content or ()):
            events += self._start(index, block)
            events += self._end(index)
        return [*events, *map(Opaque, withheld), *self._stop_details(message.stop_details)]

    def whole(self, message: Message, fields: Unknown, withheld: list[str]) -> list[Event]:
        """Decode a whole message; `withheld` names fields of it that may not pass. Raises
        RemoteProtocolError."""
        events = self._message(message, fields)
        start = events[0]
        assert isinstance(start, MessageStart)
        of_start = {name: start.extra.get(name) for name in ("usage", "container")}
        self._extra = {n: v for n, v in of_start.items() if v is not None} | self._extra
        return [*events, *map(Opaque, withheld), *self._message_stop()]

    def _message_delta(self, frame: Frame, fields: Unknown) -> list[Event]:
        self._in_message()
        self._usage = self._usage.updated(counts(frame.usage))
        delta = frame.delta or Delta()
        if delta.stop_reason is not None:
            self._stop = (delta.stop_reason, delta.stop_sequence)
        withheld = self._stop_details(delta.stop_details)
        for holder in (frame, delta):
            extra, more = read_extras(holder, self._unknown)
            self._merge({name: value for name, value in extra.items() if value is not None})
            withheld += map(Opaque, more)
        self._keep_fields(fields)
        return withheld

    def _keep_fields(self, fields: Unknown, frame: str = "") -> None:
        if fields:
            earlier = self._extra.get("fields", {})
            self._extra["fields"] = earlier | {
                frame + at: earlier.get(frame + at, {}) | values for at, values in fields.items()
            }
            fields.clear()

    def _merge(self, extra: dict[str, Any]) -> None:
        if "usage" in extra:
            extra["usage"] = later_usage(self._extra.get("usage", {}), extra["usage"])
        self._extra |= extra

    def _stop_details(self, details: Any) -> list[Event]:
        words, explanation, withheld = read_stop_details(details, self._unknown)
        if words:
            self._extra["stop_details"] = words
        self._explanation = explanation or self._explanation
        return [*map(Opaque, withheld)]

    def _message_stop(self) -> list[Event]:
        self._in_message()
        self._done = True
        # recorded: a message cut by max_tokens ends without the stop of its last block
        stops = [event for index in list(self._open) for event in self._end(index)]
        return [
            *stops,
            MessageStop(
                _reason(self._stop[0]), self._usage, self._stop[1], self._extra, self._explanation
            ),
        ]

    def _in_message(self) -> None:
        if self._message_id is None:
            raise RemoteProtocolError("upstream sent content before its message")

    def _start(self, index: int, block: dict[str, Any]) -> list[Event]:
        self._in_message()
        place = index + self._shift
        ended: list[Event] = []
        if self._open.get(place) in (BlockKind.TEXT, BlockKind.THINKING):
            # Ollama begins a block in the place of one that it did not end
            ended = self._end(place)
            self._shift += 1
            place += 1
        if place in self._seen or index < 0:
            raise RemoteProtocolError(f"upstream began block {index} twice")
        if len(self._seen) >= MAX_BLOCKS:
            raise RemoteProtocolError(f"upstream began more than {MAX_BLOCKS} blocks")
        self._places[index] = place
        index = place
        self._bare = False
        self._seen.add(index)
        events = begin_block(index, block, self._unknown)
        first = events[0]
        if not isinstance(first, BlockStart):
            self._open[index] = BlockKind.OPAQUE
            return ended + events
        self._open[index] = first.kind
        if first.name == "compaction" and first.kind is BlockKind.OTHER:
            # its text comes as a delta, and policies read the block whole
            self._compactions[index] = first
            return ended
        if first.kind is BlockKind.OTHER and named("block", first.name) in self._unknown:
            self._raw.add(index)
        return ended + events

    def _delta(self, frame: Frame, data: bytes) -> list[Event]:
        delta, index = frame.delta or Delta(), frame.index
        block = self._open.get(index)
        kind = delta.type
        if kind == "text_delta" and block is BlockKind.TEXT:
            return [TextDelta(index, delta.text)]
        if kind == "input_json_delta" and (
            block is BlockKind.TOOL_USE or block is BlockKind.SERVER_TOOL_USE
        ):
            return [ArgumentsDelta(index, delta.partial_json)] if delta.partial_json else []
        if kind == "thinking_delta" and block is BlockKind.THINKING:
            return [TextDelta(index, delta.thinking)]
        if kind == "signature_delta" and block is BlockKind.THINKING:
            return [SignatureDelta(index, delta.signature)]
        if block is None:
            raise RemoteProtocolError(f"upstream sent a delta for block {index}, which is not open")
        return self._rare_delta(delta, index, block, data)

    def _rare_delta(self, delta: Delta, index: int, block: BlockKind, data: bytes) -> list[Event]:
        kind, what = delta.type, named("delta", delta.type)
        if index in self._raw:
            return [RawDelta(what, index, loads_foreign(data), "anthropic")]
        if kind == "citations_delta" and block is BlockKind.TEXT:
            known = isinstance(delta.citation, dict)
            return [
                (
                    AttachmentDelta(index, "citation", read_citation(delta.citation))
                    if known
                    else Opaque(what)
                )
            ]
        if kind == "compaction_delta" and index in self._compactions:
            start = self._compactions[index]
            body = {**(start.body or {}), "content": delta.content}
            if delta.encrypted_content is not UNSET:
                body["encrypted_content"] = delta.encrypted_content
            self._compactions[index] = BlockStart(index, start.kind, name=start.name, body=body)
            return []
        if kind in DELTAS and block is not BlockKind.OPAQUE:
            raise RemoteProtocolError(
                f"upstream sent a {kind} for block {index}, which is a {block} block"
            )
        return [Opaque(what) if block is BlockKind.OPAQUE else self._unmodelled(what, index, data)]

    def _unmodelled(self, what: str, index: int, data: bytes) -> Event:
        if what in self._unknown:
            return RawDelta(what, index, loads_foreign(data), "anthropic")
        return Opaque(what)

    def _raw_fields(self, frame: Frame, fields: Unknown) -> list[Event]:
        """Unmodelled fields of a content delta that may pass: each beside a delta of that kind that
        says nothing."""
        kind = frame.delta.type if frame.delta else ""
        if (
            kind not in _EMPTY_DELTAS
            or self._open.get(frame.index, BlockKind.OPAQUE) is BlockKind.OPAQUE
        ):
            return []
        events: list[Event] = []
        for at, values in fields.items():
            for name, value in values.items():
                delta: dict[str, Any] = {"type": kind, _EMPTY_DELTAS[kind]: ""}
                body: dict[str, Any] = {"type": frame.type, "index": frame.index, "delta": delta}
                (delta if at == "delta field" else body)[name] = value
                events.append(RawDelta(named(at, name), frame.index, body, "anthropic"))
        fields.clear()
        return events

    def _end(self, index: int) -> list[Event]:
        block = self._open.pop(index, None)
        if block is None:
            raise RemoteProtocolError(f"upstream ended block {index}, which is not open")
        if block is BlockKind.OPAQUE:
            return []
        held = self._compactions.pop(index, None)
        return [held, BlockStop(index)] if held else [BlockStop(index)]

    def finish(self) -> list[Event]:
        """The stream is over. Without message_stop it was cut."""
        if self._done:
            return []
        self._done = True
        return [UpstreamFailed("api_error", "the upstream ended its answer without finishing it")]


def decode_whole(body: bytes, unknown: frozenset[str] = frozenset()) -> list[Event]:
    """Decode a whole answer. Raises RemoteProtocolError."""
    try:
        message, unknown_fields = read_message(body)
    except ValueError as error:
        raise RemoteProtocolError("upstream's answer is not one of its dialect") from error
    if message.type == "error":
        return [_failed(message.error)]
    if message.type != "message":
        raise RemoteProtocolError("upstream's answer is not a message")
    fields, unnamed = split_unknown(unknown_fields, unknown)
    return StreamDecoder(unknown).whole(message, fields, unnamed)
