"""Sealing gives way: while records wait to be written, calls that ended are not sealed, but no
longer than a while."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import pytest

from db.seals.seal import Sealer
from db.seals.verify import verify
from db.write.insert import AuditInserter
from protocol.records import EventRecord
from settings.config import Config
from settings.runtime import Runtime
from streams import layout
from streams.connection import Connection
from tests.support.checks.reading import insert
from tests.support.checks.record import call_id, fresh_database, now_ms, rows, whole_call
from tests.support.waiting import wait_until
from workers.audit import sealing as seal

KEY = layout.audit_key(0)


@asynccontextmanager
async def looping(redis: Connection, redis_url: str, database_url: str) -> AsyncIterator[None]:
    """Run the sealing of a writer whose call has just ended, beside a stream with one entry
    delivered and one 0.2 s younger that waits."""
    await redis.call("DEL", KEY)
    await redis.call("XGROUP", "CREATE", KEY, layout.AUDIT_GROUP, "0", "MKSTREAM")
    await redis.call("XADD", KEY, "1000-0", "a", "b")
    await read(redis)
    await redis.call("XADD", KEY, "1200-0", "a", "b")
    call = call_id()
    async with AuditInserter(database_url) as inserter:
        await inserter.insert(whole_call(call), {})
    config = Config.model_validate({"limits": {"seal_s": 0.02}})
    loop = seal.SealLoop(
        Runtime(config=config, redis_url=redis_url, database_url=database_url, name="w"), redis
    )
    loop.ended(0, [str(UUID(call))], (1000, 0))
    running = asyncio.create_task(loop.run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait({running})
        await loop.close()
        await redis.call("DEL", KEY)


async def read(redis: Connection) -> None:
    """Take what waits, as a writer that has committed it."""
    taken = await redis.call(
        "XREADGROUP", "GROUP", layout.AUDIT_GROUP, "w", "COUNT", 10, "STREAMS", KEY, ">"
    )
    await redis.call("XACK", KEY, layout.AUDIT_GROUP, *(entry for entry, _ in taken[0][1]))


def sealed(url: str) -> int:
    """How many seals there are."""
    [(count,)] = rows(url, "SELECT count(*) FROM seals")
    return int(count)


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Connection]:
    connection = Connection(redis_url, name="test", silent_s=60)
    await connection.open()
    yield connection
    await connection.close()


async def test_a_sweep_covers_what_a_writer_of_before_sealed(
    redis: Connection, redis_url: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And ends where a seal was made to look like one of those (tests/service/test_seal_forms.py
    has such writers)."""
    with fresh_database(database_url) as url:
        calls = [call_id() for _ in range(2)]
        for call in calls:
            await insert(url, *whole_call(call))
        with Sealer(url) as sealer:
            sealer.seal(map(UUID, calls))
        # what the seal of the one does not cover; that of the other covers all there is
        await insert(
            url, EventRecord(call_id=calls[0], kind="fenced", number=7, at=now_ms(), detail="")
        )
        monkeypatch.setattr(
            Sealer, "find_beside", lambda sealer, limit=1000: list(map(UUID, calls))
        )
        async with looping(redis, redis_url, url):
            await read(redis)
            await wait_until(
                lambda: (
                    rows(url, "SELECT 1 FROM seals WHERE call_id = %s AND part = 1", calls[0]) != []
                ),
                what="a part",
            )
            await wait_until(
                lambda: sealed(url) == 4,
                what="the loop goes on and seals the call that has just ended",
            )
        assert verify(url).ok


async def test_seals_wait_while_records_do(
    redis: Connection, redis_url: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    is_behind = seal.SealLoop.is_behind

    async def counted(loop: seal.SealLoop) -> bool:
        nonlocal looks
        looks += 1
        return await is_behind(loop)

    monkeypatch.setattr(seal.SealLoop, "is_behind", counted)
    with fresh_database(database_url) as url:
        async with looping(redis, redis_url, url):
            await wait_until(lambda: looks > 10, what="ten looks")
            assert sealed(url) == 0
            await read(redis)
            await wait_until(lambda: sealed(url) == 1, what="sealed once nothing waits")


async def test_seals_wait_for_no_longer_than_a_while(
    redis: Connection, redis_url: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seal, "YIELD_S", 0.2)
    with fresh_database(database_url) as url:
        async with looping(redis, redis_url, url):
            await wait_until(lambda: sealed(url) == 1, what="sealed although records wait")
