"""Calls on record without an end, of which Redis knows nothing any more: an audit writer ends them,
and only them."""

import asyncio
import time
from typing import Any

import pytest

from protocol.records import EndRecord, Record, encode_records
from settings.config import Config
from settings.limits import Limits
from settings.runtime import Runtime
from streams import layout
from streams.connection import Connection
from tests.support.checks.record import call_record, now_ms, rows
from tests.support.waiting import wait_until
from workers.audit.orphaned import FAR_EVERY, OrphanedCalls
from workers.audit.writer import AuditWriter


@pytest.mark.slow
@pytest.mark.case("R2")
async def test_r2_a_call_whose_end_was_lost_is_ended_in_the_record(
    redis_url: str, url: str, store: Any
) -> None:
    lost, owned, ended, waiting, closed, spoilt, given_back = (
        layout.new_call_id() for _ in range(7)
    )
    store.hset(layout.ctl_key(owned), "t", "somebody")
    store.hset(layout.ctl_key(given_back), "t", "")
    # somebody wrote that there: no worker did so without an end
    store.hset(layout.ctl_key(closed), "t", layout.CLOSED)
    store.set(layout.ctl_key(spoilt), "no hash")
    end = EndRecord(call_id=ended, at=now_ms(), state="ENDED", reason="complete", status=200)
    records: list[Record] = [
        *(call_record(c) for c in (lost, owned, ended, waiting, closed, spoilt, given_back)),
        end,
    ]
    for record in records:
        store.xadd(layout.audit_key(0), {layout.BLOB: encode_records([record])})
    config = Config(limits=Limits(ended_ttl_s=0.4))
    writer = AuditWriter(Runtime(config=config, redis_url=redis_url, database_url=url, name="w"))
    task = asyncio.create_task(writer.run())
    try:
        await wait_until(
            lambda: rows(url, "SELECT count(*) FROM ends") == [(1,)], what="the first end"
        )
        # this one's end is with a writer that is busy: it must come as it was written
        late = EndRecord(call_id=waiting, at=now_ms(), state="ENDED", reason="complete", status=200)
        store.xadd(layout.audit_key(0), {layout.BLOB: encode_records([late])})
        await wait_until(
            lambda: rows(url, "SELECT count(*) FROM ends") == [(5,)], what="the lost calls' ends"
        )
        # longer than any look takes
        await asyncio.sleep(1.5)
    finally:
        writer.stop()
        await task
    found = rows(url, "SELECT call_id::text, state, reason FROM ends ORDER BY call_id")
    gone = [(call_id, "FAILED", "stream_lost") for call_id in (lost, closed, spoilt)]
    assert sorted(found) == sorted(
        [*gone, (ended, "ENDED", "complete"), (waiting, "ENDED", "complete")]
    )
    assert writer.conflicts == 0


class Asked:
    """An inserter that is only asked which calls are open: none."""

    def __init__(self) -> None:
        self.since = list[str]()

    async def open_calls(self, since: str) -> list[str]:
        self.since.append(since)
        return []


async def test_calls_of_a_gateway_whose_clock_is_hours_behind_are_looked_for_now_and_then(
    redis_url: str,
) -> None:
    hours_ago = f"{int((time.time() - 20 * 3600) * 1000):012x}"
    inserter, lost = Asked(), OrphanedCalls(Connection(redis_url, name="test"), ended_ttl_s=1)
    for _ in range(2 * FAR_EVERY):
        await lost.check(inserter)  # type: ignore[arg-type]
    reached = [since < f"{hours_ago[:8]}-{hours_ago[8:]}" for since in inserter.since]
    assert reached.count(True) == 2 and reached[0] and reached[FAR_EVERY]
