"""Which workers are dead: they hold deliveries, ask Redis for nothing, and send no heartbeat, all
on Redis' clock.

A living worker asks for calls twice a second; one that is full, or waits for large bodies, sends
heartbeats all the same.
"""

from streams import heartbeats, layout
from streams.connection import Connection

CHECK_S = 0.4
"""Between two checks; a worker's read of the dispatch stream returns every half second."""
SILENT_MS = 1000
CHECKS = 2
"""Silent for `SILENT_MS` at so many checks in a row: after Redis or the machine stood still, every
last heartbeat is old once."""


class DeadWorkers:
    """One worker's view of the others. An ordinary check is one command."""

    def __init__(self, redis: Connection, name: str) -> None:
        self._redis, self._name = redis, name
        self._silent: dict[int, dict[str, int]] = {}
        """By shard: at how many checks in a row each was silent."""

    def forget(self) -> None:
        """Forget the checks before."""
        self._silent.clear()

    async def check(self, shard: int) -> tuple[int, dict[str, int]]:
        """Return what time it is, and how many deliveries each dead worker holds. Raises
        StreamConnectionLost, RedisError."""
        before = self._silent.pop(shard, {})
        held = await self._idle(shard)
        if not held:
            return 0, {}
        now, last = await heartbeats.read(self._redis)
        silent = [name for name in held if now - last.get(f"policy:{name}", 0) > SILENT_MS]
        checks = self._silent[shard] = {name: before.get(name, 0) + 1 for name in silent}
        return now, {name: held[name] for name in silent if checks[name] >= CHECKS}

    async def _idle(self, shard: int) -> dict[str, int]:
        """Workers that hold deliveries and asked for nothing lately, with how many they hold."""
        reply = await self._redis.call(
            "XINFO", "CONSUMERS", layout.dispatch_key(shard), layout.POLICY_GROUP
        )
        consumers = [dict(zip(fields[::2], fields[1::2], strict=True)) for fields in reply]
        names = {
            c[b"name"].decode(): c[b"pending"]
            for c in consumers
            if c[b"pending"] and c[b"idle"] > SILENT_MS
        }
        names.pop(self._name, None)
        return names
