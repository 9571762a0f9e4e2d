"""Audit writers in the test's own process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from settings.config import Config
from settings.runtime import Runtime
from workers.audit.writer import AuditWriter


@asynccontextmanager
async def writing(redis_url: str, url: str) -> AsyncIterator[AuditWriter]:
    """Run an audit writer in this process."""
    writer = AuditWriter(Runtime(config=Config(), redis_url=redis_url, database_url=url, name="w"))
    task = asyncio.create_task(writer.run())
    try:
        yield writer
    finally:
        writer.stop()
        await task
