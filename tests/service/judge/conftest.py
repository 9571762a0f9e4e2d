"""A Redis of a test's own with the queue of the judges, and a provider that they ask."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from redis.asyncio import Redis

from streams.connection import Connection
from tests.support.upstreams.judging import Client, QueueOfCalls, Upstream
from workers.judge_queue import JudgeQueue


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    played = Upstream()
    app = web.Application()
    app.router.add_post("/{path:.*}", played.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    played.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield played
    await runner.cleanup()


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Client]:
    client: Client = Redis.from_url(redis_url)
    await client.flushall()
    yield client
    await client.aclose()


@pytest.fixture
async def connection(redis_url: str, redis: Client) -> AsyncIterator[Connection]:
    opened = Connection(redis_url, name="test")
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def queue(redis_url: str, connection: Connection) -> AsyncIterator[JudgeQueue]:
    asked = QueueOfCalls(redis_url, connection)
    yield asked
    await asked.close()
