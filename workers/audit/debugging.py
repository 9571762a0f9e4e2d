"""Brings debug lines to PostgreSQL, behind the record: while records wait, nothing is read here,
and the stream lets go of its oldest.

One audit writer does this, all others wait to take over. It connects to PostgreSQL when there is
something, and goes after a minute without. Whatever fails is lost: no call and no record waits for
a line. How far the lines of each process came stands in Redis, so that whoever drains next counts
what is missing since.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from db.state.postgres_errors import server_words
from db.write.debug_logs import DebugLogWriter
from protocol.debug import KEPT_DAYS, Batch, DebugLine
from protocol.errors import AuditUnavailable, StreamConnectionLost
from streams import layout
from streams.connection import NOT_AN_ANSWER, Connection, RedisError
from streams.debug_lines import unpack_batch

log = logging.getLogger(__name__)
IDLE_S, BUSY_S, REFUSED_S = 1.0, 0.1, 5.0
BUSY_FOR = 100
"""Looks without anything new after which it looks once a second."""
LET_GO = 700
"""Such looks after which the connection is closed."""
READ = 20
BEHIND = 1_000
"""Entries of the record that wait; while there are more, debug lines do."""
TRIM_EVERY = 600
MOST_SEEN = 4_000
"""Numbers of processes that are remembered, those that came last."""


class DebugDrain:
    """Drains the debug streams of all shards."""

    def __init__(
        self,
        redis: Connection,
        database_url: str,
        *,
        name: str,
        shards: int,
        kept_days: int = KEPT_DAYS,
    ) -> None:
        self._redis, self._name, self._shards = redis, name, range(shards)
        self._writer, self._kept_days = DebugLogWriter(database_url), kept_days
        self._seen: dict[str, int] = {}
        """What stands at `layout.debug_seen_key()`, while this process writes."""
        self._idle, self._looks, self._is_failing = BUSY_FOR, 0, False

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            while True:
                await asyncio.sleep(await self._look())
        finally:
            await self._writer.close()

    async def _look(self) -> float:
        """Take what is there; returns when to look again."""
        try:
            taken = await self._take_all()
            self._is_failing = False
        except (AuditUnavailable, StreamConnectionLost, RedisError, *NOT_AN_ANSWER) as error:
            if not self._is_failing:
                log.warning("debug lines are not stored", extra={"error": server_words(error)})
            self._is_failing = True
            # a Redis that starts again, and loads what it has, is there in a moment, and asking
            # whether it is costs nothing
            return REFUSED_S if isinstance(error, AuditUnavailable) else IDLE_S
        if taken is None:
            return REFUSED_S
        self._idle = 0 if taken else self._idle + 1
        if self._idle > LET_GO and self._writer.is_connected:
            await self._writer.close()
        self._looks += 1
        if self._looks % TRIM_EVERY == 0 and self._writer.is_connected:
            await self._trim()
        return BUSY_S if self._idle < BUSY_FOR else IDLE_S

    async def _take_all(self) -> int | None:
        """Returns how many entries were taken; None where another writer does it, or records
        wait."""
        taken = 0
        for shard in self._shards:
            key = layout.debug_key(shard)
            waiting, behind = await asyncio.gather(
                self._redis.call("XLEN", key), self._redis.call("XLEN", layout.audit_key(shard))
            )
            if not waiting:
                continue
            if behind > BEHIND or not await self._open():
                return None
            while entries := await self._read(key):
                await self._store(
                    shard, [batch for entry in entries if (batch := _batch(entry[1])) is not None]
                )
                self._redis.send_quiet("XTRIM", key, "MINID", _after(entries[-1][0]))
                taken += len(entries)
                if len(entries) < READ:
                    break
        return taken

    async def _open(self) -> bool:
        was = self._writer.is_connected
        if not await self._writer.open():
            return False
        if not was:
            # another may have drained meanwhile: what it took is not lost
            parts = iter(await self._redis.call("HGETALL", layout.debug_seen_key()))
            self._seen = {
                field.decode(): int(number) for field, number in zip(parts, parts, strict=True)
            }
            await self._trim()
        return True

    async def _trim(self) -> None:
        with contextlib.suppress(AuditUnavailable, StreamConnectionLost, RedisError):
            redis_ms = layout.time_ms(await self._redis.call("TIME"))
            await self._writer.trim(redis_ms / 1000, self._kept_days)

    async def _read(self, key: str) -> list[Any]:
        read = "GROUP", layout.DEBUG_GROUP, self._name, "COUNT", READ, "NOACK", "STREAMS", key, ">"
        try:
            reply = await self._redis.call("XREADGROUP", *read)
        except RedisError as error:
            if "NOGROUP" not in str(error):
                raise
            with contextlib.suppress(RedisError):
                await self._redis.call("XGROUP", "CREATE", key, layout.DEBUG_GROUP, "0")
            reply = await self._redis.call("XREADGROUP", *read)
        return list(reply[0][1]) if reply else []

    async def _store(self, shard: int, batches: Sequence[Batch]) -> None:
        # before: a writer that is stopped now has stored them, as far as anybody knows
        self._count_lost(shard, batches)
        lines = [
            (batch.process, line) for batch in batches for line in batch.lines if _is_sound(line)
        ]
        try:
            await self._writer.store(lines)
        except AuditUnavailable:
            self._redis.send_quiet("INCRBY", layout.debug_lost_key(), len(lines))
            raise
        for batch in batches:
            if batch.door:
                await self._writer.count_door(batch.process, batch.at, batch.door)

    def _count_lost(self, shard: int, batches: Sequence[Batch]) -> None:
        """Count the lines that did not come since the last entry of their process, and remember how
        far they came now."""
        lost, changed = 0, dict[str, int]()
        for batch in batches:
            upto = batch.sent + len(batch.lines)
            for field, before, after in (
                (f"{shard} {batch.process}", batch.sent, upto),
                (f"lost {batch.process}", batch.lost, batch.lost),
            ):
                known = self._seen.pop(field, None)
                # of a process that is not known nobody knows what came before: it was counted, or
                # went with what knew it
                seen = known if known is not None else before if batch.sent else 0
                lost += max(0, before - seen)
                self._seen[field] = max(seen, after)
                if known is None or after > seen:
                    changed[field] = self._seen[field]
        key = layout.debug_seen_key()
        if lost:
            self._redis.send_quiet("INCRBY", layout.debug_lost_key(), lost)
        if changed:
            self._redis.send_quiet(
                "HSET", key, *(part for pair in changed.items() for part in pair)
            )
        while len(self._seen) > MOST_SEEN:
            oldest = next(iter(self._seen))
            del self._seen[oldest]
            self._redis.send_quiet("HDEL", key, oldest)


def _batch(fields: Sequence[bytes]) -> Batch | None:
    """What an entry holds; None for what nobody of ours wrote."""
    try:
        return unpack_batch(fields[1])
    except (msgspec.MsgspecError, ValueError, RecursionError, IndexError):
        log.error("undecodable debug entry")
        return None


def _is_sound(line: DebugLine) -> bool:
    return layout.is_call_id(line.call_id)


def _after(entry: bytes) -> str:
    """The least id behind this one."""
    ms, _, number = entry.decode().partition("-")
    return f"{ms}-{int(number) + 1}"
