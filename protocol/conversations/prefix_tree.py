"""Puts the calls of a session into one conversation by the marks of their histories
(`protocol.conversations.histories`): each turn is there once.

A call's parent is the earlier call with the longest common beginning, of several the newest. Where
all of the parent's turns are at the beginning, what follows is new. Where they are not, the history
was changed from the first turn that differs: a compaction, an edit, or a forgery. A call that has
nothing in common with any earlier one begins a branch (a subagent, a title), and so does one that
goes on from where another call went on before. Must not know: SQL, what turns say.
"""

from collections.abc import Sequence
from typing import NamedTuple

from protocol.conversations.histories import MARK_BYTES

MAIN = -1
"""The branch that is the conversation itself."""


class Marked(NamedTuple):
    """A call and the marks of its turns. `agent` names which agent of the session asked, where the
    client named one."""

    marks: bytes
    is_side: bool = False
    agent: str = ""


class Placed(NamedTuple):
    """Where a call stands: its turns from `common` on are new."""

    parent: int
    """Its parent's place among the calls, -1 without one."""
    common: int
    """How many turns it has in common with its parent."""
    changed: bool
    """Its parent had other turns there: the history was changed from turn `common` on."""
    branch: int
    """`MAIN`, or the place of the call with which its branch began."""
    is_side: bool
    """Asked beside the conversation, and nothing followed from it."""
    begins: bool = False
    """The conversation's history began anew here, with nothing in common."""


def place(calls: Sequence[Marked]) -> list[Placed]:
    """Return where each call of one session stands; the calls are in order of time."""
    root = _Edge(b"", -1, {})
    return _joined(
        calls, _branches(calls, [root.add(call.marks, index) for index, call in enumerate(calls)])
    )


class _Edge:
    """Turns that are alike in one or more calls: the newest of those, and what follows by its first
    mark."""

    __slots__ = ("below", "marks", "newest")

    def __init__(self, marks: bytes, newest: int, below: "dict[bytes, _Edge]") -> None:
        self.marks, self.newest, self.below = marks, newest, below

    def add(self, marks: bytes, index: int) -> tuple[int, int]:
        """Note a call; returns its parent, and how many turns they have in common."""
        edge, at, parent = self, 0, -1
        while at < len(marks):
            below = edge.below.get(marks[at : at + MARK_BYTES])
            if below is None:
                edge.below[marks[at : at + MARK_BYTES]] = _Edge(marks[at:], index, {})
                break
            same = common_bytes(below.marks, marks, at)
            parent, at = below.newest, at + same
            if same < len(below.marks):
                remainder = _Edge(below.marks[same:], below.newest, below.below)
                below.marks, below.below = (
                    below.marks[:same],
                    {remainder.marks[:MARK_BYTES]: remainder},
                )
            below.newest, edge = index, below
        return parent, at // MARK_BYTES if parent >= 0 else 0


def common_bytes(known: bytes, marks: bytes, at: int = 0) -> int:
    """Return how many bytes of whole marks are alike, those of the second from `at` on. By halves:
    comparing is fast, and a history has thousands of turns."""
    if marks.startswith(known, at):
        return len(known)
    low, high = 0, len(known) // MARK_BYTES
    while high - low > 1:
        middle = (low + high) // 2
        if marks.startswith(known[: middle * MARK_BYTES], at):
            low = middle
        else:
            high = middle
    return low * MARK_BYTES


def _branches(calls: Sequence[Marked], parents: Sequence[tuple[int, int]]) -> list[Placed]:
    placed: list[Placed] = []
    tips: dict[int, int] = {}
    """By branch: its last call so far."""
    followed = {parent for parent, _ in parents}
    for index, (call, (parent, common)) in enumerate(zip(calls, parents, strict=True)):
        changed, branch = False, index
        if parent >= 0:
            changed = common < len(calls[parent].marks) // MARK_BYTES
            if tips[placed[parent].branch] == parent and calls[parent].agent == call.agent:
                branch = placed[parent].branch
        tips[branch] = index
        placed.append(
            Placed(parent, common, changed, branch, call.is_side and index not in followed)
        )
    return placed


def _joined(calls: Sequence[Marked], placed: list[Placed]) -> list[Placed]:
    """Branches with nothing in common that follow each other are one conversation whose history
    began anew: what an agent makes of a long history has another beginning. What begins while the
    one before still goes on is beside it."""
    last = {placement.branch: index for index, placement in enumerate(placed)}
    main, anew, ends = set[int](), set[int](), -1
    for index, placement in enumerate(placed):
        if (
            calls[index].marks
            and placement.branch == index
            and placement.parent < 0
            and index > ends
            and not placement.is_side
            and not calls[index].agent
        ):
            if main:
                anew.add(index)
            main.add(index)
            ends = last[index]
    # where nothing is known of a history, the call stands in the conversation where it came
    main |= {
        index
        for index, placement in enumerate(placed)
        if placement.branch == index
        and not (calls[index].marks or calls[index].agent or placement.is_side)
    }
    return [
        placement._replace(
            branch=MAIN if placement.branch in main else placement.branch, begins=index in anew
        )
        for index, placement in enumerate(placed)
    ]
