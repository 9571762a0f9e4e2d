"""Seals ended calls and writes checkpoints, next to the audit writer's main loop, on its own thread
and connection.

A call is sealed when its end is in Postgres and every entry of its audit stream up to that end is
acknowledged, by any writer: then everything recorded before the end is stored. A sweep finds calls
that a dead process left unsealed. A worker that lost its call may record that later. The writer
that inserts such a record adds a part to the seal before it acknowledges the entry. Sealing a batch
has a time limit; past it the batch is made smaller, down to single calls. A single call past the
limit is deferred, and no other call waits for it.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar
from uuid import UUID

from db.seals.checkpoints import load_private_key, parse
from db.seals.seal import BATCH, Sealer
from db.state.postgres_errors import server_words
from protocol.errors import AuditTooSlow, AuditUnavailable, StreamConnectionLost
from settings.runtime import Runtime
from streams import audit_stream, layout
from streams.audit_stream import EntryId
from streams.connection import Connection, RedisError

log = logging.getLogger(__name__)
SWEEP_S = 60.0
OVERLAP_S = 2 * 86_400
"""How far back sweeps after the first go: an end is recorded late when Postgres was away for
long."""
BEHIND_MS = 100
"""While the oldest record that nobody took yet is older, the records go first: sealing was a tenth
of all CPU in a saturated run."""
YIELD_S = 30.0
"""How long seals wait for that at most."""
MAX_WAITING = 100_000
"""Ended calls kept in mind; past it they are left to the next sweep."""
SILENT_S = 90.0
"""Requests to the sealer take less than this. Otherwise they ask for too much, or the server has
stopped: statements have a shorter timeout."""
AGAIN_S, LONGEST_AGAIN_S = 60.0, 3600.0
"""How long a call is put off that takes too long, the longest after some times: all who seal wait
for each try."""
OLD_S = 86_400 / 2
"""Verification asks for the seal of a call that is a day older than a checkpoint."""
T = TypeVar("T")


class _Later(NamedTuple):
    """When a call is to be sealed for which no entry is waited, and how long it was put off
    before."""

    due: float
    pause_s: float


_NOW = _Later(0.0, AGAIN_S / 2)


class SealLoop:
    """The sealing of one audit writer."""

    def __init__(self, settings: Runtime, redis: Connection) -> None:
        self._redis, self._limits, self._shards = (
            redis,
            settings.config.limits,
            settings.config.shards,
        )
        self._sealer = Sealer(
            settings.database_url,
            key=load_private_key(settings.seal_key) if settings.seal_key else None,
        )
        self._lock = asyncio.Lock()
        self._waiting: dict[UUID, tuple[int, EntryId]] = {}
        self._later: dict[UUID, _Later] = {}
        """Calls that have rows outside their seals, which who inserted them waits for or leaves
        here; and those that were put off."""
        self._at_once = BATCH
        self._swept_to = UUID(int=0)
        self._is_swept = False
        self.written = time.monotonic()
        """When this writer last saw to a checkpoint."""
        # a call this old without an end never gets one: its worker, its gateway and its keys are
        # long gone
        self._stale_s = self._limits.call_s + self._limits.call_ttl_s

    def ended(self, shard: int, call_ids: Iterable[str], entry: EntryId) -> None:
        """The ends of these calls are in Postgres; `entry` is the newest of their batch."""
        for call_id in call_ids:
            with contextlib.suppress(ValueError):  # no id: its records are dead letters
                if len(self._waiting) < MAX_WAITING:
                    self._waiting[UUID(call_id)] = shard, entry

    async def seal_late(self, call_ids: list[UUID]) -> None:
        """Cover records that came after their call was sealed. Raises AuditUnavailable; what was
        not covered then is tried again here."""
        for call in call_ids:
            self._later.setdefault(call, _NOW)
        added = await self._seal(self._due(call_ids))
        log.warning(
            "records came after the seal of their call",
            extra={"action": "late", "calls": len(call_ids), "seals": added},
        )

    async def run(self) -> None:
        """Seal and write checkpoints until cancelled."""
        swept = written = -SWEEP_S
        sealed = time.monotonic()
        away = False
        while True:
            try:
                now = time.monotonic()
                if now - sealed >= YIELD_S or not await self.is_behind():
                    # before the sweep: what that asks for may take too long, and these are known
                    await self._seal_settled()
                    sealed = now
                    if now - swept >= SWEEP_S:
                        await self._sweep()
                        swept = now
                    # a checkpoint promises that every older call has its seal: not before the first
                    # sweep is through
                    if (
                        self._is_swept
                        and now - written >= self._limits.checkpoint_s
                        and not self._has_old_put_off()
                    ):
                        await self._checkpoint()
                        written = self.written = now
                away = False
            except StreamConnectionLost:
                pass
            except (AuditUnavailable, RedisError) as error:
                if not away:
                    log.warning("calls cannot be sealed now", extra={"error": server_words(error)})
                away = True
            await asyncio.sleep(self._limits.seal_s)

    @property
    def waiting(self) -> int:
        """How many ended calls wait for their seal here."""
        return len(self._waiting) + len(self._later)

    async def close(self) -> None:
        """Cut what still runs, and close the connection. What was asked for may be done or not; a
        sweep finds the rest."""
        self._sealer.cut()
        await self._with_sealer(self._sealer.close)

    async def _with_sealer(self, work: Callable[..., T], *args: object) -> T:
        async with self._lock:
            task = asyncio.ensure_future(asyncio.to_thread(work, *args))
            try:
                in_time, _ = await asyncio.wait({task}, timeout=SILENT_S)
            finally:
                # a stopped server sends nothing, and no thread can be cancelled: without its
                # connection the work fails
                while not task.done():
                    self._sealer.cut()
                    await asyncio.wait({task}, timeout=0.1)
                if not task.cancelled():
                    # where this is cancelled nobody asks for it, and asyncio would log that
                    task.exception()
            try:
                return await task
            except AuditUnavailable as error:
                if in_time:
                    raise
                raise AuditTooSlow("sealing takes too long") from error

    async def _seal(self, calls: Sequence[UUID]) -> int:
        """Seal calls, as many at once as there is time for; returns how many seals were added.
        Raises AuditUnavailable."""
        added, done, was_slow = 0, 0, False
        while piece := calls[done : done + self._at_once]:
            # taken out before: what comes late while they are sealed puts them in again
            later = {call: self._later.pop(call) for call in piece if call in self._later}
            try:
                added += await self._with_sealer(self._sealer.seal, piece)
            except AuditUnavailable as error:
                self._later = later | self._later
                if not isinstance(error, AuditTooSlow):
                    raise
                was_slow = True
                if len(piece) > 1:
                    self._at_once = len(piece) // 2
                    continue
                await self._put_off(piece[0], error)
            else:
                await self._forget_put_off(
                    [call for call, known in later.items() if known.pause_s >= AGAIN_S]
                )
            done += len(piece)
            for call in piece:
                self._waiting.pop(call, None)
        if done and not was_slow:
            self._at_once = min(BATCH, 2 * self._at_once)
        return added

    async def _put_off(self, call: UUID, error: AuditTooSlow) -> None:
        pause_s = min(2 * self._later.get(call, _NOW).pause_s, LONGEST_AGAIN_S)
        self._later[call] = _Later(time.monotonic() + pause_s, pause_s)
        # it was this one that took so long: the others may be sealed together again
        self._at_once = BATCH
        extra = {
            "action": "put off",
            "call_id": str(call),
            "seconds": pause_s,
            "error": server_words(error),
        }
        log.error(
            "sealing a call takes too long: it is retried later, the others go on", extra=extra
        )
        # should this process die: who asked goes on, and no sweep finds a call that has a seal
        await self._redis.call("SADD", layout.unsealed_key(), str(call))

    async def _forget_put_off(self, calls: Sequence[UUID]) -> None:
        if calls:
            await self._redis.call("SREM", layout.unsealed_key(), *map(str, calls))

    async def _find_put_off(self) -> None:
        """Take over what writers before had put off."""
        for member in await self._redis.call("SMEMBERS", layout.unsealed_key()):
            with contextlib.suppress(ValueError):
                self._later.setdefault(UUID(member.decode(errors="replace")), _Later(0.0, AGAIN_S))

    def _has_old_put_off(self) -> bool:
        """Was a call put off that is so old that verification would miss its seal, if there were a
        newer checkpoint?"""
        return any(
            known.pause_s >= AGAIN_S and call < _id_at(time.time() - OLD_S)
            for call, known in self._later.items()
        )

    def _due(self, calls: Iterable[UUID]) -> list[UUID]:
        now = time.monotonic()
        return sorted(call for call in calls if self._later.get(call, _NOW).due <= now)

    async def _sweep(self) -> None:
        """Find calls that nobody here waits for: those of writers that are gone, and those that
        never ended."""
        if not self._is_swept:
            await self._find_put_off()
        after = self._swept_to if self._is_swept else UUID(int=0)
        before = _id_at(time.time() - OVERLAP_S)
        stale = _id_at(time.time() - self._stale_s)
        while True:
            unsealed = await self._with_sealer(self._sealer.find_unsealed, self._swept_to, stale)
            states = [
                await audit_stream.read_state(self._redis, shard) for shard in range(self._shards)
            ]
            for call in unsealed:
                if (
                    call not in self._waiting
                    and call not in self._later
                    and len(self._waiting) < MAX_WAITING
                ):
                    shard = layout.shard_of(str(call)) % self._shards
                    self._waiting[call] = shard, states[shard].newest
            if len(unsealed) < 1000:
                break
            self._swept_to = unsealed[-1]
            await self._seal_settled()
        self._swept_to = max(self._swept_to, before)
        # where a writer of the version before, which does not know all columns, was first; a seal
        # that was tampered with ends it too
        while await self._seal(self._due(await self._with_sealer(self._sealer.find_beside))):
            pass
        await self._cover_marks(after)
        if not self._is_swept:
            await self._seal_settled()
            self._is_swept = True

    async def _cover_marks(self, after: UUID) -> None:
        """Cover what a writer marked as incomplete that died before it could."""
        last: UUID | None = after
        while last is not None:
            candidates, last = await self._with_sealer(self._sealer.find_uncovered, last)
            if uncovered := self._due(candidates):
                await self.seal_late(uncovered)

    async def is_behind(self) -> bool:
        """Do records wait for longer than they do where there is time for all?"""
        for shard in range(self._shards):
            with contextlib.suppress(RedisError):
                if (await audit_stream.read_state(self._redis, shard)).behind_ms > BEHIND_MS:
                    return True
        return False

    async def _seal_settled(self) -> None:
        """Seal those whose records are all in, and what is due of the others."""
        if self._waiting:
            states = [
                await audit_stream.read_state(self._redis, shard) for shard in range(self._shards)
            ]
            await self._seal(
                sorted(
                    call
                    for call, (shard, entry) in self._waiting.items()
                    if states[shard].is_recorded(entry)
                )
            )
        await self._seal(self._due(self._later))

    async def _checkpoint(self) -> None:
        text = await self._with_sealer(self._sealer.checkpoint)
        if text is not None:
            made = parse(text)
            # the copy outside the database: whoever changes seals there does not change what a log
            # collector took away
            log.info(
                "checkpoint",
                extra={
                    "action": "checkpoint",
                    "size": made.size,
                    "root": made.root.hex(),
                    "text": text,
                },
            )
        # also where nothing was sealed since: an older record is filled some at a time
        await self._with_sealer(self._sealer.fill_tiles)


def _id_at(seconds: float) -> UUID:
    return UUID(int=max(0, int(seconds * 1000)) << 80)
