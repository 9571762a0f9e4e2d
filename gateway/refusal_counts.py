"""What this gateway refuses before a call begins, which leaves no record: counted by API key and
error, for auditors. No address, no header and no body is kept.

The counts are sums since the gateway's start. They go out over the debug stream: those that
changed, each second, and once more a minute later, as that stream may lose what it holds. A request
that is refused costs one look into a dictionary more.
"""

import asyncio
from collections import Counter

from gateway.call import figures
from protocol.debug import MAX_PAIRS, DoorCount
from protocol.errors import PipelineError
from streams.debug_lines import DebugLines
from streams.metrics import ProcessFigures, Total

EVERY_S = 1.0
AGAIN = 60
"""Rounds after which what changed is sent again."""
OTHERS = ("", "0 other")
Pair = tuple[str, str]
"""Name of the key, empty for none that is known; status and code of the error."""


class Refusals:
    """The counts of one gateway process."""

    def __init__(self, figures: ProcessFigures) -> None:
        self._figures = figures
        self._sums = Counter[Pair]()
        self._changed, self._since_again = set[Pair](), set[Pair]()

    def refused(self, key: str, error: PipelineError) -> None:
        """Count a refused request."""
        self._figures.add(Total.REFUSED, error.error_code)
        figures.failed(self._figures, error)
        pair = key, f"{error.http_status} {error.error_code}"
        if pair not in self._sums and len(self._sums) >= MAX_PAIRS:
            pair = OTHERS
        self._sums[pair] += 1
        self._changed.add(pair)

    async def send(self, lines: DebugLines) -> None:
        """Send what changed, until cancelled."""
        rounds = 0
        while True:
            await asyncio.sleep(EVERY_S)
            rounds += 1
            if rounds % AGAIN == 0:
                self._changed |= self._since_again
                self._since_again = set()
            await self._send_changed(lines)

    async def _send_changed(self, lines: DebugLines) -> None:
        changed, self._changed = self._changed, set()
        if not changed:
            return
        if await lines.send_door(
            [DoorCount(key, code, self._sums[key, code]) for key, code in changed]
        ):
            self._since_again |= changed
        else:
            # Redis is away, or full
            self._changed |= changed
