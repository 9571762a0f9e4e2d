"""A Redis of a test's own, and what inserts into its database."""

from collections.abc import AsyncIterator

import pytest

from db.write.insert import AuditInserter
from streams.connection import Connection
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
