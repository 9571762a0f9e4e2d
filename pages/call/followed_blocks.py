"""The content blocks of an open call as a viewer follows them: what upstream sent of each, how much
of it the client got, and what was decided. Must not know: how the client's text is found again, the
clock.
"""

import json
from bisect import bisect
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from pages.escape import spelled
from pages.verdicts import SIGNS, loud
from protocol.records import BlockRecord, JudgementRecord, ToolCallRecord, ToolReleaseRecord

HELD_MS = 300
"""Text that the client has not got for so long is held. Decisions take some milliseconds, and
nobody wants to see each."""
FIRST_CHARS = 64 * 1024
"""Of a block, so much is in one frame; what was before it is on the call's page."""
MOST_ARGUMENTS = 64 * 1024
"""Arguments longer than this are not looked at for their end."""
REFUSED = ("block", "withheld", "discarded")
Decision = ToolCallRecord | BlockRecord | ToolReleaseRecord | JudgementRecord
"""Records of one block."""


class Remainder:
    """Text that is added behind and taken from the front. In pieces: neither copies what else is
    there, which may be megabytes."""

    __slots__ = ("_at", "_pieces")

    def __init__(self) -> None:
        self._pieces: deque[str] = deque()
        self._at = 0

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, text: str) -> None:
        """Put text behind it."""
        if text:
            self._pieces.append(text)

    def first(self, size: int) -> str:
        """Return its first characters, up to so many."""
        pieces, at = list[str](), self._at
        for piece in self._pieces:
            if size <= 0:
                break
            pieces.append(piece[at : at + size])
            size, at = size - len(pieces[-1]), 0
        return "".join(pieces)

    def drop(self, size: int) -> None:
        """Take so many characters from its front."""
        self._at += size
        while self._pieces and self._at >= len(self._pieces[0]):
            self._at -= len(self._pieces.popleft())

    def clear(self) -> None:
        """Take all of it."""
        self._pieces.clear()
        self._at = 0


@dataclass(slots=True)
class FollowedBlock:
    """One content block of upstream."""

    number: int
    kind: str
    name: str
    is_call: bool
    since: int
    """When its first chunk came, in Unix ms."""
    unsent: list[str] = field(default_factory=list)
    remainder: Remainder = field(default_factory=Remainder)
    """What of it the client has not got."""
    waits: int = 0
    """Since when there is such a rest, in Unix ms."""
    sent: int = 0
    out: int = 0
    cut: int = 0
    got: list[str] = field(default_factory=list)
    """What the client got in its place, as far as no frame had it."""
    is_changed: bool = False
    verdict: str = ""
    reason: str = ""
    is_out: bool = False
    is_given: bool = False
    """Does a tool call of the client's stand for it?"""
    arguments: list[str] = field(default_factory=list)
    length: int = 0
    """Of the arguments."""
    last_state: tuple[Any, ...] = ()
    """Its state in the last frame."""

    @property
    def kind_word(self) -> str:
        """What people call it."""
        return "tool" if self.is_call else self.kind

    @property
    def is_awaited(self) -> bool:
        """Is it a tool call that is neither out nor refused?"""
        return self.is_call and not self.is_out and self.verdict not in REFUSED

    @property
    def is_settled(self) -> bool:
        """Is there nothing that would change by time alone?"""
        if self.is_call or self.verdict in REFUSED:
            return not self.is_awaited
        return self.is_changed or not self.remainder

    def take(self, text: str, shown: str, at: int, *, had: bool) -> None:
        """Take what upstream sent next, as it is and as it is shown; `had`: the browser has it."""
        if not self.is_changed:
            self.waits = self.waits if self.remainder else at
            self.remainder.add(text)
        if self.is_call and self.length <= MOST_ARGUMENTS:
            self.arguments.append(text)
            self.length += len(text)
        self.sent += units(shown)
        if not had:
            self.unsent.append(shown)

    def deliver(self, text: str, *, had: bool) -> None:
        """Take what the client got of it, or in its place."""
        if not self.is_changed and self.remainder.first(len(text)) == text:
            self.remainder.drop(len(text))
            self.out += units(spelled(text))
        else:
            self.change()
            if not had:
                self.got.append(spelled(text))

    def decide(self, record: Decision) -> None:
        """Take a record of what was decided on it."""
        match record:
            case ToolReleaseRecord():
                self.is_out = True
            case ToolCallRecord() | BlockRecord() if record.verdict != "hold":
                self.verdict, self.reason = record.verdict, record.reason
                if isinstance(record, ToolCallRecord) and record.verdict == "replace":
                    self.change()
            case _:
                pass

    def change(self) -> None:
        """What goes out is not what upstream sent: no more of that is searched for."""
        self.is_changed = True
        self.remainder.clear()

    def is_held(self, now: int) -> bool:
        """Has the client waited for it long enough that it counts as held?"""
        if self.verdict in REFUSED or self.is_changed:
            return False
        if self.is_call:
            return not self.is_out
        return bool(self.remainder) and now - self.waits >= HELD_MS

    def held_s(self, now: int) -> float:
        """Return for how long it is held."""
        return max(0, now - (self.since if self.is_call else self.waits)) / 1000

    @property
    def has_whole_arguments(self) -> bool:
        """Are its arguments whole, as far as one looks?"""
        if self.length > MOST_ARGUMENTS:
            return True
        try:
            json.loads("".join(self.arguments))
        except (ValueError, RecursionError):
            return False
        return True

    def word(self, now: int) -> tuple[str, str]:
        """Return the verdict that it is shown with, and the word for it."""
        if self.verdict in REFUSED or self.verdict == "replace":
            return self.verdict, loud(self.verdict)
        if self.is_held(now):
            return "hold", loud("hold")
        return "allow", "changed" if self.is_changed else "released" if self.out else "coming"

    def frame(self, why: str, now: int) -> dict[str, Any] | None:
        """Return what is new of it since the last frame, if it waits for the reason `why`; None
        where nothing is."""
        verdict, word = self.word(now)
        why = why if verdict == "hold" else self.reason
        state = (verdict, word, why, self.out)
        if state == self.last_state and not self.unsent and not self.got:
            return None
        is_first, self.last_state = not self.last_state, state
        add, self.unsent = "".join(self.unsent), []
        if len(add) > FIRST_CHARS:
            add = add[-FIRST_CHARS:]
            self.cut = self.sent - units(add)
        got, self.got = "".join(self.got)[-FIRST_CHARS:], []
        values: dict[str, Any] = {
            "b": self.number,
            "verdict": verdict,
            "word": f"{SIGNS[verdict]} {word}",
            "why": spelled(why),
            "out": max(0, self.out - self.cut),
        }
        if is_first:
            values |= {"kind": self.kind_word, "name": spelled(self.name)}
        if self.cut:
            values["cut"] = f"{self.cut:,} characters before this are on the call's page"
        return values | ({"add": add} if add else {}) | ({"got": got} if got else {})


class FollowedBlocks:
    """The blocks of a call, in the order of their numbers. `active`: those of which the next frame
    may tell something, because they were touched or are held."""

    def __init__(self) -> None:
        self.by_number: dict[int, FollowedBlock] = {}
        self.order: list[int] = []
        self.active: set[int] = set()

    def add(self, block: FollowedBlock) -> int:
        """Add a block; returns its place in the order."""
        self.by_number[block.number] = block
        place = bisect(self.order, block.number)
        self.order.insert(place, block.number)
        self.active.add(block.number)
        return place

    def at(self, place: int) -> FollowedBlock:
        """Return the block at a place in the order."""
        return self.by_number[self.order[place]]

    def touch(self, number: int) -> FollowedBlock:
        """Return a block of which something is new."""
        self.active.add(number)
        return self.by_number[number]

    def settle(self) -> None:
        """Forget those that time alone does not change: a frame told what was new."""
        self.active = {block.number for block in self.touched() if not block.is_settled}

    def touched(self) -> list[FollowedBlock]:
        """Return the active ones, in order."""
        return [self.by_number[number] for number in sorted(self.active)]


def units(text: str) -> int:
    """Return how long a browser takes it to be: in units of UTF-16."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
