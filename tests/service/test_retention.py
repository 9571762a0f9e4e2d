"""Old rows of single tables go, what is left verifies, and whoever takes rows away in another way
is found."""

import asyncio
import json
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from db.agreed_time import TELL, clocks
from db.connections import conninfo
from db.migrations.migrate import upgrade
from db.read.queries import AuditReader
from db.seals.evidence import make
from db.seals.findings import Report
from db.seals.proof import check
from db.seals.redact import drop_before, redact
from db.seals.retention import RetentionRun
from db.seals.seal import Sealer
from db.seals.stalled_retention import standing
from db.seals.verify import verify
from pages import links
from pages.page import Download
from protocol.errors import Forbidden, InvalidRequest
from protocol.records import EventRecord
from settings.config import Config
from settings.runtime import Runtime
from sluice.check import doctor
from tests.support.checks.reading import insert
from tests.support.checks.record import call_id, day_of, fresh_database, now_ms, rows, whole_call
from tests.support.checks.sealed import Log, fill, run, take
from tests.support.servers.asked import pages_of
from tests.support.waiting import wait_until
from workers.audit.retention import RetentionLoop

OLD_DAYS = 9
SHED = ("chunks", "releases", "request_bodies")


@pytest.fixture(scope="module")
def sealed(database_url: str) -> Iterator[Log]:
    """Calls of nine days ago in a partition of their day and of today, all under a checkpoint; one
    was sealed again for a late row, one is redacted."""
    with fresh_database(database_url) as url:
        rows(
            url,
            "SELECT sluice_ensure_partitions(%s::date, 2)",
            day_of(call_id(now_ms() - OLD_DAYS * 86_400_000)),
        )
        log = fill(url, random.Random(1), calls=4, checkpoints=1, days_ago=OLD_DAYS)
        asyncio.run(
            insert(
                url,
                EventRecord(
                    call_id=str(log.calls[1]), kind="takeover", number=9, at=now_ms(), detail="w"
                ),
            )
        )
        before = call_id(now_ms() - OLD_DAYS * 86_400_000 + 50)
        asyncio.run(insert(url, *whole_call(before), bodies={before: b"{}"}))
        with Sealer(url) as sealer:
            assert sealer.seal([UUID(before)]) == 1
            assert sealer.seal([log.calls[1]]) == 1
            assert redact(url, log.calls[2], "asked for") > 0
            new = call_id()
            asyncio.run(insert(url, *whole_call(new), bodies={new: b"{}"}))
            sealer.seal([UUID(new)])
            sealer.checkpoint()
        log.calls += [UUID(before), UUID(new)]
        assert verify(url).ok
        yield log


def counts(url: str) -> list[int]:
    """Rows of the tables that go by themselves."""
    return [rows(url, f"SELECT count(*)::int FROM {table}")[0][0] for table in SHED]


@pytest.mark.slow
def test_old_rows_go_and_the_record_verifies_and_says_so(log: Log) -> None:
    before = counts(log.url)
    taken = take(log.url, chunks=3, releases=3, request_bodies=20)
    # of a day in a partition of its own, and the empty one of the day after it
    assert {(name, calls) for name, _, calls in taken} >= {("chunks", 5), ("releases", 5)}
    after = counts(log.url)
    assert after == [3, 1, before[2]]
    report = verify(log.url)
    assert (report.ok, report.shed, report.calls, report.incomplete_calls) == (
        True,
        5,
        6,
        set(),
    ), report.findings
    [(note, counted)] = rows(
        log.url, "SELECT note, counts FROM seals WHERE part = -2 AND note LIKE 'chunks%%'"
    )
    assert (
        counted == [5]
        and note.startswith(f"chunks until {day_of(log.calls[0]) + timedelta(days=1)}: ")
        and note.endswith(": retention")
    )
    assert take(log.url, chunks=3, releases=3) == []
    told = run(log.url, "verify", "--json")
    assert (told.exit_code, json.loads(told.stdout)["shed"]) == (0, 5)
    with Sealer(log.url) as sealer:
        text = sealer.checkpoint()
    assert text is not None
    assert verify(log.url).ok
    for call in (log.calls[0], log.calls[1]):
        check(make(log.url, call, 2).dump(), against=[text])

    async def shed(call: UUID) -> list[str]:
        async with pages_of(log.url, {}) as pages:
            shown = await pages.page(links.call(call))
            assert ("Its chunks went on" in shown.html) == (call == log.calls[0])
            found = await pages.page(f"{links.INTEGRITY}")
            assert "chunks until" in found.html
        reader = AuditReader.open(log.url)
        found_call = await reader.call(call)
        await reader.close()
        assert found_call is not None
        return [item["table"] for item in found_call["shed"]]

    assert asyncio.run(shed(log.calls[0])) == ["chunks", "releases"]
    assert asyncio.run(shed(log.calls[-1])) == []


async def test_rows_that_go_while_a_page_is_read_are_said_to_be_gone(log: Log) -> None:
    call = log.calls[0]
    async with pages_of(log.url, {}) as pages:
        assert (await pages.page(links.tab(call, "wire"))).values["rows"]
        assert "went on" not in (await pages.file(links.tab(call, "text"))).decode()
        answer, _ = await pages.answer(links.tab(call, "text"))
        assert isinstance(answer, Download)
        first = await anext(answer.pieces)
        assert take(log.url, chunks=3, releases=3, request_bodies=3)
        whole = b"".join([first, *[piece async for piece in answer.pieces]]).decode()
        sentences = ["Its chunks went on", "Its releases went on", "Its request bodies went on"]
        assert all(one in whole for one in sentences) and whole.endswith("\u27e6end\u27e7\n")
        for tab in ("wire", "diff", "request", "hooks", "proof"):
            shown = await pages.page(links.tab(call, tab))
            assert shown.page.status == 200 and (tab == "hooks" or sentences[0] in shown.html), tab


@pytest.mark.slow
def test_what_comes_after_rows_went_is_sealed_and_no_hole(log: Log) -> None:
    take(log.url, chunks=3, releases=3, request_bodies=3)
    asyncio.run(
        insert(
            log.url,
            EventRecord(
                call_id=str(log.calls[0]), kind="takeover", number=8, at=now_ms(), detail="w"
            ),
        )
    )
    with Sealer(log.url) as sealer:
        assert sealer.seal([log.calls[0]]) == 1
        assert redact(log.url, log.calls[3], "asked for") > 0
        sealer.checkpoint()
    report = verify(log.url)
    assert (report.ok, report.shed, report.incomplete_calls) == (True, 5, set()), report.findings
    newest = str(rows(log.url, "SELECT text FROM checkpoints ORDER BY size DESC LIMIT 1")[0][0])
    check(make(log.url, log.calls[0], 2).dump(), against=[newest])
    assert (
        drop_before(
            log.url,
            day_of(log.calls[0]) + timedelta(days=OLD_DAYS - 3),
            "old",
            redis_time=time.time,
        )
        == 5
    )
    report = verify(log.url)
    assert (report.ok, report.dropped, report.shed) == (True, 5, 0), report.findings
    assert rows(log.url, "SELECT count(*)::int FROM kept_digests") == [(0,)]


def _kept_changed(log: Log) -> None:
    rows(log.url, "UPDATE kept_digests SET sha256 = sha256('x') WHERE call_id = %s", log.calls[0])


def _kept_gone(log: Log) -> None:
    rows(log.url, "DELETE FROM kept_digests WHERE call_id = %s", log.calls[0])


def _row_put_there(log: Log) -> None:
    rows(
        log.url,
        "INSERT INTO chunks (call_id, seq, at, raw, verdict, block) VALUES (%s, 1, now(), 'x',"
        " 'allow', 0)",
        log.calls[0],
    )


def _verdict_changed(log: Log) -> None:
    rows(log.url, "UPDATE tool_calls SET verdict = 'allow' WHERE call_id = %s", log.calls[0])


def _new_chunks_gone(log: Log) -> None:
    rows(
        log.url,
        "WITH gone AS (DELETE FROM chunks WHERE call_id = %s RETURNING 1) INSERT INTO kept_digests"
        " SELECT %s, 2, 3, sha256('x')",
        log.calls[-1],
        log.calls[-1],
    )


@pytest.mark.parametrize(
    ("damage", "finding"),
    [
        (_kept_changed, "altered: call {0}, kept_digests"),
        (_kept_gone, "altered: call {0}, kept_digests"),
        (_row_put_there, "inserted: call {0}, chunks"),
        (_verdict_changed, "altered: call {0}, tool_calls"),
        (_new_chunks_gone, "missing: call {5}, chunks"),
    ],
)
def test_what_somebody_does_beside_it_is_found(
    log: Log, damage: Callable[[Log], None], finding: str
) -> None:
    take(log.url, chunks=3)
    assert verify(log.url).ok
    damage(log)
    report: Report = verify(log.url)
    assert report.damages >= 1
    assert str(report.findings[0]).startswith(finding.format(*log.calls)), report.findings


def test_rows_that_an_older_part_covers_are_missed_also_once_others_of_it_went(log: Log) -> None:
    call = log.calls[0]
    rows(log.url, "DELETE FROM judgements WHERE call_id = %s", call)
    rows(
        log.url,
        "INSERT INTO chunks (call_id, seq, at, raw, verdict, block) VALUES (%s, 77, now(), 'x',"
        " 'allow', 0)",
        call,
    )
    with Sealer(log.url) as sealer:
        sealer.seal([call])
        sealer.checkpoint()
    said = [
        f"altered: call {call}, seals, row 0: the rows that part 0 of its seal covers are not all"
        " there as they were"
    ]
    assert [str(one) for one in verify(log.url).findings] == said
    take(log.url, chunks=3)
    assert [str(one) for one in verify(log.url).findings] == said


def test_nothing_goes_without_seal_and_checkpoint(log: Log) -> None:
    late = call_id(now_ms() - OLD_DAYS * 86_400_000 + 90)
    asyncio.run(insert(log.url, *whole_call(late), bodies={late: b"{}"}))
    for sentence in ("have no seal yet", "under no checkpoint yet"):
        with pytest.raises(InvalidRequest, match=sentence):
            take(log.url, chunks=3)
        assert rows(log.url, "SELECT count(*)::int FROM kept_digests") == [(0,)]
        with Sealer(log.url) as sealer:
            sealer.seal([UUID(late)])
    with Sealer(log.url) as sealer:
        sealer.checkpoint()
    assert take(log.url, chunks=3)[0][2] == 6
    assert verify(log.url).ok
    for statement in (
        "SELECT sluice_shed('tool_calls', '2020-01-01', 'x')",
        "SELECT sluice_shed('chunks', current_date + 2, 'x')",
        "SELECT sluice_forget('calls', '2020-01-01')",
    ):
        with pytest.raises(Exception, match="no such table, or a day"):
            rows(log.url, statement)


def test_tables_under_no_seal_and_whole_days_go_too(log: Log) -> None:
    rows(log.url, "INSERT INTO histories SELECT call_id, '', 0, '', '', '', false FROM calls")
    rows(
        log.url,
        "INSERT INTO reads (at, key, key_id, session, path, filters, call_ids, rows) SELECT at,"
        " 'k', '', '', '/', '', '{}', 0 FROM unnest(ARRAY[now() - interval '100 days', now()]) at",
    )
    for call in (log.calls[0], log.calls[-1]):
        rows(
            log.url,
            "INSERT INTO labels (call_id, block, key, key_id, label, note) VALUES (%s, 0, 'k', '',"
            " 'wrong', 'said so')",
            call,
        )
    rows(
        log.url,
        "INSERT INTO debug_switches (key, loggers, content, by, until) "
        "SELECT 'k', '{}', false, 'b', at FROM unnest(ARRAY[now() - interval '8 days', now()]) at",
    )
    taken = {
        name: calls
        for name, _, calls in take(log.url, histories=3, reads=60, everything=5)
        if calls
    }
    assert taken == {"histories": 5, "reads": 1, "everything": 5}
    assert rows(log.url, "SELECT call_id FROM labels") == [(log.calls[-1],)]
    assert rows(log.url, "SELECT count(*)::int FROM debug_switches") == [(1,)]
    assert [
        rows(log.url, f"SELECT count(*)::int FROM {table}")[0][0]
        for table in ("histories", "reads", "calls")
    ] == [1, 1, 1]
    assert verify(log.url).ok


def test_the_right_to_take_rows_away_is_given_with_the_configuration(log: Log) -> None:
    as_writer = log.url + ("&" if "?" in log.url else "?") + "options=-c%20role%3Dsluice_writer"
    with pytest.raises(Forbidden, match="may not take old rows away"):
        take(as_writer, chunks=3)
    upgrade(log.url, retains=True)
    assert take(as_writer, chunks=3)[0][2] == 5
    upgrade(log.url, retains=False)
    with pytest.raises(Forbidden):
        take(as_writer, releases=3)


def test_the_command_says_what_it_would_take_and_takes_it(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "sluice.yaml"
    monkeypatch.setenv("SLUICE_CONFIG", str(config))
    config.write_text("demo: true\n")
    assert "kept for ever" in run(log.url, "retention", "--dry-run").stderr
    config.write_text("retention: {chunks: 3, everything: 400}\n")
    told = json.loads(run(log.url, "retention", "--dry-run", "--json").stdout)
    assert {item["table"] for item in told["items"]} == {"chunks"} and told["dry_run"]
    assert "chunks" in run(log.url, "retention", "--dry-run").stdout
    assert run(log.url, "retention").exit_code == 2
    assert counts(log.url)[0] > 3
    assert run(log.url, "retention", "--yes").exit_code == 0
    assert counts(log.url)[0] == 3


@pytest.mark.slow
async def test_one_audit_writer_does_it_by_itself(log: Log, redis_url: str) -> None:
    config = Config.model_validate({"retention": {"chunks": 3, "request_bodies": 3}})
    settings = Runtime(config=config, redis_url=redis_url, database_url=log.url, name="w")
    with RetentionRun(log.url, {}, redis_time=time.time) as other:
        assert other.takes_turn()
        loops = [asyncio.create_task(_loop(settings)) for _ in range(2)]
        await asyncio.sleep(0)
        assert counts(log.url)[0] > 3
        for loop in loops:
            loop.cancel()
        await asyncio.wait(loops)
    loops = [asyncio.create_task(_loop(settings)) for _ in range(2)]

    def gone() -> bool:
        return counts(log.url)[0] == 3 and counts(log.url)[2] == 1

    await wait_until(gone)
    for loop in loops:
        loop.cancel()
    await asyncio.wait(loops)
    assert verify(log.url).ok


async def test_a_step_that_takes_nothing_keeps_no_other_from_its_turn(
    log: Log, redis_url: str
) -> None:
    rows(log.url, "SELECT sluice_ensure_reads((now() - interval '1 month')::date, 3)")
    rows(
        log.url,
        "INSERT INTO reads (at, key, key_id, session, path, filters, call_ids, rows) "
        "VALUES (now() - interval '2 days', 'k', '', '', '/', '', '{}', 0)",
    )  # in the partition of a month that is not over
    config = Config.model_validate({"retention": {"reads": 1, "everything": 5}})
    loop = asyncio.create_task(
        _loop(Runtime(config=config, redis_url=redis_url, database_url=log.url, name="w"))
    )
    await wait_until(lambda: rows(log.url, "SELECT count(*)::int FROM calls") == [(1,)])
    loop.cancel()
    await asyncio.wait([loop])
    assert verify(log.url).ok


@pytest.mark.slow
async def test_what_others_hold_is_tried_again_the_same_day(log: Log, redis_url: str) -> None:
    config = Config.model_validate({"retention": {"chunks": 3, "request_bodies": 3}})
    with psycopg.connect(conninfo(log.url)) as reader:
        reader.execute("SELECT 1 FROM request_bodies LIMIT 1")
        loop = asyncio.create_task(
            _loop(Runtime(config=config, redis_url=redis_url, database_url=log.url, name="w"))
        )
        await wait_until(
            lambda: counts(log.url)[0] == 3, timeout_s=20.0, what="the other tables have their turn"
        )
        assert counts(log.url)[2] > 1
    await wait_until(lambda: counts(log.url)[2] == 1, timeout_s=20.0)
    loop.cancel()
    await asyncio.wait([loop])


async def test_what_came_too_late_stays_and_is_told_and_stops_nothing(log: Log) -> None:
    take(log.url, chunks=3)
    _row_put_there(log)
    assert take(log.url, chunks=3, request_bodies=3)[0][0] == "request_bodies"
    assert counts(log.url)[0] == 4
    [said] = standing(log.url, {"chunks": 3})
    assert said.startswith(
        f"rows of chunks of the call {log.calls[0]} came after those of their day went"
    )
    found = verify(log.url).findings
    assert [str(one)[:80] for one in found] == [
        f"inserted: call {log.calls[0]}, chunks: rows of chunks of calls of"[:80]
    ]


@pytest.mark.slow
async def test_a_day_that_stands_is_told_with_the_reason(log: Log) -> None:
    late = call_id(now_ms() - OLD_DAYS * 86_400_000 + 90)
    await insert(log.url, *whole_call(late), bodies={late: b"{}"})
    day = day_of(log.calls[0])
    said = (
        f"retention of chunks stands at {day} since {day + timedelta(days=4)}: the call {late} has"
        " no seal"
    )
    config = Config.model_validate({"retention": {"chunks": 3, "releases": 20}})
    # other tests of this server may have made the role, which has no right in this database yet
    if rows(log.url, "SELECT to_regrole('sluice_writer') IS NOT NULL") == [(True,)]:
        rows(log.url, "GRANT EXECUTE ON FUNCTION sluice_shed TO sluice_writer")
    assert doctor.check_retention(config, log.url) == [("retention", "warning", said)]
    async with pages_of(log.url, {"retention": {"chunks": 3}}) as pages:
        assert said in (await pages.page(links.INTEGRITY)).html
    with Sealer(log.url) as sealer:
        sealer.seal([UUID(late)])
        assert standing(log.url, {"chunks": 3}) == [
            said.replace("has no seal", "is under no checkpoint")
        ]
        sealer.checkpoint()
    take(log.url, chunks=3)
    assert doctor.check_retention(config, log.url) == [("retention", "ok", "")]


@pytest.mark.parametrize("kind", ["chunks", "everything"])
@pytest.mark.parametrize("of", ["a call that is sealed", "no call"])
def test_rows_that_no_seal_counts_stay_with_their_day(log: Log, of: str, kind: str) -> None:
    call = (
        log.calls[0]
        if of == "a call that is sealed"
        else UUID(call_id(now_ms() - OLD_DAYS * 86_400_000 + 70))
    )
    rows(
        log.url,
        "INSERT INTO chunks (call_id, seq, at, raw, verdict, block) VALUES (%s, 77, now(), 'x',"
        " 'allow', 0)",
        call,
    )
    before = counts(log.url)
    with pytest.raises(InvalidRequest, match="other rows of that day than its seals count"):
        take(log.url, **{kind: 3})
    assert counts(log.url) == before
    assert rows(log.url, "SELECT count(*)::int FROM kept_digests") == [(0,)]


@pytest.mark.slow
def test_a_day_that_lacks_rows_is_not_dropped(log: Log) -> None:
    # as many of the table as there were, of another call: only compared call by call does it show
    rows(log.url, "DELETE FROM events WHERE call_id = %s", log.calls[0])
    rows(
        log.url,
        "INSERT INTO events (call_id, kind, number, at, detail) SELECT %s, 'takeover', n, now(), ''"
        " FROM generate_series(50, 50) n",
        log.calls[1],
    )
    until = datetime.now(UTC).date() - timedelta(days=2)
    for is_dry in (True, False):
        with pytest.raises(InvalidRequest, match="other rows than their seals count"):
            drop_before(log.url, until, "x", dry_run=is_dry, redis_time=time.time)
    with pytest.raises(InvalidRequest, match="other rows of that day than its seals count"):
        take(log.url, everything=3)
    assert rows(log.url, "SELECT count(*)::int FROM calls") == [(6,)]
    with psycopg.connect(conninfo(log.url)) as connection:
        connection.execute("GRANT EXECUTE ON FUNCTION sluice_drop_before TO pg_monitor")
        connection.execute("SET SESSION AUTHORIZATION pg_monitor")
        connection.execute("SET sluice.let_go = 'yes'")
        connection.execute(TELL.encode(), (clocks(time.time()),))
        assert connection.execute("SELECT sluice_drop_before(%s, 'x')", (until,)).fetchone() == (
            -4,
        ), "no writer hides by it what it did"
        connection.rollback()
    dropped = run(
        log.url, "drop", "--before", str(until), "--damaged", "--reason", "known", "--yes"
    )
    assert "dropped 5 calls" in dropped.stderr
    told = run(log.url, "verify")
    assert (
        "as written, but not whole" in told.stdout
        and "2 calls dropped with other rows of a table than sealed" in told.stdout
    )


def test_what_was_shed_or_came_after_its_day_went_is_dropped_once_it_is_sealed(log: Log) -> None:
    take(log.url, chunks=3)
    rows(
        log.url,
        "INSERT INTO chunks (call_id, seq, at, raw, verdict, block) VALUES (%s, 77, now(), 'x',"
        " 'allow', 0)",
        log.calls[0],
    )
    assert sum(calls for _, _, calls in take(log.url, everything=3)) == 5
    until = datetime.now(UTC).date() - timedelta(days=1)
    asyncio.run(insert(log.url, *whole_call(str(log.calls[2]))))
    with pytest.raises(InvalidRequest, match="other rows than their seals count"):
        drop_before(log.url, until, "late", dry_run=True, redis_time=time.time)
    with Sealer(log.url) as sealer:
        assert sealer.seal([log.calls[2]]) == 1
        sealer.checkpoint()
    assert drop_before(log.url, until, "late", redis_time=time.time) == 1
    assert verify(log.url).ok


@pytest.mark.slow
@pytest.mark.parametrize("days", [{"chunks": 3}, {"everything": 3}])
def test_inserts_wait_for_moments_while_rows_cannot_go(log: Log, days: dict[str, int]) -> None:
    with psycopg.connect(conninfo(log.url)) as reader, ThreadPoolExecutor(1) as pool:
        reader.execute("SELECT 1 FROM chunks LIMIT 1")
        taking = pool.submit(take, log.url, **days)
        waits = (
            "SELECT count(*)::int FROM pg_locks WHERE locktype = 'relation' AND mode ="
            " 'AccessExclusiveLock' AND NOT granted"
        )
        with psycopg.connect(conninfo(log.url), autocommit=True) as writer:
            for seq in range(100, 102):
                while rows(log.url, waits) == [(0,)]:
                    assert not taking.done()
                began = time.monotonic()
                writer.execute(
                    "INSERT INTO chunks (call_id, seq, at, raw, verdict, block) VALUES (%s, %s,"
                    " now(), 'x', 'allow', 0)",
                    (UUID(call_id()), seq),
                )
                assert time.monotonic() - began < 2.0  # behind a reader it had been five seconds
        reader.rollback()
        assert taking.result()[0][2] == 5


async def _loop(settings: Runtime) -> Any:
    await RetentionLoop(settings, first_s=0.0, step_s=0.0).run()
