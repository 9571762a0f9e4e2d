"""A Redis of a test's own, and what inserts into its database."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from db.read.queries import AuditReader
from db.write.insert import AuditInserter
from streams.connection import Connection
from tests.support.checks.record import call_id, fresh_database, whole_call
from tests.support.checks.sealed import Log, copy_of
from tests.support.servers.dispatch import empty


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Connection]:
    """A Redis with nothing in it but the group that policy workers read calls with."""
    async with empty(redis_url) as connection:
        yield connection


@pytest.fixture
async def inserter(url: str) -> AsyncIterator[AuditInserter]:
    """An inserter into an empty database."""
    async with AuditInserter(url) as opened:
        yield opened


@pytest.fixture
def url(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A database of the test's own, which the commands find by the environment."""
    with fresh_database(database_url) as fresh:
        monkeypatch.setenv("SLUICE_DATABASE_URL", fresh)
        yield fresh


@pytest.fixture
async def reader(url: str) -> AsyncIterator[AuditReader]:
    """A reader of that database."""
    opened = AuditReader.open(url)
    yield opened
    await opened.close()


@pytest.fixture
def call(url: str) -> str:
    """A whole call on its record."""
    call = call_id()

    async def insert() -> None:
        async with AuditInserter(url) as inserter:
            assert not await inserter.insert(whole_call(call), {call: b"{}"})

    asyncio.run(insert())
    return call


@pytest.fixture
def log(sealed: Log) -> Iterator[Log]:
    """A copy of a module's sealed record, for a test that changes it."""
    with copy_of(sealed.url) as url:
        yield Log(url, sealed.calls, sealed.checkpoints)
