"""Keys of a call in Redis that were taken away or spoilt, and a gateway that reads nothing: one end
for the call, nothing for others."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.ready_and_metrics import Status
from protocol.records import EndRecord, EventRecord, Record, decode_records
from settings.config import Config
from settings.runtime import Runtime
from streams import layout, scripts
from streams.clock import ClockWatch
from streams.connection import Connection
from streams.layout import Entry, Reply
from streams.metrics import ProcessFigures
from tests.support.json_values import as_json
from tests.support.servers.dispatch import GATEWAY, begin, dispatched, with_gateway, working
from tests.support.waiting import wait_until
from workers.policy.call.owned import OwnedCall
from workers.policy.worker import PolicyWorker

Spoil = Callable[[Connection, str], Any]


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Connection]:
    async with with_gateway(redis_url) as connection:
        yield connection


@pytest.fixture
async def worker(
    redis: Connection, redis_url: str, database_url: str
) -> AsyncIterator[PolicyWorker]:
    limits = {"lease_s": 1.0, "reply_entries": 50, "judge_s": 1.0, "commit_s": 1.0}
    async with working(
        redis_url,
        database_url,
        "w1",
        {"policies": {"default": [{"use": "noop"}]}, "limits": limits},
    ) as made:
        yield made


def chunk(text: str) -> bytes:
    return (
        b"data: "
        + as_json(
            {
                "id": "c",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": "demo",
                "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}],
            }
        )
        + b"\n\n"
    )


async def append(redis: Connection, call: OwnedCall, entry: Entry) -> None:
    await redis.call(
        "XADD",
        layout.call_key(call.id),
        "NOMKSTREAM",
        f"{entry.seq}-0",
        layout.BLOB,
        layout.pack(entry),
    )
    await redis.call("PUBLISH", layout.chunk_channel(call.id), layout.pack(entry))


async def recorded(redis: Connection) -> list[Record]:
    entries = await redis.call("XRANGE", layout.audit_key(0), "-", "+")
    return [
        r for _, fields in entries for blob in layout.blobs(fields) for r in decode_records(blob)
    ]


async def ends(redis: Connection, call_id: str) -> list[str]:
    return [
        r.reason for r in await recorded(redis) if isinstance(r, EndRecord) and r.call_id == call_id
    ]


async def told(redis: Connection, call_id: str) -> list[str]:
    """The reasons with which the gateway was told to give the call up."""
    entries = await redis.call("XRANGE", layout.reply_key(0, GATEWAY), "-", "+")
    replies: list[Reply] = [
        layout.unpack_reply(blob) for _, fields in entries for blob in layout.blobs(fields)
    ]
    return [r.failed for r in replies if r.call_id == call_id and r.failed]


async def eventually(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    is_so: bool = await wait_until(condition, what=what)
    assert is_so


async def ends_once(redis: Connection, call_id: str, *reasons: str) -> None:
    async def has_end() -> bool:
        return bool(await ends(redis, call_id))

    await eventually(has_end, "its end")
    await eventually(lambda: _is_taken_away(redis, call_id), "nothing is left to claim")
    assert len(await ends(redis, call_id)) == 1 and (await ends(redis, call_id))[0] in reasons, (
        await ends(redis, call_id)
    )


async def _is_taken_away(redis: Connection, call_id: str) -> bool:
    return call_id.encode() not in [
        fields[1] for _, fields in await redis.call("XRANGE", layout.dispatch_key(0), "-", "+")
    ]


async def goes_on(redis: Connection, call: OwnedCall, worker: PolicyWorker) -> None:
    """A call beside it is still this worker's, and is served to its end."""
    before = call.queue.released
    await append(redis, call, Entry(call.inbox.expected, 1, "chunks", [chunk("one two three")]))
    await wait_until(lambda: call.queue.released > before, what="it goes on")
    assert worker.calls[call.id] is call
    await append(
        redis,
        call,
        Entry(call.inbox.expected, 1, "closed", text="client_gone", number=call.queue.released),
    )
    await ends_once(redis, call.id, "client_gone")


async def no_number(redis: Connection, call_id: str) -> None:
    await redis.call("HSET", layout.ctl_key(call_id), "n", "xx")


async def no_hash(redis: Connection, call_id: str) -> None:
    await redis.call("SET", layout.ctl_key(call_id), "spoilt", "PX", 600_000)


async def no_lease(redis: Connection, call_id: str) -> None:
    await redis.call("DEL", layout.ctl_key(call_id))


async def no_stream(redis: Connection, call_id: str) -> None:
    await redis.call("DEL", layout.call_key(call_id))


async def other_stream(redis: Connection, call_id: str) -> None:
    await redis.call("SET", layout.call_key(call_id), "spoilt", "PX", 600_000)


SPOILT: dict[str, tuple[Spoil, tuple[str, ...]]] = {
    "number": (no_number, ("stream_protocol_error",)),
    "no hash": (no_hash, ("stream_lost",)),
    "no lease": (no_lease, ("stream_lost",)),
    "no stream": (no_stream, ("stream_lost",)),
    "other stream": (other_stream, ("stream_lost",)),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", SPOILT)
async def test_an_idle_call_whose_keys_are_spoilt_ends_once_and_alone(
    redis: Connection, worker: PolicyWorker, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    spoil, reasons = SPOILT[what]
    other, call = await dispatched(redis, worker), await dispatched(redis, worker)
    await spoil(redis, call.id)
    if what == "number":
        # the owner notices with what it releases next
        await append(redis, call, Entry(1, 1, "chunks", [chunk("one two three")]))
    await ends_once(redis, call.id, *reasons)
    assert await told(redis, call.id) == [*reasons]
    assert [r.message for r in caplog.records].count("claim failed") == 0
    await goes_on(redis, other, worker)


@pytest.mark.slow
@pytest.mark.parametrize("what", SPOILT)
async def test_a_call_whose_keys_are_spoilt_in_the_middle_of_a_release_ends_once_and_alone(
    redis: Connection, worker: PolicyWorker, what: str
) -> None:
    spoil, reasons = SPOILT[what]
    other, call = await dispatched(redis, worker), await dispatched(redis, worker)
    await spoil(redis, call.id)
    for one in (other,) if what == "other stream" else (call, other):
        await append(redis, one, Entry(1, 1, "chunks", [chunk("one two three")]))
    await ends_once(redis, call.id, *reasons)
    await goes_on(redis, other, worker)


@pytest.mark.parametrize("what", SPOILT)
async def test_a_call_whose_keys_are_spoilt_while_nobody_has_it_ends_once(
    redis: Connection,
    redis_url: str,
    database_url: str,
    what: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its owner was killed; the next worker finds what is left."""
    spoil, reasons = SPOILT[what]
    call_ids = [await begin(redis) for _ in range(2)]
    found = (
        await redis.call(
            "XREADGROUP", "GROUP", "policy", "dead", "STREAMS", layout.dispatch_key(0), ">"
        )
    )[0][1]
    for call_id, (entry, _) in zip(call_ids, found, strict=True):
        await redis.call(
            "HSET",
            layout.ctl_key(call_id),
            "t",
            "dead",
            "n",
            0,
            "h",
            "",
            "s",
            0,
            "e",
            entry,
            "k",
            0,
            "kn",
            -1,
        )
        await redis.call(
            "XCLAIM", layout.dispatch_key(0), "policy", "dead", 0, entry, "IDLE", 600_000, "JUSTID"
        )
    await spoil(redis, call_ids[0])
    config = Config.model_validate(
        {"policies": {"default": [{"use": "noop"}]}, "limits": {"lease_s": 1.0}}
    )
    made = PolicyWorker(
        Runtime(config=config, redis_url=redis_url, database_url=database_url, name="w1")
    )
    running = asyncio.create_task(made.run())
    try:
        if what != "no lease":
            # without its lease it is a new one: it is begun again, or refused where it is too late
            async def has_end() -> bool:
                return bool(await ends(redis, call_ids[0]))

            await eventually(has_end, "its end")
            assert (await ends(redis, call_ids[0]))[0] in reasons
            assert await redis.call("HGET", layout.ctl_key(call_ids[0]), "t") == b"closed"
        await wait_until(
            lambda: call_ids[1] in made.calls, timeout_s=10, what="the other is taken over"
        )
        assert [r.message for r in caplog.records].count("claim failed") == 0
    finally:
        running.cancel()
        await asyncio.wait({running})


async def test_a_call_that_waits_for_a_fact_ends_when_its_facts_are_spoilt(
    redis: Connection, worker: PolicyWorker
) -> None:
    call = await dispatched(redis, worker)
    await redis.call("SET", layout.facts_key(call.id), "spoilt", "PX", 600_000)
    call.waits.open_commits.add(0)
    call.waits.new_commits.append(0)
    worker.calls.after(call)
    await ends_once(redis, call.id, "stream_lost")
    assert await told(redis, call.id) == ["stream_lost"]


async def test_a_call_that_its_deaf_gateway_has_ended_has_its_end(
    redis: Connection, worker: PolicyWorker
) -> None:
    """The gateway shows life and reads nothing: its reply stream is full, what is to be released
    waits for ever."""
    call = await dispatched(redis, worker)
    for _ in range(60):
        await redis.call("XADD", layout.reply_key(0, GATEWAY), "*", layout.BLOB, b"unread")
    await append(redis, call, Entry(1, 1, "chunks", [chunk("one two three")]))
    await wait_until(lambda: call.queue.sending is not None, what="a release is refused")
    await append(redis, call, Entry(2, 1, "closed", text="stream_timeout", number=1))
    await ends_once(redis, call.id, "stream_timeout")
    chunks = [r for r in await recorded(redis) if not isinstance(r, EndRecord | EventRecord)]
    assert any(b"one two three" in b"".join(getattr(r, "raw", [])) for r in chunks), (
        "what came is on record"
    )


async def test_a_release_that_meets_a_spoilt_lease_goes_through_for_the_others(
    redis: Connection,
) -> None:
    good, bad = layout.new_call_id(), layout.new_call_id()
    await redis.call("HSET", layout.ctl_key(good), "t", "me", "n", 0, "h", "", "s", 0)
    await redis.call("SET", layout.ctl_key(bad), "spoilt", "PX", 60_000)
    rows = [
        (layout.ctl_key(call_id), "me", 0, 1, "h", 1, b"reply", b"audit", "p", "r", 1)
        for call_id in (bad, good)
    ]
    said = await scripts.release(
        redis, 0, GATEWAY, rows, max_reply=100, reply_ttl_ms=60_000, is_strict=False
    )
    assert said == [b"GONE", b"OK"]
    entry = await redis.call(
        "XADD", layout.dispatch_key(0), "*", "c", good, "d", int(time.time() * 1000)
    )
    await redis.call("XREADGROUP", "GROUP", "policy", "w", "STREAMS", layout.dispatch_key(0), ">")
    leases = [(call_id, "me", entry.decode()) for call_id in (bad, good)]
    assert await scripts.renew(redis, 0, "w", 60_000, leases) == [b"GONE", b"OK"]


async def test_a_spoilt_count_takes_no_other_figure_with_it(redis: Connection) -> None:
    await redis.call("HSET", layout.counts_key(0), "TOOL_CALLS_BLOCKED", "spoilt")
    bus: Any = SimpleNamespace(
        figures=ProcessFigures(),
        redis=redis,
        shards=1,
        calls={},
        heartbeat=SimpleNamespace(clock=ClockWatch()),
    )
    status = Status(bus)
    assert b"sluice_open_calls 0.0" in await status.metrics()
