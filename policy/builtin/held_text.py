"""Text of an answer that is held back until it is decided what of it is replaced: the same output,
however upstream cut it.

Clients join the texts of all blocks of a field. At the end of a block everything is released,
because what comes next (a tool call, for which the client may wait) must not wait for more text.
What of a match is out then stays out; the rest of it can still be replaced.
"""

from collections.abc import Sequence
from typing import ClassVar, Self

from policy.base import Context, Policy, TextBlock

Match = tuple[int, int, str]
"""Start, end and what stands in its place."""


class HeldText:
    """The end of a field's text that is not decided yet, from `position` on; before it stand some
    characters of context.

    Up to `out`, which may lie behind `position`, it went out when its block ended. `is_replaced`:
    there with a match that reached that end, so that what only makes the match longer is left out.
    """

    def __init__(self, block: int) -> None:
        self.block = block
        self.text, self.position, self.out = "", 0, 0
        self.is_replaced = False

    def begin(self, block: int) -> None:
        """Another block of the field begins: what of the one before is not out was withheld with
        it."""
        self.block = block
        self.text, self.position = self.text[: self.out], min(self.position, self.out)

    def trim(self, context_chars: int) -> None:
        """Forget what was decided, but for so many characters of context."""
        keep = max(self.position - context_chars, 0)
        self.text, self.position, self.out = self.text[keep:], self.position - keep, self.out - keep


class HoldsText(Policy):
    """A policy that replaces text, and holds what it cannot decide yet."""

    keeps_request = False
    context_chars: ClassVar[int] = 1
    """How much of what is decided may still matter for what is not."""

    def __init__(self) -> None:
        self._held: dict[str | int, HeldText] = {}

    def for_call(self, context: Context) -> Self:
        """Give the call its own held text."""
        clone = super().for_call(context)
        clone._held = {}
        return clone

    def _decided(self, text: str, position: int, *, final: bool) -> tuple[int, Sequence[Match]]:
        """Return up to where it is decided what is replaced from `position` on, and the matches that
        begin before, in order. `final`: no more text comes."""
        raise NotImplementedError

    def _taken(self, text: str, block: TextBlock) -> HeldText:
        """What a block holds, this piece included."""
        key = block.field or block.index
        held = self._held.get(key)
        if held is None:
            held = self._held[key] = HeldText(block.index)
        elif held.block != block.index:
            held.begin(block.index)
        held.text += text
        return held

    def _end(self, block: TextBlock) -> str:
        """What a block still holds."""
        key = block.field or block.index
        held = self._held.get(key)
        if held is None or held.block != block.index:
            return ""
        if not block.field or held.position == len(held.text):
            del self._held[key]
        return self._advance(held, final=True)

    def _advance(self, held: HeldText, *, final: bool) -> str:
        text, position, out, parts = held.text, held.position, held.out, list[str]()
        stop, matches = self._decided(text, position, final=final)
        if not matches and out <= position and not final:
            # nearly always
            held.position = held.out = stop
            held.trim(self.context_chars)
            return text[position:stop]
        for start, end, instead in matches:
            parts.append(text[max(position, out) : start])
            if end > out and (start >= out or not held.is_replaced):
                parts.append(instead)
            position = end
        parts.append(text[max(position, out) : stop])
        if final:
            # `held.position` stays: more text of the field may make another match of what is
            # decided here
            held.out, held.is_replaced = len(text), position == len(text)
        else:
            held.position = max(position, stop)
            held.out = max(out, held.position)
            held.trim(self.context_chars)
        return "".join(parts)
