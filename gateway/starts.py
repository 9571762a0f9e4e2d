"""Calls that begin in one turn of the loop, put onto the streams of their shard in one script call.

Of 50 clients that ask at once, most do so in the same turn: what is answered together is asked for together.
"""

import asyncio
from typing import Any

from protocol.config import Limits
from streams import layout, scripts
from streams.connection import Argument, Connection, RedisError, pack, pack_large
from streams.layout import Start

LARGE = 64 * 1024
"""A request body over this many bytes is set by a command of its own, not by the script."""
MOST = 50
BATCH_BYTES = 2**20
Waiting = tuple[Start, bytes, "asyncio.Future[bytes]"]


class Starts:
    """Begins calls. `bodies` is for requests with large ones: ahead of other calls' chunks they are what their clients would wait for."""

    def __init__(self, redis: Connection, bodies: Connection, limits: Limits) -> None:
        self._redis, self._bodies, self._limits = redis, bodies, limits
        self._waiting: dict[int, list[Waiting]] = {}
        self._scheduled = False

    async def start(self, start: Start, body: bytes) -> bytes:
        """Return the script's word. Raises StreamConnectionLost, RedisError."""
        if len(body) > LARGE:
            return await self._large(start, body)
        loop = asyncio.get_running_loop()
        said: asyncio.Future[bytes] = loop.create_future()
        self._waiting.setdefault(layout.shard_of(start.call_id), []).append((start, body, said))
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._flush)
        return await said

    def _flush(self) -> None:
        self._scheduled = False
        waiting, self._waiting = self._waiting, {}
        for shard, calls in waiting.items():
            batch: list[Waiting] = []
            size = 0
            for call in calls:
                batch.append(call)
                size += len(call[1])
                if len(batch) == MOST or size > BATCH_BYTES:
                    self._send(shard, batch)
                    batch, size = [], 0
            if batch:
                self._send(shard, batch)
        # this is the end of a turn: another would join nothing
        self._redis.flush()

    def _send(self, shard: int, batch: list[Waiting]) -> None:
        keys, args = self._common(shard)
        for start, body, _ in batch:
            keys += (layout.call_key(start.call_id), layout.body_key(start.call_id))
            args += (layout.pack_start(start), body, start.call_id)
        self._redis.script(scripts.START, keys, args).add_done_callback(lambda done: _answered(batch, done))

    def _common(self, shard: int, *, is_there: bool = False) -> tuple[list[str], list[Argument]]:
        limits = self._limits
        return [layout.dispatch_key(shard), layout.audit_key(shard)], [
            limits.queue, limits.backlog, int(limits.claim_s * 1000), int(limits.call_ttl_s * 1000), int(limits.body_ttl_s * 1000),
            "1" if is_there else "0",
        ]  # fmt: skip

    async def _large(self, start: Start, body: bytes) -> bytes:
        """Put a call there whose body is set by a command of its own; in one MULTI, so that neither is there without the other."""
        call_id = start.call_id
        keys, args = self._common(layout.shard_of(call_id), is_there=True)
        keys += (layout.call_key(call_id), layout.body_key(call_id))
        args += (layout.pack_start(start), b"", call_id)
        run = pack("EVALSHA", scripts.sha(scripts.START), len(keys), *keys, *args)
        ttl_ms = int(self._limits.body_ttl_s * 1000)
        said: Any = (await self._bodies.transaction([*pack_large("SET", layout.body_key(call_id), body, "PX", ttl_ms), run], 2))[1]
        if isinstance(said, RedisError):
            # it has forgotten the script: the ordinary way loads it again
            keys, args = self._common(layout.shard_of(call_id))
            keys += (layout.call_key(call_id), layout.body_key(call_id))
            said = await self._redis.script(scripts.START, keys, [*args, layout.pack_start(start), body, call_id])
        return _word(said[0])


def _answered(batch: list[Waiting], done: "asyncio.Future[list[Any]]") -> None:
    error = done.exception() if not done.cancelled() else asyncio.CancelledError()
    for number, (_, _, said) in enumerate(batch):
        if said.done():
            # its client is gone
            continue
        if error is not None:
            said.set_exception(error)
        elif isinstance(word := done.result()[number], RedisError):
            said.set_exception(word)
        else:
            said.set_result(word)


def _word(said: Any) -> bytes:
    if isinstance(said, RedisError):
        raise said
    return bytes(said)
