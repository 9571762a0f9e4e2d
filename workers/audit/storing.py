"""Brings batches of audit entries of one shard into Postgres, with the request bodies, and
announces commits.

Where bodies are large, all after the announcement comes `LATE_S` later, on a connection of its own.
Must not know: how entries are read.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from db.missing_records import CallHole
from db.state.postgres_errors import server_words
from db.write.insert import AuditInserter, Conflicts
from protocol.errors import StreamConnectionLost
from protocol.records import (
    ApprovalUseRecord,
    CallRecord,
    EndRecord,
    Record,
    ToolCallRecord,
    call_ids,
)
from settings.runtime import Runtime
from streams import budget_scripts, layout, scripts
from streams.audit_stream import entry_id
from streams.connection import Connection, RedisError
from workers.audit.entries import altered, call_of, take_records
from workers.audit.reading import ShardReader
from workers.audit.request_bodies import LARGE, Bodies
from workers.audit.sealing import SealLoop
from workers.audit.stopping import WriterStop

log = logging.getLogger(__name__)
LATE_S = 0.5
"""How much later than its records the body of a large request is written: until then calls that
came with it wait for their first token. 20 requests of 1 MB at once cost 7 ms each in PostgreSQL,
this process and Redis before their first tokens were out, and 2 so."""
MAX_LATE = 256
"""Batches whose rest waits; past it nothing is put off."""


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


class ShardStore:
    """The batches of one shard; what is late is acknowledged through `reader`."""

    def __init__(
        self,
        settings: Runtime,
        shard: int,
        *,
        reader: ShardReader,
        redis: Connection,
        bodies: Bodies,
        seals: SealLoop,
        stop: WriterStop,
    ) -> None:
        self._shard, self._reader, self._redis = shard, reader, redis
        self._bodies, self._seals, self._stop = bodies, seals, stop
        self._is_strict = settings.config.durability == "strict"
        self.inserter = AuditInserter(settings.database_url)
        self._late_inserter = AuditInserter(settings.database_url)
        self._rests = deque[_Unfinished]()
        self._rest_came = asyncio.Event()
        self.conflicts = self.set_aside = 0

    async def close(self) -> None:
        """Disconnect from Postgres."""
        await asyncio.gather(self.inserter.close(), self._late_inserter.close())

    def wake(self) -> None:
        """Let what waits for its time be done now."""
        self._rest_came.set()

    def begin_again(self) -> None:
        """Read what is not acknowledged once more; so the rests that wait are done then."""
        self._reader.begin_again()
        self._rests.clear()

    async def store(self, entries: list[Any], *, at_once: bool) -> tuple[bool, list[bytes]]:
        """Commit and announce; returns whether a call waited for it, and the ids of what is done:
        none where the rest is for later."""
        inserter = self.inserter
        records, unreadable = take_records(entries)
        if unreadable:
            await self._set_aside(unreadable)
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
        is_late = not at_once and self._may_wait(deferred)
        bodies = {} if is_late else await self._bodies.take(inserter, deferred.begun, ended)
        outcome = await self._insert(inserter, records, bodies, () if is_late else deferred.calls)
        if settled := [r for r in records if isinstance(r, EndRecord) and r.settles]:
            await asyncio.gather(*map(self._settle, settled))
        waited_for = [r for r in outcome.held(records) if r.notify]
        uses = [r for r in records if isinstance(r, ApprovalUseRecord)]
        used: set[tuple[str, int]] = (
            await self._stop.until_stored(inserter.used_elsewhere, uses) if uses else set()
        )
        await self._announce(waited_for, used)
        self._bodies.note_kept(bodies)
        await self._mark(inserter, altered(records))
        waited = self._is_strict or bool(waited_for)
        if is_late:
            self._rests.append(deferred)
            self._rest_came.set()
            return waited, []
        await self._finish(deferred, outcome.sealed)
        return waited, deferred.entries

    async def _settle(self, end: EndRecord) -> None:
        """Put what a call took in place of what it reserved. A budget that is spoilt must not stop
        the record; it is compared with that later."""
        try:
            await budget_scripts.settle(self._redis, end, is_stored=True)
        except RedisError as error:
            log.error(
                "a call's budget is not settled",
                extra={"call_id": end.call_id, "error": server_words(error)},
            )

    async def _set_aside(self, unreadable: list[tuple[bytes, bytes]]) -> None:
        log.error(
            "undecodable audit entries set aside",
            extra={"entry": unreadable[0][0].decode(), "count": len(unreadable)},
        )
        self.set_aside += len(unreadable)
        letters = [(call_of(blob), blob) for _, blob in unreadable]
        await self._stop.until_stored(self.inserter.set_aside, letters, "undecodable entry")

    async def _mark(self, inserter: AuditInserter, holes: list[CallHole]) -> None:
        """Say of what calls came other bytes than their senders hashed; before their entries are
        done, so that their seals cover it."""
        holes = [*holes, *self._bodies.take_altered()]
        if holes:
            first = holes[0]
            extra = {"call_id": str(first.call_id), "count": len(holes), "detail": first.detail}
            log.error("records differ from the hashes of their senders", extra=extra)
            await self._stop.until_stored(inserter.mark, holes)

    def _may_wait(self, deferred: _Unfinished) -> bool:
        """Are there large bodies to be written, or calls that end while theirs wait?"""
        if self._is_strict or self._stop.has_begun.is_set() or len(self._rests) >= MAX_LATE:
            return False
        return max(deferred.begun.values(), default=0) > LARGE or any(
            not queued.calls.isdisjoint(deferred.ended) for queued in self._rests
        )

    async def _finish(self, deferred: _Unfinished, sealed: list[UUID]) -> None:
        """Do for stored records what nobody waits for; sealed: those of their calls that had a seal
        already."""
        if deferred.ended:
            # not before the end: a takeover needs the body
            await self._bodies.free(self._shard, deferred.ended)
        if sealed:
            await self._stop.until_stored(self._seals.seal_late, sealed)
        if deferred.ended:
            self._seals.ended(self._shard, deferred.ended, max(map(entry_id, deferred.entries)))

    async def run_late(self) -> None:
        """Do the rest of batches with large bodies, one after the other, each when it is due; a
        writer that stops does them at once."""
        rests, stopping = self._rests, self._stop.has_begun
        loop = asyncio.get_running_loop()
        while rests or not stopping.is_set():
            if not rests:
                self._rest_came.clear()
                await self._rest_came.wait()
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, rests[0].due - loop.time())):
                    await stopping.wait()
            try:
                if rests:
                    await self._store_rest(rests[0])
            except (RedisError, StreamConnectionLost):
                self.begin_again()

    async def _store_rest(self, deferred: _Unfinished) -> None:
        inserter = self._late_inserter
        bodies = await self._bodies.take(inserter, deferred.begun, deferred.ended)
        outcome = await self._insert(inserter, [], bodies, deferred.calls)
        self._bodies.note_kept(bodies)
        await self._mark(inserter, [])
        await self._finish(deferred, outcome.sealed)
        await self._reader.trim(self._redis, deferred.entries)
        if self._rests and self._rests[0] is deferred:
            self._rests.popleft()

    async def _insert(
        self,
        inserter: AuditInserter,
        records: Sequence[Record],
        bodies: Mapping[str, bytes],
        look_at: Collection[str],
    ) -> Conflicts:
        outcome: Conflicts = await self._stop.until_stored(
            partial(inserter.insert, records, bodies, look_at=look_at)
        )
        self.set_aside += len(outcome.refused) + len(outcome.refused_bodies)
        if outcome.conflicts:
            self.conflicts += len(outcome.conflicts)
            first = outcome.conflicts[0]
            extra = {"count": len(outcome.conflicts), "table": first.table, "key": first.key}
            log.error("audit conflict: same key, other content", extra=extra)
        return outcome

    async def _announce(
        self, committed: list[ToolCallRecord], used: Collection[tuple[str, int]]
    ) -> None:
        """Say that calls are on record, and of those whose approval was `used` elsewhere that
        too."""
        facts = (
            (
                record.call_id,
                layout.commit_field(record.block),
                layout.USED if (record.call_id, record.block) in used else layout.COMMITTED,
            )
            for record in committed
        )
        await asyncio.gather(*(scripts.set_fact(self._redis, *fact) for fact in facts))
