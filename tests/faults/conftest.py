"""A database and a Redis of a test's own, empty."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from tests.support.record import fresh_database


@pytest.fixture
def url(database_url: str) -> Iterator[str]:
    """A migrated database with nothing in it."""
    with fresh_database(database_url) as fresh:
        yield fresh


@pytest.fixture
def store(redis_url: str) -> Iterator[Any]:
    """The Redis of this test process, emptied."""
    with redis.Redis.from_url(redis_url) as client:
        client.flushall()
        yield client
