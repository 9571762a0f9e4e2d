"""Calls that begin in one turn of the loop, put onto the streams of their shard in one script call.

Of 50 clients that ask at once, most do so in the same turn: what is answered together is asked for
together.
"""

import asyncio
from typing import Any

from protocol.config import Limits
from streams import layout, scripts
from streams.connection import Argument, Connection, RedisError, pack, pack_large
from streams.layout import Start
from streams.tick import Tick

LARGE = 64 * 1024
"""A request body over this many bytes is set by a command of its own, not by the script."""
MOST = 50
BATCH_BYTES = 2**20
Waiting = tuple[Start, bytes, "asyncio.Future[bytes]"]


class Starts:
    """Begins calls. `bodies` is for requests with large ones: ahead of other calls' chunks they are
    what their clients would wait for."""

    def __init__(self, redis: Connection, bodies: Connection, limits: Limits) -> None:
        self._redis, self._bodies, self._body_ttl_ms = redis, bodies, int(limits.body_ttl_s * 1000)
        self._limits = [
            limits.queue,
            limits.backlog,
            int(limits.claim_s * 1000),
            int(limits.call_ttl_s * 1000),
            self._body_ttl_ms,
        ]
        self._tick = Tick(_prepare, self._send, redis.flush, most=MOST, most_bytes=BATCH_BYTES)

    async def start(self, start: Start, body: bytes) -> bytes:
        """Return the script's word. Raises StreamConnectionLost, RedisError."""
        if len(body) > LARGE:
            return await self._large(start, body)
        outcome: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._tick.add(start.call_id, (start, body, outcome))
        return await outcome

    def _send(self, shard: int, batch: list[Waiting], size: int) -> None:
        keys, args = self._common(shard)
        for start, body, _ in batch:
            keys += (layout.call_key(start.call_id), layout.body_key(start.call_id))
            args += (layout.pack_start(start), body, start.call_id, start.payer)
        self._redis.script(scripts.START, keys, args).add_done_callback(
            lambda done: _answered(batch, done)
        )

    def _common(self, shard: int, *, is_there: bool = False) -> tuple[list[str], list[Argument]]:
        keys = [layout.dispatch_key(shard), layout.audit_key(shard), layout.memory_key(shard)]
        return keys, [*self._limits, "1" if is_there else "0"]

    async def _large(self, start: Start, body: bytes) -> bytes:
        """Put a call there whose body is set by a command of its own; in one MULTI, so that neither
        is there without the other."""
        call_id = start.call_id
        keys, args = self._common(layout.shard_of(call_id), is_there=True)
        keys += (layout.call_key(call_id), layout.body_key(call_id))
        args += (layout.pack_start(start), b"", call_id, start.payer)
        run = pack("EVALSHA", scripts.sha(scripts.START), len(keys), *keys, *args)
        stored = pack_large("SET", layout.body_key(call_id), body, "PX", self._body_ttl_ms)
        answer: Any = (await self._bodies.transaction([*stored, run], 2))[1]
        if isinstance(answer, RedisError):
            # it has forgotten the script: the ordinary way loads it again
            keys, args = self._common(layout.shard_of(call_id))
            keys += (layout.call_key(call_id), layout.body_key(call_id))
            answer = await self._redis.script(
                scripts.START, keys, [*args, layout.pack_start(start), body, call_id, start.payer]
            )
        return _word(answer[0])


def _prepare(waiting: Waiting, _: int) -> tuple[int, int, Waiting]:
    return layout.shard_of(waiting[0].call_id), len(waiting[1]), waiting


def _answered(batch: list[Waiting], done: "asyncio.Future[list[Any]]") -> None:
    error = done.exception() if not done.cancelled() else asyncio.CancelledError()
    for number, (_, _, future) in enumerate(batch):
        if future.done():
            # its client is gone
            continue
        if error is not None:
            future.set_exception(error)
        elif isinstance(word := done.result()[number], RedisError):
            future.set_exception(word)
        else:
            future.set_result(word)


def _word(outcome: Any) -> bytes:
    if isinstance(outcome, RedisError):
        raise outcome
    return bytes(outcome)
