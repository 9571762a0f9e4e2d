"""Calls that come together are claimed together, begin a few at a time, and none of them keeps the
others."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.records import EndRecord, decode_records
from streams import layout
from streams.connection import Connection
from tests.support.servers.claims import COUNT, GATEWAY, Worker, begin, claimed
from tests.support.waiting import wait_until
from workers.call_totals import DecisionCounts
from workers.policy.claims import CLAIM_BATCH
from workers.policy.finish import Finisher
from workers.policy.subscriptions import Subscriptions

LARGE = b"x" * 100_000


@asynccontextmanager
async def claiming(redis: Connection, redis_url: str) -> AsyncIterator[Worker]:
    blocking = Connection(redis_url, name="test-claim")
    await blocking.open()
    worker, stopping = Worker(redis, blocking), asyncio.Event()
    running = [
        asyncio.create_task(worker.claims.run(0, stopping)),
        asyncio.create_task(worker.turn()),
    ]
    try:
        yield worker
    finally:
        stopping.set()
        await running[0]
        running[1].cancel()
        await blocking.close()


async def test_calls_that_came_together_begin_a_few_at_a_time(
    redis: Connection, redis_url: str
) -> None:
    ids = [await begin(redis) for _ in range(COUNT)]
    async with claiming(redis, redis_url) as worker:
        await wait_until(lambda: len(worker.adopted) == COUNT, what="all calls")
        assert list(worker.adopted) == ids
        # two milliseconds of each slice are two calls, or three
        assert len(set(worker.adopted_at)) >= COUNT // 3
        assert {c.body for c in worker.adopted.values()} == {b"{}"} and all(
            c.is_fresh for c in worker.adopted.values()
        )
        assert len({c.token for c in worker.adopted.values()}) == COUNT


async def test_many_calls_of_a_worker_that_is_gone_are_taken_over_a_batch_at_a_time(
    redis: Connection, redis_url: str
) -> None:
    ids = [await begin(redis) for _ in range(2 * CLAIM_BATCH + 5)]
    found = (
        await redis.call(
            "XREADGROUP", "GROUP", "policy", "dead", "STREAMS", layout.dispatch_key(0), ">"
        )
    )[0][1]
    await redis.call(
        "XCLAIM",
        layout.dispatch_key(0),
        "policy",
        "dead",
        0,
        *(e for e, _ in found),
        "IDLE",
        600_000,
        "JUSTID",
    )
    await redis.call("CONFIG", "RESETSTAT")
    async with claiming(redis, redis_url) as worker:
        await wait_until(lambda: len(worker.adopted) == len(ids), what="all calls")
        assert set(worker.adopted) == set(ids)
        # three scripts
        assert (await redis.call("INFO", "commandstats")).count(b"cmdstat_evalsha:calls=3,") == 1


async def test_a_large_request_keeps_no_other_waiting_and_neither_does_a_call_that_is_spoilt(
    redis: Connection, redis_url: str
) -> None:
    first, spoilt, large, last = (
        await begin(redis),
        await begin(redis),
        await begin(redis, LARGE),
        await begin(redis),
    )
    await redis.call("SET", layout.ctl_key(spoilt), "no hash")
    async with claiming(redis, redis_url) as worker:
        await wait_until(lambda: {first, large, last} <= set(worker.adopted), what="the others")
        # it comes when its turn on the lane does
        assert worker.adopted[large].body is None and worker.adopted[large].is_large
        # all that can be done with it is to end it
        await wait_until(lambda: spoilt in worker.adopted, what="the spoilt one")
        assert [one for one, taken in worker.adopted.items() if taken.is_spoilt] == [spoilt]


async def test_a_call_that_is_dispatched_twice_is_adopted_once(
    redis: Connection, redis_url: str
) -> None:
    call_id = await begin(redis)
    due = int(time.time() * 1000) + 60_000
    await redis.call("XADD", layout.dispatch_key(0), "*", "c", call_id, "d", due)
    other = await begin(redis)
    async with claiming(redis, redis_url) as worker:
        await wait_until(lambda: other in worker.adopted, what="the call behind it")
        assert list(worker.adopted) == [call_id, other]


async def test_ends_are_written_together_also_where_redis_lost_a_lease(redis: Connection) -> None:
    ids = [await claimed(redis, f"t{n}") for n in range(4)]
    spoilt, lost, others = ids[1], ids[2], ids[3]
    await redis.call("SET", layout.ctl_key(spoilt), "no hash")
    await redis.call("DEL", layout.ctl_key(lost))
    await redis.call("HSET", layout.ctl_key(others), "t", "another", "e", "no id")
    ended = list[str]()
    calls: Any = SimpleNamespace(
        owns=lambda call: call.id in ids, drop=lambda call: ended.append(call.id)
    )
    uncounted: Any = SimpleNamespace(add=lambda shard, key, size: None)
    counted = list[str]()
    figures: Any = SimpleNamespace(ended=lambda call, end: counted.append(call.id))
    finisher = Finisher(redis, calls, uncounted, figures, ended_ttl_ms=60_000)
    for number, call_id in enumerate(ids):
        end = EndRecord(call_id=call_id, at=1, state="ENDED", reason="complete", status=200)
        owned = time.monotonic() - (100 if call_id == others else 0)
        call: Any = SimpleNamespace(
            id=call_id,
            shard=0,
            gateway=GATEWAY,
            token=f"t{number}",
            queue=SimpleNamespace(released=0, take_uncounted=lambda: 0),
            last_owned=owned,
            decided=DecisionCounts(),
            start=SimpleNamespace(key="k"),
        )
        call.end_records = lambda *_, end=end: [end]
        finisher.end(call, "complete", 0)
    await wait_until(lambda: len(ended) == 4, what="their ends")
    entries = await redis.call("XRANGE", layout.audit_key(0), "-", "+")
    assert [
        r.call_id
        for _, fields in entries
        for blob in layout.blobs(fields)
        for r in decode_records(blob)
    ] == ids[:3]
    assert [await redis.call("HGET", layout.ctl_key(one), "t") for one in ids] == [
        b"closed",
        b"closed",
        b"closed",
        b"another",
    ]
    assert sorted(counted) == sorted(ids[:3]), "what another has ended it counts"


class Heard:
    """A connection that only remembers what it was told."""

    def __init__(self) -> None:
        self.said = list[tuple[Any, ...]]()

    def send_quiet(self, *args: Any) -> None:
        self.said.append(args)

    call = send_quiet

    def flush(self) -> None:
        self.said.append(("flush",))


def test_facts_are_heard_of_where_they_are_waited_for_and_no_longer_than_the_call() -> None:
    connection: Any = Heard()
    hears: Any = Subscriptions(connection)
    calls: list[Any] = [SimpleNamespace(id=layout.new_call_id()) for _ in range(2)]
    new, taken_over = calls
    entries, facts = layout.chunk_channel, layout.facts_channel
    _ = hears.begin([new.id], False), hears.begin([taken_over.id], True)
    for call in calls:
        hears.adopt(call)
    assert connection.said == [
        ("SUBSCRIBE", entries(new.id)),
        ("SUBSCRIBE", facts(taken_over.id)),
        ("SUBSCRIBE", entries(taken_over.id)),
    ]
    assert hears.facts == {facts(taken_over.id).encode(): taken_over}
    connection.said.clear()
    for _ in range(2):
        hears.hear_facts(new)
    assert connection.said == [("SUBSCRIBE", facts(new.id)), ("flush",)]
    assert hears.facts[facts(new.id).encode()] is new
    connection.said.clear()
    hears.renew()
    assert {one[1].decode() for one in connection.said} == {
        name(call.id) for name in (entries, facts) for call in calls
    }
    connection.said.clear()
    hears.end(new.id)
    assert connection.said == [("UNSUBSCRIBE", entries(new.id)), ("UNSUBSCRIBE", facts(new.id))]
    assert list(hears.entries.values()) == list(hears.facts.values()) == [taken_over]


@pytest.mark.slow
def test_what_comes_between_claim_and_adoption_is_not_missed() -> None:
    connection: Any = Heard()
    hears: Any = Subscriptions(connection)
    quiet, told, lost, left = calls = [SimpleNamespace(id=layout.new_call_id()) for _ in range(4)]
    channels = [layout.chunk_channel(call.id).encode() for call in calls]
    _ = hears.begin([call.id for call in calls], False)
    hears.miss(channels[1])
    assert [hears.adopt(quiet), hears.adopt(told)] == [False, True]
    # a new connection: whatever was said before it, nobody heard
    connection.said.clear()
    hears.renew()
    assert {one[1] for one in connection.said} == set(channels)
    assert hears.adopt(lost)
    hears.end(left.id)
    hears.miss(channels[3])
    assert not hears.adopt(left), "what comes after a call was let go of is nobody's"
