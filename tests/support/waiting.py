"""Waiting for a condition instead of sleeping."""

import asyncio
import gc
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

T = TypeVar("T")
_STEP_S = 0.01


async def wait_until(condition: Callable[[], T | Awaitable[T]], *, timeout_s: float = 10.0, what: str = "") -> T:
    """Return the first true value of `condition` (a function or a coroutine function). Raises AssertionError after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        given = condition()
        value: T = await given if inspect.isawaitable(given) else given
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s} s: {what or condition}")
        await asyncio.sleep(_STEP_S)


def wait_for(condition: Callable[[], T | None], *, timeout_s: float = 10.0, what: str = "") -> T:
    """Return the first true value of `condition`, in tests that are not async. Raises AssertionError after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s} s: {what or condition}")
        time.sleep(_STEP_S)
    return value


class Loop:
    """How long the event loop did not run while `watched` was open."""

    longest_s = 0.0


@asynccontextmanager
async def watched() -> AsyncIterator[Loop]:
    """Measure the longest time for which the event loop keeps others waiting."""
    found = Loop()
    # the collector takes 0.15 s to look through all that the tests made
    gc.freeze()

    async def look() -> None:
        before = time.monotonic()
        try:
            while True:
                await asyncio.sleep(0.002)
                now = time.monotonic()
                found.longest_s, before = max(found.longest_s, now - before), now
        finally:
            # what blocks up to the end is in no turn of this task
            found.longest_s = max(found.longest_s, time.monotonic() - before)

    looking = asyncio.create_task(look(), name="watched")
    await asyncio.sleep(0)
    try:
        yield found
    finally:
        looking.cancel()
        await asyncio.wait({looking})
        gc.unfreeze()
