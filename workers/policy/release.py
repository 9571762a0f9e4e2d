"""Releases of one event-loop tick, per shard and gateway, in one script call each (at most 60 calls).

What Redis answered goes back to the owner as a word; a lost connection is not an answer, so the release stays under
way and is repeated once Redis is back.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from protocol.errors import StreamConnectionLost
from streams import layout, scripts
from streams.connection import Argument, Connection, RedisError
from workers.policy.call import OwnedCall
from workers.policy.rendered import Release

log = logging.getLogger(__name__)
MAX_BATCH = 60
BATCH_BYTES = 2**20
"""Calls share an entry up to this, and readers hold one as a whole; what one call has may be more."""
RETRY_S = 0.05
REPLY_TTL_MS = 600_000
"""How long what a gateway never reads stays in Redis."""

Refused = Callable[[OwnedCall, str], None]


class Releaser:
    """Collects calls that have something to release and sends them at the end of the tick."""

    def __init__(self, redis: Connection, *, max_reply: int, strict: bool, on_refused: Refused) -> None:
        self._redis, self._max_reply, self._strict, self._on_refused = redis, max_reply, strict, on_refused
        self._dirty: dict[tuple[int, str], dict[str, OwnedCall]] = {}
        self._scheduled = False

    def add(self, call: OwnedCall) -> None:
        """Send what `call` has, if it has anything, at the end of this tick; after the release of it that is under way."""
        if call.wants_release and not call.finishing:
            self._push(call)

    def repeat(self, call: OwnedCall) -> None:
        """Send the release that is under way again: its answer was lost or it was refused for now."""
        if call.sending is not None:
            self._push(call)

    def _push(self, call: OwnedCall) -> None:
        self._dirty.setdefault((call.shard, call.gateway), {})[call.id] = call
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        dirty, self._dirty = self._dirty, {}
        now_ms = time.time_ns() // 1_000_000
        for place, calls in dirty.items():
            batch: list[tuple[OwnedCall, Release]] = []
            size = 0
            for call in calls.values():
                if call.busy is not None and call.sending is None:
                    # a step has its outputs; what comes of it is sent after that
                    continue
                release = call.next_release(now_ms)
                if release is None:
                    self._on_refused(call, "BROKEN")
                    continue
                if release.is_asked:
                    continue
                batch.append((call, release))
                size += len(release.reply) + len(release.audit)
                if len(batch) == MAX_BATCH or size > BATCH_BYTES:
                    self._send(*place, batch, is_large=size > BATCH_BYTES)
                    batch, size = [], 0
            if batch:
                self._send(*place, batch)
        # this is the end of a tick: waiting for the loop's next turn costs the lone stream its time and joins nothing
        self._redis.flush()

    def _send(self, shard: int, gateway: str, batch: list[tuple[OwnedCall, Release]], *, is_large: bool = False) -> None:
        keys = [layout.gateway_key(shard, gateway), layout.reply_key(shard, gateway), layout.audit_key(shard)]
        args: list[Argument] = [self._max_reply, REPLY_TTL_MS, "1" if self._strict else "0"]
        is_waited_for = False
        for call, release in batch:
            release.is_asked, release.is_out = True, None
            if call.open_waits:
                is_waited_for = True
            keys.append(call.ctl_key)
            args += (
                call.token, release.number, release.next, release.digest, release.seq, release.reply, release.audit, *call.pin,
                release.written,
            )  # fmt: skip
        self._redis.script(scripts.RELEASE, keys, args, is_large=is_large).add_done_callback(lambda done: self._answered(batch, done))
        if is_waited_for:
            # behind the record of what they wait for
            self._redis.send_quiet("PUBLISH", layout.waiting_channel(shard), b"")

    def _answered(self, asked: list[tuple[OwnedCall, Release]], done: "asyncio.Future[list[bytes]]") -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            if not isinstance(error, StreamConnectionLost | RedisError):
                log.error("release failed", extra={"error": type(error).__name__})
            batch = [call for call, _ in asked]
            for _, release in asked:
                release.is_asked = False
            if isinstance(error, RedisError):
                log.warning("release refused by redis", extra={"error": str(error)[:80]})
            for call in batch:
                # it takes none now (it is full): calls that are over must end all the same, or they would keep it full
                if isinstance(error, RedisError) and call.closed is not None:
                    self._on_refused(call, "REFUSED")
                else:
                    self._later(call)
            return
        for (call, release), said in zip(asked, done.result(), strict=True):
            release.is_asked = False
            if said in (b"OK", b"DUP"):
                call.answered()
                self.add(call)
                if call.closed is not None:
                    self._on_refused(call, "CLOSE")
            elif said in (b"FULL", b"GATEWAY_LOST"):
                release.is_out = False
                if call.closed is not None:
                    # its gateway reads nothing more, and has ended the call: the end must not wait for that
                    self._on_refused(call, "REFUSED")
                else:
                    # whether it is lost others say: after an outage a gateway must have time to show itself
                    self._later(call)
            else:
                self._on_refused(call, said.decode())

    def _later(self, call: OwnedCall) -> None:
        asyncio.get_running_loop().call_later(RETRY_S, self.repeat, call)
