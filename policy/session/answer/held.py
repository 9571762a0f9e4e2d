"""The blocks of an answer that is decided by turns: from a certain point on they wait until it is
known whether the turn is kept.

Theory. A gate is put into the queue before the first tool call, or before everything. What comes
behind it passes the policies as always, but no verdict goes on record and nothing goes out. Once
upstream has ended the turn and every call in it is decided, the session opens the gate, and all is
recorded and released as if it came then; or it discards what waits, and another answer takes its
place. Both depend on all verdicts, so not on their order. Only a denied call that the provider runs
goes its own way: it ends the turn, whatever else is in it.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile

import msgspec

from policy.session.answer import toolcalls
from policy.session.answer.blocks import CallBlocks
from policy.session.answer.call_flow import LISTED
from policy.session.answer.outbox import Outbox
from policy.session.answer.slots import CallSlot, Continue, End, Mark, Slot
from policy.session.chain import Chain
from protocol.errors import RemoteProtocolError
from protocol.events import BlockKind, BlockStart, Event
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
    """Blocks with a gate. `end` is how the turn ended, once it has, with the gate
    closed."""

    def __init__(
        self, outbox: Outbox, chain: Chain, request: ChatRequest, emit: Callable[[Event], None]
    ) -> None:
        super().__init__(outbox, chain, request, emit)
        self._gate: Slot | None = None
        self._is_open = False
        self.end: End | None = None
        self._example = ""
        self._waiting: dict[int, CallSlot] = {}
        """Decided calls behind the gate."""

    # --- the gate ---

    @property
    def is_held(self) -> bool:
        """Does anything wait behind a closed gate, or would it?"""
        return self._gate is not None and not self._is_open

    @property
    def is_decided(self) -> bool:
        """Has the turn ended, with a verdict on every call in it?"""
        return self.end is not None and not self._questions.is_any_open and not super().unasked

    @property
    def unasked(self) -> list[int]:
        """The calls without a verdict on record."""
        return [*super().unasked, *(key for key, slot in self._waiting.items() if not slot.done)]

    @property
    def wanted(self) -> CallSlot | None:
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

    def _in_order(self) -> list[CallSlot]:
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

    def _behind(self, before: Slot) -> Slot:
        """Close the gate before a call that is found in text, unless it is closed."""
        if self._gate is not None:
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
        self._outbox.hold(frozenset(self.slots.by_key))
        gate = self._gate = Slot(self.slots.new_key())
        return gate

    def open(self) -> None:
        """The turn is kept: what waits is recorded and released."""
        self._is_open = True
        self._outbox.record_held()
        for slot in self._in_order():
            if not slot.done:
                self._settle(slot, self._outbox.at)
        self._let_pass()

    def _let_pass(self) -> None:
        self._is_open = True
        if self._gate is not None:
            self._gate.close()

    def _behind_gate(self) -> Iterator[Slot]:
        return iter(()) if self._gate is None else self.slots.behind(self._gate)

    def discard(self, *, notify: bool = False) -> int:
        """The turn is not kept: record that of everything behind the gate. Returns the call whose
        record is notified, -1 for none."""
        self._outbox.record_held("discarded", DEFERRED)
        notified_key = max(self._waiting, default=-1) if notify else -1
        for slot in self.slots.cut_after(self._gate) if self._gate is not None else ():
            if not isinstance(slot, CallSlot):
                continue
            self._questions.close(slot.key)
            if slot.key in self._waiting:
                self._discard_call(slot, notify=slot.key == notified_key)
            elif slot.ordinal < LISTED and slot.decided is None:
                self._outbox.block_record(slot, "discarded", "unfinished", "")
        return notified_key

    def _discard_call(self, slot: CallSlot, *, notify: bool, reason: str = DEFERRED) -> None:
        choices = slot.decision.choices if slot.decision is not None else ()
        valid = toolcalls.close_decision(slot, self._schemas)
        decided, outbox = slot.final, self._outbox
        slot.decide(
            msgspec.structs.replace(
                decided, verdict="discarded", arguments=None, reason=decided.reason or reason
            )
        )
        outbox.records += toolcalls.chosen(
            self.call, slot, choices, outbox.at, attempt=self.attempt
        )
        outbox.records += toolcalls.records(
            self.call, slot, outbox.at, schema_valid=valid, notify=notify
        )

    def finish_empty(self, end: End) -> None:
        """End the turn, of which nothing is left behind the gate."""
        self._let_pass()
        super()._add_end(end)

    def leave_out(self, *, has_text: bool, is_foreign: bool) -> set[int]:
        """Return the indices of what is left out of an answer that takes another's place, and let
        the record say so: thinking, text before its calls where text is out, what the first's
        dialect has no block for."""
        behind = list(self._behind_gate())
        calls = {slot.index for slot in behind if isinstance(slot, CallSlot)}
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
                for slot in takewhile(lambda slot: not isinstance(slot, CallSlot), behind)
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
            slot.close()
        self._outbox.amend(keys, LEFT_OUT)
        return gone

    def _cut(self, slot: CallSlot) -> None:
        behind = {later.key for later in self.slots.behind(slot)}
        super()._cut(slot)
        self._outbox.amend(behind, "after_denied")

    # --- on the way ---

    def _start(self, event: BlockStart, seq: int) -> Mark:
        if self._gate is None and (event.kind in _CALLS or _is_result(event)):
            self.close()
        return super()._start(event, seq)

    def _identify(self, slot: CallSlot) -> None:
        if not self._example or slot.kind is not BlockKind.TOOL_USE:
            super()._identify(slot)
            return
        if slot.ordinal >= LISTED:
            # nothing of it goes out or on record
            return
        if slot.id:
            self._outbox.block_note(slot, "minted_id", f"upstream's id was {slot.id[:200]!r}")
        slot.identify(self._ids.alike(self._example, f"{self.call.nonce}:{slot.key}"))

    def _settle(self, slot: CallSlot, at: int) -> None:
        decided = slot.so_far
        is_release = decided is not None and decided.arguments is not None
        if self.is_held and (slot.executor == "client" or is_release):
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

    def follow(self, earlier: "HeldBlocks", events: Iterable[Event], *, example: str) -> None:
        """Take what the client has of an earlier answer, as if this one had begun with it: nothing
        of it goes out again. What comes from here on waits; its calls get ids like `example`, if it
        is not empty."""
        self.attempt = 1
        self.slots.go_on_from(earlier.slots)
        with self._outbox.muted():
            for event in events:
                self.feed(event, -1)
            self.slots.pump()
        self.close()
        self._example = example
