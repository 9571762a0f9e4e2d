"""Makes the histories of calls (`protocol.conversations.histories`) after all else: on a thread and
a connection of its own, and while no record waits.

Nothing waits for it. What is left out, because too much waits or PostgreSQL is away for long,
`sluice audit rebuild histories` makes.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping

from db.state.postgres_errors import server_words
from db.write.histories import HistoryWriter
from protocol.errors import AuditError, StreamConnectionLost
from streams.connection import RedisError

log = logging.getLogger(__name__)
PAUSE_S = 1.0
"""What comes in it is written in one step, if it is not too much: most of what a short call costs
here is the step."""
MAX_WAITING, KEPT_BYTES = 10_000, 8 * 2**20
"""Calls that wait, and how much of their bodies is kept; the others are read again."""
AT_ONCE, AT_ONCE_BYTES = 100, 2**20
"""What one step takes: the thread holds the interpreter for 3 ms a MB, and looks after each step
whether records wait."""
YIELD_S = 30.0
"""How long records that wait go first at most."""
SILENT_S = 20.0


class Histories:
    """Those of one audit writer. `is_behind` says whether records wait."""

    def __init__(self, database_url: str, is_behind: Callable[[], Awaitable[bool]]) -> None:
        self._writer, self._is_behind = HistoryWriter(database_url), is_behind
        self._waiting = OrderedDict[str, bytes | None]()
        self._sizes = OrderedDict[str, int]()
        self._kept_bytes = 0
        self._came = asyncio.Event()

    def add(self, bodies: Mapping[str, bytes]) -> None:
        """These bodies are on record."""
        for call_id, body in bodies.items():
            if call_id in self._waiting:
                continue
            while len(self._waiting) >= MAX_WAITING:
                self._take(next(iter(self._waiting)))
            is_kept = self._kept_bytes + len(body) <= KEPT_BYTES
            self._waiting[call_id], self._sizes[call_id] = body if is_kept else None, len(body)
            self._kept_bytes += len(body) if is_kept else 0
        self._came.set()

    @property
    def waits(self) -> int:
        """How many wait."""
        return len(self._waiting)

    async def run(self) -> None:
        """Write them until cancelled."""
        done = time.monotonic()
        away = False
        while True:
            if not self._waiting:
                self._came.clear()
                await self._came.wait()
                done = time.monotonic()
            await asyncio.sleep(PAUSE_S)
            try:
                while self._waiting and (
                    time.monotonic() - done >= YIELD_S or not await self._is_behind()
                ):
                    await self._step()
                    done = time.monotonic()
                away = False
            except (AuditError, StreamConnectionLost, RedisError) as error:
                if not away:
                    log.warning(
                        "histories cannot be written now", extra={"error": server_words(error)}
                    )
                away = True
                await asyncio.sleep(1)

    async def close(self) -> None:
        """Close the connection."""
        await asyncio.to_thread(self._writer.close)

    async def _step(self) -> None:
        step: dict[str, bytes | None] = {}
        size = 0
        for call_id, its in self._sizes.items():
            if step and (len(step) >= AT_ONCE or size + its > AT_ONCE_BYTES):
                break
            step[call_id] = self._waiting[call_id]
            size += its
        task = asyncio.ensure_future(asyncio.to_thread(self._writer.write, step))
        try:
            await asyncio.wait({task}, timeout=SILENT_S)
        finally:
            # a stopped server sends nothing, and no thread can be cancelled: without its connection
            # the work fails
            while not task.done():
                self._writer.cut()
                await asyncio.wait({task}, timeout=0.1)
            if not task.cancelled():
                task.exception()
        await task
        for call_id in step:
            self._take(call_id)

    def _take(self, call_id: str) -> None:
        size, body = self._sizes.pop(call_id, 0), self._waiting.pop(call_id, None)
        if body is not None:
            self._kept_bytes -= size
