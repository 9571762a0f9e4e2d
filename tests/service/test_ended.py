"""Calls that ended are named in Redis: by the step that ends them, and by a gateway whose Redis may
have lost them."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.bus import Bus
from gateway.call.calls import OpenCall
from gateway.unrecorded_calls import ENTRY_BYTES, UNNAMED_MS, UnrecordedCalls
from protocol.bounds import MAX_ENDED_CALLS, MAX_REMEMBERED_CALLS
from protocol.dialects.table import CLIENTS
from protocol.errors import StreamConnectionLost
from settings.limits import Limits
from streams import ended_stream, layout, lua
from streams.connection import Connection
from streams.layout import Reply
from tests.support.checks.replies import reply_of
from tests.support.waiting import wait_until


@pytest.fixture
async def bus(redis: Connection, redis_url: str) -> AsyncIterator[Bus]:
    made = Bus(redis_url, "g", Limits(), 1)
    await made.open()
    yield made
    await made.close()


def opened(*, is_begun: bool = True, key: str = "", shard: int = 0) -> OpenCall:
    call_id = f"{layout.new_call_id()[:-2]}{shard:02x}"
    call = OpenCall(
        call_id, CLIENTS["openai"], b"{}", activity_s=9, deadline=time.monotonic() + 9, key=key
    )
    call.is_begun = is_begun
    return call


def ended(*, reason: str = "complete", key: str = "", shard: int = 0) -> OpenCall:
    call = opened(key=key, shard=shard)
    call.close(reason)
    return call


async def on_stream(redis: Connection, call: OpenCall) -> None:
    await redis.call("XADD", call.appender.stream_key, layout.START_ID, layout.BLOB, b"")


def values_of(fields: list[bytes], name: bytes) -> list[bytes]:
    return [value for field, value in zip(fields[::2], fields[1::2], strict=True) if field == name]


async def named(redis: Connection, shard: int = 0) -> list[tuple[str, layout.Entry | None]]:
    """The calls on the `ended` stream, each with its end where a gateway named it."""
    found: list[tuple[str, layout.Entry | None]] = []
    for _, fields in await redis.call("XRANGE", layout.ended_key(shard), "-", "+"):
        calls, ends = values_of(fields, b"c"), values_of(fields, b"b")
        found += zip(
            map(bytes.decode, calls),
            map(layout.unpack_entry, ends) if ends else [None] * len(calls),
            strict=True,
        )
    return found


async def look(
    seen: Bus | UnrecordedCalls,
    run_id: str = "1",
    *,
    known: bool = True,
    replid: str = "",
    at_ms: float | None = None,
) -> None:
    calls = seen._unrecorded if isinstance(seen, Bus) else seen
    now_ms = time.time() * 1000 if at_ms is None else at_ms
    if not known:
        calls.report_all()
    await calls.look(
        {"run_id": run_id, "master_replid": replid, "server_time_usec": str(int(now_ms * 1000))}
    )


async def by_worker(redis: Connection, *calls: OpenCall) -> str:
    """Name calls as the script does that writes their end; returns the entry's id."""
    made: bytes = await redis.call(
        "XADD",
        layout.ended_key(calls[0].shard),
        "*",
        *(part for call in calls for part in ("c", call.id)),
    )
    return made.decode()


async def test_a_call_whose_stream_is_lost_is_named_with_its_end(
    redis: Connection, bus: Bus
) -> None:
    call = opened()
    call.on_reply(reply_of(call.id, 0, 2, data=b"said"))
    call.take_out()
    call.appender.append("eof")
    bus.append(call)
    await wait_until(lambda: call.appender.is_lost)
    assert call.order.error is not None and call.order.error.error_code == "stream_lost"
    bus.end(call, "stream_lost")
    await look(bus)
    [(call_id, end)] = await named(redis)
    assert (
        call_id == call.id
        and end is not None
        and (end.kind, end.text, end.number) == ("closed", "stream_lost", 2)
    )
    assert layout.unpack_relayed(end.chunks[0]).releases == 1


async def test_a_call_whose_end_finds_no_stream_is_named_once(redis: Connection, bus: Bus) -> None:
    call = opened()
    bus.end(call, "complete")
    await wait_until(lambda: call.appender.is_lost)
    await look(bus)
    await look(bus)
    assert [one for one, _ in await named(redis)] == [call.id]


async def test_a_call_that_its_worker_gave_up_is_named_with_what_was_relayed(
    redis: Connection, bus: Bus
) -> None:
    """Its worker has written the end, and reads no other: without the gateway's word a release that
    the record lost is missed by nobody."""
    call = opened()
    await on_stream(redis, call)
    await look(bus)
    call.on_reply(reply_of(call.id, 0, 2, data=b"said"))
    call.take_out()
    call.on_reply(Reply(call.id, 2, 2, failed="stream_protocol_error"))
    bus.end(call, "stream_protocol_error")
    await look(bus)
    [(call_id, end)] = await named(redis)
    assert (
        call_id == call.id
        and end is not None
        and (end.number, layout.unpack_relayed(end.chunks[0]).releases) == (2, 1)
    )


async def test_a_call_that_never_began_is_not_named(redis: Connection, bus: Bus) -> None:
    call = opened(is_begun=False)
    bus.end(call, "overloaded")
    await wait_until(lambda: call.appender.is_lost)
    await look(bus)
    assert await named(redis) == []


@pytest.mark.parametrize("how", ["another process", "another history", "empty", "set back"])
async def test_calls_that_ended_long_before_redis_came_back_are_named(
    redis: Connection, bus: Bus, how: str
) -> None:
    call, other = opened(), ended()
    await on_stream(redis, call)
    await look(bus)
    bus.end(call, "complete")
    await by_worker(redis, other)
    for minute in range(9):
        await look(bus, at_ms=minute * UNNAMED_MS)
    assert [one for one, _ in await named(redis)] == [other.id]
    if how == "set back":
        await redis.call("DEL", layout.ended_key(0))
    run_id, replid = (
        "2" if how == "another process" else "1",
        ("2" if how == "another history" else ""),
    )
    await look(bus, run_id, replid=replid, known=how != "empty")
    call_id, end = (await named(redis))[-1]
    assert call_id == call.id and end is not None and end.text == "complete"


async def test_a_living_gateway_names_what_ended_before_redis_was_emptied(
    redis: Connection, bus: Bus
) -> None:
    await bus.heartbeat.beat()
    call = opened()
    await on_stream(redis, call)
    bus.end(call, "complete")
    await bus.heartbeat.beat()
    assert await named(redis) == []
    await redis.call("FLUSHALL")
    await bus.heartbeat.beat()
    assert [one for one, _ in await named(redis)] == [call.id]


async def test_a_gateway_that_stops_names_them_first(redis: Connection, redis_url: str) -> None:
    bus = Bus(redis_url, "g", Limits(), 1)
    await bus.open()
    call = opened()
    bus.end(call, "complete")
    await redis.call("FLUSHALL")
    await bus.close()
    assert [one for one, _ in await named(redis)] == [call.id]


async def test_what_writers_have_checked_is_forgotten_and_nothing_before(redis: Connection) -> None:
    calls = UnrecordedCalls(redis, 2)
    await look(calls)
    first, later, other_shard = ended(), ended(), ended(shard=1)
    for call in (first, later, other_shard):
        calls.remember(call)
    places = [await by_worker(redis, call) for call in (first, later)]
    await by_worker(redis, other_shard)
    await look(calls)
    assert set(calls._calls) == {first.id, later.id, other_shard.id}
    await ended_stream.write_checked(redis, 0, places[0], "0-0")
    await look(calls)
    assert set(calls._calls) == {later.id, other_shard.id}
    await look(calls, "2")
    assert [one for one, end in await named(redis) if end is not None] == [later.id]
    assert [one for one, end in await named(redis, 1) if end is not None] == [other_shard.id]


async def test_what_was_reported_is_remembered_until_writers_have_looked_it_up_for_the_last_time(
    redis: Connection,
) -> None:
    """Redis is lost twice: what was reported to the first is reported to the second."""
    calls, call = UnrecordedCalls(redis, 1), ended()
    await look(calls)
    calls.remember(call)
    for run_id in ("2", "3"):
        await redis.call("FLUSHALL")
        await look(calls, run_id)
        await by_worker(redis, ended())
        assert (await named(redis))[0][0] == call.id
    first, second = [
        entry.decode() for entry, _ in await redis.call("XRANGE", layout.ended_key(0), "-", "+")
    ]
    await ended_stream.write_checked(redis, 0, second, "0-0")
    await look(calls, "3")
    assert calls.count == 1
    await ended_stream.write_checked(redis, 0, second, first)
    await look(calls, "3")
    assert calls.count == 0 and len(await named(redis)) == 2


async def test_a_call_that_nobody_named_is_reported(redis: Connection) -> None:
    """Its worker died, or so many ended that its name was cut off the stream: without a report it
    would be remembered for ever."""
    calls, call = UnrecordedCalls(redis, 1), ended()
    await look(calls, at_ms=1_000)
    calls.remember(call)
    for at_ms, is_reported in ((1_000 + UNNAMED_MS, False), (1_001 + UNNAMED_MS, True)):
        await redis.call("XADD", layout.ended_key(0), f"{at_ms}-0", "c", ended().id)
        await ended_stream.write_checked(redis, 0, f"{at_ms}-0", "0-0")
        await look(calls, at_ms=at_ms)
        assert [one for one, end in await named(redis) if end is not None] == (
            [call.id] if is_reported else []
        )


async def test_names_are_read_in_pages_and_a_gateway_without_the_right_to_them_goes_on(
    redis: Connection, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.unrecorded_calls.PAGE", 3)
    monkeypatch.setattr("gateway.unrecorded_calls.PAGES_A_LOOK", 2)
    calls, all_ended = UnrecordedCalls(redis, 1), [ended() for _ in range(10)]
    for call in all_ended:
        calls.remember(call)
    places = [await by_worker(redis, call) for call in all_ended]
    await ended_stream.write_checked(redis, 0, places[-1], "0-0")
    left = []
    for _ in range(3):
        await look(calls)
        left.append(calls.count)
    assert left == [4, 0, 0]
    await redis.call("SET", layout.checked_key(0), "no ids")
    calls.remember(all_ended[0])
    for _ in range(3):
        await look(calls)
    await look(calls, "2")
    assert [one for one, end in await named(redis) if end is not None] == [all_ended[0].id]
    assert len([r for r in caplog.records if "cannot be read" in r.message]) == 1


@pytest.mark.parametrize("is_lost", [False, True], ids=["it starts", "Redis was lost"])
async def test_a_gateway_does_not_read_what_was_named_before_its_calls_ended(
    redis: Connection, monkeypatch: pytest.MonkeyPatch, is_lost: bool
) -> None:
    calls, old = UnrecordedCalls(redis, 1), ended()
    for _ in range(3):
        await redis.call(
            "XADD",
            layout.ended_key(0),
            "*",
            *(part for _ in range(1000) for part in ("c", ended().id)),
        )
    before = await by_worker(redis, ended())
    await wait_until(lambda: time.time() * 1000 > int(before.split("-")[0]) + 1)
    if is_lost:
        calls.remember(old)
        await look(calls, "0")
    await look(calls)
    mine = ended()
    calls.remember(mine)
    last = await by_worker(redis, mine)
    await ended_stream.write_checked(redis, 0, last, "0-0")
    read = list[tuple[str, bytes | None]]()
    calls_of = ended_stream.calls_of

    def noted(fields: list[bytes]) -> list[tuple[str, bytes | None]]:
        read.extend(calls_of(fields))
        return calls_of(fields)

    monkeypatch.setattr(ended_stream, "calls_of", noted)
    await look(calls)
    assert [call_id for call_id, blob in read if blob is None] == [mine.id]
    assert set(calls._calls) == ({old.id} if is_lost else set())


@pytest.mark.parametrize(("number", "relayed"), [(0, 0), (5, -1)])
async def test_of_a_call_that_this_gateway_has_no_more_nobody_says_how_far_it_came(
    redis: Connection, bus: Bus, number: int, relayed: int
) -> None:
    """A Redis without its last second has a call open again that ended; a worker takes it over, and
    its keepalive comes here."""
    call = opened()
    await on_stream(redis, call)
    bus._deliver(Reply(call.id, number, number, processed=3, keepalive=True))
    found: list[Any] = []
    while not found:
        found = await redis.call("XRANGE", call.appender.stream_key, "1-0", "+")
    entries = [layout.unpack_entry(fields[1]) for _, fields in found]
    assert [(entry.seq, entry.kind, entry.text, entry.number) for entry in entries] == [
        (4, "closed", "client_gone", relayed)
    ]


async def test_an_end_that_was_queued_behind_entries_that_redis_first_refused_comes_after_them(
    redis: Connection, bus: Bus
) -> None:
    call = opened()
    await on_stream(redis, call)
    call.appender.append("eof")
    entries = call.appender.next_entries(1)
    call.close("complete")
    bus._appends.send_last(call, entries)

    async def kinds() -> list[str]:
        return [
            layout.unpack_entry(f[1]).kind
            for _, f in await redis.call("XRANGE", call.appender.stream_key, "1-0", "+")
        ]

    async with asyncio.timeout(10):
        while await kinds() != ["eof", "closed"]:
            await asyncio.sleep(0.01)


async def test_two_looks_at_once_name_each_call_once(redis: Connection) -> None:
    """A heartbeat is also given between two, when much was read."""
    calls = UnrecordedCalls(redis, 1)
    lost = [ended(reason="stream_timeout") for _ in range(5)]
    for call in lost:
        calls.report(call)
    await asyncio.gather(*(look(calls) for _ in range(3)))
    assert sorted(one for one, _ in await named(redis)) == sorted(call.id for call in lost)
    assert not calls.is_reporting


async def test_so_many_calls_are_remembered_and_of_one_key_half_as_many(
    redis: Connection, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        f"'MAXLEN', '~', {MAX_ENDED_CALLS}," in lua.SOURCES["finish"]
        and MAX_REMEMBERED_CALLS == 50_000
    )
    monkeypatch.setattr("gateway.unrecorded_calls.MAX_REMEMBERED_CALLS", 100)
    calls = UnrecordedCalls(redis, 1)
    await look(calls)
    for call in [
        *(ended(key="hostile") for _ in range(90)),
        *(ended(key="other") for _ in range(20)),
    ]:
        calls.remember(call)
    assert calls._held == {"hostile": 50, "other": 20}
    await look(calls)
    assert not calls.warnings
    # only now are those missed that were left out
    await look(calls, "2")
    await look(calls, "3")
    assert (
        "Redis may have lost more ended calls than the 100 that a gateway remembers"
        in calls.warnings[0]
    )
    assert [r.message for r in caplog.records].count(
        "too many ended calls to check: the audit log may lack some without a mark"
    ) == 1


async def test_calls_that_were_left_out_are_no_matter_once_writers_have_caught_up(
    redis: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.unrecorded_calls.MAX_REMEMBERED_CALLS", 2)
    calls = UnrecordedCalls(redis, 1)
    await look(calls, at_ms=5)
    for _ in range(3):
        calls.remember(ended())
    await ended_stream.write_checked(redis, 0, f"{UNNAMED_MS + 9}-0", "0-0")
    await look(calls, at_ms=UNNAMED_MS + 9)
    await look(calls, "2")
    assert not calls.warnings
    calls.report(ended(reason="stream_lost"))
    calls.report(ended(reason="stream_lost"))
    assert calls.warnings


class Counting:
    """A Redis that counts what it is asked, and can be away."""

    def __init__(self, redis: Connection) -> None:
        self.redis, self.asked, self.is_away = redis, 0, False

    async def call(self, *command: Any) -> Any:
        self.asked += 1
        if self.is_away:
            raise StreamConnectionLost("away")
        return await self.redis.call(*command)


async def test_a_sign_of_life_does_not_wait_for_ten_thousand_calls_to_be_named(
    redis: Connection,
) -> None:
    """One entry for each took 23 s at 2 ms a round trip: after 15 s workers take the gateway for
    gone, and end its open calls."""
    counting = Counting(redis)
    calls = UnrecordedCalls(counting, 2)  # type: ignore[arg-type]
    await look(calls)
    lost = [ended(shard=n % 2) for n in range(10_000)]
    for call in lost:
        calls.remember(call)
    looks = 0
    while looks == 0 or calls.is_reporting:
        counting.asked, looks = 0, looks + 1
        await look(calls, "2")
        assert counting.asked <= 10 + 2 * 2
        if looks == 2:
            # and what is not reported by then is reported in its order
            counting.is_away = True
            with pytest.raises(StreamConnectionLost):
                await look(calls, "2")
            counting.is_away = False
    assert looks <= 13
    for shard in (0, 1):
        assert [
            one
            for one, end in await named(redis, shard)
            if end is not None and end.text == "complete"
        ] == [call.id for call in lost[shard::2]]


async def test_an_entry_that_names_calls_is_no_larger_than_its_bound(redis: Connection) -> None:
    calls = UnrecordedCalls(redis, 1)
    for _ in range(9):
        call = opened()
        call.outgoing.write_error(b"x" * (ENTRY_BYTES // 4))
        call.close("stream_timeout")
        calls.report(call)
    await look(calls)
    entries = await redis.call("XRANGE", layout.ended_key(0), "-", "+")
    assert [len(values_of(fields, b"c")) for _, fields in entries] == [4, 4, 1]
