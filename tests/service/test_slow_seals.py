"""Calls that take too long to be sealed: fewer at once, one alone holds up no other, and what is
left is sealed later."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from db.missing_records import CallHole, Hole
from db.seals import seal as db_seal
from db.seals.seal import Sealer
from db.seals.verify import verify
from db.write.insert import AuditInserter
from protocol.errors import AuditTooSlow, AuditUnavailable
from protocol.records import EndRecord
from settings.config import Config
from settings.runtime import Runtime
from streams import layout
from streams.connection import Connection
from tests.support.checks.reading import insert
from tests.support.checks.record import chunks_record, rows, whole_call
from tests.support.checks.sums import BODY, summed_call
from tests.support.servers.writers import writing
from tests.support.waiting import wait_until
from workers.audit import sealing as seal
from workers.audit.ended_calls import EndedCalls

TIMES = {"the server gives up": (400, 30.0), "the writer cuts": (30_000, 0.5)}
Seconds = Callable[[Sequence[UUID]], float]


@pytest.fixture(params=list(TIMES.values()), ids=list(TIMES))
def slow(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Seconds], None]:
    """Let a batch take so long in the server, of which either it or the writer has had enough
    soon."""
    statement_ms, silent_s = request.param
    monkeypatch.setattr(db_seal, "STATEMENT_TIMEOUT_MS", statement_ms)
    monkeypatch.setattr(seal, "SILENT_S", silent_s)
    monkeypatch.setattr(seal, "_NOW", seal._Later(0.0, 0.25))
    monkeypatch.setattr(seal, "AGAIN_S", 0.5)
    monkeypatch.setattr(seal, "SWEEP_S", 0.2)
    seal_batch = Sealer._seal_batch

    def takes(seconds: Seconds) -> None:
        def slowly(self: Sealer, calls: Sequence[UUID], note: str) -> Any:
            self._connected().execute("SELECT pg_sleep(%s)", (seconds(calls),))
            return seal_batch(self, calls, note)

        monkeypatch.setattr(Sealer, "_seal_batch", slowly)

    return takes


@asynccontextmanager
async def sealing(
    redis: Connection, url: str, *, runs: bool = True
) -> AsyncIterator[seal.SealLoop]:
    """A writer's sealing, over an audit stream of which all is on record."""
    config = Config.model_validate({"limits": {"seal_s": 0.02}})
    loop = seal.SealLoop(Runtime(config=config, redis_url="", database_url=url, name="w"), redis)
    running = asyncio.create_task(loop.run() if runs else asyncio.sleep(0))
    try:
        yield loop
    finally:
        running.cancel()
        await asyncio.wait({running})
        await loop.close()


async def put(url: str, count: int) -> list[UUID]:
    """Put calls on record."""
    calls = sorted(layout.new_call_id() for _ in range(count))
    await insert(url, *(record for call in calls for record in whole_call(call)))
    return list(map(UUID, calls))


def sealed(url: str) -> list[UUID]:
    """The calls that have a seal."""
    return [call for (call,) in rows(url, "SELECT DISTINCT call_id FROM seals ORDER BY call_id")]


@pytest.mark.slow
async def test_too_many_calls_at_once_are_sealed_in_pieces(
    redis: Connection, url: str, slow: Callable[[Seconds], None]
) -> None:
    """However long all of them take: each piece has its own time."""
    calls = await put(url, 40)
    slow(lambda batch: 0.02 * len(batch))
    async with sealing(redis, url) as loop:
        loop.ended(0, map(str, calls), (1, 0))
        await wait_until(lambda: sealed(url) == calls, what="all are sealed")
        assert not loop._later
    assert verify(url).ok


@pytest.mark.slow
async def test_a_call_that_takes_too_long_alone_holds_up_no_other(
    redis: Connection, url: str, slow: Callable[[Seconds], None], caplog: pytest.LogCaptureFixture
) -> None:
    calls = await put(url, 9)
    poison = calls[5]
    slow(lambda batch: 20 if poison in batch else 0)
    async with sealing(redis, url) as loop:
        await wait_until(lambda: len(sealed(url)) == 8, what="the others are sealed")
        await wait_until(lambda: poison in loop._later, what="it is put off")
        after = (await put(url, 1))[0]
        loop.ended(0, [str(after)], (1, 0))
        await wait_until(lambda: after in sealed(url), what="what comes later is sealed too")
        assert poison not in sealed(url)
        told = [record for record in caplog.records if "takes too long" in record.message]
        assert told and {record.__dict__["call_id"] for record in told} == {str(poison)}
        slow(lambda batch: 0)
        await wait_until(lambda: poison in sealed(url), what="it is tried again")
    assert verify(url).ok and verify(url).unsealed == 0


async def test_late_records_of_a_slow_call_keep_no_writer_waiting(
    redis: Connection, url: str, slow: Callable[[Seconds], None]
) -> None:
    calls = await put(url, 3)
    with Sealer(url) as sealer:
        sealer.seal(calls)
    await insert(url, *(chunks_record(str(call), [b"late"], seq=50) for call in calls))
    slow(lambda batch: 20 if calls[1] in batch else 0)
    async with sealing(redis, url, runs=False) as loop:
        async with asyncio.timeout(10):
            await loop.seal_late(calls)
            assert rows(url, "SELECT call_id FROM seals WHERE part = 1 ORDER BY call_id") == [
                (calls[0],),
                (calls[2],),
            ]
            assert list(loop._later) == [calls[1]]
            slow(lambda batch: pytest.fail("it is not tried again before its time"))
            await loop.seal_late(calls[1:2])
        slow(lambda batch: 0)
        loop._later[calls[1]] = seal._NOW
        await loop._seal_settled()
        assert not loop._later
    assert verify(url).ok


@pytest.mark.slow
async def test_what_was_put_off_is_known_to_the_next_writer(
    redis: Connection, url: str, slow: Callable[[Seconds], None]
) -> None:
    """The entry of a late record is done with then, and no sweep looks for a call that has a
    seal."""
    [call] = await put(url, 1)
    with Sealer(url) as sealer:
        sealer.seal([call])
    await insert(url, chunks_record(str(call), [b"late"], seq=50))
    slow(lambda batch: 20)
    async with sealing(redis, url, runs=False) as loop:
        await loop.seal_late([call])
    assert not verify(url).ok
    slow(lambda batch: 0)
    async with sealing(redis, url):
        await wait_until(lambda: verify(url).ok, what="its seal")
        while await redis.call("EXISTS", layout.unsealed_key()):
            pass


async def test_no_checkpoint_goes_past_an_old_call_that_was_put_off(
    redis: Connection, url: str, slow: Callable[[Seconds], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Verification would say that its seal was taken away."""
    monkeypatch.setattr(seal, "OLD_S", 0.0)
    calls = await put(url, 3)
    slow(lambda batch: 20 if calls[0] in batch else 0)
    async with sealing(redis, url) as loop:
        loop._limits = loop._limits.model_copy(update={"checkpoint_s": 0.01})
        await wait_until(
            lambda: calls[0] in loop._later and len(sealed(url)) == 2, what="it is put off"
        )
        await wait_until(lambda: loop._is_swept, what="the first sweep")
        before = rows(url, "SELECT max(size) FROM checkpoints")
        [after] = await put(url, 1)
        loop.ended(0, [str(after)], (1, 0))
        await wait_until(lambda: after in sealed(url), what="a seal more")
        assert rows(url, "SELECT max(size) FROM checkpoints") == before == [(None,)]
        slow(lambda batch: 0)
        await wait_until(
            lambda: rows(url, "SELECT max(size) FROM checkpoints") == [(4,)],
            what="a checkpoint over all",
        )


async def test_an_end_that_came_after_its_calls_seal_is_covered(
    redis: Connection, url: str
) -> None:
    """Who writes the end of a call that Redis lost may die before it seals it again."""
    call = layout.new_call_id()
    records = summed_call(call)
    await insert(url, *(r for r in records if not isinstance(r, EndRecord)), bodies={call: BODY})
    with Sealer(url) as sealer:
        sealer.seal([UUID(call)])
    await insert(url, *(r for r in records if isinstance(r, EndRecord)))
    assert not verify(url).ok
    async with sealing(redis, url):
        await wait_until(lambda: verify(url).ok, what="its seal")


async def test_a_sealer_that_waits_for_another_is_not_slow(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its calls are not put off for what others do."""
    monkeypatch.setattr(db_seal, "LOCK_TIMEOUT_MS", 50)
    [call] = await put(url, 1)
    with Sealer(url) as one, Sealer(url) as other:
        with one._connected().transaction():
            db_seal._lock(one._connected())
            with pytest.raises(AuditUnavailable) as raised:
                await asyncio.to_thread(other.seal, [call])
        assert not isinstance(raised.value, AuditTooSlow)
        assert other.seal([call]) == 1


def marked(url: str, call: UUID) -> bool:
    """Does the record say that the gateway relayed something else?"""
    return bool(
        rows(
            url,
            "SELECT 1 FROM events WHERE kind = 'incomplete' AND number = %s AND call_id = %s",
            int(Hole.RELAYED),
            call,
        )
    )


async def whole(url: str) -> UUID:
    """Put a whole call on record, with a seal."""
    call = layout.new_call_id()
    await insert(url, *summed_call(call), bodies={call: BODY})
    with Sealer(url) as sealer:
        sealer.seal([UUID(call)])
    return UUID(call)


async def test_a_mark_whose_writer_died_is_covered(
    redis: Connection, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the first sweep of a writer that starts, and by a later one of another, for the mark of a
    call that was sealed before."""
    monkeypatch.setattr(seal, "SWEEP_S", 0.1)
    calls = [await whole(url) for _ in range(3)]
    async with AuditInserter(url) as inserter:
        for call in calls[:2]:
            await inserter.mark([CallHole(call, Hole.RELAYED, "other")])
        assert [finding.call_id for finding in verify(url).findings] == calls[:2]
        with Sealer(url) as sealer:
            assert sealer.find_uncovered(UUID(int=0), 1) == (calls[:1], calls[0])
            assert sealer.find_uncovered(calls[0], 2) == (calls[1:2], None)
        async with sealing(redis, url) as loop:
            await wait_until(lambda: verify(url).ok, what="the first sweep covers them")
            await wait_until(lambda: loop._is_swept)
            await inserter.mark([CallHole(calls[2], Hole.RELAYED, "other")])
            await wait_until(lambda: verify(url).ok, what="a later sweep covers it")
        with Sealer(url) as sealer:
            assert sealer.find_uncovered(UUID(int=0)) == ([], None)
    assert rows(url, "SELECT count(*) FROM seals") == [(6,)]


@pytest.mark.slow
async def test_a_mark_that_cannot_be_covered_at_once_is_kept(
    redis: Connection, redis_url: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Postgres goes away between the mark and its seal; nobody marks the call again, and no sweep
    comes soon."""
    monkeypatch.setattr(seal, "SWEEP_S", 3600)
    monkeypatch.setattr(EndedCalls, "every_s", 0.05)
    monkeypatch.setattr("workers.audit.ended_calls.FIRST_S", 0.1)
    monkeypatch.setattr("workers.audit.ended_calls.LATER", 0.001)
    call, seals, failures = await whole(url), Sealer.seal, 0

    def away(self: Sealer, calls: Any, *, note: str = "") -> int:
        nonlocal failures
        if failures < 3:
            failures += 1
            raise AuditUnavailable("away")
        return seals(self, calls, note=note)

    async with writing(redis_url, url) as writer:
        await wait_until(lambda: writer._seals._is_swept, what="the first sweep")
        monkeypatch.setattr(Sealer, "seal", away)
        told = layout.Entry(
            9, 1, "closed", [layout.pack(layout.Relayed(9, b"other"))], 3, "complete"
        )
        await redis.call("XADD", layout.ended_key(0), "*", "c", str(call), "b", layout.pack(told))
        await wait_until(lambda: marked(url, call), what="the mark")
        await wait_until(lambda: failures == 3 and verify(url).ok, what="its seal")
