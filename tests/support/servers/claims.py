"""A policy worker that claims calls."""

import asyncio
import time
from typing import Any

from settings.limits import Limits
from streams import layout, scripts
from streams.connection import Connection
from streams.scripts import Claimed
from tests.support.servers.dispatch import Adopted
from tests.support.worker_calls import start_of
from workers.policy.claims import Claims

GATEWAY = "gw-1"
COUNT = 12


async def begin(redis: Connection, body: bytes = b"{}") -> str:
    call_id = layout.new_call_id()
    start = start_of(body, call_id, gateway=GATEWAY, policies=("default",))
    bounds = scripts.StartBounds(1000, 1000, 60_000, 600_000, 600_000)
    assert await scripts.start(redis, bounds, [(start, body)]) == [b"OK"]
    return call_id


class Worker:
    """What claims need of a worker. Beginning a call takes it a millisecond."""

    def __init__(
        self,
        redis: Connection,
        blocking: Connection,
        limits: Limits | None = None,
        name: str = "w1",
    ) -> None:
        self.adopted = Adopted(redis)
        self.turns = 0
        self.adopted_at = list[int]()
        calls: Any = self.adopted
        self.claims = Claims(
            redis,
            blocking,
            limits or Limits(lease_s=2.0),
            name,
            lambda: ["default@r"],
            calls,
            self.adopt,
        )

    def adopt(self, claimed: Claimed) -> None:
        assert claimed.call_id not in self.adopted
        until = time.monotonic() + 0.001
        while time.monotonic() < until:
            pass
        self.adopted[claimed.call_id] = claimed
        self.adopted_at.append(self.turns)

    async def turn(self) -> None:
        while True:
            self.turns += 1
            await asyncio.sleep(0)


async def claimed(redis: Connection, token: str) -> str:
    call_id = await begin(redis)
    found = await redis.call(
        "XREADGROUP", "GROUP", "policy", "w1", "COUNT", 1, "STREAMS", layout.dispatch_key(0), ">"
    )
    await redis.call("HSET", layout.ctl_key(call_id), "t", token, "n", 0, "e", found[0][1][0][0])
    return call_id
