"""Windows: the pieces of an answer's text that judges decide about before it goes out.

Theory. What text policies release, and what of it is no call, gathers until a window is full. A
window is a slot of its own, between the text before it and the text behind it, so nothing of it goes
out before its verdict. Where text is cut depends on its characters alone, and every window is cut
and asked about whatever became of those before it: verdicts come in any order. What follows from a
block for what stands behind it (one notice for neighbours, nothing more of the block) is decided
where events leave the queue, which they do in order. A call that was found in text is decided as a
call, also by those who judge text. Must not know: what judges are asked.
"""

import re
from collections.abc import Callable

from policy.base import TextPiece, ToolCall, WindowSize
from policy.session.answer import metadata
from policy.session.answer.slots import CallSlot, Mark, Slot, TextRun, TextSlot
from policy.session.answer.text_flow import TextFlow
from policy.session.chain import Chain
from policy.session.decision import Decision
from protocol.events import (
    AttachmentDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    RawDelta,
    SignatureDelta,
    TextDelta,
)
from protocol.records import VerdictName
from protocol.text_calls.words import TextCall

FIRST_OF_REQUEST = 2_000_000
"""Keys of texts of the request begin here."""
_ENDS = re.compile(r"[.!?…][)\]\"'»”’]*\s|[。！？]|\n")
"""Of a sentence, or of a line."""
_DOUBLED_AFTER, _DOUBLINGS = 16, 3
"""After so many windows the next are twice as large, and how often."""


class TextWindow(CallSlot):
    """A text that is decided about as a call is: a window of a block, or a text of the request,
    which waits in no queue (`index` -1)."""

    __slots__ = ("piece",)

    def __init__(
        self, key: int, piece: TextPiece, chain: Chain, start: BlockStart | None = None
    ) -> None:
        super().__init__(key, start or BlockStart(-1, BlockKind.TEXT, name=piece.source))
        self.piece = piece
        call = ToolCall(key, -1, "", "", "", {}, None, text=piece)
        self.ask(Decision(chain, call, chain.text_judges))


class OpenText:
    """The text of a block that is in no window yet, and the block's windows."""

    def __init__(self, size: WindowSize) -> None:
        self._size = size
        self._pieces: list[str] = []
        self._length = 0
        self._before = ""
        self.windows: list[TextWindow] = []

    def add(self, text: str) -> None:
        """Take some text."""
        self._pieces.append(text)
        self._length += len(text)

    def cut(self, number: int, *, is_rest: bool) -> TextPiece | None:
        """Return the text of the next window, if there is one; `number` counts the windows of the
        answer."""
        size = self._size
        least = size.chars << min(_DOUBLINGS, number // _DOUBLED_AFTER)
        if not self.windows:
            least = min(least, size.first)
        if not is_rest and not 0 < least <= self._length:
            return None
        text = "".join(self._pieces)
        end = len(text)
        if least:
            most = least + least // 2
            found = _ENDS.search(text, least - 1, most)
            if found is None and end < most and not is_rest:
                return None
            end = min(most, end) if found is None else found.end()
        piece = TextPiece(text[:end], "answer", self._before, number)
        self._before = (self._before + piece.text)[-size.overlap :] if size.overlap else ""
        self._pieces, self._length = [text[end:]], len(text) - end
        return piece if end else None

    def verdict(self, otherwise: VerdictName) -> VerdictName:
        """What became of all windows: `hold` while one is not decided, `otherwise` where nothing of
        them is withheld."""
        verdicts = {window.verdict for window in self.windows}
        if "hold" in verdicts or "block" not in verdicts:
            return "hold" if "hold" in verdicts else otherwise
        return "replace" if "allow" in verdicts else "block"


class JudgedTextFlow(TextFlow):
    """The text of one call, in windows."""

    def run(self, event: BlockStart) -> TextRun:
        """As every flow."""
        assert self._chain.window is not None
        self._texts[event.index] = OpenText(self._chain.window)
        return super().run(event)

    def feed(self, event: TextDelta) -> Mark:
        """As every flow; its windows decide."""
        verdict, index = super().feed(event)
        return ("block" if verdict == "block" else "hold"), index

    def _release_text(self, slot: Slot, run: TextRun, text: str) -> None:
        if self._answer is not None and slot.kind is BlockKind.TEXT:
            self._answer.add(text)
        self._texts[slot.index].add(text)
        self._flush(run, is_rest=False)

    def _flush(self, run: TextRun, *, is_rest: bool = True) -> None:
        index, slots = run.start.index, self._slots
        text = self._texts[index]
        while (piece := text.cut(self._windows, is_rest=is_rest)) is not None:
            before = slots.by_index[index]
            self._begin(before, run)
            window = TextWindow(slots.new_key(), piece, self._chain, run.start)
            self._windows += 1
            text.windows.append(window)
            after = slots.by_index[index] = TextSlot(slots.new_key(), run)
            slots.insert_after(before, window)
            slots.insert_after(window, after)
            before.close()
            self._on_call(window)

    def _suspect(self, run: TextRun, index: int, call: TextCall, raw: str) -> None:
        self._flush(run)
        super()._suspect(run, index, call, raw)

    def _record(self, slot: Slot, verdict: VerdictName) -> None:
        verdict = self._texts[slot.index].verdict(verdict)
        if verdict != "hold":
            # by the key that its chunks are recorded with
            super()._record(self._slots.by_key[slot.index], verdict)

    def settle(self, window: TextWindow, way: str) -> None:
        """Let out what the verdict on a window lets out; `way`: what goes with one that is
        blocked."""
        decided, index = window.final, window.index
        if decided.verdict == "allow":
            self._slots.put(window, TextDelta(index, window.piece.text))
        else:
            self._outbox.lose()
            notices = self._outbox.notices
            least = notices.least(of_call=False)
            notice = metadata.read_notice(notices.judged(decided), self._chain, least)
            # reasoning has none
            notice = f"\n{notice}\n" if window.kind is BlockKind.TEXT else ""
            self._slots.put(window, Withheld(index, notice, way == "block"))
            if way == "turn":
                self._slots.put(window, BlockStop(index))
        if self._slots.by_index[index].done:
            self._record(window, "allow")


class Withheld(TextDelta, frozen=True):
    """Stands where a window was blocked; `text` is the notice. It never leaves the queue as it
    is."""

    ends_block: bool = False
    """Does nothing more of the block go out?"""


class Withholding:
    """What leaves the queue of an answer whose text judges decide about."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self._last = -1
        """The block whose last text was withheld."""
        self._spoiled: dict[int, bool] = {}
        """The blocks of which text was withheld, and whether nothing more of them goes out."""

    def __call__(self, event: Event) -> None:
        """Let an event out, unless something before it was withheld that it goes with."""
        if not isinstance(event, TextDelta):
            # these vouch for the text, or tell of places in it
            if not (
                isinstance(event, SignatureDelta | AttachmentDelta | RawDelta)
                and event.index in self._spoiled
            ):
                self._emit(event)
            return
        index, is_over = event.index, self._spoiled.get(event.index, False)
        if not isinstance(event, Withheld):
            self._last = -1
            if not is_over:
                self._emit(event)
            return
        if event.text and not is_over and self._last != index:
            self._emit(TextDelta(index, event.text))
        self._last, self._spoiled[index] = index, is_over or event.ends_block
