"""Takes old rows out of the record once a day, beside the audit writer's main loop, as `retention`
of the configuration says.

One writer at a time does this, the oldest day of one table a minute: each takes the table for
itself for a moment, and rows of a large day are hashed before. What may not go yet, because a call
has no seal or is under no checkpoint, waits for the next day; what others only hold, a backup for
example, is tried again the same day.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from db.seals.retention import RetentionRun, RetentionStep, is_held
from db.state.postgres_errors import server_words
from protocol.errors import AuditUnavailable, Forbidden, InvalidRequest
from settings.runtime import Runtime
from streams.clock import read_time

log = logging.getLogger(__name__)
FIRST_S, EVERY_S, STEP_S = 300.0, 86_400.0, 60.0
HELD_STEPS = 10
"""So many times the pause between steps it waits before it tries again what others held; then twice
as long, and so on."""
T = TypeVar("T")


class RetentionLoop:
    """The retention of one audit writer."""

    def __init__(
        self, settings: Runtime, *, first_s: float = FIRST_S, step_s: float = STEP_S
    ) -> None:
        retention = settings.config.retention
        self._url, self._days, self._archive = (
            settings.database_url,
            retention.days,
            retention.archive,
        )
        self._redis_time = partial(read_time, settings.redis_url)
        self._first_s, self._step_s = first_s, step_s

    async def run(self) -> None:
        """Take old rows away until cancelled."""
        await asyncio.sleep(self._first_s)
        clock = asyncio.get_running_loop().time
        while True:
            until = clock() + EVERY_S
            try:
                pause, refused = self._step_s * HELD_STEPS, set[str]()
                while await self._round(refused) and clock() + pause < until:
                    await asyncio.sleep(pause)
                    pause *= 2
            except (Forbidden, InvalidRequest) as error:
                log.error("old rows stay", extra={"action": "retention", "error": error.message})
            except AuditUnavailable as error:
                log.warning(
                    "old rows cannot be taken away now",
                    extra={"action": "retention", "error": server_words(error)},
                )
            await asyncio.sleep(max(until - clock(), 0.0))

    async def _round(self, refused: set[str]) -> bool:
        """Take away what is due, if it is this writer's turn; says whether others held some of it.
        `refused` gets the kinds that may not go today. Raises Forbidden, AuditUnavailable,
        InvalidRequest where clocks do not agree."""
        retention = RetentionRun(self._url, self._days, self._archive, redis_time=self._redis_time)
        await _in_thread(retention, retention.open)
        held = set[str]()
        try:
            if not await _in_thread(retention, retention.takes_turn):
                return False
            tried = list[RetentionStep]()
            # none twice: one that takes nothing stays due, and would keep all others from their
            # turn
            while step := next(
                (
                    s
                    for s in await _in_thread(retention, retention.due)
                    if s.kind.name not in refused | held and s not in tried
                ),
                None,
            ):
                tried.append(step)
                extra = {"action": "retention", "table": step.kind.name, "until": str(step.until)}
                try:
                    taken = await _in_thread(retention, retention.take, step)
                    log.info("old rows are gone", extra=extra | {"count": taken})
                except InvalidRequest as error:
                    (held if is_held(error) else refused).add(step.kind.name)
                    log.warning("old rows stay", extra=extra | {"error": error.message})
                await asyncio.sleep(self._step_s)
        finally:
            retention.close()
        return bool(held)


async def _in_thread(retention: RetentionRun, work: Callable[..., T], *args: object) -> T:
    """Work in a thread; where this is cancelled the connection is cut, so that the thread ends."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *args))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            retention.cut()
            await asyncio.wait({task}, timeout=0.1)
        if not task.cancelled():
            task.exception()
        raise
