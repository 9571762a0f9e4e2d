"""Waiting for a condition instead of sleeping."""

import asyncio
import contextlib
import gc
import inspect
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

T = TypeVar("T")
_STEP_S = 0.01


class Limit:
    """When this test has to be over: whoever waits gives up before, so that the test itself says
    what it waited for."""

    at = math.inf


def _deadline(timeout_s: float) -> float:
    return min(time.monotonic() + timeout_s, Limit.at)


def _gave_up(condition: Callable[..., object], began: float, what: str) -> AssertionError:
    with contextlib.suppress(OSError, TypeError):
        what = what or " ".join(inspect.getsource(condition).split())
    return AssertionError(f"not within {time.monotonic() - began:.1f} s: {what or condition}")


async def wait_until(
    condition: Callable[[], T | Awaitable[T]], *, timeout_s: float = 10.0, what: str = ""
) -> T:
    """Return the first true value of `condition` (a function or a coroutine function). Raises
    AssertionError after `timeout_s`."""
    began, deadline = time.monotonic(), _deadline(timeout_s)
    while True:
        given = condition()
        value: T = await given if inspect.isawaitable(given) else given
        if value:
            return value
        if time.monotonic() > deadline:
            raise _gave_up(condition, began, what)
        await asyncio.sleep(_STEP_S)


def wait_for(condition: Callable[[], T | None], *, timeout_s: float = 10.0, what: str = "") -> T:
    """Return the first true value of `condition`, in tests that are not async. Raises
    AssertionError after `timeout_s`."""
    began, deadline = time.monotonic(), _deadline(timeout_s)
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise _gave_up(condition, began, what)
        time.sleep(_STEP_S)
    return value


def _without_a_core_s() -> float:
    """For how long this thread could have run and other processes had the cores; 0 where the system
    does not say."""
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except OSError:
        return 0.0


class Loop:
    """How long the event loop did not run while `watched` was open, though it had a core."""

    longest_s = 0.0


@asynccontextmanager
async def watched() -> AsyncIterator[Loop]:
    """Measure the longest time for which the event loop keeps others waiting."""
    found = Loop()
    # the collector takes 0.15 s to look through all that the tests made
    gc.freeze()

    async def look() -> None:
        before = time.monotonic() - _without_a_core_s()
        try:
            while True:
                await asyncio.sleep(0.002)
                now = time.monotonic() - _without_a_core_s()
                found.longest_s, before = max(found.longest_s, now - before), now
        finally:
            # what blocks up to the end is in no turn of this task
            found.longest_s = max(found.longest_s, time.monotonic() - _without_a_core_s() - before)

    looking = asyncio.create_task(look(), name="watched")
    await asyncio.sleep(0)
    try:
        yield found
    finally:
        looking.cancel()
        await asyncio.wait({looking})
        gc.unfreeze()
