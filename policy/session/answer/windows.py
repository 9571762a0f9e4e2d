"""Windows: the pieces of an answer's text that judges decide about, and what goes out of them.

Theory. A window is a slot of its own, between the text before it and the text behind it, so nothing
of it goes out before its verdict. Where text is cut depends on its characters alone, and every
window is cut and asked about whatever became of those before it: verdicts come in any order. What
follows from a block for what stands behind it (one notice for neighbours, nothing more of the block)
is decided where events leave the queue, which they do in order. Must not know: what judges are
asked.
"""

import math
import re
from collections.abc import Callable

from policy.base import TextPiece, ToolCall, WindowSize
from policy.session.answer.slots import CallSlot
from policy.session.chain import Chain
from policy.session.decision import Decision
from protocol.events import (
    AttachmentDelta,
    BlockKind,
    BlockStart,
    Event,
    RawDelta,
    SignatureDelta,
    TextDelta,
)
from protocol.records import VerdictName

FIRST_OF_REQUEST = 2_000_000
"""Keys of texts of the request begin here."""
_CLOSING = ")]\"'»”’"
_ENDS = re.compile(rf"[.!?…][{re.escape(_CLOSING)}]*\s|[。！？]|\n")
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
        super().__init__(key, start or BlockStart(-1, BlockKind.OTHER, name=piece.source))
        self.kind = None if start is None else self.kind
        self.piece = piece
        call = ToolCall(key, -1, "", "", "", {}, None, text=piece)
        self.ask(Decision(chain, call, chain.text_judges))


class OpenText:
    """The text of a block that is in no window yet, and the block's windows."""

    def __init__(self, size: WindowSize) -> None:
        self._size = size
        self._pieces: list[str] = []
        self._length = self._searched = 0
        # searched: no sentence ends that begins to do so before this place
        self._before = ""
        self.windows: list[TextWindow] = []
        self._open: dict[int, TextWindow] = {}
        """Those that are not decided, by their keys: the oldest first."""
        self._waiting: list[CallSlot] = []
        self._has_lost, self._ends_at = False, math.inf
        # has_lost: is one withheld? ends_at: key of the first behind which nothing more goes out

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
        most = least + least // 2 or len(text)
        found = _ENDS.search(text, max(least - 1, self._searched), most) if least else None
        end = most if found is None else found.end()
        if end > len(text) and not is_rest:
            # so that a piece costs no more the more there are
            self._pieces, self._searched = [text], len(text.rstrip(_CLOSING)) - 1
            return None
        piece = TextPiece(text[:end], "answer", self._before, number)
        self._pieces = [text[end:]]
        self._length, self._searched = len(self._pieces[0]), 0
        self._before = (self._before + piece.text)[-size.overlap :] if size.overlap else ""
        return piece if text else None

    def ask(self, window: TextWindow) -> None:
        """Take a window that is to be decided about."""
        self.windows.append(window)
        self._open[window.key] = window

    def settle(self, window: TextWindow, way: str) -> list[CallSlot]:
        """Take the verdict on a window; `way`: what goes with one that is blocked. Returns the
        calls that waited for one."""
        del self._open[window.key]
        if window.final.verdict != "allow":
            self._has_lost = True
            if way == "block":
                self._ends_at = min(self._ends_at, window.key)
        waiting, self._waiting = self._waiting, []
        return waiting

    def goes_out(self, call: CallSlot) -> bool | None:
        """Does a call that was found in the text go out? None: it waits, as a window before it is
        not decided."""
        if next(iter(self._open), call.key) < call.key:
            self._waiting.append(call)
            return None
        return call.key < self._ends_at

    def verdict(self, otherwise: VerdictName) -> VerdictName:
        """What became of all windows: `hold` while one is not decided, `otherwise` where none is
        withheld."""
        return "hold" if self._open else "replace" if self._has_lost else otherwise


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
