"""A bounded number of slots, shared by API keys: no key may have all of them, and those who wait
are served key by key."""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator


class RoundRobin:
    """At most `slots` at once, `most` of them for one key, or half of them; those who wait for one
    are served key by key, each key's in their order."""

    def __init__(self, slots: int, *, most: int | None = None) -> None:
        self.free, self._most = slots, max(1, slots // 2) if most is None else most
        self._of = dict[str, int]()
        self._waiting: OrderedDict[str, dict[asyncio.Future[None], None]] = OrderedDict()

    def enters(self, key: str) -> bool:
        """Take a slot if there is one for this key now; who has one must `leave`."""
        if self.free and self._of.get(key, 0) < self._most:
            self._take(key)
            return True
        return False

    async def enter(self, key: str) -> None:
        """Wait for a slot; who has one must `leave`."""
        if self.enters(key):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, {})[turn] = None
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(key)
            else:
                self._forget(key, turn)
            raise

    @contextlib.asynccontextmanager
    async def place(self, key: str) -> AsyncIterator[None]:
        """Wait for a slot and hold it."""
        await self.enter(key)
        try:
            yield
        finally:
            self.leave(key)

    def leave(self, key: str) -> None:
        """Give a slot of `key` to whose turn it is."""
        self.free += 1
        self._of[key] -= 1
        if not self._of[key]:
            del self._of[key]
        # the first, but for keys that have their half
        for waiting in tuple(self._waiting):
            if self._of.get(waiting, 0) < self._most and (turn := self._next(waiting)) is not None:
                self._take(waiting)
                turn.set_result(None)
                return

    def _next(self, key: str) -> "asyncio.Future[None] | None":
        """Take out who of `key` waited longest; its other turns come behind those of all other
        keys. A waiting that was given up in this very turn of the loop still stands here: it is
        cancelled, and its task has yet to hear of it.
        """
        while turns := self._waiting.get(key):
            turn = next(iter(turns))
            self._forget(key, turn)
            if not turn.cancelled():
                if key in self._waiting:
                    self._waiting.move_to_end(key)
                return turn
        return None

    def _take(self, key: str) -> None:
        self.free -= 1
        self._of[key] = self._of.get(key, 0) + 1

    def _forget(self, key: str, turn: "asyncio.Future[None]") -> None:
        turns = self._waiting.get(key, {})
        turns.pop(turn, None)
        if not turns:
            self._waiting.pop(key, None)
