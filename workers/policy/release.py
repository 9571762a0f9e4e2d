"""Releases of one event-loop tick, per shard and gateway, in one script call each (at most 60
calls).

A lost connection is not an answer, so the release stays under way and is repeated once Redis is
back.
"""

import asyncio
import logging
from functools import partial

from protocol.errors import StreamConnectionLost
from streams import layout, scripts
from streams.connection import Connection, RedisError
from streams.script_outcomes import Outcome
from streams.tick_batches import Tick
from workers.policy.call.owned import OwnedCall
from workers.policy.call.phases import Phase
from workers.policy.call.rendered import Release
from workers.policy.calls import Calls
from workers.policy.unrecorded_share import COUNTED_BYTES, Unrecorded

log = logging.getLogger(__name__)
MAX_BATCH = 60
BATCH_BYTES = 128 * 1024
"""Calls share an entry up to this, and readers hold ten as a whole; what one call has may be
more."""
RETRY_S = 0.05
REPLY_TTL_MS = 600_000
"""How long what a gateway never reads stays in Redis."""
_DONE = (Outcome.OK, Outcome.DUP)
_ENDING = Phase.ENDING
_LATER = (Outcome.FULL, Outcome.GATEWAY_LOST)


class Releaser:
    """Collects calls that have something to release and sends them at the end of the tick."""

    def __init__(
        self,
        redis: Connection,
        calls: Calls,
        unrecorded: Unrecorded,
        *,
        max_reply: int,
        strict: bool,
    ) -> None:
        self._redis, self._calls, self._unrecorded = redis, calls, unrecorded
        self._max_reply, self._strict = max_reply, strict
        # waiting for the loop's next turn costs the lone stream its time and joins nothing
        self._tick = Tick(
            self._prepare, self._send, redis.flush, most=MAX_BATCH, most_bytes=BATCH_BYTES
        )

    def add(self, call: OwnedCall) -> None:
        """Send what `call` has, if it has anything, at the end of this tick; after the release of
        it that is under way."""
        if call.queue.is_waiting and call.phase is not _ENDING:
            self._tick.add(call.id, call)

    def repeat(self, call: OwnedCall) -> None:
        """Send the release that is under way again: its answer was lost or it was refused for
        now."""
        if call.queue.sending is not None:
            self._tick.add(call.id, call)

    def _prepare(
        self, call: OwnedCall, now_ms: int
    ) -> tuple[tuple[int, str], int, tuple[OwnedCall, Release]] | None:
        if call.busy is not None and call.queue.sending is None:
            # a step has its outputs; what comes of it is sent after that
            return None
        release = call.next_release(now_ms)
        if release is None:
            self._calls.close(call, "policy_failed")
            return None
        if release.is_asked:
            return None
        return (
            (call.shard, call.start.gateway),
            len(release.reply) + len(release.audit),
            (call, release),
        )

    def _send(
        self, place: tuple[int, str], batch: list[tuple[OwnedCall, Release]], size: int
    ) -> None:
        shard, gateway = place
        rows: list[scripts.FencedRelease] = []
        is_waited_for = False
        for call, release in batch:
            release.is_asked, release.is_out = True, None
            queue = call.queue
            if queue.uncounted > COUNTED_BYTES:
                self._unrecorded.add(shard, call.start.key, queue.take_uncounted())
            if call.waits.open_commits:
                is_waited_for = True
            policy, revision = queue.pin
            rows.append(
                (
                    call.ctl_key,
                    call.token,
                    release.number,
                    release.next,
                    release.digest,
                    release.seq,
                    release.reply,
                    release.audit,
                    policy,
                    revision,
                    release.written,
                )
            )
        answer = scripts.release(
            self._redis,
            shard,
            gateway,
            rows,
            max_reply=self._max_reply,
            reply_ttl_ms=REPLY_TTL_MS,
            is_strict=self._strict,
            is_large=size > BATCH_BYTES,
        )
        answer.add_done_callback(partial(self._answered, batch))
        if is_waited_for:
            # behind the record of what they wait for
            self._redis.send_quiet("PUBLISH", layout.waiting_channel(shard), b"")

    def _answered(
        self, asked: list[tuple[OwnedCall, Release]], done: "asyncio.Future[list[bytes]]"
    ) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            if not isinstance(error, StreamConnectionLost | RedisError):
                log.error("release failed", extra={"error": type(error).__name__})
            if isinstance(error, RedisError):
                log.warning("Redis refused a release", extra={"error": str(error)[:80]})
            for call, release in asked:
                release.is_asked = False
                # it takes none now (it is full): calls that are over must end all the same, or they
                # would keep it full
                self._refused(call, is_final=isinstance(error, RedisError))
            return
        for (call, release), outcome in zip(asked, done.result(), strict=True):
            release.is_asked = False
            if outcome in _DONE:
                call.answered()
                self.add(call)
                if call.inbox.closed is not None and self._calls.owns(call):
                    self._calls.after(call)
            elif outcome in _LATER:
                release.is_out = False
                # its gateway reads nothing more, and may have ended the call; whether the gateway
                # is dead is checked elsewhere: after an outage it must have time for a heartbeat
                self._refused(call, is_final=True)
            else:
                self._calls.lose(call, outcome)

    def _refused(self, call: OwnedCall, *, is_final: bool) -> None:
        """Repeat a release that was not taken, unless its call is over and it never will be: then
        the end must not wait for it."""
        if is_final and call.inbox.closed is not None:
            self._calls.end_as_closed(call)
        else:
            asyncio.get_running_loop().call_later(RETRY_S, self.repeat, call)
