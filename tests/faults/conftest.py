"""A Redis of a test's own, empty."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis


@pytest.fixture
def store(redis_url: str) -> Iterator[Any]:
    """The Redis of this test process, emptied."""
    with redis.Redis.from_url(redis_url) as client:
        client.flushall()
        yield client
