"""A Redis with nothing in it but the group that policy workers read calls with."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from streams import layout
from streams.connection import Connection


@asynccontextmanager
async def empty(redis_url: str) -> AsyncIterator[Connection]:
    """Lend a connection to it."""
    connection = Connection(redis_url, name="test")
    await connection.open()
    await connection.call("FLUSHALL")
    await connection.call("XGROUP", "CREATE", layout.dispatch_key(0), layout.POLICY_GROUP, "0", "MKSTREAM")
    yield connection
    await connection.close()
