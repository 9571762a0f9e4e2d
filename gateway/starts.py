"""Calls that begin in one turn of the loop, put onto the streams of their shard in one script call.

Of 50 clients that ask at once, most do so in the same turn: what is answered together is asked for
together.
"""

import asyncio
import logging
import time

from protocol.errors import KEY_MEMORY_S, Overloaded, key_memory
from settings.limits import Limits
from streams import layout, scripts
from streams.connection import Connection, RedisError
from streams.layout import Start
from streams.script_outcomes import Outcome
from streams.tick_batches import Tick

log = logging.getLogger(__name__)
LARGE = 64 * 1024
"""A request body over this many bytes is set by a command of its own, not by the script."""
MOST = 50
BATCH_BYTES = 2**20
_FULL = {
    Outcome.QUEUE.value: "Sluice is at its limit for open and waiting calls",
    Outcome.BACKLOG.value: "Sluice is at its limit for unwritten audit records",
}
_CANNOT = "Sluice cannot store new calls now"
Waiting = tuple[Start, bytes, "asyncio.Future[bytes]"]


class Starts:
    """Begins calls. `bodies` is for requests with large ones: ahead of other calls' chunks they are
    what their clients would wait for."""

    def __init__(self, redis: Connection, bodies: Connection, limits: Limits) -> None:
        self._redis, self._bodies = redis, bodies
        self._bounds = scripts.StartBounds(
            max_queue=limits.queue,
            max_backlog=limits.backlog,
            claim_ms=int(limits.claim_s * 1000),
            call_ttl_ms=int(limits.call_ttl_s * 1000),
            body_ttl_ms=int(limits.body_ttl_s * 1000),
        )
        self._spent: dict[str, float] = {}
        """Until when keys that have their share of Redis' memory need not try with a large body."""
        self._tick = Tick(_prepare, self._send, redis.flush, most=MOST, most_bytes=BATCH_BYTES)

    def expect(self, key: str, size: int) -> None:
        """Look whether a request body of this size may come. One of a key that was just refused is
        not read in vain. Raises RateLimited."""
        if size > LARGE and self._spent.get(key, 0.0) > time.monotonic():
            raise key_memory()

    async def start(self, start: Start, body: bytes) -> None:
        """Begin a call. Raises Overloaded past a bound, RateLimited where its key has its share of
        Redis' memory, StreamConnectionLost."""
        try:
            outcome = await self._put(start, body)
        except RedisError as error:
            log.warning(
                "Redis refused the start of a call",
                extra={"call_id": start.call_id, "error": str(error)[:80]},
            )
            raise _refusal(_CANNOT) from error
        if outcome == Outcome.KEY:
            now = time.monotonic()
            self._spent = {key: until for key, until in self._spent.items() if until > now}
            self._spent[start.key] = now + KEY_MEMORY_S
            raise key_memory()
        if outcome != Outcome.OK:
            raise _refusal(_FULL.get(outcome, _CANNOT))

    async def _put(self, start: Start, body: bytes) -> bytes:
        """Return the script's word."""
        if len(body) > LARGE:
            return await self._large(start, body)
        outcome: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._tick.add(start.call_id, (start, body, outcome))
        return await outcome

    def _send(self, shard: int, batch: list[Waiting], size: int) -> None:
        calls = [(start, body) for start, body, _ in batch]
        scripts.start(self._redis, self._bounds, calls).add_done_callback(
            lambda done: _answered(batch, done)
        )

    async def _large(self, start: Start, body: bytes) -> bytes:
        outcome = await scripts.start_large(self._bodies, self._bounds, start, body)
        if isinstance(outcome, RedisError):
            # it has forgotten the script: the ordinary way loads it again
            [outcome] = await scripts.start(self._redis, self._bounds, [(start, body)])
        if isinstance(outcome, RedisError):
            raise outcome
        return outcome


def _refusal(why: str) -> Overloaded:
    return Overloaded(f"{why}; try again in 2 seconds", retry_after_s=2)


def _prepare(waiting: Waiting, _: int) -> tuple[int, int, Waiting]:
    return layout.shard_of(waiting[0].call_id), len(waiting[1]), waiting


def _answered(batch: list[Waiting], done: "asyncio.Future[list[bytes | RedisError]]") -> None:
    error = done.exception() if not done.cancelled() else asyncio.CancelledError()
    outcomes = done.result() if error is None else [error] * len(batch)
    for (_, _, future), outcome in zip(batch, outcomes, strict=True):
        if future.done():
            # its client is gone
            continue
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
