"""Compares a text with what the policies made of it: the same so far, the same except for what they
still hold, or different. A policy may release a piece later than it came, so pieces are compared as
one text, each character once."""

from collections import deque


class Echo:
    """Compares what came with what was released. Holds only what was not released yet."""

    __slots__ = ("_at", "has_changed", "held")

    def __init__(self) -> None:
        self.has_changed = False
        self.held: deque[str] = deque()
        """What is not released yet."""
        self._at = 0
        """Characters of the first held piece that are out."""

    @property
    def is_behind(self) -> bool:
        """Is something not released yet?"""
        return bool(self.held)

    def feed(self, came: str, released: str) -> None:
        """Take what came, and what was released for it and for what came before."""
        if self.has_changed:
            return
        if came:
            self.held.append(came)
        at = 0
        while at < len(released):
            if not self.held:
                return self._change()
            piece = self.held[0]
            size = min(len(piece) - self._at, len(released) - at)
            if not released.startswith(piece[self._at : self._at + size], at):
                return self._change()
            at += size
            self._at += size
            if self._at == len(piece):
                self.held.popleft()
                self._at = 0

    def finish(self) -> None:
        """Nothing more is released: what is held never will be."""
        if self.held:
            self._change()

    def _change(self) -> None:
        self.has_changed = True
        self.held.clear()


def joined(text: str) -> str:
    """Return `text` with the two halves of a character made one: a reader of JSON escapes sees the
    character, a search would not."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
