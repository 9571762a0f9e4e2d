"""Work that takes much memory is done one at a time: twenty readers of 16 MB bodies must not need
twenty times as much."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

SMALL = 512 * 1024
"""Bytes that may be decoded beside others."""
_one: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


@asynccontextmanager
async def decoding(size: int) -> AsyncIterator[None]:
    """Wait until nobody else holds something large, if this is large."""
    if size <= SMALL:
        yield
        return
    async with _one.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        yield
