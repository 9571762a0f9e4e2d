"""The audit writer: drains the audit streams into Postgres, announces commits, acks, trims.

An entry leaves Redis only after its commit. Order within a batch: commit, announce tool calls, then
what nobody waits for: commit request bodies, delete those of ended calls, cover what came after its
call's seal (`workers.audit.sealing`), ack. So whatever dies in between is repeated, and every step
repeated is a no-op. Where bodies are large, all after the announcement comes `LATE_S` later, on a
connection of its own. With Postgres away the batch in hand is tried again until it is there; the
stream is the backlog.
"""

import asyncio
import contextlib
import logging
import math
import os
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from db.holes import CallHole, Hole
from db.migrations.place import FIRST_MONTHS
from db.state.server_words import server_words
from db.write.insert import AuditInserter, Conflicts
from protocol.errors import AuditUnavailable, StreamConnectionLost, StreamProtocolError
from protocol.records import (
    CallRecord,
    EndRecord,
    Record,
    ReleaseRecord,
    ToolCallRecord,
    call_ids,
    read_records,
)
from settings.runtime import Runtime
from streams import heartbeats, layout, lifecycle, scripts
from streams.audit_stream import entry_id
from streams.connection import Connection, RedisError
from streams.identity import Identity
from workers import process
from workers.audit.bodies import LARGE, Bodies
from workers.audit.debugging import DebugDrain
from workers.audit.ended import EndedCalls
from workers.audit.histories import Histories
from workers.audit.orphaned import OrphanedCalls
from workers.audit.retention import RetentionLoop
from workers.audit.rollups import Rollups
from workers.audit.sealing import SealLoop

log = logging.getLogger(__name__)
BATCH_BLOBS, READ_BYTES, FEW = 500, 2**20, 10
"""A batch ends where its entries hold this many blobs, each the records of one call, or so many
bytes: tool calls wait for the batch before theirs. What is read without a script is few entries."""
LATE_S = 0.5
"""How much later than its records the body of a large request is written: until then calls that
came with it wait for their first token. 20 requests of 1 MB at once cost 7 ms each in PostgreSQL,
this process and Redis before their first tokens were out, and 2 so."""
MAX_LATE = 256
"""Batches whose rest waits; past it nothing is put off."""
STOP_S = 2.0
"""How long a writer goes on with what is there after its stop signal."""
RECLAIM_MS = 5_000
RETRY_S = 0.25
START_CHECK_S = 3.0
"""How long the start waits to know whose records Redis holds."""
PARTITION_DAYS = 7
PARTITIONS_EVERY_S, PARTITIONS_RETRY_S = 3600.0, 5.0
MISSING_EVERY_S = 5.0
NAP_S = 0.04
"""Pause after a batch of one, unless a call waits for its commit or begins to: the next batch is
then larger. A commit of one row costs 0.7 ms here and 0.3 ms in PostgreSQL, a commit of a hundred
rows 1.2 and 1.5."""


class _Unfinished(NamedTuple):
    """What is still to be done for a batch whose records are committed."""

    entries: list[bytes]
    begun: dict[str, int]
    """Calls of which the body is to be written, and its size."""
    ended: list[str]
    calls: set[str]
    """All whose records are in it."""
    due: float
    """When on the loop's clock."""


class _Stop:
    """The end of a writer: asked for by a signal, begun once nothing is delivered to it any more,
    over when there is nothing left or its time has gone."""

    def __init__(self) -> None:
        self.is_asked = asyncio.Event()
        self.has_begun = asyncio.Event()
        self._until = math.inf

    def begin(self) -> None:
        """Go on with what is there for so long, and take nothing new after that."""
        self._until = time.monotonic() + STOP_S
        self.has_begun.set()

    @property
    def has_time(self) -> bool:
        """May it go on?"""
        return time.monotonic() < self._until


class AuditWriter:
    """One process; any number may run, each entry going to one of them."""

    def __init__(self, settings: Runtime) -> None:
        self.settings, self.limits, self.shards = (
            settings,
            settings.config.limits,
            settings.config.shards,
        )
        self.name = settings.name or f"{socket.gethostname()}-{os.getpid()}"
        url, silent_s = settings.redis_url, self.limits.redis_silent_s
        self._redis = Connection(url, name="audit", silent_s=silent_s)
        self._blocking = [
            Connection(url, name="audit-read", silent_s=silent_s) for _ in range(self.shards)
        ]
        self._wake_ups = Connection(
            url,
            name="audit-wake-ups",
            silent_s=silent_s,
            on_push=self._on_push,
            on_connect=self._subscribe,
        )
        self._woken = {
            layout.waiting_channel(shard).encode(): asyncio.Event() for shard in range(self.shards)
        }
        """By channel: a call of the shard began to wait for its commit."""
        self._inserters = [AuditInserter(settings.database_url) for _ in range(self.shards)]
        self._late_inserters = [AuditInserter(settings.database_url) for _ in range(self.shards)]
        self._rests = [deque[_Unfinished]() for _ in range(self.shards)]
        self._rest_came = asyncio.Event()
        self._again = set(range(self.shards))
        """Shards of which what was delivered to this name and not acknowledged is read again: an
        earlier process had it, or it failed."""
        self._seals = SealLoop(settings, self._redis)
        self._histories = Histories(settings.database_url, self._seals.is_behind)
        self._bodies = Bodies(self._redis, self._until_stored, self._histories.add)
        self._identities = [
            Identity(reader, to.hold)
            for reader, to in zip(self._blocking, self._inserters, strict=True)
        ]
        self._stop = _Stop()
        self._strict = settings.config.durability == "strict"
        self.conflicts = 0

    def stop(self) -> None:
        """Begin to stop: once the calls that run do not need this writer."""
        self._stop.is_asked.set()

    def _shown(self) -> list[tuple[str, str]]:
        shown = heartbeats.shown_by("audit", self.name, is_stopping=self._stop.is_asked.is_set())
        return [*shown, ("shards", f"{self.shards}:{self.name}")]

    async def _begin_stop(self) -> None:
        """What is there already still comes into the record, if that can be soon."""
        await self._stop.is_asked.wait()
        await process.stay_for_calls(
            self._redis, "audit", self.name, shards=self.shards, grace_s=self.limits.drain_s
        )
        self._stop.begin()
        for waited_for in (self._rest_came, *self._woken.values()):
            waited_for.set()

    async def run(self) -> None:
        """Work until `stop`."""
        await asyncio.gather(
            self._redis.open(), self._wake_ups.open(), *(c.open() for c in self._blocking)
        )
        # a database that is away is asked before anything is written to it
        with contextlib.suppress(AuditUnavailable, StreamConnectionLost, RedisError, TimeoutError):
            async with asyncio.timeout(START_CHECK_S):
                await asyncio.gather(*(identity.holds() for identity in self._identities))
        with contextlib.suppress(AuditUnavailable, StreamConnectionLost, RedisError):
            await asyncio.gather(*(identity.settle() for identity in self._identities))
        self._identities[0].check()
        for shard in range(self.shards):
            await self._make_group(shard)
        process.tell_ready(self.settings)
        log.info("audit writer ready", extra={"writer": self.name})
        background = [
            asyncio.create_task(process.keep(name, task), name=name)
            for name, task in self._background().items()
        ]
        stopping = asyncio.create_task(self._begin_stop(), name="stop")
        drains = [
            asyncio.create_task(loop(s))
            for s in range(self.shards)
            for loop in (self._drain_loop, self._rest_loop)
        ]
        try:
            draining = asyncio.gather(*drains)
            waited: list[asyncio.Future[Any]] = [draining, *background]
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            for task in background:
                if task.done():
                    # a writer that sends heartbeats and does half of its work is worse than none:
                    # another takes its place
                    log.error(
                        "a background task ended: this writer ends",
                        extra={"action": task.get_name()},
                    )
                    cause = None if task.cancelled() else task.exception()
                    raise RuntimeError(f"the background task {task.get_name()} ended") from cause
            await draining
        finally:
            # each by itself: a group of which one failed takes no cancelling, and the others would
            # go on without their connections
            tasks = [*drains, *background, stopping]
            for task in tasks:
                task.cancel()
            with contextlib.suppress(StreamConnectionLost, RedisError):
                await heartbeats.withdraw(self._redis, *self._shown())
            await asyncio.gather(*tasks, return_exceptions=True)
            of_redis, of_postgres = (
                (self._redis, self._wake_ups, *self._blocking),
                (
                    *self._inserters,
                    *self._late_inserters,
                ),
            )
            await asyncio.gather(*(c.close() for c in of_redis), *(i.close() for i in of_postgres))
            await asyncio.gather(self._seals.close(), self._histories.close())

    def _background(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """What is done beside the draining, by name."""
        streams, ended_ttl_s = (
            [layout.audit_key(shard) for shard in range(self.shards)],
            self.limits.ended_ttl_s,
        )
        # made once: what they know outlives a failure
        orphaned = OrphanedCalls(self._redis, ended_ttl_s=ended_ttl_s)
        ended = EndedCalls(self._redis, shards=self.shards, ended_ttl_s=ended_ttl_s)
        retention = self.settings.config.retention
        return {
            "heartbeats": partial(
                process.send_heartbeats,
                self._redis,
                self._shown,
                alive_file=self.settings.alive_file,
            ),
            "forget": partial(process.forget_consumers, self._redis, streams, layout.AUDIT_GROUP),
            "partitions": self._partition_loop,
            "lost calls": partial(self._check_loop, orphaned),
            "ended calls": partial(self._check_loop, ended),
            "seals": self._seals.run,
            "histories": self._histories.run,
            "missing": self._missing_loop,
            "figures": Rollups(self.settings, self._redis).run,
            "debug lines": (
                DebugDrain(
                    self._redis,
                    self.settings.database_url,
                    name=self.name,
                    shards=self.shards,
                    kept_days=retention.debug_logs,
                ).run
            ),
            **({"retention": RetentionLoop(self.settings).run} if retention.days else {}),
        }

    async def _make_group(self, shard: int) -> None:
        with contextlib.suppress(RedisError):
            await self._redis.call(
                "XGROUP", "CREATE", layout.audit_key(shard), layout.AUDIT_GROUP, "0", "MKSTREAM"
            )

    async def _partition_loop(self) -> None:
        logged = ""
        async with AuditInserter(self.settings.database_url) as inserter:
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
        async with AuditInserter(self.settings.database_url) as inserter:
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

    async def _missing_loop(self) -> None:
        """Say when records went away that nobody had committed: an ACL cannot keep from cutting a
        stream who may append to it. Also give back what is charged to keys for calls that left
        nothing."""
        known: dict[int, int] = {}
        swept = dict.fromkeys(range(self.shards), b"0")
        while True:
            for shard in range(self.shards):
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

    async def _drain_loop(self, shard: int) -> None:
        woken, identity = (
            self._woken[layout.waiting_channel(shard).encode()],
            self._identities[shard],
        )
        reclaimed = trimmed = 0.0
        is_empty = False
        trimming: asyncio.Future[Any] | None = None
        while not self._stop.has_begun.is_set() or (not is_empty and self._stop.has_time):
            try:
                if identity.is_due and not await self._until_stored(identity.holds):
                    # another instance's records: they stay for its writers
                    if self._stop.has_begun.is_set():
                        break
                    await asyncio.sleep(RETRY_S)
                    continue
                now = time.monotonic()
                woken.clear()
                reclaims, again = now - reclaimed > RECLAIM_MS / 2000, shard in self._again
                entries = (
                    await self._read_again(shard)
                    if again
                    else await self._read(shard, reclaims=reclaims)
                )
                if trimming is not None:
                    # sent in one write with the read, and answered before it: a round trip less
                    await trimming
                    trimming = None
                is_empty = not entries and not again
                reclaimed = now if reclaims and not again else reclaimed
                if again and not entries:
                    self._again.discard(shard)
                # the fuller the batch, the shorter: lag of the record at 8,000 chunks/s 0.72x
                # (p50), 0.88x (p99), no more CPU
                pause_s = NAP_S * (1 - 2 * _count(entries) / BATCH_BLOBS)
                waited, done = (
                    await self._store(shard, entries, at_once=again) if entries else (False, [])
                )
                if done or now - trimmed > 5:
                    trimming, trimmed = self._trim(self._blocking[shard], shard, done), now
                if entries and not waited and pause_s > 0 and not self._stop.has_begun.is_set():
                    # a wake-up since this batch was read ends the pause at once
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(pause_s):
                            await woken.wait()
            except (RedisError, StreamConnectionLost) as error:
                if self._stop.has_begun.is_set():
                    return
                if trimming is not None:
                    Connection.quiet(trimming)
                trimmed, trimming = 0.0, None
                identity.look_anew()
                self._read_all_again(shard)
                if "NOGROUP" in str(error):
                    await self._make_group(shard)
                elif isinstance(error, RedisError):
                    log.warning(
                        "Redis refused a command on the audit stream",
                        extra={"error": str(error)[:80]},
                    )
                await asyncio.sleep(RETRY_S)
        if trimming is not None:
            with contextlib.suppress(RedisError, StreamConnectionLost):
                await trimming

    def _on_push(self, message: list[Any]) -> None:
        self._woken[message[1]].set()

    async def _subscribe(self) -> None:
        for channel in self._woken:
            self._wake_ups.send_quiet("SUBSCRIBE", channel)

    async def _read_again(self, shard: int) -> list[Any]:
        """Return some of what was delivered to this writer and is not acknowledged: the answer, or
        what came after it, was lost."""
        reply = await self._blocking[shard].call(
            "XREADGROUP",
            "GROUP",
            layout.AUDIT_GROUP,
            self.name,
            "COUNT",
            FEW,
            "STREAMS",
            layout.audit_key(shard),
            "0",
        )
        return [e for e in reply[0][1] if e[1]]

    async def _read(self, shard: int, *, reclaims: bool) -> list[Any]:
        """Return a batch of what waits, of the first that comes, or nothing. `reclaims`: what
        another writer left behind, first."""
        key, reader = layout.audit_key(shard), self._blocking[shard]
        if reclaims and (
            left := await scripts.read_records(
                reader,
                shard,
                self.name,
                max_blobs=BATCH_BLOBS,
                max_bytes=READ_BYTES,
                idle_ms=RECLAIM_MS,
            )
        ):
            return left
        block_ms = 1 if self._stop.has_begun.is_set() else min(500, reader.block_ms)
        read = (
            "GROUP",
            layout.AUDIT_GROUP,
            self.name,
            "COUNT",
            FEW,
            "BLOCK",
            block_ms,
            "STREAMS",
            key,
            ">",
        )
        reply = await reader.call("XREADGROUP", *read)
        entries = list(reply[0][1]) if reply else []
        if len(entries) == FEW:
            room = max(1, READ_BYTES - sum(sum(map(len, fields)) for _, fields in entries))
            more = max(1, BATCH_BLOBS - _count(entries))
            entries += await scripts.read_records(
                reader, shard, self.name, max_blobs=more, max_bytes=room
            )
        return entries

    def _read_all_again(self, shard: int) -> None:
        """Read what is not acknowledged once more; so the rests that wait are done then."""
        self._again.add(shard)
        self._rests[shard].clear()

    def _trim(self, redis: Connection, shard: int, done: list[bytes]) -> asyncio.Future[int]:
        """Acknowledge entries, and trim below the smallest that is not acknowledged."""
        return scripts.trim(redis, shard, done, is_published=self._strict)

    async def _store(
        self, shard: int, entries: list[Any], *, at_once: bool
    ) -> tuple[bool, list[bytes]]:
        """Commit and announce; returns whether a call waited for it, and the ids of what is done:
        none where the rest is for later."""
        inserter = self._inserters[shard]
        records, unreadable = _take_records(entries)
        if unreadable:
            log.error(
                "undecodable audit entries set aside",
                extra={"entry": unreadable[0][0].decode(), "count": len(unreadable)},
            )
            await self._until_stored(
                inserter.set_aside,
                [(_call_of(blob), blob) for _, blob in unreadable],
                "undecodable entry",
            )
        # what is no call's id has no keys; the insert sets it aside
        ended = [
            r.call_id for r in records if isinstance(r, EndRecord) and layout.is_call_id(r.call_id)
        ]
        begun = [r for r in records if isinstance(r, CallRecord) and layout.is_call_id(r.call_id)]
        self._bodies.expect({r.call_id: r.body_sha256 for r in begun if r.body_sha256})
        due = asyncio.get_running_loop().time() + LATE_S
        deferred = _Unfinished(
            [e[0] for e in entries],
            await self._bodies.sizes([r.call_id for r in begun]),
            ended,
            call_ids(records),
            due,
        )
        is_late = not at_once and self._may_wait(shard, deferred)
        bodies = {} if is_late else await self._bodies.take(inserter, deferred.begun, ended)
        outcome = await self._insert(inserter, records, bodies, () if is_late else deferred.calls)
        waited_for = [r for r in outcome.held(records) if r.notify]
        await self._announce(waited_for)
        self._bodies.note_kept(bodies)
        await self._mark(inserter, _altered(records))
        waited = self._strict or bool(waited_for)
        if is_late:
            self._rests[shard].append(deferred)
            self._rest_came.set()
            return waited, []
        await self._finish(shard, deferred, outcome.sealed)
        return waited, deferred.entries

    async def _mark(self, inserter: AuditInserter, altered: list[CallHole]) -> None:
        """Say of what calls came other bytes than their senders hashed; before their entries are
        done, so that their seals cover it."""
        altered = [*altered, *self._bodies.take_altered()]
        if altered:
            first = altered[0]
            extra = {"call_id": str(first.call_id), "count": len(altered), "detail": first.detail}
            log.error("records differ from the hashes of their senders", extra=extra)
            await self._until_stored(inserter.mark, altered)

    def _may_wait(self, shard: int, deferred: _Unfinished) -> bool:
        """Are there large bodies to be written, or calls that end while theirs wait?"""
        rests = self._rests[shard]
        if self._strict or self._stop.has_begun.is_set() or len(rests) >= MAX_LATE:
            return False
        return max(deferred.begun.values(), default=0) > LARGE or any(
            not queued.calls.isdisjoint(deferred.ended) for queued in rests
        )

    async def _finish(self, shard: int, deferred: _Unfinished, sealed: list[UUID]) -> None:
        """Do for stored records what nobody waits for; sealed: those of their calls that had a seal
        already."""
        if deferred.ended:
            # not before the end: a takeover needs the body
            await self._bodies.free(shard, deferred.ended)
        if sealed:
            await self._until_stored(self._seals.seal_late, sealed)
        if deferred.ended:
            self._seals.ended(shard, deferred.ended, max(map(entry_id, deferred.entries)))

    async def _rest_loop(self, shard: int) -> None:
        """Do the rest of batches with large bodies, one after the other, each when it is due; a
        writer that stops does them at once."""
        rests, inserter, loop = (
            self._rests[shard],
            self._late_inserters[shard],
            asyncio.get_running_loop(),
        )
        while rests or not self._stop.has_begun.is_set():
            if not rests:
                self._rest_came.clear()
                await self._rest_came.wait()
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, rests[0].due - loop.time())):
                    await self._stop.has_begun.wait()
            try:
                if rests:
                    deferred = rests[0]
                    bodies = await self._bodies.take(inserter, deferred.begun, deferred.ended)
                    outcome = await self._insert(inserter, [], bodies, deferred.calls)
                    self._bodies.note_kept(bodies)
                    await self._mark(inserter, [])
                    await self._finish(shard, deferred, outcome.sealed)
                    await self._trim(self._redis, shard, deferred.entries)
                    if rests and rests[0] is deferred:
                        rests.popleft()
            except (RedisError, StreamConnectionLost):
                self._read_all_again(shard)

    async def _insert(
        self,
        inserter: AuditInserter,
        records: Sequence[Record],
        bodies: Mapping[str, bytes],
        look_at: Collection[str],
    ) -> Conflicts:
        outcome: Conflicts = await self._until_stored(
            partial(inserter.insert, records, bodies, look_at=look_at)
        )
        if outcome.conflicts:
            self.conflicts += len(outcome.conflicts)
            first = outcome.conflicts[0]
            extra = {"count": len(outcome.conflicts), "table": first.table, "key": first.key}
            log.error("audit conflict: same key, other content", extra=extra)
        return outcome

    async def _until_stored(self, store: Any, *args: Any) -> Any:
        """Call `store` until Postgres took it. Stopping gives up: the entries stay pending for
        another writer."""
        logged = ""
        while True:
            try:
                return await store(*args)
            except AuditUnavailable as error:
                if (words := server_words(error)) != logged:
                    log.warning(
                        "PostgreSQL takes no audit records: they stay in Redis",
                        extra={"error": words},
                    )
                logged = words
                if self._stop.has_begun.is_set():
                    raise StreamConnectionLost("stopped while Postgres was away") from error
                await asyncio.sleep(RETRY_S)

    async def _announce(self, committed: list[ToolCallRecord]) -> None:
        facts = ((record.call_id, layout.commit_field(record.block)) for record in committed)
        await asyncio.gather(*(scripts.set_fact(self._redis, *fact, b"1") for fact in facts))


def _take_records(entries: list[Any]) -> tuple[list[Record], list[tuple[bytes, bytes]]]:
    """Take the records out of entries, which let go of their bytes; also returns what in them
    cannot be read, with its entry's id."""
    records: list[Record] = []
    unreadable: list[tuple[bytes, bytes]] = []
    for entry, fields in entries:
        for blob in layout.blobs(fields):
            try:
                read, others = read_records(blob)
            except StreamProtocolError:
                read, others = [], [blob]
            records += read
            if others:
                unreadable += [(entry, other) for other in others]
        fields.clear()
    return records, unreadable


def _altered(records: list[Record]) -> list[CallHole]:
    """Releases that came with other bytes than their policy worker hashed: altered on the way, or
    in Redis."""
    return [
        CallHole(
            UUID(r.call_id),
            Hole.PAYLOAD,
            f"the bytes of release {r.number:,} came to the record as others than were released",
        )
        for r in records
        if isinstance(r, ReleaseRecord)
        and sha256(r.payload).digest() != r.sha256
        and layout.is_call_id(r.call_id)
    ]


def _call_of(blob: bytes) -> str:
    """The call of what is no record as it should be, or nothing: whoever verifies the call is to
    hear of it."""
    try:
        item = msgspec.msgpack.decode(blob)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""
    return (
        next((value for value in item if isinstance(value, str) and layout.is_call_id(value)), "")
        if isinstance(item, list)
        else ""
    )


def _count(entries: list[Any]) -> int:
    """How many blobs entries hold."""
    return sum(len(fields) // 2 for _, fields in entries)


async def run(settings: Runtime) -> None:
    """Run one audit writer until SIGTERM."""
    writer = AuditWriter(settings)
    lifecycle.on_stop(writer.stop)
    await writer.run()
