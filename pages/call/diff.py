"""What changed between two texts, as lines with their words, in bounded time. Must not know: where
the texts come from.

Theory. Equal lines at both ends are cut first, then lines are compared (Myers, "An O(ND) Difference
Algorithm"), and within lines that stand in for each other the words. The cost in tokens and time is
bounded; what exceeds it stays unaligned, which is still correct: the lines without a plus are
always the old text, and those without a minus the new one.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pages.call.alignment import BudgetSpent, DiffBudget, common_places, equal_ends

MOST_TOKENS = 20_000
MOST_S = 0.05
Sign = Literal[" ", "-", "+"]
_TOKEN = re.compile(r"\w+|\s+|.", re.DOTALL)
_WORD = 200
"""Characters of a token at most: a long word is compared in parts."""
_WORD_CHARS = 8
"""Characters that are counted as a token before words are known."""


@dataclass(frozen=True, slots=True)
class LinePart:
    """A piece of a line: `changed` if the other side has something else in its place."""

    text: str
    changed: bool = False


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of one side or, with the sign " ", of both. Its end is not in it."""

    sign: Sign
    parts: tuple[LinePart, ...]

    @property
    def text(self) -> str:
        """The line."""
        return "".join(part.text for part in self.parts)


@dataclass(frozen=True, slots=True)
class Diff:
    """All lines of both sides. Not `aligned`: it was too much to compare, and some equal lines are
    shown as changed."""

    lines: tuple[DiffLine, ...]
    aligned: bool = True

    @property
    def is_same(self) -> bool:
        """Are the two texts the same?"""
        return all(line.sign == " " for line in self.lines)

    def side(self, sign: Literal["-", "+"]) -> str:
        """Return the old text, or the new one."""
        return "\n".join(line.text for line in self.lines if line.sign in (" ", sign))


def diff(
    old: str,
    new: str,
    *,
    tokens: int = MOST_TOKENS,
    seconds: float = MOST_S,
    now: Callable[[], float] = time.monotonic,
) -> Diff:
    """Compare two texts line by line, and word by word in the lines that changed."""
    if old == new:
        return Diff(tuple(_line(" ", text) for text in old.split("\n")))
    budget = DiffBudget(now() + seconds, now, tokens)
    before, after = old.split("\n"), new.split("\n")
    head, tail = equal_ends(before, after)
    middle = _hunks(before[head : len(before) - tail], after[head : len(after) - tail], budget)
    lines = (
        [_line(" ", text) for text in before[:head]]
        + middle
        + [_line(" ", text) for text in before[len(before) - tail :]]
    )
    return Diff(tuple(lines), not budget.is_spent)


def _line(sign: Sign, text: str, *, changed: bool = False) -> DiffLine:
    return DiffLine(sign, (LinePart(text, changed),) if text else ())


def _hunks(before: list[str], after: list[str], budget: DiffBudget) -> list[DiffLine]:
    """The lines of a stretch that differs."""
    try:
        budget.take(len(before) + len(after))
        pairs = common_places(before, after, budget)
    except BudgetSpent:
        return [
            *(_line("-", text, changed=True) for text in before),
            *(_line("+", text, changed=True) for text in after),
        ]
    lines: list[DiffLine] = []
    left = right = 0
    for at, other in [*pairs, (len(before), len(after))]:
        lines += _changed(before[left:at], after[right:other], budget)
        if at < len(before):
            lines.append(_line(" ", before[at]))
        left, right = at + 1, other + 1
    return lines


def _changed(before: list[str], after: list[str], budget: DiffBudget) -> list[DiffLine]:
    """Lines that stand in for each other: as many on both sides are compared one by one, others by
    their first ones."""
    removed: list[DiffLine] = []
    added: list[DiffLine] = []
    both = min(len(before), len(after))
    for old, new in zip(before[:both], after[:both], strict=True):
        left, right = _words(old, new, budget)
        removed.append(DiffLine("-", left))
        added.append(DiffLine("+", right))
    removed += [_line("-", text, changed=True) for text in before[both:]]
    added += [_line("+", text, changed=True) for text in after[both:]]
    return removed + added


def _words(
    old: str, new: str, budget: DiffBudget
) -> tuple[tuple[LinePart, ...], tuple[LinePart, ...]]:
    """The parts of two lines, by words."""
    head, tail = _text_ends(old, new)
    start, end, middle, other = (
        old[:head],
        old[len(old) - tail :],
        old[head : len(old) - tail],
        new[head : len(new) - tail],
    )
    left, right = [LinePart(middle, True)], [LinePart(other, True)]
    if middle and other:
        try:
            # before it is cut into words, which takes time too
            budget.take((len(middle) + len(other)) // _WORD_CHARS)
            first, second = _tokens(middle), _tokens(other)
            budget.take(len(first) + len(second))
            left, right = _marked(first, second, common_places(first, second, budget))
        except BudgetSpent:
            pass
    return tuple(_parts(start, left, end)), tuple(_parts(start, right, end))


def _tokens(text: str) -> list[str]:
    return [
        word[at : at + _WORD] for word in _TOKEN.findall(text) for at in range(0, len(word), _WORD)
    ]


def _marked(
    first: list[str], second: list[str], pairs: list[tuple[int, int]]
) -> tuple[list[LinePart], list[LinePart]]:
    """Both sides, with what is not in `pairs` marked."""
    same_left, same_right = {at for at, _ in pairs}, {other for _, other in pairs}
    return [LinePart(word, at not in same_left) for at, word in enumerate(first)], [
        LinePart(word, at not in same_right) for at, word in enumerate(second)
    ]


def _parts(start: str, middle: list[LinePart], end: str) -> list[LinePart]:
    """Neighbours of the same kind joined."""
    parts: list[tuple[bool, list[str]]] = []
    for part in (LinePart(start), *middle, LinePart(end)):
        if not part.text:
            continue
        if parts and parts[-1][0] == part.changed:
            parts[-1][1].append(part.text)
        else:
            parts.append((part.changed, [part.text]))
    return [LinePart("".join(texts), changed) for changed, texts in parts]


def _text_ends(old: str, new: str) -> tuple[int, int]:
    """How many characters are the same at both ends, in whole words. By halves: a comparison of two
    slices is one step, however long."""
    most = min(len(old), len(new))
    head = _longest(most, lambda size: old[:size] == new[:size])
    head = _whole_word(old, new, head)
    most -= head
    tail = _longest(most, lambda size: not size or old[len(old) - size :] == new[len(new) - size :])
    for shorter in range(tail, max(0, tail - _WORD), -1):
        if not _is_word(old, len(old) - shorter) and not _is_word(new, len(new) - shorter):
            return head, shorter
    return head, 0 if tail < _WORD else tail


def _whole_word(old: str, new: str, head: int) -> int:
    """Back to where no word is cut, but not further than a long word."""
    for at in range(head, max(0, head - _WORD) - 1, -1):
        if not _is_word(old, at) and not _is_word(new, at):
            return at
    return head


def _is_word(text: str, at: int) -> bool:
    """Does a word go on over this place?"""
    return (
        0 < at < len(text)
        and (text[at - 1].isalnum() or text[at - 1] == "_")
        and (text[at].isalnum() or text[at] == "_")
    )


def _longest(most: int, is_same: Callable[[int], bool]) -> int:
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if is_same(middle) else (low, middle - 1)
    return low
