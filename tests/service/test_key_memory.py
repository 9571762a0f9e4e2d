"""What Redis holds for a call is charged to the call's key until it is free again."""

from contextlib import nullcontext

import msgspec
import pytest

from gateway.bus import Bus
from gateway.starts import LARGE, Starts
from protocol.errors import PipelineError, RateLimited
from settings.limits import Limits
from streams import key_memory_scripts, layout, lua, scripts
from streams.connection import Connection, RedisError
from streams.fitness import key_bytes
from tests.support.servers.scripted import bounds, make_start
from tests.support.waiting import wait_until

MEMORY = layout.memory_key(0)
MIB = 2**20


async def begin(redis: Connection, key: str, *sizes: int) -> list[tuple[str, bytes | RedisError]]:
    """Begin calls of a key in one step; returns their ids and outcomes."""
    ids = [layout.new_call_id() for _ in sizes]
    starts = [msgspec.structs.replace(make_start(call_id), key_id=key) for call_id in ids]
    calls = [(start, b"x" * size) for start, size in zip(starts, sizes, strict=True)]
    return list(zip(ids, await scripts.start(redis, bounds(max_queue=100), calls), strict=True))


async def held(redis: Connection, key: str) -> int:
    return int(await redis.call("HGET", MEMORY, f"key:{key}") or 0)


async def free(redis: Connection, *calls: str) -> None:
    await key_memory_scripts.free(redis, 0, calls)


async def test_a_key_has_its_share_and_no_other_key_notices(redis: Connection) -> None:
    await redis.call("HSET", MEMORY, "most", 2 * MIB)
    calls = await begin(redis, "greedy", *[MIB - lua.CALL_BYTES] * 3)
    assert [outcome for _, outcome in calls] == [b"OK", b"OK", b"KEY"]
    assert (
        await redis.call("EXISTS", layout.body_key(calls[2][0]), layout.call_key(calls[2][0])) == 0
    )
    assert await held(redis, "greedy") == 2 * MIB
    [(innocent, outcome)] = await begin(redis, "innocent", 100)
    assert outcome == b"OK"
    await free(redis, calls[0][0], innocent)
    assert await held(redis, "greedy") == MIB and await held(redis, "innocent") == 0
    assert [outcome for _, outcome in await begin(redis, "greedy", 100)] == [b"OK"]


async def test_who_has_nothing_may_have_one_call_however_large(redis: Connection) -> None:
    await redis.call("HSET", MEMORY, "most", 1)
    assert [outcome for _, outcome in await begin(redis, "k", MIB, 10)] == [b"OK", b"KEY"]


@pytest.mark.parametrize(
    ("limits", "code", "words"),
    [
        (Limits(), "key_memory", "this key"),
        (Limits(queue=1), "overloaded", "open and waiting calls; try again in 2 seconds"),
        (Limits(backlog=1), "overloaded", "unwritten audit records; try again in 2 seconds"),
    ],
    ids=["key", "queue", "backlog"],
)
async def test_a_call_past_a_bound_is_refused_by_its_name(
    redis: Connection, limits: Limits, code: str, words: str
) -> None:
    """Also before the body of the next one is read, where its key has its share and it is large."""
    starts = Starts(redis, redis, limits)
    await redis.call("HSET", MEMORY, "most", 1)
    await redis.call("XADD", layout.audit_key(0), "*", "b", "x")
    start = make_start(layout.new_call_id())
    if code == "key_memory" or limits.queue == 1:
        await starts.start(start, b"x")
    starts.expect(start.key, LARGE + 1)
    with pytest.raises(PipelineError, match=words) as refused:
        await starts.start(make_start(layout.new_call_id()), b"x")
    assert refused.value.error_code == code
    starts.expect(start.key, LARGE)
    starts.expect("other", LARGE + 1)
    with pytest.raises(RateLimited) if code == "key_memory" else nullcontext():
        starts.expect(start.key, LARGE + 1)


async def test_an_open_call_is_charged_more_until_its_key_has_its_share(redis: Connection) -> None:
    await redis.call("HSET", MEMORY, "most", 2 * MIB)
    [(call, _)] = await begin(redis, "k", 100)
    assert await key_memory_scripts.charge(redis, call, "k", MIB) == b"OK"
    assert await key_memory_scripts.charge(redis, call, "k", MIB) == b"KEY"
    await free(redis, call)
    await free(redis, call)
    assert await redis.call("HGETALL", MEMORY) == [b"most", str(2 * MIB).encode()]


async def test_what_a_crash_leaves_is_given_back(redis: Connection) -> None:
    """Bodies that expired, or that nobody freed in one step with their charge."""
    calls, long = await begin(redis, "k", *[10] * 90), "n" * 32
    await begin(redis, long, 10)
    for call, _ in calls[1:]:
        await redis.call("DEL", layout.body_key(call))
    cursor = b"0"
    while (cursor := await key_memory_scripts.sweep(redis, 0, cursor)) != b"0":
        pass
    assert await held(redis, "k") == lua.CALL_BYTES + 10
    assert await held(redis, long) == lua.CALL_BYTES + 10, "a sum is no call, however long its name"
    await redis.call("SET", MEMORY, "no hash")
    assert [outcome for _, outcome in await begin(redis, "k", 10)] == [b"OK"], (
        "no call depends on it"
    )
    await free(redis, calls[0][0])
    assert await redis.call("EXISTS", layout.body_key(calls[0][0])) == 0
    await key_memory_scripts.sweep(redis, 0, b"0")
    assert await redis.call("EXISTS", MEMORY) == 0


def test_a_key_alone_has_half_of_what_new_calls_may_fill() -> None:
    def most(used: int) -> int:
        return key_bytes({"maxmemory": 1000, "used_memory": used}, 0.7, without_bound=5)

    assert [most(used) for used in (0, 350, 600, 700, 900)] == [350, 350, 100, 0, 0]
    assert key_bytes({}, 0.7, without_bound=5) == 5


@pytest.mark.parametrize("shards", [1, 2, 64])
async def test_a_key_has_its_share_by_shard_and_in_each_has_room_for_the_largest_body(
    redis: Connection, redis_url: str, shards: int
) -> None:
    """Its calls lie on all shards alike, and none can choose its own."""
    limits = Limits()
    await redis.call("CONFIG", "SET", "maxmemory", 2**30)
    bus = Bus(redis_url, "g", limits, shards)
    await bus.open()
    memory = layout.memory_key(shards - 1)
    most = int(await wait_until(lambda: redis.call("HGET", memory, "most")))
    share = key_bytes(bus.heartbeat.info, limits.memory_share, without_bound=0)
    await bus.close()
    assert most == {1: share, 2: share // 2, 64: limits.body_bytes}[shards]
    assert share // 64 < limits.body_bytes < share // 2


@pytest.mark.slow
async def test_a_writer_takes_what_a_dead_one_left_and_nothing_of_a_living_one_or_of_its_own(
    redis: Connection,
) -> None:
    """Large bodies are acknowledged late: their records were taken again and again, and stored many
    times over."""
    audit = layout.audit_key(0)
    await redis.call("XGROUP", "CREATE", audit, layout.AUDIT_GROUP, "0", "MKSTREAM")

    async def read(writer: str, count: int = 1) -> None:
        await redis.call(
            "XREADGROUP", "GROUP", layout.AUDIT_GROUP, writer, "COUNT", count, "STREAMS", audit, ">"
        )

    async def taken(writer: str, idle_ms: int | None) -> int:
        answer = scripts.read_records(
            redis, 0, writer, max_blobs=100, max_bytes=MIB, idle_ms=idle_ms
        )
        return len(await answer)

    for _ in range(40):
        await redis.call("XADD", audit, "*", "b", "x")
    await read("mine")
    await read("other", 30)
    assert await taken("mine", 60000) == 9, "what is new"
    assert await taken("mine", 0) == 30, "of the other, as it has not read since"
    assert await taken("mine", 0) == 0, "and nothing of its own"
