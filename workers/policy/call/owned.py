"""One call in the hands of a policy worker: entries and facts in, releases out. Synchronous; the
worker does the IO.

A call is the session that decides, and around it four parts, each with its own state: `Inbox` (what
arrives), `Waits` (the facts it needs), `ReleaseQueue` (what waits to go out) and `ReplyWriter` (how
that is written for the client). `Phase` says where the call stands.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence

from policy.session.effects import SessionEffects, WantedSegment
from policy.session.session import Session
from protocol.bounds import HEAVY_BYTES, STEP_CPU_S
from protocol.errors import PipelineError, PolicyFailed, StreamProtocolError, TookTooLong
from protocol.records import CallRecord, EventRecord, Record, VerdictName
from streams import layout
from streams.layout import BUDGETED, Entry, Start
from workers.call_totals import DecisionCounts
from workers.policy.call.inbox import Inbox
from workers.policy.call.last_records import last_records
from workers.policy.call.observer import CallObserver
from workers.policy.call.phases import Phase, Step, next_phase
from workers.policy.call.release_queue import ReleaseQueue
from workers.policy.call.rendered import Release
from workers.policy.call.reply_writer import ReplyWriter
from workers.policy.call.waits import Waits

log = logging.getLogger(__name__)


def now_ms() -> int:
    """Unix milliseconds, for records."""
    return time.time_ns() // 1_000_000


class OwnedCall:
    """A claimed call: its session and the parts around it. `released`, `recorded`, `digest` and
    `written` are where its numbers stand in Redis."""

    __slots__ = (
        "__weakref__",
        "_observer",
        "_whole",
        "busy",
        "call_key",
        "ctl_key",
        "decided",
        "entry",
        "id",
        "inbox",
        "is_broken",
        "last_owned",
        "phase",
        "queue",
        "session",
        "shard",
        "start",
        "token",
        "waits",
        "was_replayed",
        "writer",
    )

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
        observer: "CallObserver[OwnedCall] | None" = None,
        begun: Callable[[CallRecord | None], None] | None = None,
    ) -> None:
        self.id = start.call_id
        self.start = start
        self.token = token
        self.entry = entry
        self.session = session
        self.shard = layout.shard_of(start.call_id)
        self.ctl_key = layout.ctl_key(start.call_id)
        self.call_key = layout.call_key(start.call_id)
        self.phase = Phase.CLAIMED
        self.is_broken = False
        """A bug of ours or of a codec came up in this call: it ends, and no other call notices."""
        self.was_replayed = True
        """False until a replay has finished: not all that the last owner decided is known yet."""
        self.busy: asyncio.Future[None] | None = None
        """A step is under way on the lane: until this is done nobody else touches the session."""
        self.last_owned = time.monotonic()
        """When Redis last confirmed that this worker has the call."""
        session.follow(released, digest)
        self.inbox = Inbox(start.call_id)
        self.waits = Waits()
        self.queue = ReleaseQueue(
            start.call_id, released=released, digest=digest, recorded=recorded, written=written
        )
        self.writer = ReplyWriter(
            start, session, policy_header=policy_header, is_taken_over=bool(released)
        )
        self.decided = DecisionCounts(begun)
        self._whole: Entry | None = None
        """A whole answer with tool calls that are not decided: it is recorded with its verdict, or
        when the call is over."""
        self._observer = observer
        if observer is not None:
            observer.moved(self)

    # --- phases ---

    @property
    def gateway(self) -> str:
        """The gateway that has the client."""
        return self.start.gateway

    @property
    def has_begun(self) -> bool:
        """Does it take entries?"""
        return self.phase is Phase.RUNNING or self.phase is Phase.REPLAYING

    @property
    def is_replayed(self) -> bool:
        """Was it taken over, and has it yet to catch up with the last owner?"""
        return self.phase is Phase.REPLAYING or self.phase is Phase.TAKEN_OVER

    @property
    def is_ending(self) -> bool:
        """Is its end being written?"""
        return self.phase is Phase.ENDING

    def _move(self, step: Step) -> None:
        was, self.phase = self.phase, next_phase(self.phase, step)
        if self._observer is not None and self.phase is not was:
            self._observer.moved(self)

    def take_over(self) -> None:
        """Replay the call before it goes on: another worker had it."""
        self._move(Step.TAKE_OVER)
        self.was_replayed = False

    def catch_up(self) -> None:
        """Go on from here: the session is where the last owner stood."""
        self._move(Step.CATCH_UP)
        self.was_replayed = True

    def skip_beginning(self) -> None:
        """Take entries without a session that has begun: they only go on record."""
        self._move(Step.BEGIN)

    def end(self) -> bool:
        """Stop taking anything; False if the call is already ending."""
        if self.phase is Phase.ENDING:
            return False
        self._move(Step.END)
        return True

    # --- inputs ---

    def begin(self, body: bytes | None) -> None:
        """Start the session with the request body. One that takes too long is refused."""
        began = time.perf_counter_ns()
        self._move(Step.BEGIN)
        if body is not None and layout.is_other(body, self.start.body_sha256):
            changed = "the request body in Redis is not the one that the client sent"
            self.note("body_changed", 0, changed, self.start.at)
            self.refuse(
                StreamProtocolError(
                    "the request body was changed before a policy worker read it",
                    code="body_changed",
                )
            )
        else:
            self._begin_session(body)
        if self._observer is not None:
            self._observer.began(self, len(body or b""), time.perf_counter_ns() - began)

    def _begin_session(self, body: bytes | None) -> None:
        try:
            try:
                self.session.at(self.start.at)
                self.session.begin(body)
                self._collect()
            except Exception as error:  # noqa: BLE001 - as `contained`
                self._break(error)
        except TookTooLong:
            self._refuse_late()

    def refuse(self, error: PipelineError) -> None:
        """Answer with an error instead of beginning."""
        if self._observer is not None:
            self._observer.refused(error)
        self._move(Step.BEGIN)
        self.session.refuse(error)
        self._collect()

    def _refuse_late(self) -> None:
        """Answer that the beginning took too long, whatever there is of it."""
        log.error("a request took too long to begin", extra={"call_id": self.id})
        self.is_broken = False
        self.session = self.session.anew()
        self.writer.use(self.session)
        self.queue.restart()
        self.decided = self.decided.anew()
        self.waits.forget_lookup()
        self.refuse(
            PolicyFailed(f"checking this request took over {STEP_CPU_S:g} s and was stopped")
        )

    def give_up(self, entry: Entry | None = None) -> None:
        """End this call: a step took too long. What its session holds is not to be trusted; the
        `entry` that it was about is on record."""
        expected = self.inbox.expected
        log.error("a step of a call took too long", extra={"call_id": self.id, "seq": expected})
        self.is_broken = True
        self.note("step_deadline", expected, f"a step took over {STEP_CPU_S:g} s", now_ms())
        if entry is not None:
            self.inbox.pass_over(entry)
            self.queue.add_lost(entry)

    @contextlib.contextmanager
    def contained(self) -> Iterator[None]:
        """Whatever goes wrong in here breaks this call alone."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a bug of ours or a codec's
            self._break(error)

    def _break(self, error: Exception) -> None:
        self.is_broken = True
        log.error(
            "call broken", extra={"call_id": self.id, "error": type(error).__name__}, exc_info=error
        )

    def feed_entry(self, entry: Entry, *, is_watched: bool = False) -> bool:
        """Take one entry of the call's stream; False when one before it is missing. An entry that
        was taken already is dropped."""
        if self._observer is not None and not is_watched:
            return self._watch_entry(self._observer, entry)
        inbox = self.inbox
        if entry.seq < inbox.expected:
            return True
        if entry.seq > inbox.expected or entry.kind == "see":
            inbox.note_gap(entry)
            return False
        inbox.take(entry)
        try:
            try:
                self._feed(entry)
                self._collect()
            except Exception as error:  # noqa: BLE001 - as `contained`, which costs 1.5 us a chunk more
                self._break(error)
                self.queue.add_lost(entry)
        except TookTooLong:
            self.give_up(entry)
        return True

    def _watch_entry(self, observer: "CallObserver[OwnedCall]", entry: Entry) -> bool:
        expected, began = self.inbox.expected, time.perf_counter_ns()
        taken = self.feed_entry(entry, is_watched=True)
        observer.fed(self, entry, expected, taken, time.perf_counter_ns() - began)
        return taken

    def _feed(self, entry: Entry) -> None:
        session = self.session
        session.at(entry.at)
        match entry.kind:
            case "chunks":
                marks = session.chunks(entry.seq, entry.chunks)
                self.queue.add_chunks(entry, marks)
                if marks and (marks[-1][0] == "hold" or session.may_rewrite):
                    self._weigh(session)
                return
            case "body":
                self._record_whole(is_over=True)
                mark = session.body(entry.seq, entry.chunks[0])
                if mark[0] == "hold":
                    self._whole = entry
                    # what decides may be known: the turn then goes on, and this comes before that
                    self._collect()
                    self._record_whole()
                else:
                    self._add_whole(entry, mark)
            case "status":
                body = entry.chunks[0]
                mark = session.error_status(entry.number, body, entry.text, seq=entry.seq)
                self._add_whole(entry, mark)
            case "eof":
                session.eof(entry.seq)
            case "failed":
                session.failed(entry.text, seq=entry.seq)
            case "closed" | "see":
                pass
        if entry.text and entry.kind in ("body", "eof", "failed"):
            self.note(entry.text, entry.seq, entry.detail, entry.at)

    def _weigh(self, session: Session) -> None:
        if not self.inbox.is_heavy and session.held_bytes > HEAVY_BYTES:
            self.inbox.become_heavy()

    def _add_whole(self, entry: Entry, mark: tuple[VerdictName, int]) -> None:
        self.queue.add_chunks(entry, [mark])
        if mark[0] == "hold" or self.session.may_rewrite:
            self._weigh(self.session)

    def _record_whole(self, *, is_over: bool = False) -> None:
        """Record a whole answer that waits for its verdict, if that is known or the call is
        over."""
        entry = self._whole
        if entry is None or (self.waits and not is_over):
            return
        # what a broken session holds is not to be trusted
        verdict = "withheld" if self.is_broken else self.session.whole_verdict
        if verdict == "hold" and not is_over:
            return
        self._whole = None
        if not self.queue.has_chunks_of(entry):
            self._add_whole(entry, (verdict, -1))

    def feed_fact(self, field: str, value: bytes, at: int) -> None:
        """Take a judgement, a commit or recorded turns; the first value of a field is the only one
        there is."""
        if self._observer is not None:
            self._observer.learned(field, len(value))
        if not self.waits.learn(field, value):
            return
        try:
            with self.contained():
                self.waits.feed(self.session, field, value, at)
                self._collect()
                self._record_whole()
        except TookTooLong:
            self.give_up()

    def feed_segment(
        self, wanted: WantedSegment, body: bytes | None, chunks: Sequence[bytes]
    ) -> None:
        """Take the part of the call that the session asked for, if it still waits for that."""
        if self.waits.segment is not wanted:
            return
        self.waits.forget_lookup()
        if body is not None and layout.is_other(body, self.start.body_sha256):
            body = None
        try:
            with self.contained():
                self.session.segment(body, chunks)
                self._collect()
        except TookTooLong:
            self.give_up()

    @contextlib.contextmanager
    def occupied(self) -> Iterator[None]:
        """Let nobody else touch the session while a step of it runs elsewhere. Entries are read
        from the stream meanwhile."""
        was_from_stream = self.inbox.from_stream
        self.busy = busy = asyncio.get_running_loop().create_future()
        self.inbox.read_stream(only=True)
        try:
            yield
        finally:
            self.busy = None
            self.inbox.read_stream(only=was_from_stream or self.inbox.is_heavy)
            busy.set_result(None)

    async def until_free(self) -> None:
        """Wait until no step of this call is under way elsewhere."""
        while self.busy is not None:
            await asyncio.wait([self.busy])

    def weigh(self) -> None:
        """Check whether the next step may have to write a large request anew."""
        if self.session.may_rewrite:
            self._weigh(self.session)

    def _collect(self) -> None:
        """Move what the session wants into this call; facts that are already known are fed at
        once."""
        out = self.session.out
        # `is_empty`, without a call for each chunk of a tool call
        has_more = bool(out.outputs or out.records or out.asks or out.waits or out.lookup)
        while has_more:
            effects = out.drain()
            self.queue.add(effects)
            if effects.records:
                self.decided.add(effects.records)
            # what is known already lets the session decide more
            has_more = bool(effects.asks or effects.waits or effects.lookup)
            if has_more:
                self._wait_for(effects)

    def _wait_for(self, effects: SessionEffects) -> None:
        waits = self.waits
        asks, commits = len(waits.new_asks), len(waits.new_commits)
        waits.add(effects, self.session, self.start.at)
        if self._observer is not None:
            self._observer.asked(waits.new_asks[asks:], waits.new_commits[commits:])

    # --- outputs ---

    def ask_keepalive(self) -> None:
        """Send a keepalive with the next release; not before the call's own record, with which its
        policy is pinned."""
        if self.session.awaits_answers:
            return
        self.writer.waits_for = self.waits.said(self.session)
        self.queue.ask_keepalive()
        if not self.queue.end and self.writer.counts_keepalive:
            self.session.ping()
            self._collect()

    def next_release(self, now_ms: int) -> Release | None:
        """Build the next release from everything that waits; it stays `sending` until `answered`.
        None: the call is broken."""
        queue = self.queue
        if queue.sending is None:
            try:
                queue.build(self.writer, self.inbox, now_ms)
                if self._observer is not None:
                    self._observer.released(self)
            except Exception as error:  # noqa: BLE001 - as `contained`
                self._break(error)
        return queue.sending

    def prepare_release(self) -> None:
        """Build the next release where nothing is under way, as a part of the step that led to
        it."""
        is_running = self.phase is Phase.RUNNING and not self.is_broken
        if is_running and self.queue.sending is None and self.queue.has_outputs:
            self.next_release(now_ms())

    def skip_released(self) -> None:
        """Let the encoder take what the last owner released, as it comes in a replay."""
        with self.contained():
            self.queue.skip_released(self.writer)

    def confirm_owned(self) -> None:
        """Redis has confirmed that this worker has the call."""
        self.last_owned = time.monotonic()

    def answered(self) -> None:
        """The release that was under way is done."""
        self.queue.is_answered()
        self.last_owned = time.monotonic()
        if self._observer is not None:
            self._observer.answered(self)

    def is_refused(self, outcome: bytes) -> None:
        """Redis refused a release or a renewal for good."""
        if self._observer is not None:
            self._observer.lost(self, outcome)

    def end_records(self, reason: str, relayed: int, now_ms: int) -> list[Record]:
        """The terminal record and everything not yet recorded before it; undecided tool calls are
        recorded as withheld."""
        if self._whole is not None:
            with self.contained():
                self._record_whole(is_over=True)
        records = last_records(
            self.id,
            self.session,
            self.inbox,
            self.queue,
            self.waits,
            self.decided,
            reason=reason,
            relayed=relayed,
            decisions=self.decided.rows if self.was_replayed else None,
            now_ms=now_ms,
            settles=BUDGETED in self.start.numbers,
        )
        if self._observer is not None:
            self._observer.ended(self, reason, relayed, records)
        return records

    def note(self, kind: str, number: int, detail: str, now_ms: int) -> None:
        """Record something about the call that the session does not know."""
        self.queue.note(
            EventRecord(call_id=self.id, kind=kind, number=number, at=now_ms, detail=detail)
        )
        if self._observer is not None:
            self._observer.noted(kind, detail)
