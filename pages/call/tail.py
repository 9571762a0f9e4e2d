"""What happens in open calls, read from Redis for viewers: entries of a call's stream, and records
of the audit stream.

One tail per shard reads the audit stream for all viewers, without a group, so it takes nothing from
an audit writer; the first viewer starts it and the last ends it, with the connections. A call's own
stream is read from its beginning and then followed on its channel. A viewer's inbox is bounded:
what does not fit in it is a gap, and the viewer starts again from the record.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from protocol.errors import RateLimited, StreamConnectionLost, StreamProtocolError
from protocol.records import Record, read_records
from streams import layout
from streams.audit_stream import EntryId, entry_id, read_state
from streams.connection import NOT_AN_ANSWER, Connection, RedisError
from streams.layout import Entry, Start

MOST_VIEWERS = 20
MOST_OF_LOGIN = 5
UNSENT_BYTES = 2**20
BATCH = 256
FEW, MANY_BYTES = 16, 2**20
"""Entries read at once where those before were of so many bytes: one may hold megabytes."""
SCAN_ENTRIES = 20_000
"""So much of the audit stream is looked through for what a call had before somebody watched; the
rest is in the database."""
RETRY_S = 0.2
SILENT_S = 2.0
"""How long a Redis may be silent before viewers see a notice."""
CLOCKS_MS = 60_000
"""How far the clocks of a gateway and of Redis may be apart."""
OPEN_S = 3.0
LAST_ENTRY: EntryId = (2**63, 0)
"""After every entry there will be."""
_FAULTS = (RedisError, StreamConnectionLost, StreamProtocolError, *NOT_AN_ANSWER)
Recorded = tuple[EntryId, list[Record]]


class Viewer:
    """A viewer of a call: what came since it last looked."""

    def __init__(self, call_id: str, login: str) -> None:
        self.call_id, self.login = call_id, login
        self.shard, self.mark = layout.shard_of(call_id), call_id.encode()
        self.entries: deque[bytes] = deque()
        self.records: deque[Recorded] = deque()
        self.unsent = 0
        self.is_over = False
        """More came than may wait."""
        self.missed = False
        """Something may have been missed: read again."""
        self.news = asyncio.Event()

    def put_entry(self, blob: bytes) -> None:
        """Take what was published of the call."""
        if self._fits(blob):
            self.entries.append(blob)

    def put_records(self, entry: EntryId, blob: bytes) -> None:
        """Take records of the call; those of another are not looked at."""
        try:
            records = self.decode_records(blob)
        except StreamProtocolError:
            self.wake()
            return
        if records and self._fits(blob):
            self.records.append((entry, records))

    def decode_records(self, blob: bytes) -> list[Record]:
        """Return the call's records; those of other calls may hold its id as text. Raises
        StreamProtocolError."""
        if self.mark not in blob:
            return []
        return [record for record in read_records(blob)[0] if record.call_id == self.call_id]

    def _fits(self, blob: bytes) -> bool:
        """Count what came; what is too large to wait at all is read when it is looked for."""
        self.news.set()
        if len(blob) > UNSENT_BYTES:
            self.missed = True
            return False
        self.unsent += len(blob)
        if self.unsent > UNSENT_BYTES:
            self.is_over = True
            self.entries.clear()
            self.records.clear()
        return not self.is_over

    def take(self) -> tuple[list[bytes], list[Recorded]]:
        """Return what came, and forget it."""
        entries, records = list(self.entries), list(self.records)
        self.entries.clear()
        self.records.clear()
        self.unsent = 0
        self.news.clear()
        return entries, records

    def wake(self) -> None:
        """Something may have been missed."""
        self.missed = True
        self.news.set()


class LiveTail:
    """All calls that one process watches. Its connections exist only while somebody does."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.viewers: list[Viewer] = []
        self.lost_at = 0.0
        """Since when Redis does not answer, in Unix seconds; 0: it does."""
        self._commands: Connection | None = None
        self._heard: Connection | None = None
        self._tails: dict[int, _Tail] = {}
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def watch(self, call_id: str, login: str) -> AsyncIterator[Viewer]:
        """Watch a call. Raises RateLimited where too many watch, StreamConnectionLost without
        Redis."""
        if sum(viewer.login == login for viewer in self.viewers) >= MOST_OF_LOGIN:
            raise RateLimited(
                f"{MOST_OF_LOGIN} live views are open in this login already: close one, as browsers"
                " hang with more",
                retry_after_s=5,
            )
        if len(self.viewers) >= MOST_VIEWERS:
            raise RateLimited(
                f"{MOST_VIEWERS} live views are open already: try again when one is closed",
                retry_after_s=5,
            )
        viewer = Viewer(call_id, login)
        self.viewers.append(viewer)
        channel = layout.chunk_channel(call_id)
        try:
            async with self._opening:
                await self._open()
            assert self._heard is not None
            await self._heard.call("SUBSCRIBE", channel)
            if viewer.shard not in self._tails:
                self._tails[viewer.shard] = _Tail(self, self._url, viewer.shard)
            await self._tails[viewer.shard].ready()
            yield viewer
        finally:
            self.viewers.remove(viewer)
            await self._leave(viewer, channel)

    async def _open(self) -> None:
        if self._commands is None:
            commands = Connection(self._url, name="pages", silent_s=SILENT_S, has_scripts=False)
            heard = Connection(
                self._url,
                name="pages-heard",
                silent_s=SILENT_S,
                on_push=self._on_push,
                on_connect=self._hear_again,
            )
            try:
                await commands.open(patience_s=OPEN_S)
                await heard.open(patience_s=OPEN_S)
            except BaseException:
                await commands.close()
                await heard.close()
                raise
            self._commands, self._heard = commands, heard

    async def _leave(self, viewer: Viewer, channel: str) -> None:
        if self._heard is not None and all(
            other.call_id != viewer.call_id for other in self.viewers
        ):
            self._heard.quiet(self._heard.call("UNSUBSCRIBE", channel))
        if (
            all(other.shard != viewer.shard for other in self.viewers)
            and (tail := self._tails.pop(viewer.shard, None)) is not None
        ):
            await tail.close()
        if not self.viewers:
            commands, heard, self._commands, self._heard = self._commands, self._heard, None, None
            for connection in (commands, heard):
                if connection is not None:
                    await connection.close()

    async def _hear_again(self) -> None:
        """After a lost connection: what was published meanwhile is in the streams."""
        if self._heard is not None:
            for call_id in {viewer.call_id for viewer in self.viewers}:
                await self._heard.call("SUBSCRIBE", layout.chunk_channel(call_id))
        for viewer in self.viewers:
            viewer.wake()

    def _on_push(self, message: list[Any]) -> None:
        call_id = message[1][-36:].decode(errors="replace")
        for viewer in self.viewers:
            if viewer.call_id == call_id:
                viewer.put_entry(message[2])

    async def ask(self, *command: str | bytes | int) -> Any:
        """Send one command. Raises StreamConnectionLost, RedisError."""
        if self._commands is None:
            raise StreamConnectionLost("no connection to Redis")
        return await self._commands.call(*command)

    async def start_of(self, call_id: str) -> Start | None:
        """Return how a call began; None where Redis has it no more. Raises StreamConnectionLost,
        RedisError, StreamProtocolError."""
        return _start(
            await self.ask("XRANGE", layout.call_key(call_id), layout.START_ID, layout.START_ID)
        )

    async def begun(self, call_id: str) -> Start | None:
        """As `start_of`, also while nobody watches. Raises the same."""
        redis = Connection(self._url, name="pages-ask", silent_s=SILENT_S, has_scripts=False)
        try:
            await redis.open(patience_s=OPEN_S)
            return _start(
                await redis.call(
                    "XRANGE", layout.call_key(call_id), layout.START_ID, layout.START_ID
                )
            )
        finally:
            await redis.close()

    async def entries_from(self, call_id: str, seq: int) -> list[Entry]:
        """Return some entries of a call's stream from a number on. Raises the same."""
        entries = await self.ask(
            "XRANGE", layout.call_key(call_id), f"{seq}-0", "+", "COUNT", BATCH
        )
        return [layout.unpack_entry(fields[1]) for _, fields in entries]

    async def recorded(self, viewer: Viewer) -> list[Recorded]:
        """Return the call's records that are in the audit stream now. Raises the same."""
        # an id of a call begins with its time: what was recorded before is of others
        first = f"{max(0, (UUID(viewer.call_id).int >> 80) - CLOCKS_MS)}"
        key, last, looked, recorded = (
            layout.audit_key(viewer.shard),
            first.encode(),
            0,
            list[Recorded](),
        )
        count = FEW
        while looked < SCAN_ENTRIES:
            answer = await self.ask("XREAD", "COUNT", count, "STREAMS", key, last)
            entries = answer[0][1] if answer else []
            for name, fields in entries:
                for blob in layout.blobs(fields):
                    with contextlib.suppress(StreamProtocolError):
                        if records := viewer.decode_records(blob):
                            recorded.append((entry_id(name), records))
            if len(entries) < count:
                break
            last, looked, count = entries[-1][0], looked + len(entries), next_count(count, entries)
        return recorded

    async def committed(self, shard: int) -> EntryId:
        """Return an id below which every audit entry is in the database. Raises the same."""
        if self._commands is None:
            raise StreamConnectionLost("no connection to Redis")
        return (await read_state(self._commands, shard)).first_open or LAST_ENTRY


class _Tail:
    """Reads the audit stream of a shard for all who watch calls of it."""

    def __init__(self, live: LiveTail, url: str, shard: int) -> None:
        self._live, self._shard, self._key = live, shard, layout.audit_key(shard)
        self._redis = Connection(url, name="pages-tail", silent_s=SILENT_S, has_scripts=False)
        self._last, self._count = b"", FEW
        self._is_ready = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"tail {shard}")

    async def ready(self) -> None:
        """Wait until it reads: what is recorded from now on is not missed. Raises
        StreamConnectionLost."""
        try:
            async with asyncio.timeout(OPEN_S):
                await self._is_ready.wait()
        except TimeoutError:
            raise StreamConnectionLost("Redis does not answer") from None

    async def close(self) -> None:
        """End it."""
        self._task.cancel()
        await asyncio.wait({self._task})
        await self._redis.close()

    async def _run(self) -> None:
        was_lost = False
        while True:
            try:
                if not self._redis.connected.is_set():
                    if not self._is_ready.is_set():
                        await self._redis.open(patience_s=OPEN_S)
                    else:
                        await self._redis.connected.wait()
                if not self._last or was_lost:
                    await self._begin(was_lost=was_lost)
                    was_lost = False
                self._live.lost_at = 0.0
                self._is_ready.set()
                await self._read()
            except _FAULTS:
                self._live.lost_at = self._live.lost_at or time.time()
                was_lost = True
                for viewer in self._viewers():
                    viewer.news.set()
                await asyncio.sleep(RETRY_S)

    async def _begin(self, *, was_lost: bool) -> None:
        """From the stream's end; after a loss from where it was, unless Redis came back with
        less."""
        try:
            flat = await self._redis.call("XINFO", "STREAM", self._key)
            newest: bytes = dict(zip(flat[::2], flat[1::2], strict=True))[b"last-generated-id"]
        except RedisError as error:
            if "no such key" not in str(error):
                raise
            newest = b"0-0"
        if not self._last or entry_id(newest) < entry_id(self._last):
            self._last = newest
        if was_lost:
            for viewer in self._viewers():
                viewer.wake()

    async def _read(self) -> None:
        answer = await self._redis.call(
            "XREAD",
            "COUNT",
            self._count,
            "BLOCK",
            self._redis.block_ms,
            "STREAMS",
            self._key,
            self._last,
        )
        entries = answer[0][1] if answer else []
        self._count = next_count(self._count, entries)
        for name, fields in entries:
            self._last = name
            for blob in layout.blobs(fields):
                for viewer in self._viewers():
                    viewer.put_records(entry_id(name), blob)

    def _viewers(self) -> Sequence[Viewer]:
        return [viewer for viewer in self._live.viewers if viewer.shard == self._shard]


def next_count(count: int, entries: Sequence[Any]) -> int:
    """Return how many entries to read next, by those that came."""
    size = sum(len(blob) for _, fields in entries for blob in layout.blobs(fields))
    return FEW if size > MANY_BYTES else min(BATCH, 2 * count)


def _start(entries: Sequence[Any]) -> Start | None:
    return layout.unpack_start(entries[0][1][1]) if entries else None
