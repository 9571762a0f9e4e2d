"""What comes late, or meanwhile, of days whose rows go: nothing goes that was not counted, and
nothing stands in the way of what is due."""

import asyncio
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from db.agreed_time import TELL, clocks
from db.connections import conninfo
from db.locks import SEAL_LOCK
from db.migrations.migrate import upgrade
from db.seals.archive import archive_day
from db.seals.redact import drop_before, redact
from db.seals.restore import restore
from db.seals.retention import RetentionRun
from db.seals.seal import Sealer
from db.seals.stalled_retention import standing
from db.seals.verify import verify
from protocol.errors import InvalidRequest
from tests.support.checks.reading import insert
from tests.support.checks.record import call_id, day_of, fresh_database, now_ms, rows, whole_call
from tests.support.checks.sealed import DAY_MS, Log, fill, run, take
from tests.support.waiting import wait_until

OLD_DAYS = 9
LATE_CHUNK = (
    "INSERT INTO chunks (call_id, seq, at, raw, verdict, block) VALUES (%s, 77, now(), 'late',"
    " 'allow', 0)"
)

WAITS = """
SELECT count(*)::int FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


@pytest.fixture(scope="module")
def sealed(database_url: str) -> Iterator[Log]:
    """Calls of nine days ago in a partition of their day, of a week ago and of today."""
    with fresh_database(database_url) as url:
        rows(
            url,
            "SELECT sluice_ensure_partitions(%s::date, 2)",
            day_of(call_id(now_ms() - OLD_DAYS * 86_400_000)),
        )
        log = fill(url, random.Random(1), calls=4, checkpoints=1, days_ago=OLD_DAYS)
        log.calls += fill(
            url, random.Random(2), calls=2, checkpoints=1, days_ago=OLD_DAYS - 2
        ).calls
        log.calls += fill(url, random.Random(3), calls=1, checkpoints=1).calls
        upgrade(url, retains=True)
        yield log


def come(url: str, call: UUID | str) -> None:
    """Insert a call with its rows, seal it, and write a checkpoint over that."""
    asyncio.run(insert(url, *whole_call(str(call))))
    with Sealer(url) as sealer:
        assert sealer.seal([UUID(str(call))]) == 1
        sealer.checkpoint()


def as_writer(url: str) -> str:
    """The same database with the rights of an audit writer."""
    return url + ("&" if "?" in url else "?") + "options=-c%20role%3Dsluice_writer"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["shed", "drop"])
def test_no_row_goes_that_is_not_seen(log: Log, how: str) -> None:
    statement = (
        "SELECT sluice_shed('chunks', %s, 'x')"
        if how == "shed"
        else "SELECT sluice_drop_before(%s, 'x')"
    )
    with psycopg.connect(conninfo(as_writer(log.url))) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT 1 FROM seals LIMIT 1")
        rows(log.url, LATE_CHUNK, log.calls[0])
        with pytest.raises(psycopg.Error, match="READ COMMITTED"):
            connection.execute(statement.encode(), (day_of(log.calls[0]) + timedelta(days=1),))
    assert rows(
        log.url, "SELECT count(*)::int FROM chunks WHERE call_id = %s AND seq = 77", log.calls[0]
    ) == [(1,)]


def test_rows_are_counted_as_they_are_whatever_the_level_of_the_database(log: Log) -> None:
    [(name,)] = rows(log.url, "SELECT current_database()")
    rows(log.url, f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
    with psycopg.connect(conninfo(log.url)) as sealer, ThreadPoolExecutor(1) as pool:
        sealer.execute("SELECT pg_advisory_xact_lock(%s)", (SEAL_LOCK,))
        taking = pool.submit(take, log.url, chunks=8)
        asyncio.run(wait_until(lambda: taking.done() or rows(log.url, WAITS) == [(1,)]))
        rows(log.url, LATE_CHUNK, log.calls[0])
        sealer.rollback()
        with pytest.raises(InvalidRequest, match="other rows of that day than its seals count"):
            taking.result()
    assert rows(
        log.url, "SELECT count(*)::int FROM chunks WHERE call_id = %s AND seq = 77", log.calls[0]
    ) == [(1,)]


def test_what_came_late_of_a_day_that_went_goes_with_the_next_run(log: Log) -> None:
    assert sum(calls for *_, calls in take(log.url, everything=8)) == 4
    for turn in range(2):
        come(log.url, log.calls[turn])
        assert standing(log.url, {"everything": 6})[0].startswith(
            "retention of everything stands at"
        )
        assert take(log.url, everything=8)[0][1:] == (day_of(log.calls[0]) + timedelta(days=1), 1)
        assert verify(log.url).ok, verify(log.url).findings
    bound = rows(log.url, "SELECT DISTINCT left(call_id::text, 32) FROM seals WHERE part = -1")
    ends = rows(
        log.url, "SELECT right(call_id::text, 4) FROM seals WHERE part = -1 ORDER BY position"
    )
    assert len(bound) == 1 and ends == [("0000",), ("0001",), ("0002",)]
    # the days after it have their turn
    assert sum(calls for *_, calls in take(log.url, everything=3)) == 2
    report = verify(log.url)
    assert (report.ok, report.dropped, report.calls) == (True, 6, 1), report.findings


@pytest.mark.slow
@pytest.mark.parametrize("by", ["retention", "drop", "archive"])
def test_what_came_late_goes_up_to_the_day_that_went(log: Log, by: str, tmp_path: Path) -> None:
    later, day = (
        day_of(log.calls[0]) + timedelta(days=OLD_DAYS - 3),
        day_of(log.calls[0]) + timedelta(days=1),
    )
    assert drop_before(log.url, later, "by hand", redis_time=time.time) == 6
    come(log.url, log.calls[0])
    come(log.url, log.calls[4])
    if by == "drop":
        assert [
            drop_before(log.url, day, "x", dry_run=dry, redis_time=time.time)
            for dry in (True, False)
        ] == [2, 2]
    else:
        # the archive has all that goes
        assert take(log.url, str(tmp_path) if by == "archive" else "", everything=8) == [
            ("everything", later, 2)
        ]
        assert len(list(tmp_path.iterdir())) == (2 if by == "archive" else 0)
    report = verify(log.url)
    assert (report.ok, report.dropped, report.calls) == (True, 6, 1), report.findings
    with pytest.raises(psycopg.Error, match="rows of a later day went before"):
        rows(log.url, "SELECT sluice_drop_before(%s, 'x')", day)
    come(log.url, call_id(now_ms() - 2 * DAY_MS))
    assert (
        drop_before(
            log.url, day_of(log.calls[0]) + timedelta(days=OLD_DAYS - 1), "x", redis_time=time.time
        )
        == 1
    )
    assert verify(log.url).ok


def test_only_days_that_are_over_go(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)
    for day in ("1969-01-01", "9999-01-01", str(tomorrow)):
        with pytest.raises(psycopg.Error, match="not over"):
            rows(as_writer(log.url), "SELECT sluice_drop_before(%s, 'x')", day)
    with pytest.raises(InvalidRequest, match="not over"):
        drop_before(log.url, tomorrow, "x", dry_run=True, redis_time=time.time)
    config = tmp_path / "sluice.yaml"
    config.write_text(f"retention: {{archive: {tmp_path}/archive}}\n")
    monkeypatch.setenv("SLUICE_CONFIG", str(config))
    told = run(log.url, "drop", "--before", "1969-12-31", "--reason", "x", "--yes")
    assert (told.exit_code, told.stderr) == (
        0,
        "nothing to do: no call on record began before 1969-12-31 (UTC)\n",
    )
    assert rows(log.url, "SELECT count(*)::int FROM calls") == [(7,)]


def test_what_is_due_is_asked_of_the_database(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(datetime):
        @classmethod
        def now(cls, tz: object = None) -> "Wrong":
            return cls(2100, 1, 1, tzinfo=UTC)

    monkeypatch.setattr("db.seals.retention.datetime", Wrong)
    monkeypatch.setattr("db.seals.redact.datetime", Wrong)
    with RetentionRun(log.url, {"everything": OLD_DAYS}, redis_time=time.time) as retention:
        assert retention.due() == []


def test_whoever_waits_for_another_that_takes_the_same_rows_leaves_what_it_kept(log: Log) -> None:
    until = day_of(log.calls[0]) + timedelta(days=1)
    with psycopg.connect(conninfo(log.url)) as first, ThreadPoolExecutor(1) as pool:
        first.execute(TELL.encode(), (clocks(time.time()),))
        assert first.execute("SELECT sluice_shed('chunks', %s, 'a')", (until,)).fetchone() == (4,)
        second = pool.submit(rows, log.url, "SELECT sluice_shed('chunks', %s, 'b')", until)
        asyncio.run(wait_until(lambda: second.done() or rows(log.url, WAITS) == [(1,)]))
        first.commit()
        assert second.result() == [(0,)]
    report = verify(log.url)
    assert (report.ok, report.shed) == (True, 4), report.findings


@pytest.mark.slow
def test_rows_that_came_after_the_others_went_are_restored_with_them(
    log: Log, tmp_path: Path
) -> None:
    query = "SELECT call_id, seq, raw FROM {}.chunks WHERE call_id = ANY(%s) ORDER BY 1, 2"
    old = log.calls[:4]
    before = rows(log.url, query.format("public"), old)
    take(log.url, str(tmp_path), chunks=8)
    for seq in (77, 78):
        # the second time it is in two folders
        rows(log.url, LATE_CHUNK.replace("77", str(seq)), log.calls[0])
        with Sealer(log.url) as sealer:
            assert sealer.seal([log.calls[0]]) == 1
            sealer.checkpoint()
        archive_day(log.url, day_of(log.calls[0]), tmp_path)
    take(log.url, str(tmp_path), everything=8)
    restore(log.url, tmp_path, day_of(log.calls[0]))
    late = [(log.calls[0], seq, b"late") for seq in (77, 78)]
    assert rows(log.url, query.format("sluice_restored"), old) == sorted(before + late)


@pytest.mark.slow
def test_what_was_put_back_of_a_call_that_is_redacted_goes_too(log: Log, tmp_path: Path) -> None:
    archive_day(log.url, day_of(log.calls[0]), tmp_path)
    restore(log.url, tmp_path, day_of(log.calls[0]))
    counted = (
        "SELECT count(DISTINCT call_id)::int, bool_or(call_id = %s) FROM"
        " sluice_restored.request_bodies"
    )
    assert (
        redact(log.url, log.calls[0], "asked for", dry_run=True)
        == redact(log.url, log.calls[0], "asked for")
        > 0
    )
    assert rows(log.url, counted, log.calls[0]) == [(3, False)]
    assert redact(log.url, log.calls[0], "again") == 0


@pytest.mark.slow
def test_dead_letters_go_with_their_calls(log: Log) -> None:
    named = (
        str(log.calls[0]),
        str(log.calls[-1]),
        "no call",
        f"{log.calls[0]} and more",
        "0" * 36,
        "0",
    )
    for n, call in enumerate(named):
        rows(
            log.url,
            "INSERT INTO dead_letters (sha256, call_id, kind, raw, reason) VALUES (%s, %s, 'block',"
            " 'secret', 'r')",
            bytes([n]),
            call,
        )
    take(log.url, everything=3)
    assert rows(log.url, "SELECT call_id FROM dead_letters ORDER BY sha256") == [
        (named[at],) for at in (1, 2, 4, 5)
    ]
