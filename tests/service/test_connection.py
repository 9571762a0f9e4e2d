"""The pipelined connection on a real server that falls silent."""

import asyncio
import time
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


async def test_a_silent_server_is_a_lost_connection_and_is_found_again(
    redis_url: str, admin: Connection
) -> None:
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
        redis_url,
        name="test",
        silent_s=SILENT_S,
        on_push=lambda message: heard.append(message[2]),
        on_connect=connected,
    )
    await connection.open()
    await admin.call("CLIENT", "PAUSE", 1500, "ALL")
    await wait_until(lambda: connects == 2, what="connected again")
    await connection.call("SUBSCRIBE", "channel")
    await admin.call("PUBLISH", "channel", "word")
    await wait_until(lambda: heard == [b"word"], what="the word")
    await connection.close()


async def test_messages_that_cost_time_are_late_past_a_slice(
    redis_url: str, admin: Connection
) -> None:
    heard: list[int] = []
    late: list[int] = []

    def costly(message: list[bytes]) -> None:
        until = time.monotonic() + 0.001
        while time.monotonic() < until:
            pass
        heard.append(int(message[2]))

    connection = Connection(
        redis_url, name="test", on_push=costly, on_late=lambda message: late.append(int(message[2]))
    )
    await connection.open()
    await connection.call("SUBSCRIBE", "news")
    # in one step, so that they come in a few reads
    admin.send_quiet("MULTI")
    for number in range(500):
        admin.send_quiet("PUBLISH", "news", str(number))
    await admin.call("EXEC")
    await wait_until(lambda: len(heard) + len(late) == 500)
    assert sorted(heard + late) == list(range(500)) and late == sorted(late)
    assert len(heard) < 250
    await connection.close()
