"""The calls of an answer, counted, and those that somebody must be asked about. Must not know: what
becomes of a call."""

from collections import deque
from collections.abc import Iterator

from policy.session.answer.slots import CallSlot
from policy.session.decision import Decision
from protocol.bounds import MAX_OPEN_ASKS


class CallCount:
    """The calls of an answer, counted. `first` is the key of the client's first call, `survivors`
    are those that go out to the client."""

    def __init__(self) -> None:
        self.number, self.first, self.survivors = 0, -1, 0
        self.held = 0
        """The size of incomplete calls, on all of which one step may decide."""

    def add(self, slot: CallSlot) -> None:
        """Number a call."""
        slot.number(self.number)
        self.number += 1

    def note_first(self, slot: CallSlot) -> None:
        """Take a call of the client's."""
        self.first = slot.key if self.first < 0 else self.first

    def begin_answer(self) -> None:
        """Let the next call of the client's be its first."""
        self.first = -1

    def hold(self, size: int) -> None:
        """Take that so much more is held, or less where it is below 0."""
        self.held += size

    def survive(self, slot: CallSlot) -> None:
        """Take that a call goes out to the client."""
        self.survivors += 1
        slot.survive()

    def lose(self) -> None:
        """Take that one of them was cut off."""
        self.survivors -= 1


class Questions:
    """The calls and texts that judges are asked about: at most so many have an open question at a
    time, the others wait."""

    def __init__(self) -> None:
        self._waiting = deque[CallSlot]()
        self._open = set[int]()

    def add(self, slot: CallSlot) -> None:
        """Let a call wait for its turn to be asked about."""
        self._waiting.append(slot)

    def due(self) -> Iterator[tuple[CallSlot, Decision]]:
        """Give the calls that may be asked about now, in their order."""
        while self._waiting and len(self._open) < MAX_OPEN_ASKS:
            slot = self._waiting.popleft()
            if not slot.done and slot.decision is not None:
                yield slot, slot.decision

    def open(self, key: int) -> None:
        """Take that a judge is asked about this call."""
        self._open.add(key)

    def close(self, key: int) -> None:
        """Take that none is, any more."""
        self._open.discard(key)

    @property
    def waiting(self) -> list[int]:
        """The calls that wait for their turn."""
        return [slot.key for slot in self._waiting if not slot.done]

    @property
    def is_any_open(self) -> bool:
        """Does a judge still have to answer?"""
        return bool(self._open)
