"""A policy worker on a real Redis: what one key has waiting does not stand before what another
key's call needs."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from protocol.bounds import MAX_UNRECORDED_BYTES
from protocol.records import ChunksRecord, decode_records
from streams import layout
from streams.connection import Connection
from streams.layout import Entry
from tests.support.servers.dispatch import dispatched, with_gateway, working
from tests.support.waiting import wait_until
from workers.policy.call.owned import OwnedCall
from workers.policy.worker import PolicyWorker

DELTAS = 20_000
AUDIT = layout.audit_key(0)


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Connection]:
    async with with_gateway(redis_url) as connection:
        await connection.call("XGROUP", "CREATE", AUDIT, layout.AUDIT_GROUP, "0", "MKSTREAM")
        yield connection


@pytest.fixture
async def worker(
    redis: Connection, redis_url: str, database_url: str
) -> AsyncIterator[PolicyWorker]:
    config = {"policies": {"default": [{"use": "noop"}]}, "limits": {"lease_s": 60.0}}
    async with working(redis_url, database_url, "w1", config) as made:
        yield made


def deltas(redis: Connection, call: OwnedCall, count: int, *, stored: bool = True) -> None:
    """Append so many, each an entry of its own, and let the worker hear of them. Those that are not
    `stored` no sweep can find."""
    delta = {
        "id": "c",
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": {"content": "a"}}],
    }
    chunk = f"data: {json.dumps(delta)}\n\n".encode()
    for seq in range(1, count + 1):
        blob = layout.pack(Entry(seq, 1, "chunks", [chunk]))
        if stored:
            redis.send_quiet("XADD", layout.call_key(call.id), f"{seq}-0", layout.BLOB, blob)
        redis.send_quiet("PUBLISH", layout.chunk_channel(call.id), blob)


def chunks_on_record(entries: list[tuple[bytes, list[bytes]]], call: OwnedCall) -> int:
    records = [
        record
        for _, fields in entries
        for blob in layout.blobs(fields)
        for record in decode_records(blob)
    ]
    return sum(len(r.raw) for r in records if isinstance(r, ChunksRecord) and r.call_id == call.id)


async def test_a_chunk_of_one_key_is_decided_before_what_another_has_waiting(
    redis: Connection, worker: PolicyWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before: after all 20,000."""
    hostile, innocent = await dispatched(redis, worker, "a"), await dispatched(redis, worker, "b")

    async def write_away() -> None:
        while True:
            await redis.call(
                "XREADGROUP", "GROUP", layout.AUDIT_GROUP, "writer", "STREAMS", AUDIT, ">"
            )
            await asyncio.sleep(0)

    writer = asyncio.create_task(write_away())
    steps, feed = list[int](), OwnedCall.feed_entry

    def note(call: OwnedCall, entry: Entry) -> bool:
        if call is innocent:
            steps.append(hostile.inbox.expected)
        return feed(call, entry)

    monkeypatch.setattr(OwnedCall, "feed_entry", note)
    redis.send_quiet("MULTI")
    deltas(redis, hostile, DELTAS)
    deltas(redis, innocent, 1, stored=False)
    await redis.call("EXEC")
    await wait_until(lambda: bool(steps) and hostile.inbox.expected == DELTAS + 1, timeout_s=60)
    writer.cancel()
    assert steps[0] < DELTAS / 2
    assert innocent.inbox.expected == 2


async def test_what_stands_before_a_record_of_another_key_is_bounded(
    redis: Connection, worker: PolicyWorker
) -> None:
    """Before: 20,000 chunks stood before it, on a stream that is written in order."""
    hostile, innocent = await dispatched(redis, worker, "a"), await dispatched(redis, worker, "b")
    entries = [entry for _, found in await redis.call(*_TAKE) for entry in found]
    deltas(redis, hostile, DELTAS)
    await wait_until(lambda: "a" in worker.calls.fair.queues, timeout_s=60)
    deltas(redis, innocent, 1)
    await wait_until(lambda: innocent.inbox.expected == 2 and innocent.queue.sending is None)
    entries = [entry for _, found in await redis.call(*_TAKE) for entry in found]
    assert chunks_on_record(entries, innocent) == 1
    assert sum(len(field) for _, fields in entries for field in fields) < 3 * MAX_UNRECORDED_BYTES
    while hostile.inbox.expected <= DELTAS:
        await redis.call(*_TAKE)
        await asyncio.sleep(0.01)


async def test_the_end_of_a_call_counts_among_what_waits_for_the_writers(
    redis: Connection, worker: PolicyWorker
) -> None:
    call = await dispatched(redis, worker, "a")
    call.note("test", 0, "x" * MAX_UNRECORDED_BYTES, 1)
    worker.calls.close(call, "policy_failed")
    await wait_until(lambda: "a" in worker.calls.fair.queues, what="its key is held")


_TAKE = ("XREADGROUP", "GROUP", layout.AUDIT_GROUP, "writer", "STREAMS", AUDIT, ">")
