"""The content blocks of one answer waiting for their turn: only the first may emit.

Theory. Every block has a slot, in the order in which blocks began, and the end of the message is
the last slot. The first slot's events go straight out; the others keep theirs. A slot that is done
leaves the queue, and the next one's kept events go out. So blocks keep their order, and a held
block holds up what follows it but nothing before it.

A text block in which something stands that a client may read as a tool call has several slots: the
text before, the suspect, the text after. `index` is the block's, `key` the slot's own: facts and
records go by it.

The queue is a linked list: where text is full of calls, each is inserted in the middle.
"""

from collections.abc import Callable, Iterator
from typing import Any

from policy.base import Executor, TextBlock
from policy.session.chain import Decided, Decision
from policy.session.echo import Echo
from protocol.events import (
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    Form,
    MessageStop,
    UpstreamFailed,
)
from protocol.records import VerdictName
from protocol.text_calls.scanner import CallScanner

Mark = tuple[VerdictName, int]
"""The verdict on a chunk as far as it is known, and the block it belongs to (-1: none)."""
RANKED: tuple[VerdictName, ...] = ("block", "hold", "replace", "allow")
"""Verdicts on parts of one whole, the one that counts first."""
FIRST_SUSPECT = 1_000_000
"""Keys of slots that are no block of their own begin here."""


class Continue:
    """The upstream paused its turn: go on with another request once everything before is
    released."""


End = MessageStop | UpstreamFailed | Continue


class TextRun:
    """What the slots of one text or thinking block share."""

    __slots__ = (
        "about",
        "attachments",
        "blocked",
        "calls",
        "echo",
        "half",
        "heard",
        "held",
        "is_suspect",
        "known",
        "scanner",
        "start",
        "started",
        "waiting",
    )

    def __init__(
        self, start: BlockStart, scanner: CallScanner | None, known: int = 0, *, field: str = ""
    ) -> None:
        self.start, self.scanner = start, scanner
        self.about = TextBlock(start.index, start.kind, field)
        self.started = self.blocked = self.is_suspect = False
        self.echo = Echo()
        self.half = ""
        """The first half of a character, whose second half is still to come."""
        self.held, self.known = 0, known
        """Characters that the scanner holds of this text, and those before it of an earlier one,
        which went out."""
        self.heard: list[str] | None = None
        """Takes the text as it comes, where judges are shown it."""
        self.calls = 0
        """Calls that were found in it."""
        self.attachments: list[Event] = []
        """Attachments and signatures, which go out at the end if the text did as it came."""
        self.waiting: list[Event] = []
        """Log probabilities of what the policies or the scanner hold."""


class Slot:
    """One content block, or the end of the message (`end`). `ordinal` counts tool calls."""

    __slots__ = (
        "arguments",
        "blocked",
        "body",
        "decided",
        "decision",
        "done",
        "end",
        "events",
        "executor",
        "following",
        "follows_text",
        "form",
        "has_denied_result",
        "id",
        "index",
        "key",
        "kind",
        "name",
        "ordinal",
        "raw",
        "released",
        "result",
        "run",
        "server",
        "shown_id",
        "size",
        "survives",
    )

    def __init__(
        self,
        index: int,
        kind: BlockKind | None,
        *,
        key: int | None = None,
        id: str = "",
        name: str = "",
    ) -> None:
        self.index, self.key, self.kind, self.id, self.name = (
            index,
            index if key is None else key,
            kind,
            id,
            name,
        )
        self.shown_id = id
        """The id as the client gets it."""
        self.body: dict[str, Any] | None = None
        self.form: Form = "native"
        self.executor: Executor = "client"
        self.server = ""
        self.ordinal = -1
        self.events: list[Event] = []
        self.done = self.blocked = self.released = self.survives = self.follows_text = (
            self.has_denied_result
        ) = False
        # follows_text: something that clients may join to this block, as text, began before it in
        # the answer has_denied_result: it was allowed, and what the provider got of it was not
        self.arguments: list[str] = []
        self.size = 0
        self.decision: Decision | None = None
        self.decided: Decided | None = None
        self.raw: list[Event] = []
        """Unmodelled frames that go with a call."""
        self.result: list[Event] = []
        """What is released instead of a call, where the decision is about the call of a result."""
        self.run: TextRun | None = None
        self.end: End | None = None
        self.following: Slot | None = None
        """The next in the queue. Only forward: in a cycle all that a call holds would wait for the
        garbage collector."""

    @property
    def is_unfinished(self) -> bool:
        """Did upstream not yet end this block? What is no block of upstream's has no kind."""
        return (
            self.kind is not None
            and not self.done
            and self.decision is None
            and self.decided is None
        )

    @property
    def verdict(self) -> VerdictName:
        """What became of a block that upstream has ended; `hold` while that is not known."""
        if self.run is not None:
            return (
                "block" if self.run.blocked else "replace" if self.run.echo.has_changed else "allow"
            )
        if self.blocked or (self.decided is not None and self.decided.verdict == "block"):
            return "block"
        if self.ordinal < 0:
            return "allow"
        if not self.done:
            return "hold"
        # without a verdict it was left out: past the bound, or behind a call that was denied
        return "block" if self.decided is None else self.decided.verdict


class Slots:
    """The queue. `emit` gets what may go out now."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self._first: Slot | None = None
        self._last: Slot | None = None
        self.by_index: dict[int, Slot] = {}
        """The slot that a block's next event belongs to."""
        self.by_key: dict[int, Slot] = {}
        self.next_index = 0
        self._next_key = FIRST_SUSPECT

    def _waiting(self, first: Slot | None) -> Iterator[Slot]:
        """The queue from `first` on."""
        while first is not None:
            yield first
            first = first.following

    def add(self, slot: Slot) -> None:
        """Put a slot at the end."""
        if self._last is None:
            self._first = slot
        else:
            self._last.following = slot
        self._last = slot
        self.by_key[slot.key] = slot
        if slot.key < FIRST_SUSPECT:
            self.by_index[slot.index] = slot
            self.next_index = max(self.next_index, slot.index + 1)

    def new_key(self) -> int:
        """A key for a slot that is no block of its own."""
        self._next_key += 1
        return self._next_key - 1

    def go_on_from(self, earlier: "Slots") -> None:
        """Number what comes behind what `earlier` has numbered: facts and records go by these
        numbers."""
        self.next_index, self._next_key = earlier.next_index, earlier._next_key

    def insert_after(self, slot: Slot, later: Slot) -> None:
        """Put `later`, which is no block of its own, right behind `slot`."""
        later.following, slot.following = slot.following, later
        if self._last is slot:
            self._last = later
        self.by_key[later.key] = later

    def put(self, slot: Slot, event: Event) -> None:
        """Let `slot` say `event`: now if it is its turn, else when it is."""
        if self._first is slot:
            self._emit(event)
        else:
            slot.events.append(event)

    def unfinished(self) -> list[Slot]:
        """The blocks that upstream has not ended."""
        return [s for s in self._waiting(self._first) if s.is_unfinished]

    def drop(self, slot: Slot) -> None:
        """Give up a block that upstream did not finish: what was approved of it stays, ended, so
        that nothing comes out inside it.

        Whether its turn has come must not count: that depends on when judgements and commits came,
        and a replay must come out alike.
        """
        has_begun = (
            slot.run.started
            if slot.run is not None
            else slot.kind is BlockKind.OTHER and not slot.blocked and not slot.result
        )
        if has_begun:
            self.put(slot, BlockStop(slot.index))
        else:
            slot.events = []
        slot.done = True

    def behind(self, slot: Slot) -> Iterator[Slot]:
        """What waits behind `slot`, in order."""
        return self._waiting(slot.following)

    def cut_after(self, slot: Slot) -> list[Slot]:
        """Take out everything behind `slot`, and return it."""
        cut = list(self.behind(slot))
        slot.following, self._last = None, slot
        for later in cut:
            later.done = True
        return cut

    def pump(self) -> End | None:
        """Let every slot whose turn has come say what it kept; returns the end once everything
        before it is out."""
        while (slot := self._first) is not None and slot.done:
            self._first, slot.following = slot.following, None
            if self._first is None:
                self._last = None
            if slot.end is not None:
                return slot.end
            if self._first is not None:
                events, self._first.events = self._first.events, []
                for event in events:
                    self._emit(event)
        return None
