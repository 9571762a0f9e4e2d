"""Bounds what one API key has waiting for the audit writers, so that other keys' records, which are
taken in order, do not wait behind it.

A worker counts the bytes of records that it released for each key, by shard: each shard's stream
has its own reader in a writer. When a key has many, the worker asks how far the writers are with
that shard, and no longer counts what they have taken. A key with more than `MAX_UNRECORDED_BYTES`
in one shard is held until then (`workers.policy.fair`), in all shards: its calls share one turn.
Where the writers of a shard take nothing at all, as while PostgreSQL is away, holding keys helps
nobody: the stream is the backlog, with its own bound.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from protocol.bounds import MAX_UNRECORDED_BYTES
from protocol.errors import StreamConnectionLost
from streams import audit_stream
from streams.audit_stream import NO_ENTRY, EntryId
from streams.connection import Connection, RedisError

COUNTED_BYTES = 4096
"""Releases of a call that are smaller together are counted later, at the latest with its end:
counting each costs 1 % of a chunk."""
Spawn = Callable[[Coroutine[Any, Any, None], str], None]
LOOK_BYTES = MAX_UNRECORDED_BYTES // 2
"""Of one key in one shard, at which the worker looks how far the writers are."""
LOOK_S, LONGEST_LOOK_S = 0.005, 0.1
"""How long it waits before it looks again: twice as long each time, up to the second. Writers that
keep up need a few milliseconds."""
STUCK_S = 1.0
"""Writers that took nothing for so long are away."""


class Unrecorded:
    """What waits for the audit writers of the calls of one worker, by shard. `hold` is called with
    the keys that have too much of it."""

    def __init__(
        self, redis: Connection, shards: int, hold: Callable[[Collection[str]], None], spawn: Spawn
    ) -> None:
        self._redis, self._hold, self._spawn = redis, hold, spawn
        self._waits = [Counter[str]() for _ in range(shards)]
        self._over = [set[str]() for _ in range(shards)]
        """The keys that are held for what they have in each shard."""
        self._taken: list[EntryId] = [NO_ENTRY] * shards
        """What the writers of each shard took last, as far as this worker knows."""
        self._looking, self._stuck = set[int](), set[int]()

    def add(self, shard: int, key: str, size: int) -> None:
        """Count what goes onto the audit stream of a shard now."""
        waits = self._waits[shard]
        waits[key] = total = waits[key] + size
        if total > LOOK_BYTES:
            if total > MAX_UNRECORDED_BYTES:
                self._hold_all(shard)
            if shard not in self._looking:
                self._looking.add(shard)
                self._spawn(self._look(shard), "look at the record")

    def _hold_all(self, shard: int) -> None:
        waits = {} if shard in self._stuck else self._waits[shard]
        self._over[shard] = {key for key, size in waits.items() if size > MAX_UNRECORDED_BYTES}
        self._hold(set().union(*self._over))

    async def _look(self, shard: int) -> None:
        waits = self._waits[shard]
        try:
            while any(size > LOOK_BYTES for size in waits.values()):
                before = waits.copy()
                await self._until_taken(shard)
                waits -= before
                self._hold_all(shard)
        except (StreamConnectionLost, RedisError):
            # it counts anew: what is released now is repeated first
            waits.clear()
            self._hold_all(shard)
        finally:
            self._looking.discard(shard)

    async def _until_taken(self, shard: int) -> None:
        """Wait until writers have taken all that is on the stream now, or take nothing."""
        loop = asyncio.get_running_loop()
        state = await audit_stream.read_state(self._redis, shard)
        newest, moved, wait_s = state.newest, loop.time(), LOOK_S
        while True:
            if state.taken != self._taken[shard]:
                self._taken[shard], moved = state.taken, loop.time()
                self._stuck.discard(shard)
            elif loop.time() - moved > STUCK_S:
                self._stuck.add(shard)
            if state.taken >= newest or shard in self._stuck:
                return
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_LOOK_S)
            state = await audit_stream.read_state(self._redis, shard)
