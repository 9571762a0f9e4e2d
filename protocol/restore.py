"""An upstream's answer in the client's own terms, before any policy sees it.

Tool names, the answer that a forced tool stood for, calls that a model without native ones wrote as
text.
"""

from typing import Any

import msgspec

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
from protocol.target import Restore
from protocol.text_calls.answer import Fits, PromptedReader


class Restorer:
    """One answer's events, in order. Deterministic: a replay gives the same. `fits`: do arguments
    fit their tool's schema?"""

    def __init__(self, restore: Restore, *, fits: Fits = lambda _tool, _value: True) -> None:
        self._names, self._json_tool = restore.names, restore.json_tool
        self._prompted = (
            None if restore.prompted is None else PromptedReader(restore.prompted, fits=fits)
        )
        self._answers: set[int] = set()
        """Blocks that are the forced tool: their arguments are the answer's text."""
        self._unsaid: set[int] = set()
        """Those without arguments so far: a call that ends so has none, and its answer is the empty
        object."""
        self._others = False
        self._preamble: list[Event] = []
        self._in_preamble: set[int] = set()

    def feed(self, events: list[Event]) -> list[Event]:
        """Return the events in the client's terms; what an answer in JSON must not have before it
        is left out."""
        out: list[Event] = []
        for event in events:
            if self._prompted is not None:
                self._prompted.feed(event, out)
            else:
                self._take(event, out)
        return out

    def _take(self, event: Event, out: list[Event]) -> None:
        if self._json_tool:
            if self._is_preamble(event):
                self._preamble.append(event)
                return
            if isinstance(event, BlockStop) and event.index in self._unsaid:
                self._unsaid.discard(event.index)
                out.append(TextDelta(event.index, "{}"))
        match event:
            case BlockStart(kind=BlockKind.TOOL_USE) if event.name == self._json_tool:
                # text beside the forced tool would spoil the answer's JSON
                self._preamble = []
                self._answers.add(event.index)
                self._unsaid.add(event.index)
                out.append(BlockStart(event.index, BlockKind.TEXT))
                return
            case BlockStart(kind=BlockKind.TOOL_USE):
                self._others = True
                self._let_go(out)
                event = msgspec.structs.replace(event, name=self._names.get(event.name, event.name))
            case ArgumentsDelta() if event.index in self._answers:
                if event.text:
                    self._unsaid.discard(event.index)
                event = TextDelta(event.index, event.text)
            case MessageStop():
                self._let_go(out)
                if self._answers and not self._others and event.stop_reason is StopReason.TOOL_USE:
                    event = msgspec.structs.replace(event, stop_reason=StopReason.END_TURN)
            case UpstreamFailed():
                self._let_go(out)
            case _:
                pass
        out.append(event)

    def _is_preamble(self, event: Event) -> bool:
        index: Any = getattr(event, "index", -1)
        if (
            isinstance(event, BlockStart)
            and event.kind is BlockKind.TEXT
            and not self._answers
            and not self._others
        ):
            self._in_preamble.add(index)
        elif index not in self._in_preamble:
            return False
        elif isinstance(event, BlockStop):
            self._in_preamble.discard(index)
        return True

    def _let_go(self, out: list[Event]) -> None:
        out += self._preamble
        self._preamble = []
