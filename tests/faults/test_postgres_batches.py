"""What an audit writer takes at once is bounded by bytes too, and the end of a call never costs
another's request body."""

import asyncio
from typing import Any

import pytest

from db.state import health
from db.write.insert import AuditInserter
from protocol.records import ChunksRecord, EndRecord, Record, encode_records
from settings.config import Config
from settings.runtime import Runtime
from streams import layout
from tests.support.checks.figures import Figure
from tests.support.checks.reading import insert
from tests.support.checks.record import call_id, call_record, chunks_record, now_ms, rows
from tests.support.servers.writers import writing
from tests.support.waiting import wait_until
from workers.audit import chores, storing
from workers.audit import request_bodies as bodies
from workers.audit.writer import AuditWriter

MB = 2**20
Store = Any


def put(store: Store, records: list[Record]) -> None:
    store.xadd(layout.audit_key(0), {layout.BLOB: encode_records(records)})


def pending(store: Store) -> int:
    return int(store.xpending(layout.audit_key(0), layout.AUDIT_GROUP)["pending"])


async def drained(store: Store) -> None:
    await wait_until(
        lambda: store.xlen(layout.audit_key(0)) == 0, timeout_s=40, what="everything is on record"
    )


@pytest.mark.case("U9", "D1")
@pytest.mark.slow
async def test_d1_a_backlog_of_large_entries_is_read_a_few_at_a_time(
    redis_url: str, url: str, store: Store, figure: Figure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 entries of 2 MB and 40 bodies of 2 MB: without a bound by bytes, 200 MB at once, and
    several times that while they are packed."""
    sizes: list[int] = []
    insert = AuditInserter.insert

    async def noted(self: Any, records: Any, bodies: Any, **look: Any) -> Any:
        sizes.append(
            sum(sum(map(len, r.raw)) for r in records if isinstance(r, ChunksRecord))
            + sum(map(len, bodies.values()))
        )
        return await insert(self, records, bodies, **look)

    monkeypatch.setattr(AuditInserter, "insert", noted)
    for _ in range(60):
        put(store, [chunks_record(call_id(), [b"x" * (2 * MB)])])
    for _ in range(40):
        call = call_id()
        store.set(layout.body_key(call), b"y" * (2 * MB), ex=600)
        put(store, [call_record(call)])
    async with writing(redis_url, url) as writer:
        await drained(store)
    assert writer.conflicts == 0
    assert rows(url, "SELECT count(*), sum(octet_length(raw)) FROM chunks") == [(60, 120 * MB)]
    assert rows(url, "SELECT count(*), sum(octet_length(body)) FROM request_bodies") == [
        (40, 80 * MB)
    ]
    figure("most bytes inserted at once", max(sizes) / MB, "MB")
    # ten entries are read at a time
    assert max(sizes) <= bodies.BATCH_BYTES + 2 * 10 * 2 * MB


@pytest.mark.slow
@pytest.mark.case("R4")
async def test_r4_the_end_of_a_call_before_its_beginning_keeps_the_body(
    redis_url: str, url: str, store: Store
) -> None:
    """Another writer died with the first entry of the call, or its delivery was lost: it comes five
    seconds after the end."""
    call, other = call_id(), call_id()
    for one in (call, other):
        store.set(layout.body_key(one), b'{"model": "x"}', ex=600)
    store.xgroup_create(layout.audit_key(0), layout.AUDIT_GROUP, "0", mkstream=True)
    put(store, [call_record(call)])
    assert store.xreadgroup(layout.AUDIT_GROUP, "dead", {layout.audit_key(0): ">"})
    put(store, [EndRecord(call_id=call, at=now_ms(), state="ENDED", reason="complete", status=200)])
    put(store, [call_record(other)])
    async with writing(redis_url, url):
        await wait_until(
            lambda: rows(url, "SELECT count(*) FROM ends") == [(1,)], what="the end is on record"
        )
        await wait_until(
            lambda: not store.exists(layout.body_key(call)), what="the body is deleted"
        )
        assert store.exists(layout.body_key(other)), (
            "a call that goes on keeps its body, for a takeover"
        )
        await drained(store)
    found = rows(
        url,
        "SELECT body FROM calls JOIN request_bodies USING (call_id) WHERE call_id IN (%s, %s)",
        call,
        other,
    )
    assert found == [(b'{"model": "x"}',)] * 2


async def test_a_large_body_is_written_after_its_calls_records_and_before_they_are_acked(
    redis_url: str, url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole call is on record while its body waits; nothing of it is acked, sealed or deleted
    until the body is there."""
    monkeypatch.setattr(storing, "LATE_S", 3600.0)
    call, other = call_id(), call_id()
    body = b"{" + b"x" * MB + b"}"
    store.set(layout.body_key(call), body, ex=600)
    store.set(layout.body_key(other), b"{}", ex=600)
    async with writing(redis_url, url):
        put(store, [call_record(call)])
        await wait_until(
            lambda: rows(url, "SELECT count(*) FROM calls") == [(1,)], what="the call is on record"
        )
        put(
            store,
            [EndRecord(call_id=call, at=now_ms(), state="ENDED", reason="complete", status=200)],
        )
        await wait_until(
            lambda: rows(url, "SELECT count(*) FROM ends") == [(1,)], what="its end is on record"
        )
        put(store, [call_record(other)])
        await wait_until(
            lambda: rows(url, "SELECT body FROM request_bodies") == [(b"{}",)],
            what="small bodies do not wait behind it",
        )
        await wait_until(lambda: pending(store) == 2, what="what is done is acked, and only that")
        assert store.exists(layout.body_key(call))
        assert rows(url, "SELECT count(*) FROM seals") == [(0,)]
    # a writer that stops puts nothing off
    assert rows(url, "SELECT body FROM request_bodies WHERE call_id = %s", call) == [(body,)]
    assert not store.exists(layout.body_key(call))
    assert pending(store) == 0


async def test_a_large_body_that_waited_in_a_writer_that_died_is_written_by_the_next(
    redis_url: str, url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records were committed, but not acked: they come again."""
    call = call_id()
    store.set(layout.body_key(call), b"y" * MB, ex=600)
    put(
        store,
        [
            call_record(call),
            EndRecord(call_id=call, at=now_ms(), state="ENDED", reason="complete", status=200),
        ],
    )
    with monkeypatch.context() as patched:
        patched.setattr(storing, "LATE_S", 3600.0)
        writer = AuditWriter(
            Runtime(config=Config(), redis_url=redis_url, database_url=url, name="w")
        )
        task = asyncio.create_task(writer.run())
        await wait_until(
            lambda: rows(url, "SELECT count(*) FROM ends") == [(1,)], what="the end is on record"
        )
        task.cancel()
        await asyncio.wait({task})
    assert rows(url, "SELECT count(*) FROM request_bodies") == [(0,)]
    async with writing(redis_url, url) as writer:
        await drained(store)
        assert writer.conflicts == 0
    assert rows(url, "SELECT body FROM request_bodies WHERE call_id = %s", call) == [(b"y" * MB,)]


async def test_a_large_body_that_differs_from_the_one_on_record_is_counted(
    redis_url: str, url: str, store: Store
) -> None:
    call = call_id()
    await insert(url, bodies={call: b"other"})
    store.set(layout.body_key(call), b"y" * MB, ex=600)
    put(store, [call_record(call)])
    async with writing(redis_url, url) as writer:
        await drained(store)
        assert writer.conflicts == 1


@pytest.mark.case("D9")
async def test_d9_partitions_are_made_once_postgres_is_back(
    redis_url: str, url: str, database_url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that starts while Postgres is away must not wait an hour to make the next days'
    partitions."""
    monkeypatch.setattr(chores, "PARTITIONS_RETRY_S", 0.1)
    made = "SELECT count(*) FROM pg_class WHERE relname LIKE 'calls_2%%'"
    name = url.rpartition("/")[2].partition("?")[0]
    rows(database_url, f'ALTER DATABASE "{name}" RENAME TO "{name}_away"')
    async with writing(redis_url, url):
        await wait_until(lambda: store.hlen(layout.WORKERS_KEY), what="the writer runs")
        rows(database_url, f'ALTER DATABASE "{name}_away" RENAME TO "{name}"')
        await wait_until(
            lambda: rows(url, made)[0][0] >= chores.PARTITION_DAYS, what="a week of partitions"
        )


@pytest.mark.slow
@pytest.mark.case("D9")
async def test_d9_a_partition_that_cannot_be_made_is_in_the_log_and_the_doctor_looks_days_ahead(
    redis_url: str,
    url: str,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(chores, "PARTITIONS_RETRY_S", 0.1)
    [(state, sentence)] = health.partitions(url)
    assert state == "warning" and "are missing, the first for" in sentence, (
        "the first days are made with the tables"
    )
    rows(url, "ALTER FUNCTION sluice_ensure_partitions(date, integer, text) RENAME TO away")
    async with writing(redis_url, url):
        await wait_until(
            lambda: "partitions of the coming days cannot be made" in caplog.text, what="the log"
        )
        assert any("does not exist (SQLSTATE 42883)" in str(vars(one)) for one in caplog.records)
        rows(url, "ALTER FUNCTION away RENAME TO sluice_ensure_partitions")
        await wait_until(lambda: health.partitions(url) == [], what="a week of partitions")
    rows(
        url,
        "DO $$ BEGIN EXECUTE 'DROP TABLE sluice_parts.chunk_runs_' || to_char(now() AT TIME ZONE 'UTC'"
        " + interval '1 day', 'YYYYMMDD'); END $$",
    )
    [(state, sentence)] = health.partitions(url)
    assert state == "failed" and "1 of the partitions" in sentence and "(chunk_runs)" in sentence
