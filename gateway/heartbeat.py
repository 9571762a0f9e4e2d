"""A gateway's heartbeat: it shows workers that this gateway is there and how far it has read, and
learns from Redis what decides whether calls can be served: its memory, its clock, and whether it is
another Redis than before, which may lack entries of open calls. Must not know: how entries are
sent, or replies delivered.
"""

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from gateway.call.calls import OpenCall
from gateway.reply_stream import Replies
from gateway.strict_commits import CommitGate
from gateway.unrecorded_calls import UnrecordedCalls
from protocol.errors import StreamConnectionLost
from protocol.records import STREAM_LOST
from settings.limits import Limits
from streams import fitness, layout, scripts
from streams.clock import ClockWatch
from streams.connection import NOT_AN_ANSWER, Connection, RedisError

log = logging.getLogger(__name__)
ALIVE_MS = 15_000
"""Expiry of a heartbeat, for the default `redis_silent_s`: a network that is silent for less than
two rounds of it ends no call."""
BEAT_S = 1.0
CHECKED_TOGETHER = 100
"""Calls whose streams are looked at together after a failover."""
LAST_LOOK_S, RETRY_S = 5.0, 0.05
"""How long a gateway that stops waits for a Redis that starts, to report the ended calls that it
may have lost."""
_INFO_FIELD = re.compile(r"^([^:#\r\n]+):(.*?)\r?$", re.MULTILINE).findall
"""Of what INFO says: each name and value. In one step: some two hundred lines each second."""


class Heartbeat:
    """Writes the heartbeats of one gateway process and keeps what they bring. `calls` are the open
    calls by id; `says` returns what is wrong with this gateway, for `sluice doctor`."""

    def __init__(
        self,
        redis: Connection,
        gateway: str,
        limits: Limits,
        *,
        replies: Sequence[Replies],
        unrecorded: UnrecordedCalls,
        gate: CommitGate | None,
        calls: Mapping[str, OpenCall],
        says: Callable[[], str],
    ) -> None:
        self._redis, self._gateway, self._limits = redis, gateway, limits
        self._replies, self._unrecorded, self._gate = replies, unrecorded, gate
        self._calls, self._says = calls, says
        self.alive_ms = int(ALIVE_MS * max(1.0, limits.redis_silent_s / 5))
        self._unchecked: dict[str, OpenCall] = {}
        """Calls of which this Redis, which is another than before, may lack the last entries."""
        self.is_refused = False
        """Did the last heartbeat fail? Redis is away, or takes no writes."""
        self.clock = ClockWatch()
        self.memory_full = False
        self.info: dict[str, str] = {}
        """The fields of Redis' last INFO."""

    async def begin(self) -> None:
        """Write the first heartbeat. Raises StreamConnectionLost."""
        try:
            await self.beat()
            with contextlib.suppress(RedisError):
                await self._forget_gateways()
        except RedisError as error:
            raise StreamConnectionLost(
                f"Redis refused this gateway's heartbeat: {error}"
            ) from error

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            await self.try_beat()
            await asyncio.sleep(BEAT_S)

    async def report_last(self) -> None:
        """Look once more, for at most `LAST_LOOK_S`: what only this gateway knows ends with it, and
        Redis may be another since the last."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_LOOK_S):
                while self._unrecorded.count:
                    await self.try_beat()
                    if not (self.is_refused or self._unrecorded.is_reporting):
                        return
                    await asyncio.sleep(RETRY_S)

    async def try_beat(self) -> None:
        """Beat; what goes wrong is kept in `is_refused`."""
        try:
            await self.beat()
            self.is_refused = False
        except (StreamConnectionLost, RedisError) as error:
            if isinstance(error, RedisError) and not self.is_refused:
                log.error("heartbeat refused by Redis", extra={"error": str(error)[:80]})
            self.is_refused = True
        except NOT_AN_ANSWER as error:
            log.error(
                "unreadable answer from Redis: reconnecting", extra={"error": type(error).__name__}
            )
            self._redis.cut()

    async def _forget_gateways(self) -> None:
        """Take away what is shown of gateways that ended long ago."""
        shown, clock = await asyncio.gather(
            self._redis.call("HGETALL", layout.GATEWAYS_KEY), self._redis.call("TIME")
        )
        for name, sign in layout.gateway_signs(
            dict(zip(shown[::2], shown[1::2], strict=True))
        ).items():
            if layout.time_ms(clock) - sign.at > layout.GATEWAY_KNOWN_MS:
                self._redis.send_quiet("HDEL", layout.GATEWAYS_KEY, name)

    async def beat(self) -> None:
        """Beat once. Raises StreamConnectionLost, RedisError, and what is `NOT_AN_ANSWER`."""
        # first, as a Redis that refuses writes says here why. All of it: Redis 6 takes no list of
        # sections
        reply = (await self._redis.call("INFO")).decode()
        asked = time.monotonic()
        self.clock.note(layout.time_ms(await self._redis.call("TIME")) / 1000, asked)
        info, limits = dict(_INFO_FIELD(reply)), self._limits
        self.memory_full, self.info = fitness.memory_share(info) > limits.memory_share, info
        most = fitness.key_bytes(info, limits.memory_share, without_bound=limits.upload_bytes)
        # calls of one key lie on all shards; on each there is room for the largest
        most = max(most // len(self._replies), min(most, limits.body_bytes))
        for shard, replies in enumerate(self._replies):
            answer = await scripts.beat(
                self._redis,
                shard,
                self._gateway,
                position=replies.position,
                ttl_ms=self.alive_ms,
                key_bytes=most,
            )
            if not replies.beaten(answer):
                self._unrecorded.report_all()
        self._redis.quiet(scripts.show_gateway(self._redis, self._gateway, self._says()))
        if self._gate is not None:
            self._gate.look()
        if await self._unrecorded.look(info):
            self._unchecked = {call.id: call for call in self._calls.values() if call.is_begun}
        while self._unchecked:
            # two heartbeats may be at it: what both have checked goes once
            some = list(islice(self._unchecked.values(), CHECKED_TOGETHER))
            await asyncio.gather(*map(self._check_stream, some))
            for call in some:
                self._unchecked.pop(call.id, None)

    async def _check_stream(self, call: OpenCall) -> None:
        """Look whether Redis, which is another than before, still has the last entry of this call.
        A worker cannot know that more came: it would wait, and its keepalives would let the client
        wait too. A gap before an entry that is still to come is found by the worker.
        """
        if not call.appender.is_idle:
            return
        # behind the START; what is in them no gateway may read
        expected = 1 + call.appender.stored
        try:
            has_all = await self._redis.call("XLEN", call.appender.stream_key) >= expected
        except RedisError as error:
            # stops no heartbeat
            has_all = not error.is_spoilt_key
        if not has_all and call.id in self._calls and not call.appender.closed:
            log.error("Redis has lost the last entries of a call", extra={"call_id": call.id})
            # its end comes behind a gap, by which the worker ends it too
            call.fail(StreamConnectionLost("Redis lost a part of this call", code=STREAM_LOST))
