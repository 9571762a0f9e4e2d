"""The policy sets under which this gateway's calls may begin, and whether a policy worker that has one of them lives."""

import asyncio
import contextlib

from protocol.errors import StreamConnectionLost
from streams import layout
from streams.connection import NOT_AN_ANSWER, Connection, RedisError

LOOK_S = 5.0
SHOWN_MS = 15_000
STALE_MS = 5_000


class PolicySets:
    """`named` are the sets, the gateway's own first; none: calls begin under any."""

    def __init__(self, redis: Connection, gateway: str, named: tuple[str, ...]) -> None:
        self._redis, self._key, self.named = redis, layout.sets_key(gateway), named
        self.fault = ""
        """What is wrong, as a sentence: policy workers live, and none of them may begin a call of this gateway's."""

    async def watch(self) -> None:
        """Show the sets, and look at the workers, until cancelled; what was seen last stays while Redis is away."""
        while self.named:
            with contextlib.suppress(StreamConnectionLost, RedisError, *NOT_AN_ANSWER):
                await self._look()
            await asyncio.sleep(LOOK_S)

    async def _look(self) -> None:
        self._redis.quiet(self._redis.call("SET", self._key, " ".join(self.named), "PX", SHOWN_MS))
        found, clock = await asyncio.gather(self._redis.call("HGETALL", layout.WORKERS_KEY), self._redis.call("TIME"))
        now = layout.time_ms(clock)
        signs = zip(found[::2], found[1::2], strict=True)
        shown = [field.decode(errors="replace").split(":", 2) for field, at in signs if now - int(at) <= STALE_MS]
        sets = {field[2]: field[1] for field in shown if field[0] == "set" and len(field) == 3}
        workers = [":".join(field[1:]) for field in shown if field[0] == "policy"]
        # one that shows none is of the version before, and takes every call
        is_missing = workers and all(name in sets and sets[name] not in self.named for name in workers)
        self.fault = f"no policy worker has this gateway's policy set {self.named[0]}" if is_missing else ""
