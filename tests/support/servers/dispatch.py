"""A Redis with nothing in it but the group that policy workers read calls with, calls that a
gateway began there, and one worker."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

from settings.config import Config
from settings.runtime import Runtime
from streams import layout, scripts
from streams.connection import Connection
from tests.support.json_values import Json, as_json
from tests.support.waiting import wait_until
from tests.support.worker_calls import start_of
from workers.policy.call.owned import OwnedCall
from workers.policy.worker import PolicyWorker

GATEWAY = "gw-1"
BODY = as_json(
    {
        "model": "demo",
        "stream": True,
        "messages": [{"role": "user", "content": "please list the files"}],
        "tools": [
            {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}
        ],
    }
)


@asynccontextmanager
async def empty(redis_url: str) -> AsyncIterator[Connection]:
    """Lend a connection to it."""
    connection = Connection(redis_url, name="test")
    await connection.open()
    await connection.call("FLUSHALL")
    await connection.call(
        "XGROUP", "CREATE", layout.dispatch_key(0), layout.POLICY_GROUP, "0", "MKSTREAM"
    )
    yield connection
    await connection.close()


@asynccontextmanager
async def with_gateway(redis_url: str) -> AsyncIterator[Connection]:
    """The same, and a gateway that shows that it lives."""
    async with empty(redis_url) as connection:
        await connection.call("SET", layout.gateway_key(0, GATEWAY), "0-0", "PX", 600_000)
        yield connection


class Adopted(Json):
    """What claims need of a worker's calls: here each is what was claimed, or anything."""

    def __init__(self, redis: Connection, room: int = 100) -> None:
        super().__init__()
        self.room, self.unsubscribe = (lambda: room), (lambda call_id: None)
        self.hears = SimpleNamespace(begin=lambda call_ids, facts: redis.call("PING"))

    def served(self) -> list[str]:
        """No key has its share."""
        return []


async def begin(redis: Connection, policy: str = "", body: bytes = BODY, key: str = "k") -> str:
    """Begin a call as that gateway does."""
    call_id = layout.new_call_id()
    start = start_of(
        body,
        call_id,
        gateway=GATEWAY,
        key=key,
        policies=("default",),
        policy=policy,
        nonce="5e" * 16,
        key_id=key,
    )
    bounds = scripts.StartBounds(1000, 1000, 60_000, 600_000, 600_000)
    assert await scripts.start(redis, bounds, [(start, body)]) == [b"OK"]
    return call_id


async def dispatched(redis: Connection, worker: PolicyWorker, key: str = "k") -> OwnedCall:
    """Begin a call, and wait until a worker has approved its request."""
    call_id = await begin(redis, key=key)
    await wait_until(
        lambda: call_id in worker.calls and worker.calls[call_id].queue.released == 1,
        what="the request is dispatched",
    )
    return worker.calls[call_id]


@asynccontextmanager
async def working(
    redis_url: str, database_url: str, name: str, config: Json, policy_set: str = ""
) -> AsyncIterator[PolicyWorker]:
    """Run a policy worker in this process, which is gone at the end as if killed."""
    settings = Runtime(
        config=Config.model_validate(config),
        redis_url=redis_url,
        database_url=database_url,
        name=name,
        policy_set=policy_set,
    )
    worker = PolicyWorker(settings)
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def sent_request(worker: PolicyWorker, call_id: str) -> OwnedCall:
    """The call, once its request went out from this worker."""
    await wait_until(
        lambda: call_id in worker.calls and worker.calls[call_id].queue.released == 1,
        what="the request is dispatched",
    )
    return worker.calls[call_id]


async def took_over(worker: PolicyWorker, call_id: str) -> OwnedCall:
    """The call, once this worker has replayed it."""
    await wait_until(
        lambda: call_id in worker.calls and not worker.calls[call_id].is_replayed,
        what="the takeover",
    )
    return worker.calls[call_id]
