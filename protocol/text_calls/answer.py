"""Reads the answer of a model that got its tools in the prompt: splits the text into calls,
thoughts and text.

A call counts under three conditions: its tool was offered and may be called now; its arguments are
one JSON object that every parser reads alike (if necessary after a comma or closing brackets are
corrected); and they fit the tool's schema. Everything else stays text, and the session's policies
treat it as any other text.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from protocol.bounds import MAX_TOOL_CALLS, TEXT_STEP_CHARS
from protocol.bytes.json_strict import AmbiguousJson, loads_arguments
from protocol.events import (
    ArgumentsDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    MessageStop,
    StopReason,
    TextDelta,
    UpstreamFailed,
)
from protocol.request import Tool
from protocol.text_calls.scanner import CallScanner
from protocol.text_calls.words import Piece, TextCall, Thought

Fits = Callable[[Tool, dict[str, Any]], bool]


class PromptedReader:
    """One answer's events, in order; blocks are numbered anew. Its calls have no ids: the session
    makes them."""

    def __init__(self, tools: tuple[Tool, ...], *, fits: Fits) -> None:
        self._tools = {t.name: t for t in tools}
        self._fits = fits
        self._scanner: CallScanner | None = None
        self._text_index = -1
        self._passed: dict[int, int] = {}
        self._next = self._calls = 0
        self._open: tuple[int, BlockKind] | None = None
        self._blank = ""
        """White space that is let go before text, and left out beside calls."""

    def feed(self, event: Event, out: list[Event]) -> None:
        """Take one event; adds what it becomes to `out`."""
        match event:
            case BlockStart(kind=BlockKind.TEXT, name=""):
                self._scanner, self._text_index = CallScanner(None, reasoning=True), event.index
            case TextDelta() if self._scanner is not None and event.index == self._text_index:
                for at in range(0, len(event.text), TEXT_STEP_CHARS):
                    self._take(self._scanner.feed(event.text[at : at + TEXT_STEP_CHARS]), out)
            case BlockStop() if event.index == self._text_index:
                self._end_text(out)
            case MessageStop():
                self._end_text(out)
                if self._calls and event.stop_reason is StopReason.END_TURN:
                    event = msgspec.structs.replace(event, stop_reason=StopReason.TOOL_USE)
                out.append(event)
            case UpstreamFailed():
                self._end_text(out)
                out.append(event)
            case _:
                out.append(self._renumbered(event, out))

    def _renumbered(self, event: Event, out: list[Event]) -> Event:
        index = getattr(event, "index", -1)
        if index < 0:
            return event
        if isinstance(event, BlockStart):
            self._close(out)
            self._passed[index] = self._next
            self._next += 1
        elif index == self._text_index and self._open is not None:
            return msgspec.structs.replace(event, index=self._open[0])
        return msgspec.structs.replace(event, index=self._passed.get(index, index))

    def _end_text(self, out: list[Event]) -> None:
        if self._scanner is None:
            return
        self._take(self._scanner.finish(), out)
        if self._blank and self._open is not None and self._open[1] is BlockKind.TEXT:
            out.append(TextDelta(self._open[0], self._blank))
        self._blank = ""
        self._close(out)
        self._scanner, self._text_index = None, -1

    def _take(self, pieces: list[Piece], out: list[Event]) -> None:
        for piece in pieces:
            match piece:
                case TextCall():
                    if not self._call(piece, out):
                        self._say(piece.raw, out)
                case Thought():
                    if piece.text:
                        self._blank = ""
                        self._within(BlockKind.THINKING, out)
                        assert self._open is not None
                        out.append(TextDelta(self._open[0], piece.text))
                case _:
                    self._say(piece, out)

    def _say(self, text: str, out: list[Event]) -> None:
        stripped = text.rstrip()
        blank, self._blank = self._blank, text[len(stripped) :]
        if not stripped:
            self._blank = blank + self._blank
            return
        if self._open is None or self._open[1] is not BlockKind.TEXT:
            # nothing was written yet, or a thought or call came before
            stripped = stripped if self._open is None and not self._next else stripped.lstrip()
            blank = blank if not self._next and self._open is None else ""
        self._within(BlockKind.TEXT, out)
        assert self._open is not None
        out.append(TextDelta(self._open[0], blank + stripped))

    def _call(self, call: TextCall, out: list[Event]) -> bool:
        tool = self._tools.get(call.name)
        # past twice the bound they stay text, in which the session finds them once more
        if tool is None or self._calls >= 2 * MAX_TOOL_CALLS or not (call.strict or call.repaired):
            return False
        try:
            value = loads_arguments(call.arguments)
        except AmbiguousJson:
            return False
        if not self._fits(tool, value):
            return False
        self._close(out)
        self._blank = ""
        self._calls += 1
        index, self._next = self._next, self._next + 1
        out.append(BlockStart(index, BlockKind.TOOL_USE, name=tool.name, form="prompt"))
        out += [ArgumentsDelta(index, call.arguments), BlockStop(index)]
        return True

    def _within(self, kind: BlockKind, out: list[Event]) -> None:
        if self._open is None or self._open[1] is not kind:
            self._close(out)
            self._open = (self._next, kind)
            self._next += 1
            out.append(BlockStart(self._open[0], kind))

    def _close(self, out: list[Event]) -> None:
        if self._open is not None:
            out.append(BlockStop(self._open[0]))
            self._open = None
