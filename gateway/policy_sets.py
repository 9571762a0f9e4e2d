"""The policy sets under which this gateway's calls may begin, and whether a policy worker that has
one of them lives."""

import asyncio
import contextlib

from protocol.errors import StreamConnectionLost
from streams import heartbeats, layout
from streams.connection import NOT_AN_ANSWER, Connection, RedisError

LOOK_S = 5.0
SHOWN_MS = 15_000


class PolicySets:
    """`named` are the sets, the gateway's own first; none: calls begin under any."""

    def __init__(self, redis: Connection, gateway: str, named: tuple[str, ...]) -> None:
        self._redis, self._key, self.named = redis, layout.sets_key(gateway), named
        self.fault = ""
        """The fault as a sentence: policy workers are live, and none of them may begin a call of
        this gateway."""

    async def watch(self) -> None:
        """Show the sets, and look at the workers, until cancelled; what was seen last stays while
        Redis is away."""
        while self.named:
            with contextlib.suppress(StreamConnectionLost, RedisError, *NOT_AN_ANSWER):
                await self._look()
            await asyncio.sleep(LOOK_S)

    async def _look(self) -> None:
        self._redis.quiet(self._redis.call("SET", self._key, " ".join(self.named), "PX", SHOWN_MS))
        live = (await heartbeats.read(self._redis)).live
        # a worker that is stopping shows none
        sets = {shown.partition(":")[0] for shown in live.get("set", ())}
        is_missing = sets and sets.isdisjoint(self.named)
        self.fault = (
            f"no policy worker has this gateway's policy set {self.named[0]}" if is_missing else ""
        )
