"""Calls that a worker was handed and had not begun: another takes them when that one is gone, and
leaves them where it lives."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from settings.limits import Limits
from streams import layout
from streams.connection import Connection
from streams.heartbeats import write as show
from tests.support.checks.figures import Figure
from tests.support.servers import scripted
from tests.support.servers.claims import Worker, begin
from tests.support.waiting import wait_until
from workers.policy.dead_workers import CHECKS, SILENT_MS, DeadWorkers

LIMITS = Limits(lease_s=60.0, claim_s=60.0)
"""Whatever is taken within a test is taken because a worker is gone, and for no lease."""


@asynccontextmanager
async def claiming(
    redis: Connection, redis_url: str, name: str = "w1", limits: Limits = LIMITS
) -> AsyncIterator[Worker]:
    blocking = Connection(redis_url, name="test-claim")
    await blocking.open()
    worker, stopping = Worker(redis, blocking, limits, name), asyncio.Event()
    running = asyncio.create_task(worker.claims.run(0, stopping))
    try:
        yield worker
    finally:
        stopping.set()
        await running
        await blocking.close()


@asynccontextmanager
async def showing_life(redis: Connection, name: str) -> AsyncIterator[None]:
    """As long as this lasts a worker shows that it lives, and does nothing else."""

    async def live() -> None:
        while True:
            await show(redis, ("policy", name))
            await asyncio.sleep(0.2)

    living = asyncio.create_task(live())
    try:
        yield
    finally:
        living.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await living


async def handed(redis: Connection, name: str, count: int = 1) -> dict[str, str]:
    """Entries by call, of new calls that were delivered to a worker."""
    ids = [await begin(redis) for _ in range(count)]
    [[_, found]] = await redis.call(
        "XREADGROUP", "GROUP", "policy", name, "STREAMS", layout.dispatch_key(0), ">"
    )
    return dict(zip(ids, (entry.decode() for entry, _ in found), strict=True))


async def claim(redis: Connection, name: str, call_id: str, entry: str, token: str) -> bytes:
    answer = await scripted.claim(
        redis, call_id, entry, token=token, consumer=name, pins=("default@r",)
    )
    return answer.outcome


async def release(redis: Connection, call_id: str, token: str) -> str:
    return await scripted.release(redis, call_id, token, 0, 1, reply=b"", pin=("default", "r"))


async def looks(redis: Connection) -> int:
    """How often somebody looked for workers that are gone."""
    found = await redis.call("INFO", "commandstats")
    _, _, said = found.partition(b"cmdstat_xinfo|consumers:calls=")
    return int(said.partition(b",")[0] or 0)


async def silence_ms(redis: Connection, name: str) -> int:
    consumers = [
        dict(zip(c[::2], c[1::2], strict=True))
        for c in await redis.call("XINFO", "CONSUMERS", layout.dispatch_key(0), "policy")
    ]
    return next(int(c[b"idle"]) for c in consumers if c[b"name"] == name.encode())


async def silent(redis: Connection, name: str, times: int = 1) -> None:
    """Return when a worker has asked for nothing for so long that others wonder."""
    async with asyncio.timeout(10):
        while await silence_ms(redis, name) <= times * SILENT_MS:
            await asyncio.sleep(0.01)


async def looked(redis: Connection, times: int) -> None:
    """Return when somebody has looked so often from now on."""
    before = await looks(redis)
    async with asyncio.timeout(10):
        while await looks(redis) < before + times:
            await asyncio.sleep(0.01)


@pytest.mark.slow
@pytest.mark.case("W1")
async def test_w1_what_a_dead_worker_had_not_begun_is_taken_at_once_and_the_rest_waits_for_its_lease(
    redis: Connection, redis_url: str, figure: Figure
) -> None:
    died = time.monotonic()
    unclaimed, claimed, begun = calls = list(given := await handed(redis, "dead", 3))
    for number, call_id in enumerate(calls[1:]):
        assert await claim(redis, "dead", call_id, given[call_id], f"t{number}") == b"OK"
    assert await release(redis, begun, "t1") == "OK"
    async with claiming(redis, redis_url) as worker:
        await wait_until(
            lambda: {unclaimed, claimed} <= set(worker.adopted), what="what was not begun"
        )
        took_s = time.monotonic() - died
        figure("until calls that a dead worker had not begun are another's", took_s, "s")
        assert SILENT_MS / 1000 < took_s < 4, took_s
        assert worker.adopted[unclaimed].is_fresh and worker.adopted[claimed].takeovers == 0
        await looked(redis, CHECKS + 1)
        assert begun not in worker.adopted and await release(redis, begun, "t1") == "DUP"
        # should it only have slept: nothing of what it lost can go out
        assert await claim(redis, "dead", unclaimed, given[unclaimed], "t2") == b"LOST"
        assert await release(redis, claimed, "t0") == "FENCED"


@pytest.mark.slow
async def test_a_worker_that_is_slow_and_lives_keeps_what_it_was_handed(
    redis: Connection, redis_url: str
) -> None:
    async with showing_life(redis, "slow"):
        given = await handed(redis, "slow", 3)
        async with claiming(redis, redis_url) as worker:
            # it asks for nothing all that time, as while large bodies come
            await silent(redis, "slow", times=2)
            await looked(redis, CHECKS + 1)
            assert not worker.adopted
            assert [await claim(redis, "slow", c, e, "t") for c, e in given.items()] == [b"OK"] * 3


@pytest.mark.slow
async def test_a_worker_that_was_slow_and_then_died_loses_them(
    redis: Connection, redis_url: str
) -> None:
    async with showing_life(redis, "slow"):
        given = await handed(redis, "slow", 3)
        await silent(redis, "slow")
    async with claiming(redis, redis_url) as worker:
        await wait_until(lambda: set(worker.adopted) == set(given), what="all three")


async def test_a_worker_is_gone_when_two_looks_in_a_row_find_no_sign(redis: Connection) -> None:
    await handed(redis, "other")
    gone = DeadWorkers(redis, "w1")
    assert await gone.check(0) == (0, {})
    await silent(redis, "other")

    async def look() -> dict[str, int]:
        return (await gone.check(0))[1]

    # as after Redis stood still: old signs once, then it shows life
    assert await look() == {}
    await show(redis, ("policy", "other"))
    assert await look() == {}
    await redis.call("HDEL", layout.WORKERS_KEY, "policy:other")
    assert [await look(), await look()] == [{}, {"other": 1}]
    gone.forget()
    assert [await look(), await look()] == [{}, {"other": 1}]
    # nobody counts itself
    assert [(await DeadWorkers(redis, "other").check(0))[1] for _ in range(2)] == [{}, {}]


async def test_a_process_that_has_the_name_of_one_that_died_takes_its_deliveries_at_once(
    redis: Connection, redis_url: str
) -> None:
    given = await handed(redis, "container-1", 3)
    async with claiming(redis, redis_url, "container-1") as worker:
        await wait_until(
            lambda: set(worker.adopted) == set(given), timeout_s=SILENT_MS / 1000, what="all three"
        )


@pytest.mark.slow
async def test_many_workers_look_and_each_call_is_taken_once(
    redis: Connection, redis_url: str
) -> None:
    given = await handed(redis, "dead", 40)
    await silent(redis, "dead")
    async with (
        claiming(redis, redis_url, "w1") as one,
        claiming(redis, redis_url, "w2") as two,
        claiming(redis, redis_url, "w3") as three,
    ):
        await wait_until(
            lambda: len(one.adopted) + len(two.adopted) + len(three.adopted) >= len(given),
            what="all calls",
        )
        assert sorted([*one.adopted, *two.adopted, *three.adopted]) == sorted(given)
        assert all(c.is_fresh for w in (one, two, three) for c in w.adopted.values())


@pytest.mark.slow
async def test_leases_run_out_all_the_same_where_redis_refuses_to_show_what_was_delivered(
    redis: Connection, redis_url: str
) -> None:
    """As where somebody's own ACL file does not give the right."""
    rights = ("+@all", "-xrange", "(~sluice:{??}:call:* +xrange)")
    await redis.call(
        "ACL", "SETUSER", "earlier", "on", ">secret", "allkeys", "allchannels", *rights
    )
    await redis.call("ACL", "LOG", "RESET")
    other = Connection(f"redis://earlier:secret@{redis_url.rpartition('@')[2]}", name="earlier")
    await other.open()
    given = await handed(redis, "dead")
    async with claiming(other, redis_url, limits=Limits(lease_s=3.0, claim_s=60.0)) as worker:
        new = await begin(redis)
        await wait_until(lambda: new in worker.adopted, what="a new call")
        await wait_until(lambda: set(given) <= set(worker.adopted), what="the other, after a lease")
        refused = {
            dict(zip(e[::2], e[1::2], strict=True))[b"object"]
            for e in await redis.call("ACL", "LOG")
        }
    await other.close()
    await redis.call("ACL", "DELUSER", "earlier")
    assert refused == {layout.dispatch_key(0).encode()}
