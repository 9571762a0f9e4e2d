"""What of one call waits to be released and recorded, and the release that is under way.

At most one release of a call is under way; what comes meanwhile waits and is joined into the next.
A release that got no answer is repeated as it was: the script knows it by its numbers (DUP).
"""

from collections import defaultdict
from collections.abc import Sequence

from policy.session.effects import Output, SessionEffects
from protocol.records import (
    CallRecord,
    ChunksRecord,
    EventRecord,
    Record,
    ReleaseRecord,
    VerdictName,
    decode_records,
    encode_records,
)
from streams import layout
from streams.layout import Entry
from workers.policy.call.inbox import Inbox
from workers.policy.call.rendered import Release
from workers.policy.call.reply_writer import ReplyWriter

PROGRESS_BYTES = 128 * 1024
"""Taken-in bytes after which a worker tells the gateway its position though nothing is released."""
HELD_BYTES = 64 * 1024
"""Chunks of which nothing is released wait up to so much, or for the next sweep, to be recorded
together: the call's stream holds them."""


class ReleaseQueue:
    """Outputs, records and chunks of one call that wait, and how far what was released goes:
    `released` is the next output, `recorded` the last chunk, `written` the number of releases with
    bytes (below 0: not known)."""

    __slots__ = (
        "_base",
        "_call_id",
        "_chunks",
        "_digest",
        "_held_bytes",
        "_last_queued",
        "_outputs",
        "_records",
        "_unreported",
        "end",
        "keepalive",
        "marks",
        "pin",
        "recorded",
        "released",
        "sending",
        "uncounted",
        "written",
    )

    def __init__(
        self, call_id: str, *, released: int, digest: str, recorded: int, written: int
    ) -> None:
        self._call_id = call_id
        self.released, self.recorded, self.written = released, recorded, written
        self.pin = ("", "")
        """Policy and revision, until Redis has them."""
        self.sending: Release | None = None
        """The release that is under way."""
        self.keepalive = False
        """A keepalive goes with the next release."""
        self.end = ""
        """The reason with which the answer is complete, once its last output is here."""
        self._outputs: list[Output] = []
        self._base = 0
        """The number of the first output that waits."""
        self._digest = digest
        self._records: list[Record] = []
        self._chunks: list[ChunksRecord] = []
        self._last_queued = recorded
        """The last chunk that is recorded, or waits to be."""
        self._held_bytes = 0
        """Of chunks that wait to be recorded, where all of them are held; past `HELD_BYTES` where
        they must not wait."""
        self.marks = defaultdict[tuple[VerdictName, int], int](int)
        """How many chunks came with each verdict and block."""
        self._unreported = 0
        """Bytes that were taken in since the gateway was last told the position."""
        self.uncounted = 0
        """Bytes of records that were released and are not counted for the key yet
        (`workers.policy.unrecorded_share`)."""

    # --- what waits ---

    @property
    def has_outputs(self) -> bool:
        """Do outputs wait?"""
        return bool(self._outputs)

    @property
    def output_count(self) -> int:
        """How many outputs wait."""
        return len(self._outputs)

    @property
    def is_waiting(self) -> bool:
        """Is there anything to release or record that is not under way, and cannot wait?"""
        if self.sending is not None:
            return False
        return bool(
            self._outputs
            or self._records
            or self.keepalive
            or (self._chunks and self._held_bytes > HELD_BYTES)
        )

    def add(self, effects: SessionEffects) -> None:
        """Queue what a session gave."""
        self._outputs += effects.outputs
        if effects.records:
            self._records += effects.records
        self._digest = effects.digest
        self.end = effects.end or self.end

    def ask_keepalive(self) -> None:
        """Send a keepalive with the next release."""
        self.keepalive = True

    def note(self, record: Record) -> None:
        """Queue a record that the session knows nothing of."""
        self._records.append(record)

    def restart(self) -> None:
        """Forget all that a session gave, but for events: another one begins in its place."""
        self._outputs = []
        self._records = [r for r in self._records if isinstance(r, EventRecord)]
        self.keepalive = False
        self.end = ""

    def forget_call_record(self) -> None:
        """Let the call's own record not be written again: it came with its pin, and names the
        policy set under which the call began."""
        self._records = [r for r in self._records if not isinstance(r, CallRecord)]

    def pin_policy(self, name: str, revision: str) -> None:
        """Store the policy of the call with its first release."""
        self.pin = (name, revision)

    # --- chunks ---

    def add_chunks(self, entry: Entry, marks: Sequence[tuple[VerdictName, int]]) -> None:
        """Queue the chunks of the entry that was taken last, each with its verdict and block."""
        raw = entry.chunks
        if len(marks) == 1:
            # nearly every entry of a lone call: what is for many costs it 1,500 instructions of the
            # processor more
            verdict, block = mark = marks[0]
            self.marks[mark] += 1
            size = len(raw[0])
            verdicts = [verdict]
            blocks = [block]
            are_held = verdict == "hold"
        else:
            size = sum(map(len, raw))
            for mark in marks:
                self.marks[mark] += 1
            verdicts = [m[0] for m in marks]
            blocks = [m[1] for m in marks]
            are_held = verdicts.count("hold") == len(verdicts)
        self._unreported += size
        can_wait = are_held and self._unreported <= PROGRESS_BYTES
        self._held_bytes += size if can_wait else HELD_BYTES + 1
        last = entry.seq + len(raw) - 1
        if last > self.recorded:
            self._last_queued = last
            self._chunks.append(
                ChunksRecord(
                    call_id=self._call_id,
                    seq=entry.seq,
                    at=entry.at,
                    raw=raw,
                    verdicts=verdicts,
                    blocks=blocks,
                )
            )

    def add_lost(self, entry: Entry) -> None:
        """Queue the chunks of an entry at which the session broke: whatever came is on record."""
        # what a gateway reports itself is no chunk
        is_own = entry.kind in ("closed", "failed")
        if not entry.chunks or is_own or entry.next_seq <= self._last_queued + 1:
            return
        verdicts: list[VerdictName] = ["withheld"] * len(entry.chunks)
        self.marks["withheld", -1] += len(verdicts)
        self._last_queued = entry.next_seq - 1
        self._chunks.append(
            ChunksRecord(
                call_id=self._call_id,
                seq=entry.seq,
                at=entry.at,
                raw=entry.chunks,
                verdicts=verdicts,
                blocks=[-1] * len(verdicts),
            )
        )

    def has_chunks_of(self, entry: Entry) -> bool:
        """Are the chunks of this entry recorded, or do they wait?"""
        return entry.next_seq <= self.recorded + 1 or any(
            queued.seq == entry.seq for queued in self._chunks
        )

    def record_held(self) -> bool:
        """Let held chunks wait no longer to be recorded; False where there are none."""
        if self._chunks:
            self._held_bytes = HELD_BYTES + 1
        return bool(self._chunks)

    # --- releases ---

    def build(self, writer: ReplyWriter, inbox: Inbox, now_ms: int) -> None:
        """Make the release of everything that waits; it stays `sending` until `is_answered`. What
        goes wrong here leaves all of it to be recorded with the call's end."""
        number = self.released
        processed = inbox.expected - 1
        if number > self._base:
            self.skip_released(writer)
        outputs = self._outputs
        following = self._base + len(outputs)
        reply = None
        if outputs or self.keepalive or self._unreported > PROGRESS_BYTES:
            reply = writer.write(
                outputs,
                number=number,
                following=following,
                processed=processed,
                end=self.end,
                keepalive=self.keepalive,
            )
            self._unreported = 0
            self.keepalive = False
        records: list[Record] = [*self._chunks, *self._records]
        written = self.written
        if reply is not None and reply.sha256:
            # a dispatch or a position sends the client nothing; an entry of the call came just now,
            # or in the last sweeps
            writer.is_sent(inbox.last_heard)
            if written >= 0:
                written += 1
            records.append(
                ReleaseRecord(
                    call_id=self._call_id,
                    number=number,
                    number_next=following,
                    at=now_ms,
                    seq=processed,
                    payload=reply.data,
                    sha256=reply.sha256,
                )
            )
        self.sending = Release(
            number,
            following,
            self._digest,
            self._last_queued,
            layout.pack(reply) if reply else b"",
            encode_records(records) if records else b"",
            written,
        )
        self.uncounted += len(self.sending.audit)
        self._records, self._chunks, self._held_bytes = [], [], 0
        self._base, self._outputs = following, []

    def skip_released(self, writer: ReplyWriter) -> None:
        """Drop what the last owner released, and let the encoder take it. In a replay as it comes:
        all of it at once would take long."""
        count = self.released - self._base
        if count > 0 and self._outputs:
            skipped = self._outputs[:count]
            writer.pass_over(skipped)
            self._outputs = self._outputs[count:]
            self._base += len(skipped)

    def is_answered(self) -> None:
        """Take note that the release that was under way is done."""
        release = self.sending
        assert release is not None
        self.released, self.recorded, self.written = release.next, release.seq, release.written
        self.pin = ("", "")
        self.sending = None

    def take_uncounted(self) -> int:
        """Return the bytes that are not counted for the key yet; from now on they are."""
        uncounted, self.uncounted = self.uncounted, 0
        return uncounted

    # --- the end ---

    @property
    def releases(self) -> int | None:
        """How many releases with bytes went out; None where that is not known."""
        is_known = self.written >= 0 and (self.sending is None or self.sending.is_out is False)
        return self.written if is_known else None

    def take_records(self) -> list[Record]:
        """Return every record that is not stored; what is under way is recorded all the same, but
        for the release itself."""
        sending = self.sending
        under_way = decode_records(sending.audit) if sending is not None and sending.audit else []
        records: list[Record] = [r for r in under_way if not isinstance(r, ReleaseRecord)]
        records += self._chunks
        records += self._records
        self._chunks, self._records = [], []
        return records
