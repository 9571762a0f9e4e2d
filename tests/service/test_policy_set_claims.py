"""The claim script and the worker beside it: under which policy sets a call begins, also when
somebody took it and died."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import msgspec
import pytest

from protocol.records import CallRecord, EventRecord
from streams import layout, lua
from streams.connection import Connection
from tests.support.checks.recorded_entries import recorded
from tests.support.servers.dispatch import (
    BODY,
    GATEWAY,
    sent_request,
    took_over,
    with_gateway,
    working,
)
from tests.support.servers.scripted import LEASE_MS, begin, claim, deliver, make_start
from tests.support.waiting import wait_until
from workers.policy.worker import PolicyWorker

OURS, THEIRS = "a" * 12, "b" * 12


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Connection]:
    async with with_gateway(redis_url) as connection:
        yield connection


async def begun(redis: Connection, *sets: str) -> str:
    """A call whose START names these sets."""
    call_id, _ = await begin(redis)
    start = msgspec.structs.replace(make_start(call_id, BODY), policy_sets=sets)
    await redis.call("DEL", layout.call_key(call_id))
    await redis.call("XADD", layout.call_key(call_id), "0-1", layout.BLOB, layout.pack(start))
    await redis.call("SET", layout.body_key(call_id), BODY, "PX", 600_000)
    return call_id


def of_set(
    redis_url: str, database_url: str, policy_set: str
) -> AbstractAsyncContextManager[PolicyWorker]:
    """A worker with a policy set, gone at the end as if killed."""
    return working(
        redis_url,
        database_url,
        policy_set,
        {"limits": {"lease_s": 0.6, "claim_s": 1.0}},
        policy_set,
    )


async def test_a_takeover_under_another_set_leaves_the_calls_own_record_as_it_is(
    redis: Connection, redis_url: str, database_url: str
) -> None:
    call_id = await begun(redis, OURS, THEIRS)
    async with of_set(redis_url, database_url, THEIRS) as first:
        await sent_request(first, call_id)
    async with of_set(redis_url, database_url, OURS) as second:
        await took_over(second, call_id)
        await wait_until(
            lambda: (
                second.calls[call_id].queue.sending is None
                and not second.calls[call_id].queue._records
            ),
            what="what it records",
        )
    found = await recorded(redis)
    assert [r.policy_set for r in found if isinstance(r, CallRecord)] == [THEIRS]
    events = [(r.kind, r.detail) for r in found if isinstance(r, EventRecord)]
    assert events[0] == ("policy_set", f"began under {THEIRS}, the gateway's own being {OURS}")
    assert [kind for kind, _ in events] == ["policy_set", "takeover"]


async def test_a_call_that_nobody_with_its_set_came_for_is_refused(
    redis: Connection, redis_url: str, database_url: str
) -> None:
    call_id = await begun(redis, OURS)
    entry = await deliver(redis, "w1")
    assert (
        await claim(redis, call_id, entry, token="t1", consumer="w1", pins=(f"={OURS}",))
    ).outcome == b"OK"
    async with of_set(redis_url, database_url, THEIRS) as other:
        await wait_until(
            lambda: call_id in other.calls and other.calls[call_id].queue.released == 1,
            what="the refusal",
        )
    replies = [
        layout.unpack_reply(f[1])
        for _, f in await redis.call("XRANGE", layout.reply_key(0, GATEWAY), "-", "+")
    ]
    assert [(r.status, r.end, r.dispatch) for r in replies if not r.keepalive] == [
        (503, "no_worker", None)
    ]


async def test_a_call_begins_under_a_policy_set_that_start_names_or_not(redis: Connection) -> None:
    assert layout.Start.__struct_fields__[14] == "policy_sets", "the script reads it there"
    call_id = await begun(redis, "aaa", "bbb")
    entry = await deliver(redis, "w1")
    for pins in ((), ("=ccc",), ("aaa", "bbb@aaa")):
        answer = await claim(redis, call_id, entry, token="t", consumer="w1", pins=pins)
        assert (answer.outcome, answer.detail) == (b"SET", "aaa bbb")
        assert await redis.call("XLEN", layout.dispatch_key(0)) == 1
        entry = await deliver(redis, "w1")
    assert not await redis.call("EXISTS", layout.ctl_key(call_id))
    assert (
        await claim(redis, call_id, entry, token="t", consumer="w1", pins=("=bbb", "!k"))
    ).outcome == b"SHARE"
    # whoever looks next may take it, and a call of a key with its share is left for that
    await redis.call("XAUTOCLAIM", layout.dispatch_key(0), "policy", "w2", LEASE_MS, "0-0")
    assert (
        await claim(redis, call_id, entry, token="t", consumer="w2", pins=("=bbb", "!k"))
    ).outcome == b"SHARE"
    assert (
        await claim(redis, call_id, entry, token="t", consumer="w1", pins=("=bbb",))
    ).outcome == b"LOST"
    # too late is too late for everybody: somebody has to close it
    assert (
        await claim(redis, call_id, entry, token="t", consumer="w2", pins=("=ccc",), due=1)
    ).outcome == b"EXPIRED"
    assert (
        await claim(redis, call_id, entry, token="t", consumer="w2", pins=("=bbb",))
    ).outcome == b"OK"


async def test_a_call_of_another_set_goes_from_worker_to_worker_and_then_waits_for_one(
    redis: Connection,
) -> None:
    """Left where it is, two workers that look for such calls in step never change their places: the
    wrong one has it each time."""
    call_id, due = await begun(redis, "aaa"), 2**42
    for _ in range(lua.MAX_PASSED_ON):
        entry = await deliver(redis, "w1")
        assert (
            await claim(redis, call_id, entry, token="t", consumer="w1", pins=("=bbb",), due=due)
        ).outcome == b"SET"
    [(last, fields)] = await redis.call("XRANGE", layout.dispatch_key(0), "-", "+")
    assert layout.unpack_dispatch(fields) == (call_id, due)
    entry = await deliver(redis, "w2")
    for _ in range(2):
        assert (
            await claim(redis, call_id, entry, token="t", consumer="w2", pins=("=bbb",), due=due)
        ).outcome == b"SET"
        [(there, _)] = await redis.call("XRANGE", layout.dispatch_key(0), "-", "+")
        assert there == last
    await redis.call("XAUTOCLAIM", layout.dispatch_key(0), "policy", "w3", LEASE_MS, "0-0")
    assert (
        await claim(redis, call_id, entry, token="t", consumer="w3", pins=("=aaa",), due=due)
    ).outcome == b"OK"


async def test_any_worker_begins_the_calls_of_gateways_that_name_no_set(redis: Connection) -> None:
    whole = layout.pack(make_start("x"))
    assert whole[:1] == b"\xdc", "it has sixteen fields or more"
    for start in (whole, b"\x9e" + whole[3:].removesuffix(b"\x90\xc4\x00")):
        call_id, _ = await begin(redis)
        await redis.call("DEL", layout.call_key(call_id))
        await redis.call("XADD", layout.call_key(call_id), "0-1", "b", start)
        entry = await deliver(redis, "w1")
        assert (
            await claim(redis, call_id, entry, token="t", consumer="w1", pins=("!k",))
        ).outcome == b"SHARE"
        await redis.call("XCLAIM", layout.dispatch_key(0), "policy", "w1", 0, entry)
        assert (
            await claim(redis, call_id, entry, token="t", consumer="w1", pins=("=ccc",))
        ).outcome == b"OK"


async def test_a_call_that_was_taken_and_not_begun_stays_with_its_policy_sets(
    redis: Connection,
) -> None:
    call_id = await begun(redis, "aaa")
    entry = await deliver(redis, "w1")
    assert (
        await claim(redis, call_id, entry, token="t1", consumer="w1", pins=("=aaa",))
    ).outcome == b"OK"
    await redis.call("XCLAIM", layout.dispatch_key(0), "policy", "w2", 0, entry)
    assert (
        await claim(redis, call_id, entry, token="t2", consumer="w2", takeover=True, pins=("=bbb",))
    ).outcome == b"OTHER"
    assert (
        await claim(redis, call_id, entry, token="t3", consumer="w2", takeover=True, pins=("=aaa",))
    ).outcome == b"OK"
    # nobody came for it in time: it is given, to be refused
    assert (
        await claim(redis, call_id, entry, token="t4", consumer="w2", takeover=True, pins=("=bbb",))
    ).outcome == b"OTHER"
    assert (
        await claim(
            redis,
            call_id,
            entry,
            token="t5",
            consumer="w2",
            takeover=True,
            pins=("=bbb",),
            patience=0,
        )
    ).outcome == b"OK"
