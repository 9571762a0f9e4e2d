"""Every statement of a sealer fails, in every way: asked again it goes on, and the record verifies
with no call sealed twice."""

import asyncio
import time
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

import pytest

from db.seals.seal import Sealer
from db.seals.verify import verify
from db.write.insert import AuditInserter
from protocol.errors import AuditUnavailable
from tests.support.checks.figures import Figure
from tests.support.checks.record import call_id, chunks_record, fresh_database, rows, whole_call
from tests.support.servers.wire import WAYS, Fault, PostgresLink, Watch, Wire
from tests.support.waiting import wait_until

TRIES = 5


@pytest.mark.case("W6")
@pytest.mark.timeout(300)
@pytest.mark.slow
async def test_w6_every_statement_of_a_sealer_fails(database_url: str, figure: Figure) -> None:
    watch = Watch()
    with fresh_database(database_url) as url:
        at = urlsplit(url)
        wire = Wire(watch, "sealer", at.hostname or "", at.port or 0, PostgresLink)
        await wire.start()
        through = urlunsplit(at._replace(netloc=f"{at.netloc.rpartition(':')[0]}:{wire.port}"))

        async def work(fault: Fault | None) -> int:
            """Two new calls and a late row of an older one are sealed and put under a checkpoint;
            returns the failures."""
            calls = [call_id() for _ in range(2)]
            async with AuditInserter(url) as inserter:
                await inserter.insert([r for c in calls for r in whole_call(c)], {})
                if known:
                    await inserter.insert(
                        [chunks_record(str(known[0]), [b"late"], seq=1000 + len(known))], {}
                    )
            wanted = [*map(UUID, calls), *known[:1]]
            watch.begin(fault)
            failures = 0
            with Sealer(through) as sealer:
                for step in (lambda: sealer.seal(wanted), sealer.checkpoint):
                    for _ in range(TRIES):
                        try:
                            await asyncio.to_thread(step)
                            break
                        except AuditUnavailable:
                            failures += 1
            known.extend(map(UUID, calls))
            return failures

        known: list[UUID] = []
        assert await work(None) == 0
        assert await work(None) == 0
        points = list(watch.points)
        tried = 0
        for point in points:
            for way in WAYS:
                tried += 1
                failures = await work(Fault(point, way))
                assert watch.fired.is_set(), f"{point} {way} was not reached"
                assert failures <= 1, f"{point} {way}"
            report = await asyncio.to_thread(verify, url)
            assert report.ok and report.unsealed == 0, (
                f"{point}: {[str(f) for f in report.findings[:3]]}"
            )
            assert rows(url, "SELECT count(*) FROM seals WHERE part = 0") == [(len(known),)], point
        assert rows(url, "SELECT max(size) FROM checkpoints") == rows(
            url, "SELECT count(*) FROM seals"
        )
        await wait_until(lambda: not wire.links)
        wire.cut()
        figure("faults tried", tried, "faults")
        assert tried > 50


@pytest.mark.case("D8")
async def test_d8_an_audit_writer_of_the_version_before_leaves_calls_that_are_sealed_later(
    database_url: str,
) -> None:
    """Without seals, as a database is that was just migrated: nothing is wrong, and a sweep seals
    all."""
    with fresh_database(database_url) as url:
        calls = [call_id() for _ in range(3)]
        async with AuditInserter(url) as inserter:
            await inserter.insert([r for c in calls for r in whole_call(c)], {})
        assert (verify(url).ok, verify(url).unsealed) == (True, 3)
        with Sealer(url) as sealer:
            assert sealer.checkpoint() is None
            found = sealer.find_unsealed(UUID(int=0), UUID(int=0))
            assert {str(c) for c in found} == set(calls)
            assert sealer.seal(found) == 3
            assert sealer.find_unsealed(UUID(int=0), UUID(int=2**128 - 1)) == []
        assert (verify(url).ok, verify(url).calls) == (True, 3)


@pytest.mark.slow
@pytest.mark.case("A1")
async def test_a1_what_sealing_and_verifying_cost(database_url: str, figure: Figure) -> None:
    """Ratios of CPU in one run: a loaded machine does not change them much. The bounds only catch a
    change in kind."""
    with fresh_database(database_url) as url:
        calls = [call_id() for _ in range(400)]
        batches = [
            [
                r
                for c in calls[i : i + 20]
                for r in (*whole_call(c), chunks_record(c, [b"x" * 200] * 50, seq=4))
            ]
            for i in range(0, 400, 20)
        ]
        async with AuditInserter(url) as inserter:
            began = time.process_time()
            for batch in batches:
                await inserter.insert(batch, {})
            inserting_s = time.process_time() - began
            began = time.process_time()
            for start in range(0, 400, 20):
                assert await inserter.sealed_among(calls[start : start + 20]) == []
            looking_s = time.process_time() - began
        with Sealer(url) as sealer:
            began = time.process_time()
            assert sealer.seal(map(UUID, calls)) == 400
            sealing_s = time.process_time() - began
            assert sealer.checkpoint() is not None
        began = time.process_time()
        report = verify(url)
        verifying_s = time.process_time() - began
    assert (report.ok, report.rows) == (True, 400 * 61)
    figure("CPU of sealing to CPU of inserting, in the audit writer", sealing_s / inserting_s, "x")
    figure("CPU of looking for late records to CPU of inserting", looking_s / inserting_s, "x")
    figure("rows verified a second of CPU", report.rows / verifying_s, "rows/s")
    print(
        f"{sealing_s / inserting_s:.2f} {looking_s / inserting_s:.2f}"
        f" {report.rows / verifying_s:.0f}"
    )
    assert sealing_s + looking_s < 3 * inserting_s
    assert report.rows / verifying_s > 15_000
