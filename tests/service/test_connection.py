"""The pipelined connection on a real server that falls silent."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from protocol.errors import StreamConnectionLost
from streams.connection import Connection
from tests.support.waiting import wait_until

SILENT_S = 0.4


@pytest.fixture
async def admin(redis_url: str) -> AsyncIterator[Connection]:
    connection = Connection(redis_url, name="admin", silent_s=60)
    await connection.open()
    yield connection
    await connection.close()


async def client_id(connection: Connection) -> int:
    return int(await connection.call("CLIENT", "ID"))


async def test_an_idle_connection_and_one_that_waits_in_blocks_stay(redis_url: str) -> None:
    connection = Connection(redis_url, name="test", silent_s=SILENT_S)
    await connection.open()
    before = await client_id(connection)
    await asyncio.sleep(2.5 * SILENT_S)
    for _ in range(8):
        assert await connection.call("BLPOP", "nothing", str(connection.block_ms / 1000)) is None
    assert await client_id(connection) == before
    await connection.close()


async def test_a_silent_server_is_a_lost_connection_and_is_found_again(redis_url: str, admin: Connection) -> None:
    connection = Connection(redis_url, name="test", silent_s=SILENT_S)
    await connection.open()
    before = await client_id(connection)
    await admin.call("CLIENT", "PAUSE", 1500, "ALL")
    async with asyncio.timeout(10):
        with pytest.raises(StreamConnectionLost):
            await connection.call("INCR", "n")
        await wait_until(lambda: connection.connected.is_set(), what="reconnected")
    assert await client_id(connection) != before
    await connection.close()


async def test_a_silent_subscription_is_made_anew(redis_url: str, admin: Connection) -> None:
    connects = 0

    async def connected() -> None:
        nonlocal connects
        connects += 1

    heard: list[bytes] = []
    connection = Connection(
        redis_url, name="test", silent_s=SILENT_S, on_push=lambda message: heard.append(message[2]), on_connect=connected
    )
    await connection.open()
    await admin.call("CLIENT", "PAUSE", 1500, "ALL")
    await wait_until(lambda: connects == 2, what="connected again")
    await connection.call("SUBSCRIBE", "channel")
    await admin.call("PUBLISH", "channel", "word")
    await wait_until(lambda: heard == [b"word"], what="the word")
    await connection.close()
