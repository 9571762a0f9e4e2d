"""Reads the audit stream of one shard for one writer, and acknowledges what is done. Must not know:
records, Postgres.
"""

import asyncio
import contextlib
import time
from typing import Any

from settings.runtime import Runtime
from streams import layout, scripts
from streams.connection import Connection, RedisError
from workers.audit.entries import count_blobs

BATCH_BLOBS, READ_BYTES, FEW = 500, 2**20, 10
"""A batch ends where its entries hold this many blobs, each the records of one call, or so many
bytes: tool calls wait for the batch before theirs. What is read without a script is few entries."""
RECLAIM_MS = 5_000
BLOCK_MS = 500


class ShardReader:
    """The reads of one shard, under the name of the writer."""

    def __init__(self, settings: Runtime, shard: int, name: str) -> None:
        silent_s = settings.config.limits.redis_silent_s
        self.redis = Connection(settings.redis_url, name="audit-read", silent_s=silent_s)
        """A connection of its own: it waits for entries."""
        self._shard, self._name, self._key = shard, name, layout.audit_key(shard)
        self._is_strict = settings.config.durability == "strict"
        self.is_behind = True
        """Is what was delivered to this name and not acknowledged to be read again? An earlier
        process had it, or it failed."""
        self._reclaimed = 0.0

    async def make_group(self) -> None:
        """Make the consumer group where there is none."""
        with contextlib.suppress(RedisError):
            await self.redis.call(
                "XGROUP", "CREATE", self._key, layout.AUDIT_GROUP, "0", "MKSTREAM"
            )

    def begin_again(self) -> None:
        """Read what is not acknowledged once more."""
        self.is_behind = True

    async def read_again(self) -> list[Any]:
        """Return some of what was delivered to this writer and is not acknowledged: the answer, or
        what came after it, was lost."""
        reply = await self._read("COUNT", FEW, after="0")
        entries = [e for e in reply[0][1] if e[1]]
        self.is_behind = bool(entries)
        return entries

    async def read(self, *, waits: bool) -> list[Any]:
        """Return a batch of what waits, of the first that comes, or nothing; now and then what
        another writer left behind, first."""
        now = time.monotonic()
        if now - self._reclaimed > RECLAIM_MS / 2000:
            left = await self._take(BATCH_BLOBS, READ_BYTES, idle_ms=RECLAIM_MS)
            self._reclaimed = now
            if left:
                return left
        block_ms = min(BLOCK_MS, self.redis.block_ms) if waits else 1
        reply = await self._read("COUNT", FEW, "BLOCK", block_ms, after=">")
        entries = list(reply[0][1]) if reply else []
        if len(entries) == FEW:
            room = max(1, READ_BYTES - sum(sum(map(len, fields)) for _, fields in entries))
            entries += await self._take(max(1, BATCH_BLOBS - count_blobs(entries)), room)
        return entries

    def _read(self, *how: str | int, after: str) -> asyncio.Future[Any]:
        return self.redis.call(
            "XREADGROUP", "GROUP", layout.AUDIT_GROUP, self._name, *how, "STREAMS", self._key, after
        )

    def _take(
        self, max_blobs: int, max_bytes: int, *, idle_ms: int | None = None
    ) -> asyncio.Future[list[Any]]:
        return scripts.read_records(
            self.redis,
            self._shard,
            self._name,
            max_blobs=max_blobs,
            max_bytes=max_bytes,
            idle_ms=idle_ms,
        )

    def trim(self, redis: Connection, done: list[bytes]) -> asyncio.Future[int]:
        """Acknowledge entries, and trim below the smallest that is not acknowledged."""
        return scripts.trim(redis, self._shard, done, is_published=self._is_strict)
