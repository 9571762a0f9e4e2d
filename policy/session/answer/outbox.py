"""Decisions of a session that its worker has not taken yet: outputs in one numbered, hashed
sequence, and records."""

from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b

import msgspec

from policy.base import Policy
from policy.session.answer.slots import Slot
from policy.session.effects import (
    CallInfo,
    JudgeRequest,
    Output,
    Respond,
    SessionEffects,
    Wanted,
)
from policy.session.notices import Notices
from protocol import bounds
from protocol.events import BlockKind, BlockStart, Event, Ping
from protocol.records import PASSED, BlockRecord, EventRecord, Record, VerdictName, to_bytes
from settings.config import NoticeForm

_encode = msgspec.msgpack.Encoder().encode
_MAX_OPAQUE = bounds.MAX_OPAQUE_NOTES
_BLOCK_NOTES = 1_000_000_000


class OutputHash:
    """The running hash over a call's outputs, by which a second owner proves that it decides alike.

    Timing puts keepalives between outputs, so a replay is given their places: they are part of the
    digest.
    """

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)
        self._pings: list[int] = []
        """The numbers of outputs that are keepalives."""
        self.checkpoint = 0
        self.digest, self.checkpoint_digest = self._hash.hexdigest(), ""
        self.number = 0
        """Outputs that it has taken."""

    def follow(self, checkpoint: int, digest: str) -> None:
        """Keep the digest at this number of outputs, and have keepalives where those of `digest`
        were."""
        self.checkpoint = checkpoint
        self._pings = [int(number) for number in digest.split()[1:] if number.isdecimal()]

    def follow_as(self, other: "OutputHash") -> None:
        """Follow what `other` follows."""
        self.checkpoint, self._pings = other.checkpoint, other._pings

    def ping(self, place: int) -> None:
        """Note that the output at this place behind those taken is a keepalive."""
        self._pings.append(self.number + place)

    def with_pings(self, outputs: list[Output]) -> None:
        """Put the keepalives of a call taken over where they were."""
        for number in self._pings:
            if 0 <= number - self.number <= len(outputs):
                outputs.insert(number - self.number, Ping())

    def take(self, outputs: Sequence[Output]) -> None:
        """Hash what is drained, in one go: of each output alone it costs a chunk 3 % more."""
        number = self.number + len(outputs)
        if number > self.checkpoint and self.number < self.checkpoint:
            left = self.checkpoint - self.number
            self.take(outputs[:left])
            self.take(outputs[left:])
            return
        self.number = number
        try:
            self._hash.update(b"".join(map(_encode, outputs)))
        except (UnicodeEncodeError, OverflowError):
            self._hash.update(b"".join(map(_bytes_of, outputs)))
        self.digest = self._with_pings() if self._pings else self._hash.hexdigest()
        if number == self.checkpoint:
            self.checkpoint_digest = self.digest

    def _with_pings(self) -> str:
        return " ".join((self._hash.hexdigest(), *map(str, self._pings)))


def _bytes_of(output: Output) -> bytes:
    """Return an output's bytes for the hash. A model can write lone surrogates, which no UTF-8
    format takes, and whole numbers of any size."""
    try:
        return _encode(output)
    except (UnicodeEncodeError, OverflowError):
        return to_bytes(repr(output))


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
        self.lookup: Wanted | None = None
        self.outputs: list[Output] = []
        self.hash = OutputHash()
        self._notes = 0
        self._opaque: set[str] = set()
        self.recorded: set[int] = set()
        """Blocks whose verdict is on record: there is one for each."""
        self._held: list[BlockRecord] | None = None
        """Verdicts on blocks that wait for the decision about their turn, where there is one: not
        of those in `early`."""
        self.early: Container[int] = ()
        self._has_project = False

    def set_time(self, at: int) -> None:
        """Let records carry this time (Unix ms)."""
        self.at = at

    def stream(self) -> None:
        """Take that the client streams."""
        self.streams = True

    def look_up(self, wanted: Wanted | None) -> None:
        """Ask for what the session does not have, if anything is wanted."""
        self.lookup = wanted

    def finish(self, reason: str) -> None:
        """Take with which reason the answer is complete."""
        self.end = reason

    def lose(self) -> None:
        """Take that something of the answer does not go out."""
        self.withheld = True

    def put(self, output: Output) -> None:
        """Add an output that is no event."""
        self.outputs.append(output)
        if type(output) is Respond:
            self.end = self.end or output.reason

    def emit(self, event: Event) -> None:
        """Release an event to the client."""
        if not self.emitted_block:
            self.emitted_block = (
                type(event) is BlockStart and event.kind is not BlockKind.SERVER_TOOL_USE
            )
        if not self.visible:
            self.visible = self.streams
        self.outputs.append(event)

    def ping(self) -> None:
        """Add a keepalive behind what there is."""
        self.hash.ping(len(self.outputs))
        self.outputs.append(Ping())

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

    def note_findings(self, policies: Sequence[Policy]) -> None:
        """Record what policies changed of texts since the last time."""
        for policy in policies:
            for words in policy.findings:
                self.note("redacted", -1, words)
            policy.findings = ()

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
        kind = slot.kind.value if slot.kind is not None else slot.name
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
        if self._held is not None and slot.key not in self.early:
            self._held.append(record)
        else:
            self.records.append(record)

    def hold(self, early: Container[int]) -> None:
        """Keep verdicts back from here on, but of the blocks in `early`."""
        self._held, self.early = [], early

    def amend(self, keys: Container[int], reason: str) -> None:
        """Let the verdicts that wait say of these blocks that they do not go out."""
        if self._held is not None:
            self._held = [
                msgspec.structs.replace(record, verdict="withheld", reason=reason)
                if record.block in keys and record.verdict in PASSED
                else record
                for record in self._held
            ]

    def record_held(self, verdict: VerdictName | None = None, reason: str = "") -> None:
        """Record the verdicts that waited, or `verdict` in their place, for `reason` where they
        have none."""
        for record in self._held or ():
            if verdict is not None:
                record = msgspec.structs.replace(
                    record, verdict=verdict, reason=record.reason or reason
                )
            self.records.append(record)
        self._held = None

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Output in here is a repetition: it is not sent, not recorded, and changes nothing."""
        saved = dict(vars(self))
        self.outputs, self.records, self.asks, self.waits = [], [], [], []
        self.recorded, self._opaque, self._held = set(self.recorded), set(self._opaque), None
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

    def note_project(self, detail: str) -> None:
        """Record once what a call's project stands on, if anything does. With the call's own time:
        which of its tool calls is decided first may be chance."""
        if detail and not self._has_project:
            self._has_project = True
            call = self.call
            self.records.append(
                EventRecord(
                    call_id=call.call_id, kind="project", number=0, at=call.at, detail=detail
                )
            )

    @property
    def is_empty(self) -> bool:
        """Is nothing wanted since the last time?"""
        return not (self.outputs or self.records or self.asks or self.waits or self.lookup)

    def drain(self) -> SessionEffects:
        """Return what is wanted since the last time."""
        taken, outputs = self.hash, self.outputs
        number = taken.number
        if number < taken.checkpoint:
            taken.with_pings(outputs)
        if outputs:
            taken.take(outputs)
        drained = SessionEffects(
            number,
            taken.number,
            taken.digest,
            outputs,
            self.records,
            self.asks,
            self.waits,
            self.end,
            self.lookup,
        )
        self.outputs, self.records, self.asks, self.waits, self.lookup = [], [], [], [], None
        return drained
