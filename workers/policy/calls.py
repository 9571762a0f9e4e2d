"""The calls that one policy worker owns. Every part of the worker has this registry, and says
through it what a call needs next."""

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from workers.policy.call.owned import OwnedCall
from workers.policy.subscriptions import Subscriptions

log = logging.getLogger(__name__)
KEY_SHARE = 4
"""One API key may have at most this many times the free places of a worker, so four fifths if it is
alone: others always find room."""
MOST_LAG_S = 0.5


class Calls(dict[str, OwnedCall]):
    """By call id, with the tasks that are done for them. What a call needs after a step is in
    `workers.policy.steps`."""

    def __init__(self, hears: Subscriptions, max_calls: int) -> None:
        super().__init__()
        self.hears, self._max_calls = hears, max_calls
        self.lag_s = 0.0
        """How late the event loop is."""
        self._tasks: set[asyncio.Task[Any]] = set()

    def room(self) -> int:
        """How many more calls this worker takes now: none while its loop lags."""
        return 0 if self.lag_s > MOST_LAG_S else self._max_calls - len(self)

    def served(self) -> list[str]:
        """The API keys that have their share of this worker: so many times of what is free. Nobody
        has while a fifth is."""
        free = self._max_calls - len(self)
        if len(self) < KEY_SHARE * free:
            return []
        return [
            key
            for key, calls in Counter(c.start.key for c in self.values()).items()
            if calls >= KEY_SHARE * free
        ]

    def adopt(self, call: OwnedCall) -> bool:
        """Own a call from now on. Returns whether something of its stream was published before,
        unheard."""
        self[call.id] = call
        return self.hears.adopt(call)

    def owns(self, call: OwnedCall) -> bool:
        """Does this worker still have the call?"""
        return self.get(call.id) is call

    def is_over(self, call: OwnedCall) -> bool:
        """Does the call take nothing more, as it ends or is another worker's?"""
        return call.is_ending or not self.owns(call)

    def drop(self, call: OwnedCall) -> None:
        """Let go of a call."""
        if self.owns(call):
            del self[call.id]
            self.hears.end(call.id)

    def unsubscribe(self, call_id: str) -> None:
        """Hear of a call no more that was not adopted."""
        if call_id not in self:
            self.hears.end(call_id)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> None:
        """Run a task for a call."""
        _ = self.start(coroutine, name)

    def start(self, coroutine: Coroutine[Any, Any, Any], name: str) -> "asyncio.Task[Any]":
        """The same, for who waits for it."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error(
                "task failed",
                extra={"task": task.get_name(), "error": type(error).__name__},
                exc_info=error,
            )

    # --- what a call needs ---

    def after(self, call: OwnedCall) -> None:
        """Do what the call wants after it was fed; nothing while it is replayed, whose outputs went
        out before."""
        raise NotImplementedError

    def close(self, call: OwnedCall, reason: str) -> None:
        """End a call for a reason of this worker's own."""
        raise NotImplementedError

    def end_as_closed(self, call: OwnedCall) -> None:
        """End a call as its gateway closed it, if it did."""
        raise NotImplementedError

    def lose(self, call: OwnedCall, outcome: bytes) -> None:
        """Redis refused a renewal or a release of the call."""
        raise NotImplementedError
