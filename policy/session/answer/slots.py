"""The content blocks of one answer waiting for their turn: only the first may emit.

Theory. Every block has a slot, in the order in which blocks began, and the end of the message is
the last slot. The first slot's events go straight out; the others keep theirs. A slot that is done
leaves the queue, and the next one's kept events go out. So blocks keep their order, and a held
block holds up what follows it but nothing before it.

A slot is one of four: text, a tool call, a block carried whole, the end; by itself it is a place
between blocks.

A text block in which something stands that a client may read as a tool call has several slots: the
text before, the suspect, the text after. `index` is the block's, `key` the slot's own: facts and
records go by it.

The queue is a linked list: where text is full of calls, each is inserted in the middle.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal

from policy.base import Executor, TextBlock
from policy.session.answer.text_comparison import Echo
from policy.session.decision import Decided, Decision
from protocol.errors import LocalProtocolError
from protocol.events import (
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    MessageStop,
    UpstreamFailed,
)
from protocol.records import VerdictName
from protocol.text_calls.scanner import CallScanner

Mark = tuple[VerdictName, int]
"""The verdict on a chunk as far as it is known, and the block it belongs to (-1: none)."""
WITHHELD: Mark = ("withheld", -1)
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
    """A place in the order of the answer, and what waits there to go out. By itself it is none of
    upstream's blocks, but a gate, or a frame between blocks."""

    __slots__ = ("done", "events", "following", "index", "key", "kind", "name")

    def __init__(
        self, key: int, index: int = -1, kind: BlockKind | None = None, name: str = ""
    ) -> None:
        self.key, self.index = key, index
        self.kind, self.name = kind, name
        self.events: list[Event] = []
        self.done = False
        self.following: Slot | None = None
        """The next in the queue. Only forward: in a cycle all that a call holds would wait for the
        garbage collector."""

    def close(self) -> None:
        """Say no more: the next one's turn may come."""
        self.done = True

    @property
    def is_unfinished(self) -> bool:
        """Is it a block that upstream did not end yet?"""
        return self.kind is not None and not self.done

    @property
    def has_begun(self) -> bool:
        """Does the client see its beginning, now or later?"""
        return False

    @property
    def verdict(self) -> VerdictName:
        """What became of a block that upstream has ended; `hold` while that is not known."""
        return "allow"


class TextSlot(Slot):
    """Text or thinking. `follows_text`: something that clients may join to it, as text, began
    before it in the answer."""

    __slots__ = ("follows_text", "run")

    def __init__(self, key: int, run: TextRun, *, follows_text: bool = False) -> None:
        super().__init__(key, run.start.index, run.start.kind, run.start.name)
        self.run, self.follows_text = run, follows_text

    @property
    def has_begun(self) -> bool:
        """As every slot."""
        return self.run.started

    @property
    def verdict(self) -> VerdictName:
        """As every slot."""
        run = self.run
        return "block" if run.blocked else "replace" if run.echo.has_changed else "allow"


class WholeSlot(Slot):
    """A block that is carried whole, or that nobody models."""

    __slots__ = ("blocked",)

    def __init__(self, start: BlockStart) -> None:
        super().__init__(start.index, start.index, start.kind, start.name)
        self.blocked = start.kind is BlockKind.OPAQUE

    def block(self) -> None:
        """Let none of it go out."""
        self.blocked = True

    @property
    def has_begun(self) -> bool:
        """As every slot."""
        return not self.blocked

    @property
    def verdict(self) -> VerdictName:
        """As every slot."""
        return "block" if self.blocked else "allow"


class EndSlot(Slot):
    """The end of the message, or of a part of it."""

    __slots__ = ("end",)

    def __init__(self, key: int, end: End) -> None:
        super().__init__(key)
        self.end, self.done = end, True


Phase = Literal["open", "deciding", "decided", "approved"]
Step = Literal["ask", "decide", "approve"]

# A call is open while its arguments come. Once they are complete it is deciding, for as long as
# policies and judges take; what needs none of them is decided at once. A verdict may give way to a
# stricter one (the record is not durable, the arguments do not fit, the turn is discarded). A call
# that the provider runs is approved while its result is still to come, and a verdict on that is
# then one on the call. What has gone out or is cut off is done (`Slot.close`), in whatever phase it
# was: nothing is read of it but its verdict. A step that is not here is a bug: it raises KeyError,
# and the call is denied.
_PHASES: Final[dict[tuple[Phase, Step], Phase]] = {
    ("open", "ask"): "deciding",
    ("open", "decide"): "decided",
    ("deciding", "decide"): "decided",
    ("decided", "decide"): "decided",
    ("decided", "approve"): "approved",
    ("approved", "decide"): "approved",
}


class CallSlot(Slot):
    """A tool call, or what is decided as one: text that is a call, the result of an earlier call.

    `ordinal` counts calls. `result`, where there is one, is released in place of the call. `id` is
    as on record, `shown_id` as the client gets it.
    """

    __slots__ = (
        "arguments",
        "decided",
        "decision",
        "executor",
        "follows_text",
        "has_denied_result",
        "id",
        "ordinal",
        "phase",
        "raw",
        "result",
        "server",
        "shown_id",
        "size",
        "start",
        "survives",
    )

    def __init__(
        self,
        key: int,
        start: BlockStart,
        executor: Executor = "client",
        server: str = "",
        *,
        result: Sequence[Event] = (),
        follows_text: bool = False,
    ) -> None:
        super().__init__(key, start.index, start.kind, start.name)
        self.start, self.executor, self.server = start, executor, server
        self.result, self.follows_text = result, follows_text
        self.id = self.shown_id = start.id
        self.ordinal, self.size = -1, 0
        self.arguments: list[str] = []
        self.raw: list[Event] = []
        """Unmodelled frames that go with it."""
        self.phase: Phase = "open"
        self.decision: Decision | None = None
        self.decided: Decided | None = None
        self.survives = self.has_denied_result = False
        # survives: it goes out as a call of the client's
        # has_denied_result: it was allowed, and what the provider got of it was not

    def number(self, ordinal: int) -> None:
        """Take its place among the calls."""
        self.ordinal = ordinal

    def rename(self, name: str) -> None:
        """Take the name of the offered tool that is meant."""
        self.name = name

    def show(self, identity: str) -> None:
        """Take the id that the client gets."""
        self.shown_id = identity

    def identify(self, identity: str) -> None:
        """Take an id of ours in place of upstream's."""
        self.id = self.shown_id = identity

    def answer_for(self, identity: str, arguments: str) -> None:
        """Take the id and the arguments of the earlier call whose result this is."""
        self.id = identity
        self.arguments = [arguments]

    def feed(self, text: str, most: int) -> None:
        """Take more arguments; where they are more than `most` characters their text is not
        needed."""
        self.size += len(text)
        if self.size <= most:
            self.arguments.append(text)

    def join(self) -> str:
        """Return the arguments, joined once; the pieces are let go."""
        self.arguments = ["".join(self.arguments)]
        return self.arguments[0]

    def ask(self, decision: Decision) -> None:
        """Take the decision that is to be made about it."""
        self.phase = _PHASES[self.phase, "ask"]
        self.decision = decision

    def decide(self, decided: Decided) -> None:
        """Take the verdict. The parsed arguments go: nobody looks at them after this."""
        self.phase = _PHASES[self.phase, "decide"]
        self.decision, self.decided = None, decided

    def approve(self) -> None:
        """Let it wait for its result."""
        self.phase = _PHASES[self.phase, "approve"]

    def deny_result(self, decided: Decided) -> None:
        """Take the verdict on its result."""
        self.decide(decided)
        self.has_denied_result = True

    def survive(self) -> None:
        """Let it go out as a call of the client's."""
        self.survives = True

    @property
    def waits(self) -> bool:
        """Is it approved, with its result still to come?"""
        return self.phase == "approved" and not self.done

    @property
    def final(self) -> Decided:
        """The verdict. Raises LocalProtocolError where there is none yet."""
        if self.decided is None:
            raise LocalProtocolError(f"a call that is {self.phase} has no verdict")
        return self.decided

    @property
    def so_far(self) -> Decided | None:
        """The verdict, if only of the policies and not yet on record."""
        return self.decided or (self.decision.decided if self.decision is not None else None)

    @property
    def is_unfinished(self) -> bool:
        """As every slot."""
        return self.phase == "open" and not self.done

    @property
    def verdict(self) -> VerdictName:
        """As every slot."""
        decided = self.decided
        if decided is not None and decided.verdict == "block":
            return "block"
        if not self.done:
            return "hold"
        # without a verdict it was left out: past the bound, or behind a call that was denied
        return "block" if decided is None else decided.verdict


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
        if slot.has_begun:
            self.put(slot, BlockStop(slot.index))
        else:
            slot.events.clear()
        slot.close()

    def behind(self, slot: Slot) -> Iterator[Slot]:
        """What waits behind `slot`, in order."""
        return self._waiting(slot.following)

    def cut_after(self, slot: Slot) -> list[Slot]:
        """Take out everything behind `slot`, and return it."""
        cut = list(self.behind(slot))
        slot.following, self._last = None, slot
        for later in cut:
            later.close()
        return cut

    def pump(self) -> End | None:
        """Let every slot whose turn has come say what it kept; returns the end once everything
        before it is out."""
        while (slot := self._first) is not None and slot.done:
            self._first, slot.following = slot.following, None
            if self._first is None:
                self._last = None
            if type(slot) is EndSlot:
                return slot.end
            if self._first is not None:
                events, self._first.events = self._first.events, []
                for event in events:
                    self._emit(event)
        return None
