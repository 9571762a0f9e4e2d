"""Which workers are gone: they hold deliveries, ask Redis for nothing, and show no life, all on Redis' clock.

A worker that lives asks for calls twice a second; where it is full, or waits for large bodies, it shows life each second all the same.
"""

from streams import heartbeats, layout
from streams.connection import Connection

LOOK_S = 0.4
"""Between two looks; a worker's read of the dispatch stream returns every half second."""
SILENT_MS = 1000
LOOKS = 2
"""Silent for `SILENT_MS` at so many looks in a row. After Redis, or the machine, stood still, everybody's last sign is old once."""


class GoneWorkers:
    """One worker's view of the others. An ordinary look is one command."""

    def __init__(self, redis: Connection, name: str) -> None:
        self._redis, self._name = redis, name
        self._silent: dict[int, dict[str, int]] = {}
        """By shard: at how many looks in a row each was silent."""

    def look_anew(self) -> None:
        """Forget the looks before."""
        self._silent.clear()

    async def look(self, shard: int) -> tuple[int, dict[str, int]]:
        """Return what time it is, and how many deliveries each worker that is gone holds. Raises StreamConnectionLost, RedisError."""
        before = self._silent.pop(shard, {})
        held = await self._idle(shard)
        if not held:
            return 0, {}
        now, last = await heartbeats.read(self._redis)
        silent = [name for name in held if now - last.get(f"policy:{name}", 0) > SILENT_MS]
        looks = self._silent[shard] = {name: before.get(name, 0) + 1 for name in silent}
        return now, {name: held[name] for name in silent if looks[name] >= LOOKS}

    async def _idle(self, shard: int) -> dict[str, int]:
        """Workers that hold deliveries and asked for nothing lately, with how many they hold."""
        found = await self._redis.call("XINFO", "CONSUMERS", layout.dispatch_key(shard), layout.POLICY_GROUP)
        consumers = [dict(zip(fields[::2], fields[1::2], strict=True)) for fields in found]
        names = {c[b"name"].decode(): c[b"pending"] for c in consumers if c[b"pending"] and c[b"idle"] > SILENT_MS}
        names.pop(self._name, None)
        return names
