"""Computes the figures of closed hours for pages and `/audit/usage`, next to the audit writer's
main loop and never in its way.

One writer at a time does this (`db.write.usage`). The last closed hours are recomputed every few
minutes, because rows come late; each once more a day later, for those that came later still. Hours
from before there were figures follow, the newest first. While records wait, figures do.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

from db.state.postgres_errors import server_words
from db.write.usage import HOUR, Roller, hour_of
from protocol.errors import AuditUnavailable, StreamConnectionLost
from settings.runtime import Runtime
from streams import audit_stream, layout
from streams.connection import Connection, RedisError

log = logging.getLogger(__name__)
FIRST_S, EVERY_S = 5.0, 300.0
CLOSED_HOURS = 3
"""How many closed hours are made anew each time."""
LATE = timedelta(hours=24 + CLOSED_HOURS)
"""When an hour is made for the last time."""
NAP_S = 0.1
"""Pause between two hours: 10 ms of PostgreSQL each on a record of ten million chunks, a year in a
quarter of an hour."""
ROUND_S = 240.0
"""How long a round may take; what is left is the next one's."""
BEHIND_MS, YIELD_S = 100, 1.0
KEPT_DAYS = 400
"""`sluice_roll_up` takes older hours away."""


class Rollups:
    """The figures of one audit writer."""

    def __init__(self, settings: Runtime, redis: Connection) -> None:
        self._url, self._redis, self._shards = settings.database_url, redis, settings.config.shards
        self._until = 0.0

    async def run(self) -> None:
        """Make figures until cancelled."""
        await asyncio.sleep(FIRST_S)
        while True:
            try:
                await self.make(datetime.now(UTC))
            except (AuditUnavailable, StreamConnectionLost, RedisError) as error:
                log.info(
                    "no figures this time", extra={"action": "usage", "error": server_words(error)}
                )
            await asyncio.sleep(EVERY_S)

    async def make(self, now: datetime) -> int:
        """Make what is due, if it is this writer's turn; returns of how many hours. Raises
        AuditUnavailable, StreamConnectionLost, RedisError."""
        made, self._until = 0, time.monotonic() + ROUND_S
        async with await Roller.open(self._url) as roller:
            if not await roller.takes_turn():
                return 0
            await roller.tell_clocks(layout.time_ms(await self._redis.call("TIME")) / 1000)
            async for hour in self._due(roller, hour_of(now)):
                if not await self._has_room():
                    break
                await roller.roll_up(hour)
                made += 1
                await asyncio.sleep(NAP_S)
        return made

    async def _due(self, roller: Roller, now: datetime) -> AsyncIterator[datetime]:
        """Yield the hours to be made. Those of which there are figures have no gap among them, also
        where a round ends early."""
        first, last = await roller.known()
        closed = [now - n * HOUR for n in range(1, CLOSED_HOURS + 1)]
        after = None if last is None else await roller.hour_from(last + HOUR)
        while after is not None and after < closed[-1]:
            # nobody made figures for a while
            yield after
            after = await roller.hour_from(after + HOUR)
        for hour in closed:
            yield hour
        if first is not None and first <= (late := hour_of(now - LATE)):
            yield late
        before = await roller.hour_before(min(first or closed[-1], closed[-1]))
        while before is not None and before > now - timedelta(days=KEPT_DAYS):
            yield before
            before = await roller.hour_before(before)

    async def _has_room(self) -> bool:
        """Wait until no records do; False: this round has taken its time."""
        while time.monotonic() < self._until:
            states = [
                await audit_stream.read_state(self._redis, shard) for shard in range(self._shards)
            ]
            if all(state.behind_ms <= BEHIND_MS for state in states):
                return True
            await asyncio.sleep(YIELD_S)
        return False
