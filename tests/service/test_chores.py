"""What an audit writer does beside its draining goes on after whatever it did not foresee, or its
writer ends."""

import asyncio
import logging
from typing import Any

import psycopg
import pytest

from db.write.insert import AuditInserter
from settings.config import Config
from settings.runtime import Runtime
from streams import layout
from streams.connection import Connection
from tests.support.checks.record import rows
from tests.support.servers.writers import writing
from tests.support.waiting import wait_until
from workers import process
from workers.audit import sealing as seal
from workers.audit.chores import Chores
from workers.audit.drain import Drain
from workers.audit.ended_calls import EndedCalls
from workers.audit.orphaned import OrphanedCalls
from workers.audit.writer import AuditWriter

ODD = [KeyError(b"length"), psycopg.DataError("invalid input syntax"), asyncio.InvalidStateError()]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "REPEAT_S", 0.01)


def fails_first(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *errors: Exception
) -> list[Exception]:
    """Let a coroutine function fail with these, then work; returns those to come."""
    works, to_come = getattr(owner, name), list(errors)

    async def failing(*args: Any, **kwargs: Any) -> Any:
        if to_come:
            raise to_come.pop(0)
        return await works(*args, **kwargs)

    monkeypatch.setattr(owner, name, failing)
    return to_come


async def test_an_answer_that_nobody_foresaw_ends_no_chore(
    redis: Connection,
    redis_url: str,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each loop fails, says so, and goes on: a call whose end is lost is marked and sealed all the
    same."""
    monkeypatch.setattr(EndedCalls, "every_s", 0.05)
    monkeypatch.setattr(OrphanedCalls, "every_s", 0.05)
    monkeypatch.setattr("workers.audit.ended_calls.FIRST_S", 0.1)
    call = layout.new_call_id()
    failures = [
        fails_first(monkeypatch, owner, "check", *ODD) for owner in (EndedCalls, OrphanedCalls)
    ]
    failures += [
        fails_first(monkeypatch, seal.SealLoop, name, *ODD) for name in ("is_behind", "_sweep")
    ]
    failures += [
        fails_first(monkeypatch, Chores, name, *ODD)
        for name in ("_partition_loop", "_missing_loop")
    ]
    with caplog.at_level(logging.ERROR):
        async with writing(redis_url, url):
            await redis.call("XADD", layout.ended_key(0), "*", "c", call)
            await wait_until(
                lambda: not any(failures), what="every loop failed, and was begun again"
            )
            sealed = (
                "SELECT 1 FROM seals s JOIN events e USING (call_id) WHERE e.kind = 'incomplete'"
                " AND call_id = %s"
            )
            await wait_until(lambda: rows(url, sealed, call) != [], what="the loops work")
    # asyncio tells of what another test left behind
    failed = [record for record in caplog.records if record.exc_info and record.name != "asyncio"]
    told = {
        getattr(record, "action", "") or f"{record.name}: {record.getMessage()}"
        for record in failed
    }
    assert told == {"ended calls", "lost calls", "seals", "partitions", "missing"}


@pytest.mark.parametrize("error", [MemoryError(), asyncio.CancelledError()])
async def test_a_writer_ends_with_a_chore_that_is_over(
    redis: Connection,
    redis_url: str,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
) -> None:
    """It would look alive and do half of its work: without memory, or where somebody cancelled what
    the chore waited for."""

    async def over(self: seal.SealLoop) -> None:
        raise error

    monkeypatch.setattr(seal.SealLoop, "run", over)
    writer = AuditWriter(Runtime(config=Config(), redis_url=redis_url, database_url=url, name="w"))
    async with asyncio.timeout(10):
        with pytest.raises(RuntimeError, match="seals"):
            await writer.run()


async def test_a_loop_that_fails_ends_the_others_before_their_connections(
    redis: Connection, redis_url: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipeline that is still read when its connection is closed crashes the process."""
    order: list[str] = []

    async def drains(self: Drain) -> None:
        if self.shard == 0:
            raise KeyError("odd")
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            order.append("loop")

    closes = AuditInserter.close

    async def close(self: AuditInserter) -> None:
        if self in [drain.store.inserter for drain in writer._drains]:
            order.append("connection")
        await closes(self)

    monkeypatch.setattr(Drain, "run", drains)
    monkeypatch.setattr(AuditInserter, "close", close)
    writer = AuditWriter(
        Runtime(config=Config(shards=2), redis_url=redis_url, database_url=url, name="w")
    )
    async with asyncio.timeout(10):
        with pytest.raises(KeyError):
            await writer.run()
    assert order == ["loop", "connection", "connection"]


async def test_a_chore_that_fails_again_and_again_waits_longer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process, "REPEAT_S", 1.0)
    pauses: list[float] = []

    async def paused(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 8:
            raise asyncio.CancelledError

    async def fails() -> None:
        if len(pauses) % 2:
            raise KeyError("odd")

    monkeypatch.setattr(asyncio, "sleep", paused)
    with pytest.raises(asyncio.CancelledError):
        await process.keep("one", fails)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    assert {record.message for record in caplog.records} == {
        "a background task ended: restarting it",
        "a background task failed: restarting it",
    }
