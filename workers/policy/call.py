"""One call in the hands of a policy worker: entries and facts in, releases out. Synchronous; the
worker does the IO.

At most one release of a call is under way; what comes meanwhile waits and is joined into the next.
A release that got no answer is repeated as it was: the script knows it by its numbers (DUP).
"""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from policy.base import Judgement
from policy.session.effects import JudgeRequest, Output
from policy.session.session import Session
from protocol import dropped
from protocol.bounds import FIRST_KEEPALIVE_S, HEAVY_BYTES, STEP_CPU_S
from protocol.dialects import CLIENTS
from protocol.errors import PipelineError, PolicyFailed, StreamProtocolError, TookTooLong
from protocol.records import (
    CallRecord,
    ChunksRecord,
    EndRecord,
    EventRecord,
    Record,
    ReleaseRecord,
    VerdictName,
    decode_records,
    encode_records,
)
from streams import layout
from streams.layout import Entry, Relayed, Reply, Start
from workers.call_totals import DecisionCounts, relayed_events, undecided_record
from workers.policy.rendered import Release, digest, pass_over, render
from workers.policy.turns import Wanted, field_of, tell

if TYPE_CHECKING:
    from protocol.dialect_modules import Encoder

log = logging.getLogger(__name__)
_judgement = msgspec.json.Decoder(Judgement)
PROGRESS_BYTES = 128 * 1024
"""Taken-in bytes after which a worker tells the gateway its position though nothing is released."""
HELD_BYTES = 64 * 1024
"""Chunks of which nothing is released wait up to so much, or for the next sweep, to be recorded
together: the call's stream holds them."""


def now_ms() -> int:
    """Unix milliseconds, for records."""
    return time.time_ns() // 1_000_000


class OwnedCall:
    """A claimed call: its session, its encoder, and where its numbers stand in Redis (`released`,
    `recorded`)."""

    pin: tuple[str, str]
    """Policy and revision, until Redis has them."""
    heard_of: int
    """As `expected`, which is the number that comes next, but after what is not taken yet: more
    comes while the stream is read."""
    is_looking: bool
    """A lookup of recorded turns is under way."""
    relayed: Relayed | None
    """What its gateway reports with the end."""
    last_sent: float
    """When the client was last sent something, or the call began. Not known of a call taken over:
    it gets a keepalive at once."""
    last_checked: float
    """When what the call waits for was last read again."""
    last_owned: float
    """When Redis last confirmed that this worker has the call."""
    from_stream: bool
    """Pushed entries are ignored and read from the stream instead: the call is replayed, has not
    begun, or its steps are large."""
    missed: bool
    """Something was pushed since the stream was read, and not wanted."""
    is_heavy: bool
    """It holds so much that its next step may be large."""
    busy: asyncio.Future[None] | None
    """A step is under way on the lane: until this is done nobody else touches the session."""
    broken: bool
    """A bug of ours or of a codec came up in this call: it ends, and no other call notices."""
    _chunkless: int
    """Entries without chunks, which the end record counts."""
    _whole: Entry | None
    """A whole answer with tool calls that are not decided: it is recorded with its verdict, or when
    the call is over."""
    _held_bytes: int
    """Of chunks that wait to be recorded, where all of them are held; past `HELD_BYTES` where they
    must not wait."""
    uncounted: int
    """Bytes of records that were released and not yet counted for its key
    (`workers.policy.unrecorded`)."""

    def __init__(
        self,
        start: Start,
        token: str,
        entry: str,
        session: Session,
        *,
        policy_header: str,
        released: int,
        digest: str,
        recorded: int,
        written: int = 0,
    ) -> None:
        self.id, self.start, self.token, self.entry, self.session = (
            start.call_id,
            start,
            token,
            entry,
            session,
        )
        self.gateway, self.shard = start.gateway, layout.shard_of(start.call_id)
        self.ctl_key, self.call_key = layout.ctl_key(start.call_id), layout.call_key(start.call_id)
        self.policy_header, self.pin = policy_header, ("", "")
        self.expected = self.heard_of = 1
        self.released, self.recorded, self._digest, self.written = (
            released,
            recorded,
            digest,
            written,
        )
        session.follow(released, digest)
        self.decided = DecisionCounts()
        # what the call waits for, and of that what its worker has not begun to wait for
        self.facts: dict[str, bytes] = {}
        self.open_asks: dict[str, JudgeRequest] = {}
        self.open_waits: set[int] = set()
        self.open_lookup: Wanted | None = None
        self.new_asks: list[JudgeRequest] = []
        self.new_waits: list[int] = []
        self.new_lookup: Wanted | None = None
        self.encoder: Encoder | None = None
        self.sending: Release | None = None
        self.closed: Entry | None = None
        self.relayed = self.busy = self._whole = None
        self.last_heard = self.last_checked = self.last_owned = time.monotonic()
        self.last_sent = -math.inf if released else self.last_heard
        self._silent_until = self.last_sent + FIRST_KEEPALIVE_S
        self.is_looking = self.finishing = self.replaying = self.from_stream = self.missed = (
            self.is_heavy
        ) = False
        self.has_begun = self.broken = self._head_sent = self._keepalive = False
        self._outputs: list[Output] = []
        self._records: list[Record] = []
        self._chunks: list[ChunksRecord] = []
        self._base = self._chunkless = self._held_bytes = self._unreported = self.uncounted = 0
        self._end = ""

    # --- inputs ---

    def begin(self, body: bytes | None) -> None:
        """Start the session with the request body. One that takes too long is refused."""
        self.has_begun = True
        if body is not None and layout.is_other(body, self.start.body_sha256):
            self.note(
                "body_changed",
                0,
                "the request body in Redis is not the one that the client sent",
                self.start.at,
            )
            self.refuse(
                StreamProtocolError(
                    "the request body was changed before a policy worker read it",
                    code="body_changed",
                )
            )
            return
        try:
            try:
                self.session.at(self.start.at)
                self.session.begin(body)
                self.collect()
            except Exception as error:  # noqa: BLE001 - as `contained`
                self._break(error)
        except TookTooLong:
            self.refuse_late()

    def refuse(self, error: PipelineError) -> None:
        """Answer with an error instead of beginning."""
        self.has_begun = True
        self.session.refuse(error)
        self.collect()

    def refuse_late(self) -> None:
        """Answer that the beginning took too long, whatever there is of it."""
        log.error("a request took too long to begin", extra={"call_id": self.id})
        self.broken = False
        self.session = self.session.anew()
        self._outputs, self._records, self.decided = (
            [],
            [r for r in self._records if isinstance(r, EventRecord)],
            DecisionCounts(),
        )
        self._end, self.open_lookup, self.new_lookup = "", None, None
        self.refuse(
            PolicyFailed(f"checking this request took over {STEP_CPU_S:g} s and was stopped")
        )

    def give_up(self, entry: Entry | None = None) -> None:
        """End this call: a step took too long. What its session holds is not to be trusted; the
        `entry` that it was about is on record."""
        log.error(
            "a step of a call took too long", extra={"call_id": self.id, "seq": self.expected}
        )
        self.broken = True
        self.note("step_deadline", self.expected, f"a step took over {STEP_CPU_S:g} s", now_ms())
        if entry is not None:
            self.expected = max(self.expected, entry.next_seq)
            self._note_lost(entry)

    @contextlib.contextmanager
    def contained(self) -> Iterator[None]:
        """Whatever goes wrong in here breaks this call alone."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a bug of ours or a codec's
            self._break(error)

    def _break(self, error: Exception) -> None:
        self.broken = True
        log.error(
            "call broken", extra={"call_id": self.id, "error": type(error).__name__}, exc_info=error
        )

    def feed_entry(self, entry: Entry) -> bool:
        """Take one entry of the call's stream; False when one before it is missing. What came
        before is dropped."""
        if entry.seq < self.expected:
            return True
        if entry.seq > self.expected or entry.kind == "see":
            self.heard_of = entry.next_seq
            return False
        self.expected = entry.next_seq
        self.last_heard = time.monotonic()
        if entry.kind == "closed":
            self._feed_closed(entry)
        try:
            try:
                self._feed(entry)
                self.collect()
            except Exception as error:  # noqa: BLE001 - as `contained`, which costs 1.5 us a chunk more
                self._break(error)
                self._note_lost(entry)
        except TookTooLong:
            self.give_up(entry)
        return True

    def _feed_closed(self, entry: Entry) -> None:
        if self.closed is not None:
            # a gateway that hears of a call after its end ends it again, without knowing how far it
            # came
            return
        self.closed = entry
        if not entry.chunks:
            return
        try:
            self.relayed = layout.unpack_relayed(entry.chunks[0])
        except StreamProtocolError as error:
            log.error("unreadable report of what the gateway relayed", extra={"call_id": self.id})
            self.closed = msgspec.structs.replace(entry, text=error.code)

    def _feed(self, entry: Entry) -> None:
        session = self.session
        session.at(entry.at)
        if entry.kind == "chunks":
            self._note_chunks(entry, session.chunks(entry.seq, entry.chunks))
            return
        self._chunkless += entry.kind not in ("body", "status")
        match entry.kind:
            case "body":
                self._note_whole(is_over=True)
                mark = session.body(entry.seq, entry.chunks[0])
                if mark[0] == "hold":
                    self._whole = entry
                    # what decides may be known: the turn then goes on, and this comes before that
                    self.collect()
                    self._note_whole()
                else:
                    self._note_chunks(entry, [mark])
            case "status":
                self._note_chunks(
                    entry,
                    [
                        session.error_status(
                            entry.number, entry.chunks[0], entry.text, seq=entry.seq
                        )
                    ],
                )
            case "eof":
                session.eof(entry.seq)
            case "failed":
                session.failed(entry.text, seq=entry.seq)
            case "closed" | "see":
                pass
        if entry.text and entry.kind in ("body", "eof", "failed"):
            self.note(entry.text, entry.seq, entry.detail, entry.at)

    def _note_whole(self, *, is_over: bool = False) -> None:
        """Record a whole answer that waits for its verdict, if that is known or the call is
        over."""
        entry = self._whole
        if entry is None or (not is_over and (self.open_asks or self.open_waits)):
            return
        # what a broken session holds is not to be trusted
        verdict = "withheld" if self.broken else self.session.whole_verdict
        self._whole = None if is_over or verdict != "hold" else entry
        if (
            self._whole is None
            and entry.next_seq > self.recorded + 1
            and all(noted.seq != entry.seq for noted in self._chunks)
        ):
            self._note_chunks(entry, [(verdict, -1)])

    def _note_chunks(self, entry: Entry, marks: Sequence[tuple[VerdictName, int]]) -> None:
        if len(marks) == 1:
            # nearly every entry of a lone call: what is for many costs it 1,500 instructions of the
            # processor more
            verdict, block = marks[0]
            size, verdicts, blocks, are_held = (
                len(entry.chunks[0]),
                [verdict],
                [block],
                verdict == "hold",
            )
        else:
            size, verdicts, blocks = (
                sum(map(len, entry.chunks)),
                [m[0] for m in marks],
                [m[1] for m in marks],
            )
            are_held = verdicts.count("hold") == len(verdicts)
        self._unreported += size
        is_held = self._unreported <= PROGRESS_BYTES and are_held
        is_due = (
            not self.is_heavy and verdicts and (verdicts[-1] == "hold" or self.session.may_defer)
        )
        if is_due and self.session.held_bytes > HEAVY_BYTES:
            self.is_heavy = self.from_stream = True
        self._held_bytes += size if is_held else HELD_BYTES + 1
        # `expected` is what follows the entry
        if self.expected <= self.recorded + 1:
            return
        self._chunks.append(
            ChunksRecord(
                call_id=self.id,
                seq=entry.seq,
                at=entry.at,
                raw=entry.chunks,
                verdicts=verdicts,
                blocks=blocks,
            )
        )

    def _note_lost(self, entry: Entry) -> None:
        """Record the chunks of an entry at which the session broke: whatever came is on record."""
        last = self._chunks[-1] if self._chunks else None
        noted = (
            last.seq + len(last.raw) - 1
            if last is not None
            else self.sending.seq
            if self.sending is not None
            else self.recorded
        )
        # what a gateway reports itself is no chunk
        if not entry.chunks or entry.kind in ("closed", "failed") or entry.next_seq <= noted + 1:
            return
        verdicts: list[VerdictName] = ["withheld"] * len(entry.chunks)
        self._chunks.append(
            ChunksRecord(
                call_id=self.id,
                seq=entry.seq,
                at=entry.at,
                raw=entry.chunks,
                verdicts=verdicts,
                blocks=[-1] * len(verdicts),
            )
        )

    def feed_fact(self, field: str, value: bytes, at: int) -> None:
        """Take a judgement, a commit or recorded turns; the first value of a field is the only one
        there is."""
        if field in self.facts:
            return
        self.facts[field] = value
        try:
            with self.contained():
                self._feed_fact(field, value, at)
                self.collect()
                if self._whole is not None:
                    self._note_whole()
        except TookTooLong:
            self.give_up()

    async def until_free(self) -> None:
        """Wait until no step of this call is under way elsewhere."""
        while self.busy is not None:
            await asyncio.wait([self.busy])

    def _feed_fact(self, field: str, value: bytes, at: int) -> None:
        if field in self.open_asks:
            self._judge(self.open_asks.pop(field), value, at)
        elif (
            block := next((b for b in self.open_waits if layout.commit_field(b) == field), None)
        ) is not None:
            self.open_waits.discard(block)
            self.session.committed(block, value == b"1", at)
        elif self.open_lookup and field == field_of(self.open_lookup):
            self.open_lookup = None
            tell(self.session, self.facts, field, value)

    def _judge(self, ask: JudgeRequest, value: bytes, at: int) -> None:
        try:
            judgement = _judgement.decode(value)
        except msgspec.MsgspecError:
            judgement = Judgement(error="invalid")
        self.session.judgement(ask.block, ask.step, judgement, at)

    def collect(self) -> None:
        """Move what the session wants into this call; facts that are already known are fed at
        once."""
        out = self.session.out  # `is_empty`, without a call for each chunk of a tool call
        while out.outputs or out.records or out.asks or out.waits or out.lookup:
            wanted = out.drain()
            self._outputs += wanted.outputs
            if wanted.records:
                self._records += wanted.records
                self.decided.add(wanted.records)
            self._digest = wanted.digest
            self._end = wanted.end or self._end
            if not wanted.asks and not wanted.waits and not wanted.lookup:
                return
            if wanted.lookup:
                if value := self.facts.get(field := field_of(wanted.lookup)):
                    tell(self.session, self.facts, field, value)
                else:
                    self.open_lookup = self.new_lookup = wanted.lookup
            for block in wanted.waits:
                if value := self.facts.get(layout.commit_field(block)):
                    self.session.committed(block, value == b"1", self.start.at)
                else:
                    self.open_waits.add(block)
                    self.new_waits.append(block)
            for ask in wanted.asks:
                field = layout.judgement_field(ask.block, ask.step)
                if value := self.facts.get(field):
                    self._judge(ask, value, self.start.at)
                else:
                    self.open_asks[field] = ask
                    self.new_asks.append(ask)

    # --- outputs ---

    @property
    def wants_release(self) -> bool:
        """Is there anything to release or record that is not under way, and cannot wait?"""
        if self.sending is not None:
            return False
        return bool(
            self._outputs
            or self._records
            or self._keepalive
            or (self._chunks and self._held_bytes > HELD_BYTES)
        )

    def record_held(self) -> bool:
        """Let held chunks wait no longer to be recorded; False where there are none."""
        if self._chunks:
            self._held_bytes = HELD_BYTES + 1
        return bool(self._chunks)

    def ask_keepalive(self) -> None:
        """Send a keepalive with the next release; not before the call's own record, with which its
        policy is pinned."""
        session = self.session
        self._keepalive = not session.awaits_answers
        is_event = session.out.streams and CLIENTS[self.start.dialect].counts_events
        if (
            self._keepalive
            and is_event
            and not self._end
            and (self._head_sent or time.monotonic() >= self._silent_until)
        ):
            session.ping()
            self.collect()

    def is_silent(self, now: float) -> bool:
        """Is it time that the client hears something, of whose answer nothing came yet?"""
        return not self._head_sent and self.last_sent < self._silent_until <= now

    def next_release(self, now_ms: int) -> Release | None:
        """Build the next release from everything that waits; it stays `sending` until `answered`.
        None: the call is broken."""
        if self.sending is None:
            try:
                self.sending = self._build_release(now_ms)
            except Exception as error:  # noqa: BLE001 - as `contained`
                self._break(error)
        return self.sending

    def prepare_release(self) -> None:
        """Build the next release where nothing is under way, as a part of the step that led to
        it."""
        if (
            self.sending is None
            and self._outputs
            and not (self.broken or self.replaying or self.finishing)
        ):
            self.next_release(now_ms())

    def _build_release(self, now_ms: int) -> Release:
        number = self.released
        following = self._base + len(self._outputs)
        reply, payload = self._reply(number, following)
        chunks, recorded = self._chunks, self.recorded
        if chunks:
            last = chunks[-1]
            recorded = last.seq + len(last.raw) - 1
        all_records: list[Record] = [*chunks, *self._records]
        written = self.written
        if payload and reply is not None:
            # a dispatch or a position sends the client nothing; an entry of the call came just now,
            # or in the last sweeps
            self.last_sent = self.last_heard
            if written >= 0:
                written += 1
            all_records.append(
                ReleaseRecord(
                    call_id=self.id,
                    number=number,
                    number_next=following,
                    at=now_ms,
                    seq=self.expected - 1,
                    payload=payload,
                    sha256=reply.sha256,
                )
            )
        packed, audit = (
            layout.pack(reply) if reply else b"",
            (encode_records(all_records) if all_records else b""),
        )
        built = Release(number, following, self._digest, recorded, packed, audit, written)
        # not before: what went wrong until here leaves all of it to be recorded with the call's end
        self._records, self._chunks, self._held_bytes = [], [], 0
        self._base, self._outputs = following, []
        return built

    def forget_own_record(self) -> None:
        """Let a call's own record not be written again: it came with its pin, and names the policy
        set under which the call began."""
        self._records = [r for r in self._records if not isinstance(r, CallRecord)]

    def skip_released(self) -> None:
        """Let the encoder take what the last owner released, as it comes in a replay: all of it at
        once would take long."""
        with self.contained():
            if skip := min(max(0, self.released - self._base), len(self._outputs)):
                pass_over(self._outputs[:skip], self._make_encoder)
                self._base, self._outputs = self._base + skip, self._outputs[skip:]

    def _reply(self, number: int, following: int) -> tuple[Reply | None, bytes]:
        outputs = self._outputs
        if number > self._base:
            pass_over(outputs[: number - self._base], self._make_encoder)
            outputs = outputs[number - self._base :]
        keepalive, self._keepalive = self._keepalive, False
        if not outputs and not keepalive and self._unreported <= PROGRESS_BYTES:
            return None, b""
        rendered = render(outputs, self._make_encoder)
        self._unreported = 0
        only_keepalive = not outputs
        if only_keepalive and keepalive and not self._end:
            request = self.session.request
            dialect = CLIENTS[self.start.dialect]
            rendered.data = dialect.keepalive if request is not None and request.stream else b""
        has_head = not self._head_sent and bool(rendered.data)
        if has_head and not rendered.status:
            rendered.status = 200
            rendered.headers = {
                "content-type": (
                    self._make_encoder().content_type
                    if self.session.request
                    else "application/json"
                )
            }
        headers = {}
        if rendered.status:
            headers = {**rendered.headers, "x-sluice-policy": self.policy_header}
            if self.session.dropped:
                headers[dropped.HEADER] = dropped.header_value(self.session.dropped)
        if has_head and not only_keepalive:
            self._head_sent = True
        payload = b"" if only_keepalive else rendered.data
        reply = Reply(
            self.id,
            number,
            following,
            status=rendered.status,
            headers=headers,
            data=rendered.data,
            late=rendered.late,
            end=self._end if outputs else "",
            dispatch=rendered.dispatch,
            processed=self.expected - 1,
            keepalive=only_keepalive,
            sha256=digest(payload),
            late_sha256=rendered.late_sha256,
        )
        return reply, payload

    def _make_encoder(self) -> "Encoder":
        if self.encoder is None:
            assert self.session.request is not None
            self.encoder = CLIENTS[self.start.dialect].encoder(
                self.session.request, call_id=self.id, created=self.start.at // 1000
            )
        return self.encoder

    def answered(self) -> None:
        """The release that was under way is done."""
        assert self.sending is not None
        self.released, self.recorded, self.written = (
            self.sending.next,
            self.sending.seq,
            self.sending.written,
        )
        self.last_owned, self.pin = time.monotonic(), ("", "")
        self.sending = None

    def end_records(self, reason: str, relayed: int, now_ms: int) -> list[Record]:
        """The terminal record and everything not yet recorded before it; undecided tool calls are
        recorded as withheld."""
        if self._whole is not None:
            with self.contained():
                self._note_whole(is_over=True)
        sent = (
            decode_records(self.sending.audit)
            if self.sending is not None and self.sending.audit
            else []
        )
        # what was under way is recorded all the same, but for the release itself
        records: list[Record] = [
            *(r for r in sent if not isinstance(r, ReleaseRecord)),
            *self._chunks,
            *self._records,
        ]
        self._chunks, self._records = [], []
        session = self.session
        records = [*session.unbegun(), *records]
        undecided = {
            *(ask.block for ask in self.open_asks.values()),
            *self.open_waits,
            *session.unasked,
        }
        withheld = (
            [
                undecided_record(self.id, block, now_ms)
                for block in undecided
                if not session.has_verdict(block)
            ]
            if undecided
            else []
        )
        records += withheld
        sums = self.relayed
        if sums is not None and self.closed is not None and (sums.keepalives or sums.own):
            records += relayed_events(self.id, sums, self.closed.number, now_ms)
        if reason == "complete":
            reason = self._end or "unfinished"
        spent = session.spent
        if (whole := session.estimated) is not None:
            counted = (
                f"{spent.input_tokens or 'no'} tokens in and {spent.output_tokens or 'none'} out"
            )
            cause = f"the upstream had counted {counted} when its answer ended"
            detail = f"{cause}: the counts of this call are estimated by what was sent and streamed"
            records.append(
                EventRecord(
                    call_id=self.id, kind="usage_estimated", number=0, at=now_ms, detail=detail
                )
            )
            spent = whole
        records.append(
            EndRecord(
                call_id=self.id,
                at=now_ms,
                state="ENDED" if reason == "complete" else "FAILED",
                reason=reason,
                status=session.status,
                stop_reason=session.stop_reason,
                relayed=relayed,
                # not known where this worker did not read the stream as far as the owner before
                chunks=(
                    self.expected - 1 - self._chunkless if self.expected > self.recorded else None
                ),
                releases=(
                    self.written
                    if self.written >= 0 and (self.sending is None or self.sending.is_out is False)
                    else None
                ),
                # what the owner before decided is known when the replay has come to its end
                decisions=None if self.replaying else self.decided.rows + len(withheld),
                relayed_sha256=sums.sha256 if sums is not None and relayed >= 0 else None,
                **msgspec.structs.asdict(spent),
            )
        )
        return records

    def note(self, kind: str, number: int, detail: str, now_ms: int) -> None:
        """Record something about the call that the session does not know."""
        self._records.append(
            EventRecord(call_id=self.id, kind=kind, number=number, at=now_ms, detail=detail)
        )
