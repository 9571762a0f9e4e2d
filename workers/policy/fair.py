"""Shares the time of a policy worker's event loop between API keys.

Theory. While there is little to do, each step is done as it comes. What comes past a slice of one
turn of the loop waits in its key's queue, and keys take turns of equal time (deficit round robin).
So a step waits for the steps of its own key before it, and for one turn of each other key, however
many steps those have waiting. A key that is held gets no turns until other parts have caught up
with it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from time import monotonic
from typing import TypeVar

SLICE_S = 0.005
"""How long steps that waited are done before everything else on the loop has its turn."""
TURN_S = 0.001
T = TypeVar("T")
Step = Callable[[], object]


class FairQueue:
    """The steps that wait, by key."""

    def __init__(self) -> None:
        self.queues: dict[str, deque[Step]] = {}
        """Of keys whose next step must wait, too: something of theirs waits, or they are held."""
        self._turns = deque[str]()
        self._debts = dict[str, float]()
        """By how much the last step of a key was longer than its turn: it pays with its next
        turns."""
        self._held = frozenset[str]()
        self._is_due = False

    def put(self, key: str, step: Step) -> None:
        """Do a step when it is its turn."""
        queue = self.queues.setdefault(key, deque())
        queue.append(step)
        if len(queue) == 1:
            self._give_turns(key)

    async def run(self, key: str, step: Callable[[], T]) -> T:
        """The same, for who waits for it; returns what the step does."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.put(key, lambda: _settle(done, step))
        return await done

    def hold(self, keys: Collection[str]) -> None:
        """Give these keys no turns, and all others theirs."""
        freed, self._held = self._held.difference(keys), frozenset(keys)
        for key in self._held:
            self.queues.setdefault(key, deque())
        for key in freed:
            self._give_turns(key)

    def _give_turns(self, key: str) -> None:
        if key in self._held or key in self._turns:
            return
        self._turns.append(key)
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        now = monotonic()
        until = now + SLICE_S
        while self._turns and now < until:
            key = self._turns.popleft()
            if key in self._held:
                continue
            debt = self._debts.pop(key, 0.0) - TURN_S
            if debt > 0 and self._turns:
                self._debts[key] = debt
                self._turns.append(key)
                continue
            queue, turn_until = self.queues[key], now + (TURN_S if debt > 0 else -debt)
            while queue and now < turn_until:
                _do(queue.popleft())
                now = monotonic()
            if queue:
                self._turns.append(key)
                self._debts[key] = now - turn_until
            elif key not in self._held:
                del self.queues[key]
        self._is_due = bool(self._turns)
        if self._is_due:
            asyncio.get_running_loop().call_soon(self._serve)


def _do(step: Step) -> None:
    try:
        step()
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001 - the others go on, as after a callback of the loop
        asyncio.get_running_loop().call_exception_handler(
            {"message": "a step of a call failed", "exception": error}
        )


def _settle(done: "asyncio.Future[T]", step: Callable[[], T]) -> None:
    if done.done():
        return
    try:
        done.set_result(step())
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001 - whoever waits for the step gets it
        done.set_exception(error)
