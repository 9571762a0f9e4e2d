"""The content blocks of one message waiting for their turn: only the first may emit.

Theory. Every block has a slot, in the order in which blocks began, and the end of the message is the last slot. The
first slot's events go straight out; the others keep theirs. A slot that is done leaves the queue, and the next one's
kept events go out. So blocks keep their order, and a held block holds up what follows it but nothing before it.
"""

from collections import deque
from collections.abc import Callable

from policy.chain import Decided, Decision
from protocol.events import BlockKind, Event, MessageStop, UpstreamFailed


class Slot:
    """One content block, or the end of the message (`end`). `ordinal` counts tool calls."""

    __slots__ = (
        "arguments",
        "blocked",
        "changed",
        "decided",
        "decision",
        "done",
        "end",
        "events",
        "id",
        "index",
        "kind",
        "name",
        "ordinal",
        "size",
        "started",
    )

    def __init__(self, index: int, kind: BlockKind | None, *, id: str = "", name: str = "") -> None:
        self.index, self.kind, self.id, self.name = index, kind, id, name
        self.ordinal = -1
        self.events: list[Event] = []
        self.done = self.blocked = self.changed = self.started = False
        self.arguments: list[str] = []
        self.size = 0
        self.decision: Decision | None = None
        self.decided: Decided | None = None
        self.end: MessageStop | UpstreamFailed | None = None

    @property
    def is_text(self) -> bool:
        """Does this block hold text or reasoning?"""
        return self.kind is BlockKind.TEXT or self.kind is BlockKind.THINKING

    @property
    def is_unfinished(self) -> bool:
        """Did upstream not yet end this block?"""
        return not self.done and self.decision is None and self.decided is None


class Slots:
    """The queue. `emit` gets what may go out now."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self._queue: deque[Slot] = deque()
        self.by_index: dict[int, Slot] = {}
        self.next_index = 0

    def add(self, slot: Slot) -> None:
        """Put a slot at the end."""
        self._queue.append(slot)
        self.by_index[slot.index] = slot
        self.next_index = max(self.next_index, slot.index + 1)

    def put(self, slot: Slot, event: Event) -> None:
        """Let `slot` say `event`: now if it is its turn, else when it is."""
        if self._queue and self._queue[0] is slot:
            self._emit(event)
        else:
            slot.events.append(event)

    def unfinished(self) -> list[Slot]:
        """The blocks that upstream has not ended."""
        return [s for s in self._queue if s.is_unfinished]

    def drop(self, slot: Slot) -> None:
        """Take out a block that can never be approved; text that is already going out stays where it is."""
        if not (slot is self._queue[0] and slot.is_text):
            self._queue.remove(slot)
        slot.done = True

    def pump(self) -> MessageStop | UpstreamFailed | None:
        """Let every slot whose turn has come say what it kept; returns the end once everything before it is out."""
        while self._queue and self._queue[0].done:
            slot = self._queue.popleft()
            if slot.end is not None:
                return slot.end
            if self._queue:
                kept, self._queue[0].events = self._queue[0].events, []
                for event in kept:
                    self._emit(event)
        return None
