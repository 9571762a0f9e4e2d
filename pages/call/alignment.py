"""Which items two sequences have in common, in bounded time (Myers, "An O(ND) Difference
Algorithm"). Must not know: what the items are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

_CHECK = 256
"""Steps between two looks at the clock."""
_Stretches = tuple[int, int, int, "_Stretches"] | None
"""Where an equal stretch begins and ends in the old sequence, on which diagonal, and those
before."""
_Path = tuple[int, _Stretches]
_NOWHERE: _Path = (-1, None)


class BudgetSpent(Exception):
    """It was not compared to the end."""


@dataclass(slots=True)
class DiffBudget:
    """What may still be spent."""

    until: float
    now: Callable[[], float]
    tokens: int
    is_spent: bool = False
    steps: int = field(default=0)

    def take(self, tokens: int) -> None:
        """Raises BudgetSpent."""
        self.tokens -= tokens
        if self.tokens < 0:
            self.is_spent = True
            raise BudgetSpent

    def step(self) -> None:
        """Raises BudgetSpent when the time is over."""
        self.steps += 1
        if self.steps % _CHECK == 0 and self.now() > self.until:
            self.is_spent = True
            raise BudgetSpent


def equal_ends(before: Sequence[Any], after: Sequence[Any]) -> tuple[int, int]:
    """Return how many items are the same at the beginning and, of the others, at the end."""
    most = min(len(before), len(after))
    head = next((at for at in range(most) if before[at] != after[at]), most)
    most -= head
    tail = next((at for at in range(most) if before[-1 - at] != after[-1 - at]), most)
    return head, tail


def common_places(
    before: Sequence[str], after: Sequence[str], budget: DiffBudget
) -> list[tuple[int, int]]:
    """Return the places of a longest common sequence. Raises BudgetSpent."""
    head, tail = equal_ends(before, after)
    pairs = [(at, at) for at in range(head)]
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    pairs += [(head + at, head + other) for at, other in _snakes(old, new, budget)]
    return pairs + [(len(before) - at, len(after) - at) for at in range(tail, 0, -1)]


def _snakes(old: Sequence[str], new: Sequence[str], budget: DiffBudget) -> list[tuple[int, int]]:
    """Myers' greedy walk: `reach[k]` is how far the best path on diagonal k (old minus new) has
    come in the old sequence, with the equal stretches that it went through, the last one
    outermost."""
    if not old or not new:
        return []
    reach: dict[int, _Path] = {1: (0, None)}
    for edits in range(len(old) + len(new) + 1):
        row: dict[int, _Path] = {}
        for k in range(-edits, edits + 1, 2):
            budget.step()
            above, below = reach.get(k + 1, _NOWHERE), reach.get(k - 1, _NOWHERE)
            begin, path = above if k == -edits or below[0] < above[0] else (below[0] + 1, below[1])
            at = begin
            while at < len(old) and at - k < len(new) and old[at] == new[at - k]:
                at += 1
            if at > begin:
                path = (begin, at, k, path)
            if at >= len(old) and at - k >= len(new):
                return _places(path)
            row[k] = at, path
        reach = row
    return []


def _places(path: _Stretches) -> list[tuple[int, int]]:
    stretches = []
    while path is not None:
        begin, end, k, path = path
        stretches.append([(at, at - k) for at in range(begin, end)])
    return [pair for stretch in reversed(stretches) for pair in stretch]
