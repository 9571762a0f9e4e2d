"""Bounds how many further attempts of failed requests one gateway has under way, so that an
upstream in trouble does not get several times its load.

At most 20 % of the requests of the last ten seconds, and at least six; at most half of them for one
key. An attempt counts until its answer begins. One that finds no room waits for a moment, and then
is not made.
"""

import asyncio
from collections import deque

from streams.round_robin import RoundRobin

WINDOW_S, SHARE, LEAST = 10, 0.2, 6
PATIENCE_S = 1.0
"""How long an attempt waits for room."""


class Repeats(RoundRobin):
    """The attempts under way, by key."""

    def __init__(self) -> None:
        super().__init__(LEAST)
        self._slots = LEAST
        self._seconds: deque[tuple[int, int]] = deque()
        """Seconds of the clock with requests, and how many."""

    def count(self, now: float) -> None:
        """Count a request, of a call's first attempt or not."""
        second = int(now)
        if self._seconds and self._seconds[-1][0] == second:
            self._seconds[-1] = second, self._seconds[-1][1] + 1
        else:
            self._seconds.append((second, 1))
            while self._seconds[0][0] <= second - WINDOW_S:
                self._seconds.popleft()

    async def begins(self, key: str, now: float) -> bool:
        """Take room for an attempt of this key, or return False; who has it must `leave`."""
        came = sum(count for second, count in self._seconds if second > now - WINDOW_S)
        self._resize(max(LEAST, int(came * SHARE)))
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self.enter(key)
        except TimeoutError:
            return False
        return True

    def _resize(self, slots: int) -> None:
        # what is taken stays taken
        slots = max(slots, self._slots - self.free)
        self.free += slots - self._slots
        self._slots, self._most = slots, slots // 2
