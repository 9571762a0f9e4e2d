"""How much of one call waits: for its client, and for the policy workers."""

import asyncio
from collections.abc import Callable

from gateway.call.appender import Appender
from gateway.call.outgoing import Outgoing


class FlowControl:
    """Stops the reading of an upstream while too much of its answer waits. Never looks at released
    bytes: a held tool call would deadlock."""

    __slots__ = ("_appender", "_outgoing", "_received_bytes", "_room", "chunks", "is_awaited")

    def __init__(self, outgoing: Outgoing, appender: Appender) -> None:
        self._outgoing, self._appender = outgoing, appender
        self._received_bytes = self.chunks = 0
        """`chunks`: how many the upstream sent."""
        self._room: tuple[int, Callable[[], None]] | None = None
        self.is_awaited = False
        """Does somebody wait for room?"""

    def receive(self, size: int) -> int:
        """Count bytes that upstream sent; returns how many it has sent in this call, over all of
        its requests."""
        self._received_bytes += size
        return self._received_bytes

    def backlog_bytes(self) -> int:
        """The larger of bytes unsent to the client and bytes queued or appended that the worker has
        not taken in."""
        return max(self._outgoing.size, self._appender.unprocessed_bytes)

    def make_room(self) -> None:
        """Call who waits for room, if there is enough now."""
        if self._room is not None and self.backlog_bytes() <= self._room[0]:
            waiting = self._room[1]
            self.forget_room()
            waiting()

    def when_room(self, mark: int, then: Callable[[], None]) -> None:
        """Call `then` as soon as the backlog is at most `mark` bytes."""
        self._room, self.is_awaited = (mark, then), True

    def forget_room(self) -> None:
        """Whoever waited for room waits no more."""
        self._room, self.is_awaited = None, False

    async def room(self, mark: int) -> None:
        """Wait until the backlog is at most `mark` bytes."""
        if self.backlog_bytes() > mark:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.when_room(mark, lambda: None if waiting.done() else waiting.set_result(None))
            await waiting
