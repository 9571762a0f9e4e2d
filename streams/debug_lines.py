"""Debug lines of one process on their way: collected for 50 ms, then one entry of the shard's debug
stream. They may be lost, and never wait: nobody looks at an answer.

They may not take the room of calls. Each entry trims the stream as it is added, whoever reads it or
not: an entry of n bytes leaves there as many entries as have room when all are of n bytes, 5,000 at
most. The room of all shards is a twentieth of Redis' memory. A Redis past half of the share at
which new calls are refused gets no lines at all.

Bounded too: 2,000 lines and 8 MiB a second, 20,000 lines a call. What is not sent or trimmed is
counted. Lines may be added by a thread outside the loop.
"""

import asyncio
import contextlib
import secrets
import threading
import time

import msgspec

from protocol.debug import (
    BYTES_PER_S,
    LINES_PER_CALL,
    LINES_PER_S,
    Batch,
    DebugLine,
    DoorCount,
    most_of,
    shown,
)
from protocol.errors import StreamConnectionLost
from streams import fitness, layout
from streams.connection import NOT_AN_ANSWER, Connection, RedisError

EVERY_S = 0.05
ENTRIES = 5_000
ENTRY_BYTES = 64 * 1024
"""Past them an entry takes no more lines; its last may be as large again."""
SHARE, WITHOUT_BOUND = 0.05, 32 * 2**20
"""Of Redis' memory for the debug streams of all shards; in bytes, as long as that is not known and
where it has no bound."""
STOP_AT = 0.5
"""Of `limits.memory_share`: past it nothing is sent."""
_LINE_BYTES = 120
"""Of a line beside its detail."""
_LOOK_S = 1.0
_MOST_CALLS = 5_000
"""Calls whose numbers are remembered, as a call may come back to a worker that gave it away."""
_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Batch)


def unpack_batch(blob: bytes) -> Batch:
    """Raises msgspec.MsgspecError, ValueError, RecursionError."""
    return _decoder.decode(blob)


class CallLineWriter:
    """Writes the lines of one call in this process. `mask` is START's; `before` stands before each
    detail."""

    __slots__ = ("_add", "before", "call_id", "mask", "most", "n", "shard")

    def __init__(self, lines: "DebugLines", call_id: str, mask: int) -> None:
        self._add = lines.add
        self.call_id, self.mask, self.most, self.n = call_id, mask, most_of(mask), 0
        self.before = b""
        self.shard = layout.shard_of(call_id)

    def write(
        self,
        kind: str,
        event: str,
        detail: bytes = b"",
        *,
        seq: int = -1,
        number: int = -1,
        block: int = -1,
        policy: str = "",
        hook: str = "",
        duration_us: int = -1,
        size: int = -1,
    ) -> None:
        """Write one line; past the bound of a call one that says so, and then none."""
        self.n += 1
        if self.n > LINES_PER_CALL:
            if self.n > LINES_PER_CALL + 1:
                return
            event, detail = "bound", b"%d lines of this process: no more" % LINES_PER_CALL
        self._add(
            self.shard,
            DebugLine(
                self.call_id,
                self.n,
                time.time_ns() // 1000,
                kind,
                event,
                seq,
                number,
                block,
                policy,
                hook,
                duration_us,
                size,
                self.before + detail,
            ),
        )

    def cut(self, content: bytes) -> bytes:
        """Return content as a line of this call may show it."""
        return shown(content, self.most)


class DebugLines:
    """All debug lines of one process. `process` is its role and name, with a suffix that
    distinguishes it from an earlier process of that name."""

    def __init__(
        self, redis: Connection, process: str, *, memory_share: float, shards: int = 1
    ) -> None:
        self.process, self.lost = f"{process} {secrets.token_hex(2)}", 0
        self._redis, self._memory_share, self._shards = redis, memory_share, shards
        self._room = WITHOUT_BOUND // shards
        self._waiting: dict[int, list[DebugLine]] = {}
        self._sent: dict[int, int] = {}
        self._calls: dict[str, CallLineWriter] = {}
        self._second = self._in_second = self._bytes_in_second = 0
        self._is_due = self._is_full = self._is_looking = False
        self._looked = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    def of(self, call_id: str, mask: int) -> CallLineWriter:
        """Return the writer of a call's lines; the one it had, where it comes back."""
        lines = self._calls.get(call_id)
        if lines is None:
            if self._loop is None:
                self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
            lines = self._calls[call_id] = CallLineWriter(self, call_id, mask)
            if len(self._calls) > _MOST_CALLS:
                del self._calls[next(iter(self._calls))]
        return lines

    def add(self, shard: int, line: DebugLine) -> None:
        """Send a line soon."""
        second = line.at // 1_000_000
        if second != self._second:
            self._second, self._in_second, self._bytes_in_second = second, 0, 0
        self._in_second += 1
        self._bytes_in_second += _LINE_BYTES + len(line.detail)
        if self._in_second > LINES_PER_S or self._bytes_in_second > BYTES_PER_S or self._is_full:
            self.lost += 1
            return
        if (waiting := self._waiting.get(shard)) is None:
            waiting = self._waiting.setdefault(shard, [])
        waiting.append(line)
        if not self._is_due:
            self._is_due = True
            assert self._loop is not None
            if threading.get_ident() == self._thread:
                self._loop.call_later(EVERY_S, self.flush)
            else:
                self._loop.call_soon_threadsafe(self._loop.call_later, EVERY_S, self.flush)

    async def send_door(self, counts: list[DoorCount]) -> bool:
        """Send sums of what this gateway refused; False where Redis did not take them."""
        batch = Batch(
            self.process, self.lost, self._sent.get(0, 0), [], counts, time.time_ns() // 1_000_000
        )
        with contextlib.suppress(StreamConnectionLost, RedisError):
            await self._redis.call(*self._command(0, _encode(batch)))
            return True
        return False

    def flush(self) -> None:
        """Send what waits."""
        self._is_due = False
        waiting, self._waiting = self._waiting, {}
        for shard, lines in waiting.items():
            first = size = 0
            for place, line in enumerate(lines):
                size += _LINE_BYTES + len(line.detail)
                if size > ENTRY_BYTES:
                    self._send_lines(shard, lines[first : place + 1])
                    first, size = place + 1, 0
            if lines[first:]:
                self._send_lines(shard, lines[first:])
        now = time.monotonic()
        if waiting and now - self._looked > _LOOK_S and not self._is_looking:
            self._looked, self._is_looking = now, True
            asyncio.get_running_loop().create_task(
                self._look(), name="memory for debug lines"
            ).add_done_callback(_ended)

    def _send_lines(self, shard: int, lines: list[DebugLine]) -> None:
        sent = self._sent.get(shard, 0)
        try:
            packed = _encode(Batch(self.process, self.lost, sent, lines))
        except ValueError:
            # text that is none: no line is worth a failure
            self.lost += len(lines)
            return
        self._sent[shard] = sent + len(lines)
        self._redis.send_quiet(*self._command(shard, packed))

    def _command(self, shard: int, packed: bytes) -> tuple[str | int | bytes, ...]:
        most = max(1, min(ENTRIES, self._room // (len(packed) + _LINE_BYTES)))
        return "XADD", layout.debug_key(shard), "MAXLEN", "~", most, "*", layout.BLOB, packed

    async def _look(self) -> None:
        """How much memory has Redis, and is so much of it used that no line may be written? Asked
        once a second, while there are lines."""
        try:
            info = (await self._redis.call("INFO", "memory")).decode()
            named = dict(line.split(":", 1) for line in info.split("\r\n") if ":" in line)
            self._is_full = fitness.memory_share(named) > self._memory_share * STOP_AT
            most = int(named.get("maxmemory", 0))
            self._room = (int(most * SHARE) if most else WITHOUT_BOUND) // self._shards
        except (StreamConnectionLost, RedisError, *NOT_AN_ANSWER):
            pass
        finally:
            self._is_looking = False
        if self._is_full:
            asyncio.get_running_loop().call_later(_LOOK_S, self._look_again)

    def _look_again(self) -> None:
        if self._is_full and not self._is_looking:
            self._is_looking = True
            asyncio.get_running_loop().create_task(
                self._look(), name="memory for debug lines"
            ).add_done_callback(_ended)


def _ended(task: "asyncio.Task[None]") -> None:
    if not task.cancelled():
        task.exception()
