"""A key whose records wait for the audit writers is held until those have taken them."""

import asyncio
from collections.abc import AsyncIterator, Collection

import pytest

from protocol.bounds import MAX_UNRECORDED_BYTES
from streams import layout
from streams.connection import Connection
from tests.support.waiting import wait_until
from workers.policy import unrecorded_share
from workers.policy.unrecorded_share import Unrecorded

SHARDS = 2


class Worker:
    """One whose releases put their records onto the audit stream."""

    def __init__(self, redis: Connection) -> None:
        self.redis, self.held, self.tasks = redis, list[str](), set[asyncio.Task[None]]()
        self.unrecorded = Unrecorded(
            redis,
            SHARDS,
            self.hold,
            lambda work, name: self.tasks.add(asyncio.create_task(work, name=name)),
        )

    def hold(self, keys: Collection[str]) -> None:
        self.held = list(keys)

    def release(self, key: str, size: int, *, shard: int = 0) -> None:
        self.redis.send_quiet("XADD", layout.audit_key(shard), "*", layout.BLOB, b"x")
        self.unrecorded.add(shard, key, size)

    async def take(self, *, shard: int = 0) -> None:
        await self.redis.call(
            "XREADGROUP",
            "GROUP",
            layout.AUDIT_GROUP,
            "writer",
            "STREAMS",
            layout.audit_key(shard),
            ">",
        )


@pytest.fixture
async def worker(redis_url: str) -> AsyncIterator[Worker]:
    redis = Connection(redis_url, name="test")
    await redis.open()
    await redis.call("FLUSHALL")
    for shard in range(SHARDS):
        await redis.call(
            "XGROUP", "CREATE", layout.audit_key(shard), layout.AUDIT_GROUP, "0", "MKSTREAM"
        )
    made = Worker(redis)
    yield made
    for task in made.tasks:
        task.cancel()
    await redis.close()


async def test_a_key_with_much_that_no_writer_took_is_held_until_one_does(worker: Worker) -> None:
    worker.release("b", 1000)
    worker.release("a", MAX_UNRECORDED_BYTES)
    assert worker.held == []
    worker.release("a", 1)
    assert worker.held == ["a"]
    await worker.take()
    await wait_until(lambda: worker.held == [])
    worker.release("a", MAX_UNRECORDED_BYTES)
    assert worker.held == [], "what was taken does not count any more"


async def test_nobody_is_held_while_no_writer_takes_anything(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unrecorded_share, "STUCK_S", 0.05)
    worker.release("a", 2 * MAX_UNRECORDED_BYTES)
    assert worker.held == ["a"]
    await wait_until(lambda: worker.held == [])
    for _ in range(3):
        worker.release("a", 2 * MAX_UNRECORDED_BYTES)
        assert worker.held == []
        await asyncio.gather(*worker.tasks)
    await worker.take()
    worker.release("a", 2 * MAX_UNRECORDED_BYTES)
    await wait_until(lambda: not worker.unrecorded._stuck)
    worker.release("a", 2 * MAX_UNRECORDED_BYTES)
    assert worker.held == ["a"], "they take again"


async def test_a_shard_whose_writer_is_away_changes_nothing_in_the_others(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unrecorded_share, "STUCK_S", 0.05)
    worker.release("a", 2 * MAX_UNRECORDED_BYTES, shard=1)
    assert worker.held == ["a"]
    await wait_until(lambda: worker.held == [])
    worker.release("b", 2 * MAX_UNRECORDED_BYTES)
    assert worker.held == ["b"], "its records wait for a writer that takes them"
    await worker.take()
    await wait_until(lambda: worker.held == [])


async def test_what_the_writer_of_one_shard_took_counts_no_more_whatever_the_others_do(
    worker: Worker,
) -> None:
    for shard in range(SHARDS):
        worker.release("a", MAX_UNRECORDED_BYTES, shard=shard)
    assert worker.held == [], "a key has its share of each shard"
    await worker.take()
    await wait_until(lambda: worker.unrecorded._looking == {1})
    worker.release("a", MAX_UNRECORDED_BYTES)
    assert worker.held == []
    worker.release("a", 1, shard=1)
    assert worker.held == ["a"]
