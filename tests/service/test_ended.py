"""Calls that ended are named in Redis: by the step that ends them, and by a gateway whose Redis may have lost them."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.bus import Bus
from gateway.calls import OpenCall
from gateway.lost import ENTRY_BYTES, REMEMBERED_S, EndsToTell
from protocol.bounds import MAX_ENDED_CALLS, MAX_REMEMBERED_CALLS
from protocol.config import Limits
from protocol.dialects import DIALECTS
from protocol.errors import StreamConnectionLost
from streams import layout, scripts
from streams.connection import Connection
from streams.layout import Reply
from tests.support.waiting import wait_until


@pytest.fixture
async def bus(redis: Connection, redis_url: str) -> AsyncIterator[Bus]:
    made = Bus(redis_url, "g", Limits(), 1)
    await made.open()
    yield made
    await made.close()


def opened(*, is_begun: bool = True) -> OpenCall:
    call = OpenCall(layout.new_call_id(), DIALECTS["openai"], b"{}", activity_s=9, deadline=time.monotonic() + 9)
    call.is_begun = is_begun
    return call


def ended(call: OpenCall) -> layout.Entry:
    assert call.last is not None
    return call.last


async def on_stream(redis: Connection, call: OpenCall) -> None:
    await redis.call("XADD", call.stream_key, layout.START_ID, layout.BLOB, b"")


def values_of(fields: list[bytes], name: bytes) -> list[bytes]:
    return [value for field, value in zip(fields[::2], fields[1::2], strict=True) if field == name]


async def named(redis: Connection, shard: int = 0) -> list[tuple[str, layout.Entry | None]]:
    """The calls on the `ended` stream, each with its end where a gateway named it."""
    found: list[tuple[str, layout.Entry | None]] = []
    for _, fields in await redis.call("XRANGE", layout.ended_key(shard), "-", "+"):
        calls, ends = values_of(fields, b"c"), values_of(fields, b"b")
        found += zip(map(bytes.decode, calls), map(layout.unpack_entry, ends) if ends else [None] * len(calls), strict=True)
    return found


async def look(bus: Bus, run_id: str = "1", *, known: bool = True) -> None:
    await bus._lost.look(run_id, known=known)


async def test_a_call_whose_stream_is_lost_is_named_with_its_end(redis: Connection, bus: Bus) -> None:
    call = opened()
    call.on_reply(Reply(call.id, 0, 2, data=b"said"))
    call.take_out()
    call.append("eof")
    bus.append(call)
    await wait_until(lambda: call.is_lost)
    assert call.error is not None and call.error.error_code == "stream_lost"
    bus.end(call, "stream_lost")
    await look(bus)
    [(call_id, end)] = await named(redis)
    assert call_id == call.id and end is not None and (end.kind, end.text, end.number) == ("closed", "stream_lost", 2)
    assert layout.unpack_relayed(end.chunks[0]).releases == 1


async def test_a_call_whose_end_finds_no_stream_is_named_once(redis: Connection, bus: Bus) -> None:
    call = opened()
    bus.end(call, "complete")
    await wait_until(lambda: call.is_lost)
    await look(bus)
    await look(bus)
    assert [one for one, _ in await named(redis)] == [call.id]


async def test_a_call_that_its_worker_gave_up_is_named_with_what_was_relayed(redis: Connection, bus: Bus) -> None:
    """Its worker has written the end, and reads no other: without the gateway's word a release that the record lost is missed by nobody."""
    call = opened()
    await on_stream(redis, call)
    await look(bus)
    call.on_reply(Reply(call.id, 0, 2, data=b"said"))
    call.take_out()
    call.on_reply(Reply(call.id, 2, 2, failed="stream_protocol_error"))
    bus.end(call, "stream_protocol_error")
    await wait_until(lambda: bus._lost._remembered)
    await look(bus)
    [(call_id, end)] = await named(redis)
    assert call_id == call.id and end is not None and (end.number, layout.unpack_relayed(end.chunks[0]).releases) == (2, 1)


async def test_a_call_that_never_began_is_not_named(redis: Connection, bus: Bus) -> None:
    call = opened(is_begun=False)
    bus.end(call, "overloaded")
    await wait_until(lambda: call.is_lost)
    await look(bus)
    assert await named(redis) == []


@pytest.mark.parametrize("how", ["another process", "empty"])
async def test_calls_that_ended_just_before_redis_came_back_are_named(redis: Connection, bus: Bus, how: str) -> None:
    call = opened()
    await on_stream(redis, call)
    await look(bus)
    bus.end(call, "complete")
    await wait_until(lambda: bus._lost._remembered)
    await look(bus)
    assert await named(redis) == []
    if how == "empty":
        await redis.call("FLUSHALL")
        await look(bus, known=await bus._lost.is_known())
    else:
        await look(bus, "2")
    [(call_id, end)] = await named(redis)
    assert call_id == call.id and end is not None and end.text == "complete"


async def test_a_living_gateway_names_what_ended_before_redis_was_emptied(redis: Connection, bus: Bus) -> None:
    await bus._beat()
    call = opened()
    await on_stream(redis, call)
    bus.end(call, "complete")
    await wait_until(lambda: bus._lost._remembered)
    await bus._beat()
    assert await named(redis) == []
    await redis.call("FLUSHALL")
    await bus._beat()
    assert [one for one, _ in await named(redis)] == [call.id]


@pytest.mark.parametrize(("number", "relayed"), [(0, 0), (5, -1)])
async def test_of_a_call_that_this_gateway_has_no_more_nobody_says_how_far_it_came(
    redis: Connection, bus: Bus, number: int, relayed: int
) -> None:
    """A Redis without its last second has a call open again that ended; a worker takes it over, and its keepalive comes here."""
    call = opened()
    await on_stream(redis, call)
    bus._deliver(Reply(call.id, number, number, processed=3, keepalive=True))
    found: list[Any] = []
    while not found:
        found = await redis.call("XRANGE", call.stream_key, "1-0", "+")
    entries = [layout.unpack_entry(fields[1]) for _, fields in found]
    assert [(entry.seq, entry.kind, entry.text, entry.number) for entry in entries] == [(4, "closed", "client_gone", relayed)]


async def test_an_end_that_was_queued_behind_entries_that_redis_first_refused_comes_after_them(redis: Connection, bus: Bus) -> None:
    call = opened()
    await on_stream(redis, call)
    call.append("eof")
    entries = call.next_entries(1)
    call.close("complete")
    bus._send_last(call, entries)

    async def kinds() -> list[str]:
        return [layout.unpack_entry(f[1]).kind for _, f in (await redis.call("XRANGE", call.stream_key, "1-0", "+"))]

    async with asyncio.timeout(10):
        while await kinds() != ["eof", "closed"]:
            await asyncio.sleep(0.01)
    await wait_until(lambda: bus._lost._remembered)


async def test_what_ended_long_before_is_forgotten(redis: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = EndsToTell(redis, "g", 1)
    await lost.look("1", known=True)
    call = opened()
    call.close("complete")
    lost.remember(call.id, ended(call))
    now = time.monotonic()
    monkeypatch.setattr("gateway.lost.time.monotonic", lambda: now + REMEMBERED_S + 1)
    await lost.look("1", known=True)
    await lost.look("2", known=True)
    assert await named(redis) == []


async def test_two_looks_at_once_name_each_call_once(redis: Connection) -> None:
    """A heartbeat is also given between two, when much was read."""
    lost = EndsToTell(redis, "g", 1)
    calls = [opened() for _ in range(5)]
    for call in calls:
        call.close("stream_timeout")
        lost.tell(call)
    await asyncio.gather(*(lost.look("1", known=True) for _ in range(3)))
    assert sorted(one for one, _ in await named(redis)) == sorted(call.id for call in calls)
    assert not any(lost._to_tell)


async def test_so_many_calls_are_remembered_and_named(redis: Connection, caplog: pytest.LogCaptureFixture) -> None:
    lost = EndsToTell(redis, "g", 1)
    await lost.look("1", known=True)
    call = opened()
    call.close("complete")
    for _ in range(MAX_REMEMBERED_CALLS + 9):
        lost.remember(call.id, ended(call))
    assert len(lost._remembered) == MAX_REMEMBERED_CALLS
    await lost.look("1", known=True)
    assert not lost.warnings
    # only now are those missed that were forgotten
    await lost.look("2", known=True)
    assert "Redis may have lost more ended calls than the 10,000 that a gateway remembers" in lost.warnings[0]
    assert f"'MAXLEN', '~', {MAX_ENDED_CALLS}," in scripts.FINISH
    assert [r.message for r in caplog.records].count("too many ended calls to check: the audit log may lack some without a mark") == 1


async def test_calls_past_the_bound_that_are_to_be_told_are_no_secret(redis: Connection, caplog: pytest.LogCaptureFixture) -> None:
    lost = EndsToTell(redis, "g", 2)
    call = opened()
    call.close("stream_lost")
    for _ in range(MAX_REMEMBERED_CALLS):
        lost.tell(call)
    assert not lost.warnings
    lost.tell(call)
    lost.tell(call)
    assert lost.warnings and sum(map(len, lost._to_tell)) == MAX_REMEMBERED_CALLS
    assert len([r for r in caplog.records if "too many ended calls to check" in r.message]) == 1


class Counting:
    """A Redis that counts what it is asked, and can be away."""

    def __init__(self, redis: Connection) -> None:
        self.redis, self.asked, self.is_away = redis, 0, False

    async def call(self, *command: Any) -> Any:
        self.asked += 1
        if self.is_away:
            raise StreamConnectionLost("away")
        return await self.redis.call(*command)


async def test_a_sign_of_life_does_not_wait_for_ten_thousand_calls_to_be_named(redis: Connection) -> None:
    """One entry for each took 23 s at 2 ms a round trip: after 15 s workers take the gateway for gone, and end its open calls."""
    counting = Counting(redis)
    lost = EndsToTell(counting, "g", 2)  # type: ignore[arg-type]
    await lost.look("1", known=True)
    calls = [f"{opened().id[:-2]}{n % 2:02x}" for n in range(MAX_REMEMBERED_CALLS)]
    call = opened()
    call.close("complete")
    for call_id in calls:
        lost.remember(call_id, ended(call))
    looks = 0
    while looks == 0 or any(lost._to_tell):
        counting.asked, looks = 0, looks + 1
        await lost.look("2", known=True)
        assert counting.asked <= 10
        if looks == 2:
            # and what is not told by then is told in its order
            counting.is_away = True
            with pytest.raises(StreamConnectionLost):
                await lost.look("2", known=True)
            counting.is_away = False
    assert looks <= 6
    for shard in (0, 1):
        assert [one for one, end in await named(redis, shard) if end is not None and end.text == "complete"] == calls[shard::2]


async def test_an_entry_that_names_calls_is_no_larger_than_its_bound(redis: Connection) -> None:
    lost = EndsToTell(redis, "g", 1)
    call = opened()
    call.own = b"x" * (ENTRY_BYTES // 4)
    call.close("stream_timeout")
    for _ in range(9):
        lost.tell(call)
    await lost.look("1", known=True)
    entries = await redis.call("XRANGE", layout.ended_key(0), "-", "+")
    assert [len(values_of(fields, b"c")) for _, fields in entries] == [4, 4, 1]
