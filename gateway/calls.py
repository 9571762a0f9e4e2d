"""A call as its gateway sees it: what was appended, what was relayed, and where its numbers stand.

No IO here: the append and reply loops and the HTTP handler move bytes in and out. A reply is
relayed only if it is the call's next number: lower is dropped, higher ends the call. That covers
DISPATCH, so no request is paid for twice.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable
from hashlib import sha256

import msgspec

from protocol.bounds import FIRST_KEEPALIVE_S
from protocol.dialect import ClientDialect
from protocol.errors import PipelineError, StreamConnectionLost, StreamProtocolError
from protocol.records import STREAM_LOST
from streams import layout
from streams.connection import Append
from streams.layout import Dispatch, Entry, EntryKind, Relayed, Reply, is_other

CHANNEL_MAX = 64 * 1024
"""Entries above this are only announced on the channel; workers read them from the stream."""

ENTRY_CHUNKS = 64
"""A worker decides on an entry in one go: of a fast upstream, thousands of chunks that wait for
Redis would look like a hook that hangs."""


class OpenCall:
    """One client request between HTTP and Redis."""

    def __init__(
        self,
        call_id: str,
        dialect: ClientDialect,
        body: bytes,
        *,
        activity_s: float,
        deadline: float,
        key: str = "",
    ) -> None:
        self.id, self.dialect, self.body, self.key = call_id, dialect, body, key
        self.repeats = False
        """May its request be sent again where a kept connection ended before any byte of an answer?
        Not if tools act at the provider."""
        self.when_begun: Callable[[], None] | None = None
        """Called once, when the first request goes upstream."""
        self.shard = layout.shard_of(call_id)
        self.stream_key, self.channel = layout.call_key(call_id), layout.chunk_channel(call_id)
        self.commands = Append(self.stream_key, self.channel, layout.BLOB)
        self.activity_s, self.deadline = activity_s, deadline
        self.is_overdue = False
        """Was the end of its deadline reported?"""
        self.started = self.last_reply = time.monotonic()
        # towards the client
        self.expected = 0
        self.relayed = 0
        self.status = 0
        self.headers: dict[str, str] = {}
        self.upstream_headers: dict[str, str] = {}
        """The upstream's headers about when to ask again and, where a setting allows it, about its
        limits."""
        self.head_sent = False
        self.end = ""
        self.error: PipelineError | None = None
        self.dispatch: Dispatch | None = None
        self._sent = False
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._wake: asyncio.Future[None] | None = None
        self._keepalive: Reply | None = None
        """The worker's last one, where it came too early to be written and nothing else came
        since."""
        self.local_error = b""
        """What this gateway wrote itself at the end: an error."""
        self._sum, self._digests = sha256(), bytearray()
        self._releases = 0
        """How many replies with bytes are in `_sum`; the hashes of the newest wait in
        `_digests`."""
        self._late: Reply | None = None
        """Of which `late` was written."""
        self._keepalives: list[int] = []
        """The session's next output at each keepalive."""
        self.write: Callable[[bytes], bool] | None = None
        """Writes to the client without waking its handler, while that waits; False: not now, wake
        it."""
        # towards the stream
        self.seq = 1
        self.unanswered: list[Entry] = []
        self.stored = 0
        """Entries that Redis has confirmed."""
        self.received_bytes = 0
        """What upstream has sent in this call, over all of its requests."""
        self._pending: list[tuple[EntryKind, list[bytes], int, str]] = []
        self._unprocessed: deque[tuple[int, int]] = deque()
        self._unprocessed_bytes = 0
        """Also what is only queued: a Redis that is slow to answer must stop upstream too."""
        self.closed = self.is_lost = self.is_begun = False
        """`is_begun`: Redis has confirmed that the call is on its streams."""
        self._close_report, self._reason = b"", ""
        """What goes with the end, packed, and why it came."""
        self._room: tuple[int, Callable[[], None]] | None = None

    # --- replies ---

    def on_reply(self, reply: Reply) -> None:
        """Take a reply from the stream; `relay` afterwards sends what came."""
        self.last_reply = time.monotonic()
        self._note_processed(reply.processed)
        if reply.failed:
            self.fail(
                StreamProtocolError(
                    "the policy workers could not finish this call", code=reply.failed
                )
            )
            return
        if reply.number < self.expected or self.end or self.error is not None:
            return
        if reply.number > self.expected:
            self.fail(
                StreamProtocolError(
                    "a part of the answer was lost between the policy worker and the gateway"
                )
            )
            return
        if reply.keepalive:
            # without bytes: how far the worker is, or life shown for a client that gets one body
            if reply.data:
                self._keepalive = reply
                self.show_life(self.last_reply)
            return
        data, digest = reply.data, b""
        if data:
            digest = sha256(data).digest()
            if digest != reply.sha256:
                self._fail_damaged("the answer")
                return
        self.expected = reply.next
        if reply.dispatch is not None:
            self._take_dispatch(reply.dispatch)
        if reply.status and not self.status:
            self.status, self.headers = reply.status, reply.headers
        if reply.late and self.head_sent:
            if is_other(reply.late, reply.late_sha256):
                self._fail_damaged("the end of the answer")
                return
            data, self._late = reply.late, reply
        if data:
            self._keepalive = None
            self._out.append(data)
            self._out_bytes += len(data)
            self._digests += digest
        self.end = reply.end

    def _fail_damaged(self, what: str) -> None:
        self.fail(
            StreamProtocolError(f"{what} was changed between the policy worker and the gateway")
        )

    def relay(self) -> None:
        """Send what came towards the client: at once where only bytes of a begun answer came, else
        by its handler."""
        out = self._out
        if self.end or self.dispatch is not None:
            self.wake()
        elif out:
            if (
                self.write is None
                or self.error is not None
                or not self.write(out[0] if len(out) == 1 else b"".join(out))
            ):
                self.wake()
            else:
                self._taken()

    def _take_dispatch(self, dispatch: Dispatch) -> None:
        # a continued turn brings a body of its own: the client's request is sent, and paid for,
        # once
        if dispatch.body is None and self._sent:
            self.fail(StreamProtocolError("the request would be sent upstream twice"))
            return
        if dispatch.body is not None and is_other(dispatch.body, dispatch.sha256):
            self._fail_damaged("the request")
            return
        if not self._sent and self.when_begun is not None:
            self.when_begun()
        self._sent = True
        if dispatch.body is not None:
            self.body = dispatch.body
        self.dispatch = msgspec.structs.replace(dispatch, body=None)

    def take_body(self) -> bytes:
        """Return the body to send for the dispatch. It is not kept after that: agents send
        megabytes."""
        body, self.body = self.body, b""
        return body

    def show_life(self, now: float) -> None:
        """Write the worker's keepalive as soon as one may be written; `relay` afterwards sends it.
        `now` is on the monotonic clock."""
        if (reply := self._keepalive) is not None and (
            self.head_sent or now - self.started >= FIRST_KEEPALIVE_S
        ):
            self._keepalive = None
            self._write_keepalive(reply)

    def _write_keepalive(self, reply: Reply) -> None:
        """The one place where bytes go to the client that are no output of the session."""
        if not self.status:
            self.status, self.headers = reply.status, reply.headers
        # the dialect's own, whatever the reply holds: no hash on record covers it
        data = self.dialect.keepalive
        self._keepalives.append(self.expected)
        self._out.append(data)
        self._out_bytes += len(data)

    def fail(self, error: PipelineError) -> None:
        """End the call from the gateway's side: the client gets `error`."""
        if not self.end and self.error is None:
            self.error = error
            self.wake()

    def take_out(self) -> bytes:
        """Return the bytes to relay now."""
        data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
        self._taken()
        return data

    def _taken(self) -> None:
        self._out, self._out_bytes = [], 0
        self.relayed = self.expected
        self._make_room()

    def add_up(self) -> None:
        """Take the hashes of what was handed on into one: not with each reply, and not all at the
        end, which may be a million."""
        if not self._digests:
            return
        handed = len(self._digests)
        if self._out:
            late = self._late
            waiting = (
                len(self._out)
                - self._keepalives_waiting
                - (late is not None and not late.data and self.relayed <= late.number)
            )
            handed -= waiting * self._sum.digest_size
        self._sum.update(self._digests[:handed])
        self._releases += handed // self._sum.digest_size
        del self._digests[:handed]

    @property
    def _keepalives_waiting(self) -> int:
        return self._out.count(self.dialect.keepalive)

    def handed_on(self) -> Relayed:
        """What went towards the client of this call; what still waits to be written did not."""
        self.add_up()
        keepalives: list[tuple[int, int]] = []
        if self._keepalives:
            keepalives = list(
                Counter(
                    self._keepalives[: len(self._keepalives) - self._keepalives_waiting]
                ).items()
            )
        local_bytes, late = self.local_error, -1
        if self._late is not None and self.relayed > self._late.number:
            local_bytes, late = self._late.late, self._late.number
        return Relayed(self._releases, self._sum.digest(), keepalives, local_bytes, late)

    @property
    def has_out(self) -> bool:
        """Are there bytes to relay?"""
        return bool(self._out)

    def wake(self) -> None:
        """Wake the HTTP handler."""
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def wait(self) -> None:
        """Wait until there is something to relay, an end or an error."""
        if self._out or self.end or self.error is not None or self.dispatch is not None:
            return
        self._wake = asyncio.get_running_loop().create_future()
        await self._wake

    # --- appends ---

    def append(
        self, kind: EntryKind, chunks: list[bytes] | None = None, *, number: int = 0, text: str = ""
    ) -> None:
        """Queue something for the call's stream; neighbouring chunks become one entry. Nothing
        follows `closed`."""
        if self.closed:
            return
        self.closed = kind == "closed"
        chunks = chunks or []
        self._unprocessed_bytes += sum(map(len, chunks))
        if kind == "chunks" and self._pending and self._pending[-1][0] == "chunks":
            self._pending[-1][1].extend(chunks)
        else:
            self._pending.append((kind, chunks, number, text))

    def close(self, reason: str) -> None:
        """Queue the end: why, and all that was relayed."""
        self._close_report, self._reason = layout.pack(self.handed_on()), reason
        self.append("closed", [self._close_report], number=self.relayed, text=reason)

    @property
    def last(self) -> Entry | None:
        """The end, once it is queued; its number is not known where Redis has lost the call."""
        return (
            Entry(
                self.seq,
                time.time_ns() // 1_000_000,
                "closed",
                [self._close_report],
                self.relayed,
                self._reason,
            )
            if self._close_report
            else None
        )

    def next_entries(self, at: int) -> list[Entry]:
        """Number what is queued. The result stays `unanswered` until Redis has confirmed it."""
        for kind, chunks, number, text in self._pending:
            for start in range(0, len(chunks) or 1, ENTRY_CHUNKS):
                entry = Entry(
                    self.seq, at, kind, chunks[start : start + ENTRY_CHUNKS], number, text
                )
                self.seq = entry.next_seq
                size = sum(map(len, entry.chunks))
                if size:
                    self._unprocessed.append((self.seq - 1, size))
                self.unanswered.append(entry)
        self._pending = []
        return self.unanswered

    def lose(self) -> None:
        """Redis has this call's stream no longer: nothing more can be recorded, so nothing more may
        come."""
        self.closed, self.is_lost, self.unanswered, self._pending = True, True, [], []
        self.fail(StreamConnectionLost("Redis lost the state of this call", code=STREAM_LOST))

    @property
    def has_pending(self) -> bool:
        """Is there something queued that Redis was not asked to take?"""
        return bool(self._pending)

    # --- flow ---

    def _note_processed(self, processed: int) -> None:
        while self._unprocessed and self._unprocessed[0][0] <= processed:
            self._unprocessed_bytes -= self._unprocessed.popleft()[1]
        if self._room is not None:
            self._make_room()

    def backlog_bytes(self) -> int:
        """The larger of bytes unsent to the client and bytes queued or appended that the worker has
        not taken in."""
        return max(self._out_bytes, self._unprocessed_bytes)

    def _make_room(self) -> None:
        if self._room is not None and self.backlog_bytes() <= self._room[0]:
            waiting, self._room = self._room[1], None
            waiting()

    def when_room(self, mark: int, then: Callable[[], None]) -> None:
        """Call `then` as soon as the backlog is at most `mark` bytes. Never looks at released
        bytes: a held tool call would deadlock."""
        self._room = (mark, then)

    def forget_room(self) -> None:
        """Whoever waited for room waits no more."""
        self._room = None

    async def room(self, mark: int) -> None:
        """Wait until the backlog is at most `mark` bytes."""
        if self.backlog_bytes() > mark:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.when_room(mark, lambda: None if waiting.done() else waiting.set_result(None))
            await waiting
