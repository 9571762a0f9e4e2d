"""Converse answers to events, one message of the binary event stream at a time
(docs/change/protocol.md, Converse).

Text and thinking begin with their first piece that is not empty. The token counts come after the
stop reason, so the end of the message waits for them. An exception or a cut stream gives
UpstreamFailed, never a stop.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from protocol.bounds import MAX_BLOCKS
from protocol.bytes.eventstream import parse_message
from protocol.bytes.unknown import named
from protocol.dialects.converse.failures import exception
from protocol.dialects.converse.parts import (
    call_start,
    citation,
    read_reason,
    redacted_start,
    result_start,
    says_something,
)
from protocol.dialects.converse.usage import read_usage
from protocol.dialects.converse.whole import decode_whole as decode_whole
from protocol.dialects.converse.wire import (
    Delta,
    DeltaEvent,
    MessageStartEvent,
    MessageStopEvent,
    MetadataEvent,
    ReasoningPiece,
    StartEvent,
    StopEvent,
    TextDeltaEvent,
    ToolResult,
    read,
    refuse_several,
)
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
    SignatureDelta,
    StopReason,
    TextDelta,
    UpstreamFailed,
    Usage,
)

_texts, _deltas = msgspec.json.Decoder(TextDeltaEvent), msgspec.json.Decoder(DeltaEvent)


class _Block:
    """A block that is open. What is carried whole, or comes before its text, is collected."""

    __slots__ = ("cited", "kind", "pieces", "result", "signature")

    def __init__(self, kind: BlockKind | None) -> None:
        self.kind = kind
        """None while it is empty: such a block does not begin."""
        self.signature: list[str] = []
        self.pieces: list[str] = []
        self.cited: list[dict[str, Any]] = []
        self.result: tuple[ToolResult, list[dict[str, Any]]] | None = None


class StreamDecoder:
    """Messages of an event stream to events. `unknown` is for dialects whose frames clients read,
    too: nothing passes unmodelled here."""

    def __init__(self, unknown: frozenset[str] = frozenset()) -> None:
        self._has_begun = self._is_done = False
        self._open: dict[int, _Block] = {}
        self._seen: set[int] = set()
        self._stop: StopReason | None = None
        self._held = -1
        """The text block whose end waits: a block that has citations and no text is about it."""
        self._usage, self._native = Usage(), dict[str, Any]()

    def feed(self, chunk: bytes) -> list[Event]:
        """Decode one message. Raises RemoteProtocolError; what comes after that, or after the end,
        is withheld."""
        if self._is_done:
            return [Opaque("data after the end")]
        try:
            headers, payload = parse_message(chunk)
            kind = headers.get(":message-type")
            if kind != "event":
                return self._failed(kind, headers, payload)
            name = headers.get(":event-type", "")
            if name == "contentBlockDelta":
                return self._delta(payload)
            return self._take(name, payload)
        except ValueError as error:
            self._is_done = True
            raise RemoteProtocolError(
                "upstream sent an event that is not one of its dialect"
            ) from error
        except RemoteProtocolError:
            self._is_done = True
            raise

    def finish(self) -> list[Event]:
        """The stream is over: without the word that ends the message it was cut."""
        if self._is_done:
            return []
        self._is_done = True
        if self._stop is not None:
            return [self._end()]
        return [
            *self._let_go(),
            UpstreamFailed("api_error", "the upstream ended its answer without finishing it"),
        ]

    def _failed(self, kind: str | None, headers: Mapping[str, str], payload: bytes) -> list[Event]:
        if kind not in ("exception", "error"):
            raise RemoteProtocolError(
                "upstream sent a message that is neither an event nor an error"
            )
        self._is_done = True
        return [*self._let_go(), exception(headers, payload, is_first=not self._has_begun)]

    def _take(self, name: str, payload: bytes) -> list[Event]:
        match name:
            case "messageStart":
                started, unknown = read(payload, MessageStartEvent, name)
                events = self._message_start(started)
            case "contentBlockStart":
                begun, unknown = read(payload, StartEvent, name)
                events = self._start(begun)
            case "contentBlockStop":
                stopped, unknown = read(payload, StopEvent, name)
                events = self._block_stop(stopped.contentBlockIndex)
            case "messageStop":
                ended, unknown = read(payload, MessageStopEvent, name)
                events = self._message_stop(ended)
            case "metadata":
                counted, unknown = read(payload, MetadataEvent, name)
                events = self._metadata(counted)
            case _:
                return [Opaque(named("event", name))]
        return [*map(Opaque, unknown), *events]

    def _message_start(self, event: MessageStartEvent) -> list[Event]:
        if self._has_begun:
            raise RemoteProtocolError("upstream began another message inside an open one")
        if event.role != "assistant":
            raise RemoteProtocolError("upstream's message is not the assistant's")
        self._has_begun = True
        return [MessageStart("", "", extra={"dialect": "converse"})]

    def _in_message(self) -> None:
        if not self._has_begun or self._stop is not None:
            raise RemoteProtocolError("upstream sent content outside of its message")

    def _new(self, index: int, kind: BlockKind | None) -> _Block:
        self._in_message()
        if index in self._seen or index < 0:
            raise RemoteProtocolError(f"upstream began block {index} twice")
        if len(self._seen) >= MAX_BLOCKS:
            raise RemoteProtocolError(f"upstream began more than {MAX_BLOCKS} blocks")
        self._seen.add(index)
        made = self._open[index] = _Block(kind)
        return made

    def _start(self, event: StartEvent) -> list[Event]:
        index, start = event.contentBlockIndex, event.start
        refuse_several(start)
        before = self._let_go()
        if start.toolUse is not None:
            first = call_start(index, start.toolUse)
            self._new(index, first.kind if isinstance(first, BlockStart) else BlockKind.OPAQUE)
            withheld = (
                []
                if start.toolUse.input is None
                else [Opaque("contentBlockStart.start.toolUse input")]
            )
            return [*before, first, *withheld]
        if start.toolResult is not None:
            self._new(index, BlockKind.OTHER).result = (
                start.toolResult,
                list(start.toolResult.content),
            )
            return before
        self._new(index, BlockKind.OPAQUE)
        return [*before, Opaque("block image" if start.image is not None else "block")]

    def _delta(self, payload: bytes) -> list[Event]:
        try:
            event = _texts.decode(payload)
        except (msgspec.MsgspecError, ValueError):
            return self._other_delta(payload)
        index, text = event.contentBlockIndex, event.delta.text
        block = self._open.get(index)
        if block is not None and block.kind is BlockKind.TEXT and not block.cited:
            return [TextDelta(index, text)] if text else []
        return self._other_delta(payload)

    def _other_delta(self, payload: bytes) -> list[Event]:
        unknown: list[str] = []
        try:
            event = _deltas.decode(payload)
        except (msgspec.MsgspecError, ValueError):
            event, unknown = read(payload, DeltaEvent, "contentBlockDelta")
        delta, index = event.delta, event.contentBlockIndex
        refuse_several(delta)
        block = self._open.get(index)
        if block is None:
            block = self._new(index, None)
        if block.kind is BlockKind.OPAQUE:
            return [Opaque("delta of a withheld block")]
        return [*map(Opaque, unknown), *self._more(index, block, delta)]

    def _more(self, index: int, block: _Block, delta: Delta) -> list[Event]:
        """Return the events of a piece that is not simply more text."""
        if delta.toolUse is not None:
            if block.kind is not BlockKind.TOOL_USE and block.kind is not BlockKind.SERVER_TOOL_USE:
                raise RemoteProtocolError(
                    f"upstream sent arguments for block {index}, which is no tool call"
                )
            return [ArgumentsDelta(index, delta.toolUse.input)] if delta.toolUse.input else []
        if delta.text is not None:
            return self._text(index, block, delta.text)
        if delta.reasoningContent is not None:
            return self._thinking(index, block, delta.reasoningContent)
        if delta.citation is not None:
            if block.kind is None:
                block.cited.append(delta.citation)
                return []
            self._check(index, block, BlockKind.TEXT)
            return [citation(index, delta.citation)]
        if delta.toolResult is not None:
            if block.result is None:
                raise RemoteProtocolError(
                    f"upstream sent a result for block {index}, which is none"
                )
            block.result[1].extend(delta.toolResult)
            return []
        # an image, or what is not modelled and was named above
        return [Opaque("delta image")] if delta.image is not None else []

    def _text(self, index: int, block: _Block, text: str) -> list[Event]:
        if not text:
            return []
        events = self._begun(index, block, BlockKind.TEXT)
        cited, block.cited = block.cited, []
        return [*events, TextDelta(index, text), *(citation(index, source) for source in cited)]

    def _thinking(self, index: int, block: _Block, piece: ReasoningPiece) -> list[Event]:
        if piece.redactedContent:
            if block.kind not in (None, BlockKind.OTHER) or block.result is not None:
                raise RemoteProtocolError(
                    f"upstream sealed block {index}, which has begun in the open"
                )
            block.kind = BlockKind.OTHER
            block.pieces.append(piece.redactedContent)
        if not piece.text and not piece.signature:
            return []
        events = self._begun(index, block, BlockKind.THINKING)
        if piece.signature:
            block.signature.append(piece.signature)
        return [*events, TextDelta(index, piece.text)] if piece.text else events

    def _begun(self, index: int, block: _Block, kind: BlockKind) -> list[Event]:
        """Return the beginning of a block of this kind, where it has not begun."""
        if block.kind is None:
            block.kind = kind
            return [*self._let_go(), BlockStart(index, kind)]
        self._check(index, block, kind)
        return []

    def _check(self, index: int, block: _Block, kind: BlockKind) -> None:
        if block.kind is not kind:
            raise RemoteProtocolError(
                f"upstream sent {kind} for block {index}, which is a {block.kind} block"
            )

    def _block_stop(self, index: int) -> list[Event]:
        block = self._open.pop(index, None)
        if block is None:
            if index in self._seen:
                raise RemoteProtocolError(f"upstream ended block {index}, which is not open")
            # a block without a piece
            self._new(index, None)
            block = self._open.pop(index)
        return self._ended(index, block)

    def _ended(self, index: int, block: _Block) -> list[Event]:
        if block.kind is None or block.kind is BlockKind.OPAQUE:
            if self._held >= 0:
                return [citation(self._held, source) for source in block.cited]
            return [Opaque("citation of no text") for _ in block.cited]
        before = self._let_go()
        if block.kind is BlockKind.TEXT:
            self._held = index
            return before
        if block.result is not None:
            return [*before, result_start(index, *block.result), BlockStop(index)]
        if block.pieces:
            return [*before, redacted_start(index, block.pieces), BlockStop(index)]
        signed = [SignatureDelta(index, "".join(block.signature))] if block.signature else []
        return [*before, *signed, BlockStop(index)]

    def _let_go(self) -> list[Event]:
        """Return the end of the text that waited for citations."""
        if self._held < 0:
            return []
        index, self._held = self._held, -1
        return [BlockStop(index)]

    def _message_stop(self, event: MessageStopEvent) -> list[Event]:
        self._in_message()
        reason = read_reason(event.stopReason)
        # a message that is cut may end without the stop of its last block
        stops: list[Event] = [
            e for index in list(self._open) for e in self._ended(index, self._open.pop(index))
        ]
        stops += self._let_go()
        if says_something(event.additionalModelResponseFields):
            stops.append(Opaque("messageStop additionalModelResponseFields"))
        if isinstance(reason, UpstreamFailed):
            self._is_done = True
            return [*stops, reason]
        self._stop = reason
        return stops

    def _metadata(self, event: MetadataEvent) -> list[Event]:
        if self._stop is None:
            raise RemoteProtocolError("upstream counted a message that has not ended")
        self._usage, self._native, withheld = read_usage(event.usage)
        events: list[Event] = [*map(Opaque, withheld)]
        if event.trace is not None:
            # it quotes what a guardrail masked
            events.append(Opaque("metadata trace"))
        self._is_done = True
        return [*events, self._end()]

    def _end(self) -> MessageStop:
        assert self._stop is not None
        return MessageStop(
            self._stop, self._usage, extra={"usage": self._native} if self._native else {}
        )
