"""The Lua scripts on a real server: what each refuses, and that doing a thing twice is doing it
once."""

import time
from collections.abc import AsyncIterator

import pytest

from streams import layout, scripts
from streams.connection import Connection, RedisError
from streams.scripts import Delivery, FencedEnd, set_fact
from tests.support.servers.dispatch import GATEWAY, empty
from tests.support.servers.scripted import (
    LEASE_MS,
    begin,
    begin_large,
    bounds,
    claim,
    claimed,
    deliver,
    finish,
    lengths,
    make_start,
    release,
    take,
)


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Connection]:
    async with empty(redis_url) as connection:
        await connection.call("XGROUP", "CREATE", layout.audit_key(0), "audit", "0", "MKSTREAM")
        await connection.call("SET", layout.gateway_key(0, GATEWAY), "0-0", "PX", 60_000)
        yield connection


async def test_claim_gives_all_that_a_session_needs(redis: Connection) -> None:
    call_id, said = await begin(redis)
    assert said == b"OK"
    entry = await deliver(redis, "w1")
    found = await take(redis, call_id, entry, "t1", consumer="w1")
    assert (found.released, found.digest, found.recorded) == (0, "", 0)
    assert (found.policy, found.revision, found.takeovers) == ("", "", -1)
    assert layout.unpack_start(found.entries[0][1][1]) == make_start(call_id)
    assert found.body == b"{}"


async def test_start_is_refused_past_queue_and_backlog(redis: Connection) -> None:
    await begin(redis)
    assert (await begin(redis, queue=1))[1] == b"QUEUE"
    await redis.call("XADD", layout.audit_key(0), "*", "b", "x")
    assert (await begin(redis, backlog=1))[1] == b"BACKLOG"


async def test_calls_begin_together_until_the_bound_and_each_by_itself(redis: Connection) -> None:
    """Of four the second has a spoilt stream, and the queue takes two."""
    ids = [layout.new_call_id() for _ in range(4)]
    await redis.call("SET", layout.call_key(ids[1]), "no stream")
    calls = [(make_start(call_id), call_id.encode()) for call_id in ids]
    first, spoilt, third, fourth = await scripts.start(redis, bounds(max_queue=2), calls)
    assert (first, third, fourth) == (b"OK", b"OK", b"QUEUE")
    assert isinstance(spoilt, RedisError) and str(spoilt).startswith("WRONGTYPE")
    for call_id in (ids[0], ids[2]):
        entry = await deliver(redis, "w1")
        found = await take(redis, call_id, entry, "t1", consumer="w1")
        assert layout.unpack_start(found.entries[0][1][1]) == make_start(call_id)
        assert found.body == call_id.encode()
    assert await redis.call("XLEN", layout.dispatch_key(0)) == 2
    assert await redis.call("EXISTS", layout.call_key(ids[3]), layout.body_key(ids[3])) == 0


async def test_claim_after_its_deadline_is_refused(redis: Connection) -> None:
    call_id, _ = await begin(redis)
    entry = await deliver(redis, "w1")
    assert (
        await claim(redis, call_id, entry, token="t1", consumer="w1", due=1)
    ).outcome == b"EXPIRED"


async def test_an_owned_call_cannot_be_claimed_without_takeover(redis: Connection) -> None:
    call_id, entry = await claimed(redis)
    assert (await claim(redis, call_id, entry, token="t2", consumer="w1")).outcome == b"OWNED"
    assert (
        await claim(redis, call_id, entry, token="t2", consumer="w2", takeover=True)
    ).outcome == b"LOST"


async def test_release_twice_is_release_once(redis: Connection) -> None:
    call_id, _ = await claimed(redis)
    assert await release(redis, call_id, "t1", 0, 2) == "OK"
    assert await release(redis, call_id, "t1", 0, 2) == "DUP"
    assert await lengths(redis) == (1, 1)


async def test_release_out_of_order_or_with_another_hash_is_refused(redis: Connection) -> None:
    call_id, _ = await claimed(redis)
    assert await release(redis, call_id, "t1", 1, 2) == "SEQ"
    assert await release(redis, call_id, "t1", 0, 2) == "OK"
    assert await release(redis, call_id, "t1", 0, 2, digest="other") == "SEQ"
    assert await lengths(redis) == (1, 1)


async def test_a_worker_that_lost_its_call_is_fenced(redis: Connection) -> None:
    call_id, entry = await claimed(redis)
    await redis.call("XCLAIM", layout.dispatch_key(0), "policy", "w2", 0, entry)
    await take(redis, call_id, entry, "t2", takeover=True)
    assert await release(redis, call_id, "t1", 0, 1) == "FENCED"
    assert await lengths(redis) == (0, 0)
    assert await release(redis, call_id, "t2", 0, 1) == "OK"


async def test_release_to_a_dead_gateway_is_refused_and_records_nothing(redis: Connection) -> None:
    call_id, _ = await claimed(redis)
    await redis.call("DEL", layout.gateway_key(0, GATEWAY))
    assert await release(redis, call_id, "t1", 0, 1) == "GATEWAY_LOST"
    assert await release(redis, call_id, "t1", 0, 0, reply=b"") == "OK"
    assert await lengths(redis) == (0, 1)


async def test_release_trims_what_was_read_and_stops_at_the_bound(redis: Connection) -> None:
    call_id, _ = await claimed(redis)
    assert await release(redis, call_id, "t1", 0, 1, max_reply=1) == "OK"
    assert await release(redis, call_id, "t1", 1, 2, max_reply=1) == "FULL"
    last = (await redis.call("XREVRANGE", layout.reply_key(0, GATEWAY), "+", "-", "COUNT", 1))[0][
        0
    ].decode()
    ms, n = last.split("-")
    await redis.call("SET", layout.gateway_key(0, GATEWAY), f"{ms}-{int(n) + 1}", "PX", 60_000)
    assert await release(redis, call_id, "t1", 1, 2, max_reply=1) == "OK"


async def test_nothing_follows_the_terminal_record(redis: Connection) -> None:
    call_id, _ = await claimed(redis)
    assert await finish(redis, call_id, "other") == "FENCED"
    assert await finish(redis, call_id, "t1") == "OK"
    assert await finish(redis, call_id, "t1") == "CLOSED"
    assert await release(redis, call_id, "t1", 0, 1) == "CLOSED"
    assert await lengths(redis) == (0, 1)
    assert await redis.call("XLEN", layout.dispatch_key(0)) == 0
    assert (await redis.call("XPENDING", layout.dispatch_key(0), "policy"))[0] == 0


async def test_a_zombie_cannot_bring_an_expired_call_back(redis: Connection) -> None:
    call_id, _ = await claimed(redis)
    await redis.call("DEL", layout.ctl_key(call_id))
    assert await release(redis, call_id, "t1", 0, 1) == "GONE"
    assert await redis.call("EXISTS", layout.ctl_key(call_id)) == 0


async def test_the_first_release_pins_the_policy_revision(redis: Connection) -> None:
    call_id, entry = await claimed(redis)
    assert await release(redis, call_id, "t1", 0, 1, pin=("default", "r1")) == "OK"
    assert await release(redis, call_id, "t1", 1, 2) == "OK"
    await redis.call("XCLAIM", layout.dispatch_key(0), "policy", "w2", 0, entry)
    found = await take(redis, call_id, entry, "t2", takeover=True, pins=("default@r1",))
    assert (found.policy, found.revision) == ("default", "r1")


async def test_a_call_that_redis_lost_is_ended_once_by_its_owner(redis: Connection) -> None:
    call_id, entry = await claimed(redis)
    await redis.call("DEL", layout.ctl_key(call_id))
    assert await finish(redis, call_id, "t1", reply=b"failed") == "GONE"
    assert await finish(redis, call_id, "t1", reply=b"failed", gone=True) == "OK"
    assert await finish(redis, call_id, "t1", reply=b"failed", gone=True) == "CLOSED"
    assert await lengths(redis) == (1, 1)
    assert await redis.call("PTTL", layout.ctl_key(call_id)) > 0
    await redis.call("XCLAIM", layout.dispatch_key(0), "policy", "w2", 0, entry)
    assert (
        await claim(redis, call_id, entry, token="t2", consumer="w2", takeover=True)
    ).outcome == b"CLOSED"


async def test_calls_are_claimed_together_and_each_by_itself(redis: Connection) -> None:
    """One is fresh, one spoilt, one too late, one another's: each gets its own answer, and only the
    first is taken."""
    ids = [(await begin(redis))[0] for _ in range(4)]
    entries = [await deliver(redis, consumer) for consumer in ("w1", "w1", "w1", "w2")]
    await redis.call("SET", layout.ctl_key(ids[1]), "no hash")
    now = int(time.time() * 1000)
    due = (now + 60_000, now + 60_000, now - 1, now + 60_000)
    answers = await scripts.claim(
        redis,
        0,
        list(map(Delivery, entries, ids, due)),
        {call_id: f"t{number}" for number, call_id in enumerate(ids)},
        consumer="w1",
        pins=["default@r"],
        is_takeover=False,
        is_late=False,
        call_ttl_ms=60_000,
        lease_ms=LEASE_MS,
        patience_ms=60_000,
    )
    first, spoilt, late, others = (answers[call_id] for call_id in ids)
    assert (first.outcome, late.outcome, others.outcome) == (b"OK", b"EXPIRED", b"LOST")
    assert first.claimed is not None and late.claimed is others.claimed is None
    assert layout.unpack_start(first.claimed.entries[0][1][1]).call_id == ids[0]
    assert spoilt.outcome == b"ERROR"
    assert spoilt.claimed is not None and spoilt.claimed.is_spoilt
    assert await redis.call("HGET", layout.ctl_key(ids[0]), "t") == b"t0"
    assert await redis.call("EXISTS", *map(layout.ctl_key, ids[2:])) == 0


async def test_calls_end_together_in_one_entry_and_only_those_that_are_ones_own(
    redis: Connection,
) -> None:
    mine, _ = await claimed(redis)
    others, _ = await claimed(redis, token="t2")
    second, _ = await claimed(redis, token="t3")
    for one in (mine, others):
        await set_fact(redis, one, layout.ANSWERS_FIELD, b"megabytes")
    rows = [
        FencedEnd(mine, "t1", b"one", b"", counts="A 2 B 1"),
        FencedEnd(others, "stolen", b"two", b"given up", counts="A 7"),
        FencedEnd(second, "t3", b"three", b"given up", counts="A 1"),
    ]
    said = await scripts.finish(redis, 0, GATEWAY, rows, ended_ttl_ms=30_000, reply_ttl_ms=50_000)
    assert said == [b"OK", b"FENCED", b"OK"]
    assert [f for _, f in await redis.call("XRANGE", layout.audit_key(0), "-", "+")] == [
        [b"b", b"one", b"b", b"three"]
    ]
    assert [f for _, f in await redis.call("XRANGE", layout.reply_key(0, GATEWAY), "-", "+")] == [
        [b"b", b"given up"]
    ]
    assert await redis.call("HGETALL", layout.counts_key(0)) == [b"A", b"3", b"B", b"1"]
    assert [f for _, f in await redis.call("XRANGE", layout.ended_key(0), "-", "+")] == [
        [b"c", mine.encode(), b"c", second.encode()]
    ]
    assert [
        await redis.call("HGET", layout.ctl_key(one), "t") for one in (mine, others, second)
    ] == [b"closed", b"t2", b"closed"]
    assert (await redis.call("XPENDING", layout.dispatch_key(0), "policy"))[0] == 1
    assert await redis.call("XLEN", layout.dispatch_key(0)) == 1
    for large in (layout.call_key, layout.facts_key):
        assert (
            0
            < await redis.call("PTTL", large(mine))
            <= 5_000
            < await redis.call("PTTL", layout.ctl_key(mine))
            <= 30_000
        )
        assert await redis.call("PTTL", large(others)) > 30_000


async def test_a_call_ends_though_it_cannot_be_named_to_those_who_look_after_the_record(
    redis: Connection,
) -> None:
    call_id, _ = await claimed(redis)
    await redis.call("MSET", layout.ended_key(0), "spoilt", layout.counts_key(0), "spoilt")
    assert await finish(redis, call_id, "t1", counts="A 1") == "OK"
    assert await redis.call("HGET", layout.ctl_key(call_id), "t") == b"closed"
    assert await redis.call("XLEN", layout.audit_key(0)) == 1


async def test_how_many_releases_there_are_is_said_in_the_step_of_a_release(
    redis: Connection,
) -> None:
    call_id, entry = await claimed(redis)
    assert await release(redis, call_id, "t1", 0, 3, written=2) == "OK"
    assert await release(redis, call_id, "t1", 0, 3, digest="other", written=9) == "SEQ"
    found = await take(redis, call_id, entry, "t2", consumer="w1", takeover=True)
    assert (found.released, found.written) == (3, 2)


async def test_renewal_tells_which_leases_are_lost(redis: Connection) -> None:
    first, entry_1 = await claimed(redis)
    second, entry_2 = await claimed(redis, token="t2")
    await redis.call("HSET", layout.ctl_key(second), "t", "other")
    leases = [(first, "t1", entry_1), (second, "t2", entry_2)]
    assert await scripts.renew(redis, 0, "w1", 60_000, leases) == [b"OK", b"FENCED"]


async def test_hand_over_lets_another_claim_at_once(redis: Connection) -> None:
    call_id, _ = await claimed(redis)
    assert await release(redis, call_id, "t1", 0, 3) == "OK"
    assert await scripts.mark_inside(redis, call_id, "t1", is_inside=True) == b"OK"
    assert await scripts.hand_over(redis, call_id, "t1", within_ms=60_000) == b"OK"
    # until when it may be claimed is on Redis' clock, whatever the clock of who hands over
    [(entry, fields)] = await redis.call("XRANGE", layout.dispatch_key(0), "-", "+")
    assert layout.unpack_dispatch(fields) == (call_id, int(entry.partition(b"-")[0]) + 60_000)
    entry = await deliver(redis, "w2")
    found = await take(redis, call_id, entry, "t2")
    assert (found.released, found.digest) == (3, "h")
    # who stops in order did not die in a step of the call, though it was in one
    assert (found.takeovers, found.died_in_it) == (0, False)
    assert await release(redis, call_id, "t1", 3, 4) == "FENCED"


async def test_who_lost_a_call_does_not_hand_it_over(redis: Connection) -> None:
    call_id, entry = await claimed(redis)
    await redis.call("XCLAIM", layout.dispatch_key(0), "policy", "w2", 0, entry)
    await take(redis, call_id, entry, "t2", takeover=True)
    assert await scripts.hand_over(redis, call_id, "t1", within_ms=60_000) == b"FENCED"
    assert await redis.call("XLEN", layout.dispatch_key(0)) == 1
    assert await release(redis, call_id, "t2", 0, 3) == "OK"


async def test_owners_that_stop_in_order_are_no_takeovers_without_progress(
    redis: Connection,
) -> None:
    call_id, _ = await claimed(redis, "t0")
    for turn in range(6):
        assert await scripts.hand_over(redis, call_id, f"t{turn}", within_ms=60_000) == b"OK"
        entry = await deliver(redis, "w2")
        assert (await take(redis, call_id, entry, f"t{turn + 1}")).takeovers == 0


async def test_takeovers_without_progress_are_counted(redis: Connection) -> None:
    call_id, entry = await claimed(redis)
    counts = []
    for turn in range(3):
        await redis.call("XCLAIM", layout.dispatch_key(0), "policy", "w2", 0, entry)
        counts.append((await take(redis, call_id, entry, f"x{turn}", takeover=True)).takeovers)
    assert counts == [0, 1, 2]
    assert await release(redis, call_id, "x2", 0, 1) == "OK"
    await redis.call("XCLAIM", layout.dispatch_key(0), "policy", "w2", 0, entry)
    assert (await take(redis, call_id, entry, "y", takeover=True)).takeovers == 0


async def test_a_call_whose_owner_died_in_a_step_says_so_once(redis: Connection) -> None:
    call_id, entry = await claimed(redis)
    died = []
    for turn, inside in enumerate((True, None, False, True)):
        await redis.call("XCLAIM", layout.dispatch_key(0), "policy", "w2", 0, entry)
        died.append((await take(redis, call_id, entry, f"x{turn}", takeover=True)).died_in_it)
        assert await scripts.mark_inside(redis, call_id, "t1", is_inside=True) == b"FENCED"
        if inside is not None:
            marked = scripts.mark_inside(redis, call_id, f"x{turn}", is_inside=inside)
            assert await marked == b"OK"
    assert died == [False, True, False, False]


async def test_a_new_call_of_a_key_that_has_its_share_is_left_to_others_until_it_is_late(
    redis: Connection,
) -> None:
    assert layout.Start.__struct_fields__[5] == "key", "the script reads it there"
    call_id, _ = await begin(redis)
    entry, full = await deliver(redis, "w1"), (f"!{make_start('').key}",)
    assert (
        await claim(redis, call_id, entry, token="t", consumer="w1", pins=full)
    ).outcome == b"SHARE"
    assert not await redis.call("EXISTS", layout.ctl_key(call_id))
    await redis.call("XAUTOCLAIM", layout.dispatch_key(0), "policy", "w2", LEASE_MS, "0-0")
    assert (
        await claim(redis, call_id, entry, token="t", consumer="w2", pins=full, due=1)
    ).outcome == b"EXPIRED"
    assert (
        await claim(redis, call_id, entry, token="t", consumer="w2", pins=("!another",))
    ).outcome == b"OK"


async def test_takeovers_are_counted_anew_after_a_replay_that_did_no_harm(
    redis: Connection,
) -> None:
    call_id, entry = await claimed(redis)
    for token in ("x", "y"):
        await redis.call("XCLAIM", layout.dispatch_key(0), "policy", "w2", 0, entry)
        assert (await take(redis, call_id, entry, token, takeover=True)).takeovers == 0
        assert await scripts.replayed(redis, call_id, "t1") == b"FENCED"
        assert await scripts.replayed(redis, call_id, token) == b"OK"


async def pinned(redis: Connection) -> tuple[str, str]:
    call_id, entry = await claimed(redis)
    assert await release(redis, call_id, "t1", 0, 1, pin=("default", "aaa")) == "OK"
    await redis.call("XCLAIM", layout.dispatch_key(0), "policy", "w2", 0, entry)
    return call_id, entry


@pytest.mark.case("W11")
async def test_w11_a_worker_without_the_calls_revision_leaves_it_to_one_that_has_it(
    redis: Connection,
) -> None:
    call_id, entry = await pinned(redis)
    for pins in ((), ("default@bbb",), ("other@aaa",)):
        assert (
            await claim(redis, call_id, entry, token="t2", consumer="w2", takeover=True, pins=pins)
        ).outcome == b"OTHER"
        # the owner lives on, whoever looked at its call
        assert await redis.call("HGET", layout.ctl_key(call_id), "t") == b"t1"
        # and nobody has to wait for a lease to look
        _, entries, _ = await redis.call(
            "XAUTOCLAIM", layout.dispatch_key(0), "policy", "w2", LEASE_MS, "0-0"
        )
        assert [e[0].decode() for e in entries] == [entry]
    await redis.call("XCLAIM", layout.dispatch_key(0), "policy", "w3", 0, entry)
    both = ("other@x", "default@aaa")
    found = await take(redis, call_id, entry, "t3", consumer="w3", takeover=True, pins=both)
    assert (found.policy, found.revision) == ("default", "aaa")
    assert await redis.call("HEXISTS", layout.ctl_key(call_id), "o") == 0


@pytest.mark.case("W11")
async def test_w11_a_call_that_no_worker_can_take_is_given_to_be_closed_after_a_time(
    redis: Connection,
) -> None:
    call_id, entry = await pinned(redis)
    assert (
        await claim(
            redis, call_id, entry, token="t2", consumer="w2", takeover=True, pins=("default@bbb",)
        )
    ).outcome == b"OTHER"
    pins = ("default@bbb",)
    found = await take(redis, call_id, entry, "t2", takeover=True, pins=pins, patience=0)
    assert found.revision == "aaa"


@pytest.mark.case("W12")
async def test_w12_an_entry_at_two_workers_has_one_owner(redis: Connection) -> None:
    call_id, _ = await begin(redis)
    entry = await deliver(redis, "w1")
    # moved to the second while the first is about to claim it
    await redis.call("XCLAIM", layout.dispatch_key(0), "policy", "w2", 0, entry)
    first, second = [
        await claim(redis, call_id, entry, token=f"t{n}", consumer=f"w{n}", takeover=n == 2)
        for n in (1, 2)
    ]
    assert (first.outcome, second.outcome) == (b"LOST", b"OK")
    # a second dispatch entry of a call that has an owner changes nothing either
    await redis.call("XADD", layout.dispatch_key(0), "*", "c", call_id, "d", 0)
    again = await deliver(redis, "w1")
    assert (await claim(redis, call_id, again, token="t1", consumer="w1")).outcome == b"OWNED"
    assert await release(redis, call_id, "t1", 0, 1) == "FENCED"
    assert await release(redis, call_id, "t2", 0, 1) == "OK"


async def test_a_fact_is_set_once(redis: Connection) -> None:
    call_id, _ = await claimed(redis)
    assert await set_fact(redis, call_id, "c:1", b"1") == 1
    assert await set_fact(redis, call_id, "c:1", b"late") == 0
    assert await redis.call("HGET", layout.facts_key(call_id), "c:1") == b"1"


async def test_facts_stay_as_long_as_the_stream_of_their_call(redis: Connection) -> None:
    call_id, _ = await claimed(redis)
    facts, stream = layout.facts_key(call_id), layout.call_key(call_id)
    await set_fact(redis, call_id, "j:1:0", b"an answer")
    assert 0 < await redis.call("PTTL", facts) <= await redis.call("PTTL", stream) + 1000
    # the call has ended
    for key in (facts, stream):
        await redis.call("PEXPIRE", key, 5000)
    await set_fact(redis, call_id, "j:2:0", b"late")
    assert await redis.call("PTTL", facts) <= 5000
    await redis.call("DEL", facts, stream)
    assert await set_fact(redis, call_id, "j:3:0", b"too late") == 0
    assert not await redis.call("EXISTS", facts)


async def test_the_audit_stream_is_trimmed_below_the_smallest_unacked_entry(
    redis: Connection,
) -> None:
    key, committed = layout.audit_key(0), layout.committed_key(0)
    ids = [await redis.call("XADD", key, "*", "b", str(n)) for n in range(4)]
    await redis.call("XREADGROUP", "GROUP", "audit", "a", "COUNT", 3, "STREAMS", key, ">")
    await redis.call("XACK", key, "audit", ids[0], ids[2])
    await scripts.trim(redis, 0, [], is_published=False)
    assert [e[0] for e in await redis.call("XRANGE", key, "-", "+")] == ids[1:]
    assert await redis.call("GET", committed) is None
    await scripts.trim(redis, 0, [], is_published=True)
    assert await redis.call("GET", committed) == ids[1]
    await redis.call("XACK", key, "audit", ids[1])
    await scripts.trim(redis, 0, [], is_published=True)
    assert [e[0] for e in await redis.call("XRANGE", key, "-", "+")] == ids[3:]
    ms, _, number = ids[2].partition(b"-")
    assert await redis.call("GET", committed) == ms + b"-%d" % (int(number) + 1)


async def test_entries_cut_off_by_who_may_append_are_counted(redis: Connection) -> None:
    key = layout.audit_key(0)
    assert await scripts.missing(redis, 0) == 0
    for n in range(5):
        await redis.call("XADD", key, "*", "b", str(n))
    found = await redis.call("XREADGROUP", "GROUP", "audit", "a", "COUNT", 2, "STREAMS", key, ">")
    await redis.call("XACK", key, "audit", *(entry for entry, _ in found[0][1]))
    assert await scripts.trim(redis, 0, [], is_published=False) == 2
    assert await scripts.missing(redis, 0) == 0
    await redis.call("XADD", key, "MAXLEN", 1, "*", "b", "cut")
    assert await scripts.missing(redis, 0) == 3
    await scripts.trim(redis, 0, [], is_published=False)
    assert await scripts.missing(redis, 0) == 3
    await redis.call("DEL", key)
    await redis.call("XGROUP", "CREATE", key, "audit", "0", "MKSTREAM")
    assert await scripts.missing(redis, 0) == -2


async def test_a_strict_release_names_its_audit_entry(redis: Connection) -> None:
    call_id, _ = await claimed(redis)
    assert await release(redis, call_id, "t1", 0, 1, strict=True) == "OK"
    ((_, fields),) = await redis.call("XRANGE", layout.reply_key(0, GATEWAY), "-", "+")
    ((entry, _),) = await redis.call("XRANGE", layout.audit_key(0), "-", "+")
    assert fields[2:] == [b"a", entry]


async def test_every_key_of_a_call_has_a_ttl(redis: Connection) -> None:
    call_id, _ = await claimed(redis)
    await release(redis, call_id, "t1", 0, 1)
    permanent = {layout.dispatch_key(0), layout.audit_key(0), layout.memory_key(0)}
    for key in await redis.call("KEYS", "*"):
        assert key.decode() in permanent or await redis.call("PTTL", key) > 0, key


async def test_forgotten_scripts_are_loaded_again(redis: Connection) -> None:
    await redis.call("SCRIPT", "FLUSH")
    with pytest.raises(RedisError, match="NOSCRIPT"):
        await begin(redis)
    assert (await begin(redis))[1] == b"OK"


async def test_an_error_reply_is_an_exception_and_the_connection_goes_on(redis: Connection) -> None:
    with pytest.raises(RedisError):
        await redis.call("NOSUCH")
    assert await redis.call("PING") == b"PONG"


async def test_consumers_that_are_gone_are_forgotten_but_not_what_they_hold(
    redis: Connection,
) -> None:
    await claimed(redis)
    key = layout.dispatch_key(0)
    await redis.call("XREADGROUP", "GROUP", "policy", "idle", "COUNT", 1, "STREAMS", key, ">")
    assert await scripts.forget_consumers(redis, key, "policy", idle_ms=60_000) == 0
    assert await scripts.forget_consumers(redis, key, "policy", idle_ms=-1) == 1
    left = await redis.call("XINFO", "CONSUMERS", key, "policy")
    assert [c[1] for c in left] == [b"w1"]


async def test_a_large_body_is_left_to_a_command_of_its_own(redis: Connection) -> None:
    body = b"x" * 70_000
    call_id, said = await begin_large(redis, body)
    assert said == b"OK" and await redis.call("GET", layout.body_key(call_id)) == body
    entry = await deliver(redis, "w1")
    found = await take(redis, call_id, entry, "t1", consumer="w1")
    assert found.is_large and found.body is None


async def test_a_large_body_of_a_refused_call_goes_at_once(redis: Connection) -> None:
    call_id, said = await begin_large(redis, b"x" * 70_000, queue=0)
    assert said == b"QUEUE"
    assert await redis.call("STRLEN", layout.body_key(call_id)) == 0
