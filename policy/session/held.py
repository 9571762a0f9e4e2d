"""The blocks of an answer that is decided by turns: from a certain point on they wait until it is
known whether the turn is kept.

Theory. A gate is put into the queue before the first tool call, or before everything. What comes
behind it passes the policies as always, but no verdict goes on record and nothing goes out. Once
upstream has ended the turn and every call in it is decided, the session opens the gate, and all is
recorded and released as if it came then; or it discards what waits, and another answer takes its
place. Both depend on all verdicts, so not on their order. Only a denied call that the provider runs
goes its own way: it ends the turn, whatever else is in it.
"""

from collections.abc import Callable, Iterable
from itertools import takewhile
from weakref import proxy

import msgspec

from policy.session import toolcalls
from policy.session.blocks import LISTED, CallBlocks
from policy.session.chain import Chain
from policy.session.outbox import Outbox
from policy.session.slots import Continue, End, Mark, Slot
from protocol.errors import RemoteProtocolError
from protocol.events import BlockKind, BlockStart, Event
from protocol.records import PASSED, VerdictName
from protocol.request import ChatRequest

_CALLS = (BlockKind.TOOL_USE, BlockKind.SERVER_TOOL_USE)
_OF_ITS_MODEL = frozenset(("redacted_thinking", "fallback"))
"""Blocks of no use to another model's client: sealed thinking, and the name of the model that
answered."""
LEFT_OUT = "left_out"
"""The reason on record of what is left out of the second answer."""
DEFERRED = "deferred"
"""The reason on record of what was discarded, where it has none of its own."""


def _is_result(event: BlockStart) -> bool:
    """Is it the result of a call in an earlier answer? It is decided as that call, which may take
    until the turn has ended."""
    is_named = event.name.endswith("_tool_result") or isinstance(
        (event.body or {}).get("tool_use_id"), str
    )
    return event.kind is BlockKind.OTHER and is_named


class HeldBlocks(CallBlocks):
    """Blocks with a gate. `end` is how the turn ended, once it has, with the gate closed;
    `example`: what ids of calls must look like."""

    def __init__(
        self, outbox: Outbox, chain: Chain, request: ChatRequest, emit: Callable[[Event], None]
    ) -> None:
        super().__init__(outbox, chain, request, emit)
        self.gate: Slot | None = None
        self.end: End | None = None
        self.example = ""
        self._is_open = False
        self._waiting: dict[int, Slot] = {}
        """Decided calls behind the gate."""
        weak = proxy(self)
        self._text.before_call = lambda slot: weak._close_behind(slot)

    # --- the gate ---

    @property
    def is_held(self) -> bool:
        """Does anything wait behind a closed gate, or would it?"""
        return self.gate is not None and not self._is_open

    @property
    def is_decided(self) -> bool:
        """Has the turn ended, with a verdict on every call in it?"""
        return self.end is not None and not self._asked and not super().unasked

    @property
    def unasked(self) -> list[int]:
        """The calls without a verdict on record."""
        return [*super().unasked, *(key for key, slot in self._waiting.items() if not slot.done)]

    @property
    def wanted(self) -> Slot | None:
        """The first call of the answer that is to be decided by another model's answer; not the
        first that was decided, which is chance."""
        return next(
            (
                s
                for s in self._in_order()
                if s.decision is not None and s.decision.decided and s.decision.decided.defer
            ),
            None,
        )

    def _in_order(self) -> list[Slot]:
        """The calls that wait, as upstream began them."""
        return sorted(self._waiting.values(), key=lambda slot: slot.ordinal)

    @property
    def is_refused(self) -> bool:
        """Did the model say that it refuses?"""
        return any(
            slot.kind is BlockKind.TEXT and slot.name == "refusal"
            for slot in self.slots.by_key.values()
        )

    def close(self) -> None:
        """Close the gate: what comes from here on waits."""
        self.slots.add(self._new_gate())

    def _close_behind(self, before: Slot) -> Slot:
        """Close the gate before a call that is found in text, unless it is closed; returns the slot
        that the call comes behind."""
        if self.gate is not None:
            if before.key in self._outbox.early:
                # it would wait in front of the gate, where nothing is discarded
                raise RemoteProtocolError(
                    "upstream went on with a text after it began a tool call, and there is a call"
                    " in the text"
                )
            return before
        gate = self._new_gate()
        self.slots.insert_after(before, gate)
        return gate

    def _new_gate(self) -> Slot:
        self._outbox.early, self._outbox.held = frozenset(self.slots.by_key), []
        self.gate = Slot(-1, None, key=self.slots.new_key())
        return self.gate

    def open(self) -> None:
        """The turn is kept: what waits is recorded and released."""
        self._is_open = True
        self._tell_held()
        for slot in self._in_order():
            if not slot.done:
                self._settle(slot, self._outbox.at)
        self._let_pass()

    def _let_pass(self) -> None:
        assert self.gate is not None
        self._is_open = self.gate.done = True

    def _tell_held(self, verdict: VerdictName | None = None) -> None:
        """Record the verdicts that waited, or `verdict` in their place."""
        outbox = self._outbox
        for record in outbox.held or ():
            if verdict is not None:
                record = msgspec.structs.replace(
                    record, verdict=verdict, reason=record.reason or DEFERRED
                )
            outbox.records.append(record)
        outbox.held = None

    def discard(self, *, notify: bool = False) -> int:
        """The turn is not kept: record that of everything behind the gate. Returns the call whose
        record is notified, -1 for none."""
        assert self.gate is not None
        self._tell_held("discarded")
        notified_key = max(self._waiting, default=-1) if notify else -1
        for slot in self.slots.cut_after(self.gate):
            self._asked.discard(slot.key)
            if slot.key in self._waiting:
                self._discard_call(slot, notify=slot.key == notified_key)
            elif 0 <= slot.ordinal < LISTED and slot.decided is None:
                self._outbox.block_record(slot, "discarded", "unfinished", "")
        return notified_key

    def _discard_call(self, slot: Slot, *, notify: bool, reason: str = DEFERRED) -> None:
        choices = slot.decision.choices if slot.decision is not None else ()
        valid = toolcalls.close_decision(slot, self._schemas)
        decided, outbox = slot.decided, self._outbox
        assert decided is not None
        slot.decided = msgspec.structs.replace(
            decided, verdict="discarded", arguments=None, reason=decided.reason or reason
        )
        outbox.records += toolcalls.chosen(
            self.call, slot, choices, outbox.at, attempt=self.attempt
        )
        outbox.records.append(
            toolcalls.record(self.call, slot, outbox.at, schema_valid=valid, notify=notify)
        )

    def finish_empty(self, end: End) -> None:
        """End the turn, of which nothing is left behind the gate."""
        self._let_pass()
        super()._add_end(end)

    def leave_out(self, *, has_text: bool, is_foreign: bool) -> set[int]:
        """Return the indices of what is left out of an answer that takes another's place, and let
        the record say so: thinking, text before its calls where text is out, what the first's
        dialect has no block for."""
        assert self.gate is not None
        behind = list(self.slots.behind(self.gate))
        calls = {slot.index for slot in behind if slot.ordinal >= 0}
        gone = {
            slot.index
            for slot in behind
            if slot.kind is BlockKind.THINKING or slot.name in _OF_ITS_MODEL
        }
        if is_foreign:
            gone |= {
                slot.index for slot in behind if slot.kind not in (None, BlockKind.TEXT, *_CALLS)
            }
        if has_text and calls:
            before = {
                slot.index
                for slot in takewhile(lambda slot: slot.ordinal < 0, behind)
                if slot.kind is BlockKind.TEXT
            } - calls
            # which tell of places in that text
            gone |= before and {
                *before,
                *(slot.index for slot in behind if slot.name == "annotations"),
            }
        keys = {slot.key for slot in behind if slot.index in gone}
        for slot in [slot for slot in self._waiting.values() if slot.key in keys]:
            # found in a text that does not go out
            self._discard_call(slot, notify=False, reason=LEFT_OUT)
            slot.done = True
        self._amend(keys, LEFT_OUT)
        return gone

    def _amend(self, keys: set[int], reason: str) -> None:
        """Let the verdicts that wait say of these blocks that they do not go out."""
        held = self._outbox.held or []
        for place, record in enumerate(held):
            if record.block in keys and record.verdict in PASSED:
                held[place] = msgspec.structs.replace(record, verdict="withheld", reason=reason)

    def _cut(self, slot: Slot) -> None:
        behind = {later.key for later in self.slots.behind(slot)}
        super()._cut(slot)
        self._amend(behind, "after_denied")

    # --- on the way ---

    def _start(self, event: BlockStart, seq: int) -> Mark:
        if self.gate is None and (event.kind in _CALLS or _is_result(event)):
            self.close()
        return super()._start(event, seq)

    def _identify(self, slot: Slot) -> None:
        if not self.example or slot.kind is not BlockKind.TOOL_USE:
            super()._identify(slot)
            return
        if slot.ordinal >= LISTED:
            # nothing of it goes out or on record
            return
        if slot.id:
            self._outbox.block_note(slot, "minted_id", f"upstream's id was {slot.id[:200]!r}")
        slot.id = slot.shown_id = self._ids.alike(self.example, f"{self.call.nonce}:{slot.key}")

    def _settle(self, slot: Slot, at: int) -> None:
        decided = slot.decided or (slot.decision.decided if slot.decision is not None else None)
        assert decided is not None
        if self.is_held and (slot.executor == "client" or decided.arguments is not None):
            self._waiting[slot.key] = slot
        else:
            super()._settle(slot, at)

    def _add_end(self, end: End) -> None:
        if self.is_held:
            self.end = end
            if isinstance(end, Continue):
                return
        super()._add_end(end)

    def go_on(self) -> int:
        """Begin another segment; the gate stays as it is."""
        self.end = None
        return super().go_on()

    def take_earlier(self, events: Iterable[Event]) -> None:
        """Take what the client has of an earlier answer, as if this one had begun with it; nothing
        of it goes out again."""
        with self._outbox.muted():
            for event in events:
                self.feed(event, -1)
            self.slots.pump()
