"""The released part of an answer, for a session that may have to show it to the policies of another
one. Must not know: sessions, policies."""

from collections.abc import Iterator

from protocol.events import AttachmentDelta, BlockStart, BlockStop, Event, TextDelta

_PIECES = 256
"""Adjacent pieces of a text before they are joined: a separate piece takes more memory than its
letters."""
_COPIES = frozenset(("logprobs", "reasoning_details"))
"""What repeats a text, which is here, and may be many times its size."""


class AnswerLog:
    """The events, with the text of each block in one piece, so that reading it again is faster than
    the first time.

    Bounded by what an upstream may send in a call: text takes its own size, copies of a text are
    not kept.
    """

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._index = -1
        self._pieces: list[str] = []
        self._joined: list[str] = []
        self._open: dict[int, None] = {}
        self.has_text = False

    def add(self, event: Event) -> None:
        """Take what went out."""
        if type(event) is TextDelta:
            if event.index != self._index:
                self._end_text()
                self._index, self.has_text = event.index, True
            self._pieces.append(event.text)
            if len(self._pieces) >= _PIECES:
                self._joined.append("".join(self._pieces))
                self._pieces = []
            return
        if isinstance(event, AttachmentDelta) and event.field in _COPIES:
            return
        self._end_text()
        if isinstance(event, BlockStart):
            self._open[event.index] = None
        elif isinstance(event, BlockStop):
            self._open.pop(event.index, None)
        self._events.append(event)

    def _end_text(self) -> None:
        if self._index >= 0:
            self._events.append(TextDelta(self._index, "".join([*self._joined, *self._pieces])))
            self._index, self._pieces, self._joined = -1, [], []

    @property
    def unended(self) -> list[int]:
        """Indices of blocks that began and did not end."""
        return list(self._open)

    def __iter__(self) -> Iterator[Event]:
        self._end_text()
        return iter(self._events)
