"""What an audit writer does beside its draining, each in a loop of its own: partitions of the
coming days, calls that ended without a mark, entries that somebody else removed, figures, debug
lines, retention, notices. Must not know: batches."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from db.migrations.place import FIRST_MONTHS
from db.state.postgres_errors import server_words
from db.write.insert import AuditInserter
from protocol.errors import AuditUnavailable, StreamConnectionLost
from settings.runtime import Runtime
from streams import layout, scripts
from streams.connection import Connection, RedisError
from streams.identity import Identity
from workers import process
from workers.audit.debugging import DebugDrain
from workers.audit.ended_calls import EndedCalls
from workers.audit.orphaned import OrphanedCalls
from workers.audit.request_bodies import Bodies
from workers.audit.retention import RetentionLoop
from workers.audit.rollups import Rollups
from workers.audit.sealing import SealLoop

log = logging.getLogger(__name__)
PARTITION_DAYS = 7
PARTITIONS_EVERY_S, PARTITIONS_RETRY_S = 3600.0, 5.0
MISSING_EVERY_S = 5.0


class Chores:
    """The chores of one writer, which is called `name`."""

    def __init__(
        self,
        settings: Runtime,
        redis: Connection,
        name: str,
        *,
        bodies: Bodies,
        seals: SealLoop,
        identities: Sequence[Identity],
    ) -> None:
        self._settings, self._redis, self._name = settings, redis, name
        self._bodies, self._seals, self._identities = bodies, seals, identities
        self._shards = settings.config.shards

    def loops(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """The loops by name."""
        redis, settings = self._redis, self._settings
        streams = [layout.audit_key(shard) for shard in range(self._shards)]
        ended_ttl_s = settings.config.limits.ended_ttl_s
        # made once: what they know outlives a failure
        orphaned = OrphanedCalls(redis, ended_ttl_s=ended_ttl_s)
        ended = EndedCalls(redis, shards=self._shards, ended_ttl_s=ended_ttl_s)
        retention = settings.config.retention
        lines = DebugDrain(
            redis,
            settings.database_url,
            name=self._name,
            shards=self._shards,
            kept_days=retention.debug_logs,
        )
        return {
            "forget": partial(process.forget_consumers, redis, streams, layout.AUDIT_GROUP),
            "partitions": self._partition_loop,
            "lost calls": partial(self._check_loop, orphaned),
            "ended calls": partial(self._check_loop, ended),
            "missing": self._missing_loop,
            "figures": Rollups(settings, redis).run,
            "debug lines": lines.run,
            **({"retention": RetentionLoop(settings).run} if retention.days else {}),
            **({"notices": self._notice_loop} if settings.config.approvals.notify else {}),
        }

    async def _partition_loop(self) -> None:
        logged = ""
        async with AuditInserter(self._settings.database_url) as inserter:
            while True:
                pause_s = PARTITIONS_RETRY_S
                try:
                    # by Redis' clock too, with which gateways agree: this process' own may be wrong
                    redis_s = layout.time_ms(await self._redis.call("TIME")) / 1000
                    for today in sorted(
                        {
                            time.strftime("%Y-%m-%d", time.gmtime(at))
                            for at in (time.time(), redis_s)
                        }
                    ):
                        await inserter.ensure_partitions(today, PARTITION_DAYS)
                        await inserter.ensure_reads(today, FIRST_MONTHS)
                    if strays := await inserter.default_rows():
                        log.warning("calls outside the daily partitions", extra={"count": strays})
                    pause_s, logged = PARTITIONS_EVERY_S, ""
                except AuditUnavailable as error:
                    if (words := server_words(error)) != logged:
                        log.error(
                            "partitions of the coming days cannot be made: `sluice doctor` says"
                            " which",
                            extra={"error": words},
                        )
                    logged = words
                except (StreamConnectionLost, RedisError):
                    pass
                await asyncio.sleep(pause_s)

    async def _check_loop(self, calls: OrphanedCalls | EndedCalls) -> None:
        refused = ""
        async with AuditInserter(self._settings.database_url) as inserter:
            while True:
                await asyncio.sleep(calls.every_s)
                if any(identity.fault for identity in self._identities):
                    continue
                try:
                    if late := await calls.check(inserter):
                        await self._seals.seal_late(late)
                    refused = ""
                except (AuditUnavailable, StreamConnectionLost):
                    pass
                except RedisError as error:
                    if str(error) != refused:
                        log.warning(
                            "ended and orphaned calls cannot be checked",
                            extra={"error": str(error)[:80]},
                        )
                    refused = str(error)

    async def _notice_loop(self) -> None:
        # its libraries are loaded where somebody is notified
        from workers.audit.notices import NoticeSender

        await NoticeSender(self._settings).run()

    async def _missing_loop(self) -> None:
        """Say when records went away that nobody had committed: an ACL cannot keep from cutting a
        stream who may append to it. Also give back what is charged to keys for calls that left
        nothing."""
        known: dict[int, int] = {}
        swept = dict.fromkeys(range(self._shards), b"0")
        while True:
            for shard in range(self._shards):
                with contextlib.suppress(StreamConnectionLost, RedisError):
                    swept[shard] = await self._bodies.sweep(shard, swept[shard])
                    missing = await scripts.missing(self._redis, shard)
                    if missing != known.get(shard, 0):
                        log.error(
                            "somebody else removed audit entries from Redis",
                            extra={"shard": shard, "count": missing},
                        )
                    known[shard] = missing
            await asyncio.sleep(MISSING_EVERY_S)
