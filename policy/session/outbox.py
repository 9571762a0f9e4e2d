"""Decisions of a session that its worker has not taken yet: outputs in one numbered, hashed
sequence, and records."""

from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b

import msgspec

from policy.session.effects import CallInfo, JudgeRequest, Output, Respond, SessionEffects
from policy.session.notices import Notices
from policy.session.slots import Slot
from protocol import bounds
from protocol.config import NoticeForm
from protocol.events import BlockKind, BlockStart, Event, Ping
from protocol.records import BlockRecord, EventRecord, Record, VerdictName, to_bytes
from protocol.stored_answers import WantedAnswers
from protocol.turns import WantedTurns

_encode = msgspec.msgpack.Encoder().encode
_MAX_OPAQUE = bounds.MAX_OPAQUE_NOTES
_BLOCK_NOTES = 1_000_000_000


class Outbox:
    """The outputs, records and wishes of one call. `at` is the time (Unix ms) that records
    carry."""

    def __init__(self, call: CallInfo, form: NoticeForm = "full") -> None:
        self.call = call
        self.notices = Notices(call.call_id, call.policy, form)
        self.at = call.at
        self.streams = False
        """The client streams: what is emitted is visible at once."""
        self.visible = self.emitted_block = self.withheld = False
        self.end = ""
        self.records: list[Record] = []
        self.asks: list[JudgeRequest] = []
        self.waits: list[int] = []
        self.lookup: WantedTurns | WantedAnswers | None = None
        self.checkpoint, self.checkpoint_digest = 0, ""
        self.pings: list[int] = []
        """The numbers of outputs that are keepalives. Timing put them there, so a replay gets their
        places: they are part of the digest."""
        self.outputs: list[Output] = []
        self._hash = blake2b(digest_size=16)
        self._digest = self._hash.hexdigest()
        self._drained = self._notes = 0
        self._opaque: set[str] = set()
        self.recorded: set[int] = set()
        """Blocks whose verdict is on record: there is one for each."""
        self.held: list[BlockRecord] | None = None
        """Verdicts on blocks that wait for the decision about their turn, where there is one: not
        of those in `early`."""
        self.early: Container[int] = ()

    def put(self, output: Output) -> None:
        """Add an output that is no event."""
        self.outputs.append(output)
        if type(output) is Respond:
            self.end = self.end or output.reason

    def emit(self, event: Event) -> None:
        """Release an event to the client."""
        if type(event) is BlockStart and event.kind is not BlockKind.SERVER_TOOL_USE:
            self.emitted_block = True
        if self.streams:
            self.visible = True
        self.outputs.append(event)

    def _hash_outputs(self) -> None:
        """Take what is drained into the running hash, in one go: of each output alone it costs a
        chunk 3 % more."""
        if self._drained < self.checkpoint:
            self._hash_until_checkpoint()
        else:
            self._update(self.outputs)
        self._digest = self._with_pings() if self.pings else self._hash.hexdigest()

    def _hash_until_checkpoint(self) -> None:
        checkpoint_size = self.checkpoint - self._drained
        self._update(self.outputs[:checkpoint_size])
        if checkpoint_size <= len(self.outputs):
            self.checkpoint_digest = self._with_pings()
            self._update(self.outputs[checkpoint_size:])

    def _with_pings(self) -> str:
        return " ".join((self._hash.hexdigest(), *map(str, self.pings)))

    def ping(self) -> None:
        """Add a keepalive behind what there is."""
        self.pings.append(self._drained + len(self.outputs))
        self.outputs.append(Ping())

    def _ping_again(self) -> None:
        """Put the keepalives of a call taken over where they were."""
        for number in self.pings:
            place = number - self._drained
            if 0 <= place <= len(self.outputs):
                self.outputs.insert(place, Ping())

    def _update(self, outputs: Sequence[Output]) -> None:
        update = self._hash.update
        for output in outputs:
            try:
                update(_encode(output))
            except (UnicodeEncodeError, OverflowError):
                # a model can write lone surrogates, which no UTF-8 format takes, and whole numbers
                # of any size
                update(to_bytes(repr(output)))

    def note(self, kind: str, seq: int, detail: str) -> None:
        """Record something that happened at chunk `seq`."""
        if self._notes > bounds.MAX_NOTES:
            # each chunk has its own mark all the same
            return
        self._notes += 1
        if self._notes > bounds.MAX_NOTES:
            kind, detail = "too_many", f"more than {bounds.MAX_NOTES} things were to be noted"
        detail = f"{seq}: {detail}"
        self.records.append(
            EventRecord(
                call_id=self.call.call_id, kind=kind, number=self._notes, at=self.at, detail=detail
            )
        )

    def note_withheld(self, names: Sequence[str], seq: int) -> None:
        """Record the fields that were withheld at chunk `seq`."""
        for name in names:
            self.note("withheld", seq, name)

    def withhold(self, what: str, seq: int) -> None:
        """Record what was withheld because nobody models it."""
        self.withheld = True
        # the first of its kind is worth a record: every chunk has its mark anyway, and an unknown
        # block has hundreds of deltas
        if what not in self._opaque and len(self._opaque) < _MAX_OPAQUE:
            self._opaque.add(what)
            self.note("withheld", seq, what)

    def block_record(
        self, slot: Slot, verdict: VerdictName, reason: str, policy: str, rule: str = ""
    ) -> None:
        """Record the verdict on a block; anything later about it is a note."""
        if slot.key in self.recorded:
            self.block_note(slot, verdict, reason)
            return
        self.recorded.add(slot.key)
        kind = slot.kind.value if slot.kind is not None else ""
        record = BlockRecord(
            call_id=self.call.call_id,
            block=slot.key,
            at=self.at,
            kind=kind,
            verdict=verdict,
            reason=reason,
            policy=policy,
            rule=rule or None,
        )
        if self.held is not None and slot.key not in self.early:
            self.held.append(record)
        else:
            self.records.append(record)

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Output in here is a repetition: it is not sent, not recorded, and changes nothing."""
        saved = dict(vars(self))
        self.outputs, self.records, self.asks, self.waits = [], [], [], []
        self.recorded, self._opaque, self.held = set(self.recorded), set(self._opaque), None
        yield
        vars(self).update(saved)

    def block_note(self, slot: Slot, kind: str, reason: str) -> None:
        """Note something about a block. Numbered by it: a verdict comes between other notes in one
        run, and elsewhere in another."""
        number, detail = _BLOCK_NOTES + slot.key, f"block {slot.key}: {reason}"
        self.records.append(
            EventRecord(
                call_id=self.call.call_id, kind=kind, number=number, at=self.at, detail=detail
            )
        )

    @property
    def is_empty(self) -> bool:
        """Is nothing wanted since the last time?"""
        return not (self.outputs or self.records or self.asks or self.waits or self.lookup)

    def drain(self) -> SessionEffects:
        """Return what is wanted since the last time."""
        if self._drained < self.checkpoint and self.pings:
            self._ping_again()
        number = self._drained + len(self.outputs)
        if self.outputs:
            self._hash_outputs()
        drained = SessionEffects(
            self._drained,
            number,
            self._digest,
            self.outputs,
            self.records,
            self.asks,
            self.waits,
            self.end,
            self.lookup,
        )
        self._drained = number
        self.outputs, self.records, self.asks, self.waits, self.lookup = [], [], [], [], None
        return drained
