"""PostgreSQL killed at the worst moment, full, poisoned, migrated: nothing is lost, nothing is
twice, nothing is stuck."""

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from db.connections import conninfo
from db.migrations import migrate
from db.write.insert import AuditInserter
from protocol.errors import AuditUnavailable
from protocol.records import ChunksRecord, EventRecord, Record, encode_records
from streams import layout
from tests.support.checks.figures import Figure
from tests.support.checks.record import (
    call_id,
    chunks_record,
    now_ms,
    rows,
    tool_call_record,
    whole_call,
)
from tests.support.later_migrations import INDEXES, add_migration
from tests.support.servers.proxy import proxied
from tests.support.servers.stores import Server
from tests.support.servers.writers import writing
from tests.support.waiting import wait_for, wait_until


def put(store: Any, *records: Record) -> None:
    store.xadd(layout.audit_key(0), {layout.BLOB: encode_records(list(records))})


@pytest.mark.slow
@pytest.mark.case("D4")
async def test_d4_killed_between_commit_and_answer(postgres: Server, figure: Figure) -> None:
    """The answers of a batch are held back, so that it is committed unheard; then the server is
    killed."""
    calls = [call_id() for _ in range(84)]
    records = [record for call in calls for record in whole_call(call)]
    bodies = dict.fromkeys(calls, b"{}")
    with proxied(postgres.url) as link:
        async with AuditInserter(link.url(postgres.url)) as inserter:
            await inserter.insert(whole_call(call_id()), {})
            link.hold_replies()
            inserting = asyncio.create_task(inserter.insert(records, bodies))
            # the driver waits for the answers of the inserts before it commits: let all through but
            # the last
            for _ in range(200):
                link.heal()
                await asyncio.sleep(0)
                link.hold_replies()
                await asyncio.sleep(0.01)
                if rows(postgres.url, "SELECT count(*) FROM ends") == [(85,)]:
                    break
            is_committed = rows(postgres.url, "SELECT count(*) FROM ends") == [(85,)]
            was_heard = inserting.done() and not inserting.exception()
            await asyncio.to_thread(postgres.kill)
            link.reset()
            link.heal()
            if not was_heard:
                with pytest.raises(AuditUnavailable):
                    await inserting
            await asyncio.to_thread(postgres.start)
            try:
                again = await inserter.insert(records, bodies)
            except AuditUnavailable:
                # where the batch was heard, that the connection is dead is noticed only now
                assert was_heard
                again = await inserter.insert(records, bodies)
    assert is_committed and again.rows == 0 and not again
    found = rows(
        postgres.url,
        "SELECT (SELECT count(*) FROM calls), (SELECT count(*) FROM chunks), (SELECT count(*) FROM"
        " ends)",
    )
    assert found == [(85, 255, 85)]
    figure("records inserted again after a kill, all of them there already", len(records), "")


@pytest.mark.slow
@pytest.mark.case("D5")
async def test_d5_poison_among_a_thousand_records(
    redis_url: str, url: str, store: Any, figure: Figure
) -> None:
    """What PostgreSQL cannot hold as text is kept as bytes; what it cannot hold at all is set aside
    with its bytes, and found again."""
    good = [chunks_record(call_id(), [b"x"]) for _ in range(999)]
    strange = tool_call_record(
        call_id(),
        name="nul\x00 here",
        arguments=b'{"a": "\\ud800", "n": 1e400}' + b"[" * 100_000,
        released_arguments=None,
    )
    large = chunks_record(call_id(), [b"y" * 30_000_000])
    poison = EventRecord(call_id=call_id(), kind="x", number=2**40, at=2**62, detail="")
    unpaired = ChunksRecord(
        call_id=call_id(), seq=1, at=now_ms(), raw=[b"a", b"b"], verdicts=["allow"], blocks=[0]
    )
    for n, record in enumerate(good):
        put(store, record)
        if n == 400:
            put(store, poison, strange)
            put(store, large)
            put(store, unpaired)
            store.xadd(layout.audit_key(0), {layout.BLOB: b"\xc1 no msgpack"})
    began = time.monotonic()
    async with writing(redis_url, url):
        await wait_until(
            lambda: store.xlen(layout.audit_key(0)) == 0, timeout_s=30, what="everything is taken"
        )
    figure("1,003 records with 4 poisoned among them, on record", time.monotonic() - began, "s")
    assert rows(url, "SELECT count(*) FROM chunks") == [(1000,)]
    assert rows(url, "SELECT max(octet_length(raw)) FROM chunks") == [(30_000_000,)]
    assert rows(
        url, "SELECT octet_length(arguments) FROM tool_call_log WHERE call_id = %s", strange.call_id
    ) == [(len(strange.arguments),)]
    kept = {bytes(raw) for (raw,) in rows(url, "SELECT raw FROM dead_letters")}
    assert len(kept) == 3 and b"\xc1 no msgpack" in kept


@pytest.mark.case("D6")
async def test_d6_a_full_disk(
    redis_url: str, url: str, store: Any, caplog: pytest.LogCaptureFixture, figure: Figure
) -> None:
    body = "BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END"
    rows(url, f"CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")
    rows(
        url,
        "CREATE TRIGGER full_disk BEFORE INSERT ON chunk_runs FOR EACH ROW EXECUTE FUNCTION"
        " full_disk()",
    )
    async with writing(redis_url, url) as writer:
        for _ in range(300):
            put(store, *whole_call(call_id()))
        await wait_until(
            lambda: "PostgreSQL takes no audit records" in caplog.text, what="a warning"
        )
        [said] = {one.error for one in caplog.records if "takes no audit" in one.message}  # type: ignore[attr-defined]
        assert said == "could not extend file (SQLSTATE 53100)"
        assert store.xlen(layout.audit_key(0)) == 300, "nothing leaves Redis"
        assert rows(
            url, "SELECT (SELECT count(*) FROM calls) + (SELECT count(*) FROM dead_letters)"
        ) == [(0,)]
        rows(url, "DROP TRIGGER full_disk ON chunk_runs")
        began = time.monotonic()
        await wait_until(
            lambda: store.xlen(layout.audit_key(0)) == 0, timeout_s=20, what="catch-up"
        )
        figure("catch-up of 300 calls after a full disk", time.monotonic() - began, "s")
    assert rows(url, "SELECT (SELECT count(*) FROM calls), (SELECT count(*) FROM chunks)") == [
        (300, 900)
    ]
    assert writer.conflicts == 0


@pytest.mark.slow
@pytest.mark.case("D8")
def test_d8_migrations_down_and_up_under_traffic(
    url: str, figure: Figure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statements of an older version go on while a populated record is migrated: none fails,
    none waits for a second."""
    add_migration(tmp_path, INDEXES, monkeypatch)
    stop, waits, failed = threading.Event(), list[float](), list[Exception]()

    def insert() -> None:
        with psycopg.connect(conninfo(url), autocommit=True) as connection:
            while not stop.is_set():
                began = time.monotonic()
                try:
                    connection.execute(
                        "INSERT INTO chunks (call_id, seq, at, raw, verdict, block) VALUES (%s, 1,"
                        " now(), 'x', 'allow', 0)",
                        (call_id(),),
                    )
                    connection.execute(
                        "SELECT count(*) FROM chunk_log WHERE call_id = %s", (call_id(),)
                    )
                except psycopg.Error as error:
                    failed.append(error)
                waits.append(time.monotonic() - began)

    rows(
        url,
        "INSERT INTO chunks (call_id, seq, at, raw, verdict, block) "
        "SELECT gen_random_uuid(), n, now(), 'x', 'allow', 0 FROM generate_series(1, 20000) n",
    )
    thread = threading.Thread(target=insert)
    thread.start()
    try:
        wait_for(lambda: len(waits) > 20, what="inserts")
        usual_s = max(waits)
        for _ in range(2):
            migrate.upgrade(url)
            migrate.downgrade(url, "r0001")
    finally:
        stop.set()
        thread.join()
    assert not failed
    figure(
        "longest wait of an insert while the record was migrated down and up twice", max(waits), "s"
    )
    # on a machine that is busy with other things every insert waits
    assert max(waits) < max(1.0, 10 * usual_s)
    assert migrate.current(url) == "r0001" and migrate.schema_diff(url) == []
