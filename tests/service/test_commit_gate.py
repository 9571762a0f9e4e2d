"""`durability: strict`, the gateway's side alone on a real Redis: what it remembers of one Redis is
not believed of the next."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis import Redis

from gateway.strict_commits import CommitGate
from streams import layout
from streams.connection import Connection
from streams.layout import Reply
from tests.support.waiting import wait_until

Gate = tuple[CommitGate, list[int], "Redis"]


@asynccontextmanager
async def gated(url: str) -> AsyncIterator[Gate]:
    delivered: list[int] = []
    redis = Connection(url, name="test", silent_s=5)
    await redis.open()
    gate = CommitGate(
        url, redis, shards=1, silent_s=5, deliver=lambda reply: delivered.append(reply.number)
    )
    await gate.open()
    with Redis.from_url(url) as store:
        store.flushall()
        await wait_until(lambda: store.pubsub_numsub(layout.committed_channel(0))[0][1] == 1)
        try:
            yield gate, delivered, store
        finally:
            await gate.close()
            await redis.close()


def reply(number: int) -> Reply:
    return Reply(call_id="0" * 32, number=number, next=number + 1)


def commit(store: "Redis", below: str) -> None:
    """What an audit writer does."""
    store.set(layout.committed_key(0), below)
    store.publish(layout.committed_channel(0), below)


def gets(store: "Redis") -> int:
    """How often Redis was asked for a value."""
    stats: Any = store.info("commandstats")
    return int(stats.get("cmdstat_get", {}).get("calls", 0))


async def asked(gate: CommitGate) -> None:
    """Everything that was asked before has been answered."""
    await gate._redis.call("PING")


async def test_what_is_committed_goes_out_in_order(redis_url: str) -> None:
    async with gated(redis_url) as (gate, delivered, store):
        for number in range(3):
            gate.take(0, b"%d-0" % (1000 + number), reply(number))
        gate.take(0, None, reply(3))
        assert delivered == []
        commit(store, "1001-0")
        await wait_until(lambda: delivered == [0])
        commit(store, "1003-0")
        await wait_until(lambda: delivered == [0, 1, 2, 3])


async def test_a_redis_that_came_back_empty_with_its_clock_behind(redis_url: str) -> None:
    """Ids of the same stream fell: that an entry is below what was committed before says
    nothing."""
    async with gated(redis_url) as (gate, delivered, store):
        commit(store, "2000-0")
        gate.take(0, b"1999-0", reply(0))
        await wait_until(lambda: delivered == [0])
        store.flushall()
        gate.take(0, b"1500-0", reply(1))
        await asked(gate)
        assert delivered == [0], "nobody committed it"
        commit(store, "1501-0")
        await wait_until(lambda: delivered == [0, 1])


async def test_a_clock_that_fell_below_what_others_committed(redis_url: str) -> None:
    """This gateway saw no entry that high: it learns it with its next look, or from the connection
    that broke."""
    async with gated(redis_url) as (gate, delivered, store):
        commit(store, "2000-0")
        gate.take(0, b"500-0", reply(0))
        await wait_until(lambda: delivered == [0])
        store.flushall()
        gate.look()
        await asked(gate)
        gate.take(0, b"1500-0", reply(1))
        await asked(gate)
        assert delivered == [0]
        commit(store, "2000-0")
        await wait_until(lambda: delivered == [0, 1])
        store.flushall()
        gate.forget(0)
        gate.take(0, b"1600-0", reply(2))
        await asked(gate)
        assert delivered == [0, 1]


@pytest.mark.parametrize("said", [b"9999-0", b"nonsense"])
async def test_what_is_heard_is_only_a_reason_to_ask(redis_url: str, said: bytes) -> None:
    """Channels are one for all database numbers of a Redis: another Sluice may speak on ours."""
    async with gated(redis_url) as (gate, delivered, store):
        gate.take(0, b"1000-0", reply(0))
        before = gets(store)
        assert store.publish(layout.committed_channel(0), said) == 1
        await wait_until(lambda: gets(store) > before)
        await asked(gate)
        assert delivered == []
        commit(store, "1001-0")
        await wait_until(lambda: delivered == [0])
