"""Keeps an answer's content so far, for the decision about its next tool call: a harmful action can
be split into harmless parts.

Kept only where a policy asks judges. It depends on upstream's events and on rules, never on when a
judge answered, so a second owner that replays the answer asks the same questions. Bounded: of the
text between two calls the beginning and the end are kept, of calls as many as can be shown.
`is_whole` is False if some are missing.
"""

from policy.base import AnswerSoFar, EarlierCall, EarlierText
from protocol.bounds import MAX_ANSWER_BYTES, MAX_TOOL_CALLS
from protocol.events import BlockKind

_CHARS = 2_048
"""Of a text its first and its last so many characters are kept."""
MOST_HEARD = 32
"""Pieces that are heard before they are joined."""
_TEXTS = (BlockKind.THINKING, BlockKind.TEXT)


def size_of(text: str) -> int:
    """Bytes of `text` as UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


class _Text:
    """A text without its middle. What is kept depends only on the text, not on how it was cut into
    pieces."""

    __slots__ = ("_begins", "_ends", "_ends_size", "_size")

    def __init__(self) -> None:
        self._begins, self._ends, self._ends_size, self._size = "", list[str](), 0, 0

    def add(self, text: str) -> None:
        self._size += len(text)
        if (room := _CHARS - len(self._begins)) > 0:
            self._begins, text = self._begins + text[:room], text[room:]
        self._ends.append(text)
        self._ends_size += len(text)
        if self._ends_size > 16 * _CHARS:
            self._cut()

    def _cut(self) -> str:
        ends = "".join(self._ends)[-_CHARS:]
        self._ends, self._ends_size = [ends], len(ends)
        return ends

    def abridge(self, kind: BlockKind) -> EarlierText:
        ends = self._cut()
        return EarlierText(kind, self._begins, self._size - len(self._begins) - len(ends), ends)


class AnswerHistory:
    """The content of one answer, in order, over all its segments."""

    def __init__(self) -> None:
        self._heard = tuple((kind, list[str]()) for kind in _TEXTS)
        self._parts: list[EarlierText | EarlierCall] = []
        self._texts: dict[BlockKind, _Text] = {}
        self._calls = self._size = 0

    def text(self, kind: BlockKind, text: str) -> None:
        """Take some text as upstream sent it, before any policy."""
        self.pieces(kind).append(text)
        self.join()

    def pieces(self, kind: BlockKind) -> list[str]:
        """Where to put text of a kind a piece at a time, with a `join` where there are more than
        MOST_HEARD."""
        return next(pieces for of, pieces in self._heard if of is kind)

    def join(self) -> None:
        """Take in the pieces, and let the middle of the text go."""
        for kind, pieces in self._heard:
            if pieces:
                self._texts.setdefault(kind, _Text()).add("".join(pieces))
                pieces.clear()

    def call(self, call: EarlierCall) -> None:
        """Take a complete call, with the decision of the rules."""
        self.join()
        self._calls += 1
        self._size += size_of(call.arguments) + size_of(call.name)
        if self._is_whole:
            self._parts += [*self._gap(), call]
        self._texts = {}

    @property
    def _is_whole(self) -> bool:
        return self._calls <= MAX_TOOL_CALLS and self._size <= MAX_ANSWER_BYTES

    def _gap(self) -> list[EarlierText]:
        return [self._texts[kind].abridge(kind) for kind in _TEXTS if kind in self._texts]

    def so_far(self) -> AnswerSoFar:
        """The content up to now."""
        self.join()
        return AnswerSoFar((*self._parts, *self._gap()), self._size, self._is_whole)
