"""Calls on record without an end, of which Redis knows nothing any more: an audit writer ends them, and only them."""

import asyncio
from typing import Any

import pytest

from protocol.config import Config, Limits, Runtime
from protocol.records import EndRecord, Record, encode_records
from streams import layout
from tests.support.record import NOW, call_record, rows
from tests.support.waiting import wait_until
from workers.audit import AuditWriter


@pytest.mark.case("R2")
async def test_r2_a_call_whose_end_was_lost_is_ended_in_the_record(redis_url: str, url: str, store: Any) -> None:
    lost, owned, ended, waiting = (layout.new_call_id() for _ in range(4))
    store.hset(layout.ctl_key(owned), "t", "somebody")
    end = EndRecord(call_id=ended, at=NOW, state="ENDED", reason="complete", status=200)
    records: list[Record] = [*(call_record(c) for c in (lost, owned, ended, waiting)), end]
    for record in records:
        store.xadd(layout.audit_key(0), {layout.BLOB: encode_records([record])})
    config = Config(limits=Limits(ended_ttl_s=0.4))
    writer = AuditWriter(Runtime(config=config, redis_url=redis_url, database_url=url, name="w"))
    task = asyncio.create_task(writer.run())
    try:
        await wait_until(lambda: rows(url, "SELECT count(*) FROM ends") == [(1,)], what="the first end")
        # this one's end is with a writer that is busy: it must come as it was written
        late = EndRecord(call_id=waiting, at=NOW, state="ENDED", reason="complete", status=200)
        store.xadd(layout.audit_key(0), {layout.BLOB: encode_records([late])})
        await wait_until(lambda: rows(url, "SELECT count(*) FROM ends") == [(3,)], what="the lost call's end")
        # longer than any look takes
        await asyncio.sleep(1.5)
    finally:
        writer.stop()
        await task
    found = rows(url, "SELECT call_id::text, state, reason FROM ends ORDER BY call_id")
    assert sorted(found) == sorted([(lost, "FAILED", "stream_lost"), (ended, "ENDED", "complete"), (waiting, "ENDED", "complete")])
    assert writer.conflicts == 0
