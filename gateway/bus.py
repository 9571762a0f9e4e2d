"""The gateway's side of Redis: starts calls, appends entries, reads replies, writes heartbeats.

All appends of one shard and event-loop tick go out as one MULTI. Each entry has an explicit id and
is published on the call's channel in the same transaction, so nobody hears an entry that the stream
does not hold. A call has one append in flight; after an error the same ids are sent again, and
Redis answers a duplicate with "equal or smaller". A missing stream is never created again: Redis
has lost the call, or the call ended long ago.
"""

import asyncio
import contextlib
import logging
import re
import time
from functools import partial
from itertools import islice
from typing import Any

from gateway.call.calls import CHANNEL_MAX, OpenCall
from gateway.commits import CommitGate
from gateway.lost import UnrecordedCalls
from gateway.replies import Replies
from gateway.starts import LARGE, Starts
from protocol.dialects.table import DEFAULT
from protocol.errors import (
    KEY_MEMORY_S,
    Overloaded,
    StreamConnectionLost,
    StreamError,
    StreamProtocolError,
    key_memory,
)
from protocol.records import STREAM_LOST
from settings.config import Limits
from streams import fitness, layout, scripts
from streams.clock import ClockWatch
from streams.connection import NOT_AN_ANSWER, Connection, RedisError
from streams.debug_lines import DebugLines
from streams.layout import Entry, Start
from streams.outcomes import Outcome

log = logging.getLogger(__name__)
UNREAD = (StreamError, Overloaded)
"""Errors after which no worker reads the call's end: the worker gave the call up, no longer has it,
or got it too late."""
ALIVE_MS = 15_000
"""Expiry of a heartbeat, for the default `redis_silent_s`: a network that is silent for less than
two rounds of it ends no call."""
BEAT_S = 1.0
RETRY_S = 0.05
READ_TOGETHER = 10
"""Entries of the reply stream that are taken in one turn of the loop."""
CHECKED_TOGETHER = 100
"""Calls whose streams are looked at together after a failover."""
LAST_LOOK_S = 5.0
"""How long a gateway that stops waits for a Redis that starts, to report the ended calls that it
may have lost."""
UNTAKEN = 3
"""After this many calls in a row without a worker, and with nothing received meanwhile, it is not
just one call at a bad moment."""
_INFO_FIELD = re.compile(r"^([^:#\r\n]+):(.*?)\r?$", re.MULTILINE).findall
"""Of what INFO says: each name and value. In one step: some two hundred lines each second."""
_FULL = {
    Outcome.QUEUE.value: (
        "Sluice is at its limit for open and waiting calls; try again in 2 seconds"
    ),
    Outcome.BACKLOG.value: (
        "Sluice is at its limit for unwritten audit records; try again in 2 seconds"
    ),
}


class Bus:
    """All traffic between this gateway process and Redis. `calls` are the open calls by id."""

    def __init__(
        self, url: str, gateway: str, limits: Limits, shards: int, *, strict: bool = False
    ) -> None:
        self.gateway, self.limits, self.shards = gateway, limits, shards
        self.calls: dict[str, OpenCall] = {}
        self.redis = Connection(url, name="gateway", silent_s=limits.redis_silent_s)
        # a megabyte ahead of other calls' chunks is what their clients would wait for
        self._bodies = Connection(url, name="gateway-bodies", silent_s=limits.redis_silent_s)
        self.lines = DebugLines(
            self.redis, f"gateway {gateway}", memory_share=limits.memory_share, shards=shards
        )
        self._starts = Starts(self.redis, self._bodies, limits)
        self._unrecorded = UnrecordedCalls(self.redis, shards)
        self._alive_ms = int(ALIVE_MS * max(1.0, limits.redis_silent_s / 5))
        self._replies = [
            Replies(url, gateway, s, silent_s=limits.redis_silent_s, again=partial(self._again, s))
            for s in range(shards)
        ]
        self.untaken = 0
        """Calls that no policy worker took since anything was heard."""
        self._spent: dict[str, float] = {}
        """Until when keys that have their share of Redis' memory need not try with a large body."""
        self._unchecked: dict[str, OpenCall] = {}
        """Calls of which this Redis, which is another than before, may lack the last entries."""
        self._dirty: dict[str, OpenCall] = {}
        self._sending = set[str]()
        """Calls with entries that Redis has not confirmed, also of those that are over here."""
        self._heard: dict[str, OpenCall] = {}
        """Calls with replies that are not yet on their way to the client."""
        self._is_reading = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.memory_full = False
        self.is_refused = False
        """Did the last heartbeat fail? Redis is away, or takes no writes."""
        self.clock = ClockWatch()
        self.shards_warning = ""
        """Which processes read fewer shards than this gateway writes to, as a sentence."""
        self.notice = ""
        """What was wrong with the start and is no reason not to start."""
        self.info: dict[str, str] = {}
        """The fields of Redis' last INFO."""
        self.gate = (
            CommitGate(
                url,
                self.redis,
                shards=shards,
                silent_s=limits.redis_silent_s,
                deliver=self._deliver,
            )
            if strict
            else None
        )

    async def open(self) -> None:
        """Connect and write the first heartbeat. Raises StreamConnectionLost."""
        await asyncio.gather(
            self.redis.open(),
            self._bodies.open(),
            *(r.open() for r in self._replies),
            *([self.gate.open()] if self.gate else []),
        )
        try:
            await self._beat()
            with contextlib.suppress(RedisError):
                await self._forget_gateways()
        except RedisError as error:
            raise StreamConnectionLost(
                f"Redis refused this gateway's heartbeat: {error}"
            ) from error

    async def run(self) -> None:
        """Read replies and beat until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._beat_loop(), name="gateway beat")
            for shard in range(self.shards):
                group.create_task(self._read_loop(shard), name=f"replies {shard}")

    async def close(self) -> None:
        """Report what Redis may have lost, say that this gateway is gone, and disconnect."""
        await self._report_last()
        with contextlib.suppress(StreamConnectionLost, RedisError):
            for shard in range(self.shards):
                # the reply stream is the workers': it expires
                await self.redis.call("DEL", layout.gateway_key(shard, self.gateway))
            await self.redis.call("HDEL", layout.GATEWAYS_KEY, self.gateway)
        await asyncio.gather(
            self.redis.close(),
            self._bodies.close(),
            *(r.close() for r in self._replies),
            *([self.gate.close()] if self.gate else []),
        )

    async def _report_last(self) -> None:
        """Look once more, for at most `LAST_LOOK_S`: what only this gateway knows ends with it, and
        Redis may be another since the last."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_LOOK_S):
                while self._unrecorded.count:
                    await self._try_beat()
                    if not (self.is_refused or self._unrecorded.is_reporting):
                        return
                    await asyncio.sleep(RETRY_S)

    def leave(self) -> None:
        """Redis is an old primary: end all calls, which nobody can record from there, and connect
        anew."""
        for call in list(self.calls.values()):
            self._lose(call)
        for connection in (self.redis, self._bodies):
            connection.cut()
        for replies in self._replies:
            replies.leave()

    # --- starting ---

    def expect(self, key: str, size: int) -> None:
        """Look whether a request body of this size may come. One of a key that was just refused is
        not read in vain. Raises RateLimited."""
        if size > LARGE and self._spent.get(key, 0.0) > time.monotonic():
            raise key_memory()

    async def start(self, start: Start, body: bytes) -> None:
        """Put a call onto its stream and the dispatch stream. Raises Overloaded past a bound,
        RateLimited where its key has its share of Redis' memory, StreamConnectionLost."""
        call_id = start.call_id
        if self.memory_full:
            raise Overloaded(
                "Sluice has too little memory left for new calls; try again in 5 seconds",
                retry_after_s=5,
            )
        # by the time in the call's id, which says on which day it is on record
        if fault := self.clock.fault(layout.began_ms(call_id) / 1000):
            raise Overloaded(
                f"{fault}; try again in 5 seconds", code="gateway_clock", retry_after_s=5
            )
        try:
            outcome = await self._starts.start(start, body)
        except RedisError as error:
            log.warning(
                "Redis refused the start of a call",
                extra={"call_id": call_id, "error": str(error)[:80]},
            )
            raise Overloaded(
                "Sluice cannot store new calls now; try again in 2 seconds", retry_after_s=2
            ) from error
        if outcome == Outcome.KEY:
            self._spent = {
                key: until for key, until in self._spent.items() if until > time.monotonic()
            }
            self._spent[start.key] = time.monotonic() + KEY_MEMORY_S
            raise key_memory()
        if outcome != Outcome.OK:
            raise Overloaded(
                _FULL.get(outcome, "Sluice cannot store new calls now; try again in 2 seconds"),
                retry_after_s=2,
            )

    # --- appending ---

    def append(self, call: OpenCall) -> None:
        """Send what `call` has queued at the end of this tick, unless an append of it is under way
        (then after that)."""
        if call.appender.unanswered or not call.appender.pending:
            return
        self._push(call)

    def end(self, call: OpenCall, reason: str) -> None:
        """Say that a call is over."""
        call.close(reason)
        self.append(call)
        # nobody else could say what was relayed
        if call.appender.is_lost or isinstance(call.order.error, UNREAD):
            self._unrecorded.report(call)
        else:
            self._unrecorded.remember(call)

    def _lose(self, call: OpenCall) -> None:
        call.lose()
        # one that is open still is reported at its end
        self._unrecorded.report(call)

    def _push(self, call: OpenCall) -> None:
        if not self._dirty:
            asyncio.get_running_loop().call_soon(self._flush)
        self._dirty[call.id] = call

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, {}
        at = time.time_ns() // 1_000_000
        by_shard: dict[int, list[tuple[OpenCall, list[Entry]]]] = {}
        for call in dirty.values():
            self._sending.add(call.id)
            by_shard.setdefault(call.shard, []).append((call, call.appender.next_entries(at)))
        for batch in by_shard.values():
            self._send(batch)

    def _send(self, batch: list[tuple[OpenCall, list[Entry]]]) -> None:
        packed = [
            call.appender.commands.pack(*_pack(entry))
            for call, entries in batch
            for entry in entries
        ]
        self.redis.transaction(packed, 2 * len(packed)).add_done_callback(
            partial(self._appended, batch)
        )

    def _appended(
        self, batch: list[tuple[OpenCall, list[Entry]]], done: "asyncio.Future[list[Any] | None]"
    ) -> None:
        if done.cancelled():
            return
        error = done.exception()
        answers = done.result() if error is None else None
        if not isinstance(answers, list):
            for call, entries in batch:
                if call.appender.closed and isinstance(error, RedisError):
                    self._send_last(call, entries)
                else:
                    self._later(call)
            return
        at = 0
        for call, entries in batch:
            # of each entry that of XADD, then that of PUBLISH
            added = answers[at : (at := at + 2 * len(entries)) : 2]
            if len(added) != len(entries) or {*map(type, added)} != {bytes}:
                if None in added:
                    self._sending.discard(call.id)
                    self._lose(call)
                    continue
                if not self._has_all(entries, added):
                    self._later(call)
                    continue
            call.appender.is_stored()
            self._sending.discard(call.id)
            self.append(call)

    @staticmethod
    def _has_all(entries: list[Entry], added: list[Any]) -> bool:
        """Has Redis these entries, from before where it refuses them now?"""
        return len(added) == len(entries) and not any(
            isinstance(outcome, Exception) and "equal or smaller" not in str(outcome)
            for outcome in added
        )

    def _send_last(self, call: OpenCall, entries: list[Entry]) -> None:
        """Send what ends a call once more, now so that a full Redis takes it too."""
        scripts.append_last(self.redis, call.id, map(_pack, entries)).add_done_callback(
            lambda done: self._appended_last(call, done)
        )

    def _appended_last(self, call: OpenCall, done: "asyncio.Future[bytes]") -> None:
        if done.cancelled():
            return
        if done.exception() is not None:
            self._later(call)
            return
        self._sending.discard(call.id)
        if done.result() == Outcome.GONE:
            self._lose(call)
        else:
            call.appender.is_stored()
            # the end may have been queued behind them
            self.append(call)

    def _later(self, call: OpenCall) -> None:
        asyncio.get_running_loop().call_later(RETRY_S, self._repeat, call)

    def _repeat(self, call: OpenCall) -> None:
        if time.monotonic() < call.deadline + 60 and call.appender.unanswered:
            self._push(call)
        else:
            self._sending.discard(call.id)

    # --- replies ---

    async def _read_loop(self, shard: int) -> None:
        replies, unread = self._replies[shard], 0
        while True:
            entries = await replies.next()
            if not entries:
                continue
            self.untaken = 0
            unread += len(entries)
            if len(entries) <= READ_TOGETHER:
                self._take_together(shard, entries)
            else:
                # a read may bring hundreds, each with replies for sixty calls
                for start in range(0, len(entries), READ_TOGETHER):
                    self._take_together(shard, entries[start : start + READ_TOGETHER])
                    await asyncio.sleep(0)
            if unread > self.limits.reply_entries // 4:
                unread = 0
                await self._try_beat()

    def _take_together(self, shard: int, entries: list[list[Any]]) -> None:
        self._is_reading = True
        for _, fields in entries:
            try:
                entry = (
                    fields[-1] if self.gate is not None and fields[-2] == layout.RECORDED else None
                )
                for blob in layout.blobs(fields):
                    self._take(shard, blob, entry)
            except NOT_AN_ANSWER as error:
                log.error(
                    "unreadable entry of the reply stream",
                    extra={"shard": shard, "error": type(error).__name__},
                )
        self._is_reading = False
        self._relay()

    def _again(self, shard: int) -> None:
        # what is read again may be another Redis'
        if self.gate is not None:
            self.gate.forget(shard)

    def _relay(self) -> None:
        # after all that came together: one write to each client
        heard, self._heard = self._heard, {}
        for call in heard.values():
            call.relay()

    def _take(self, shard: int, blob: bytes, entry: bytes | None) -> None:
        try:
            reply = layout.unpack_reply(blob)
            if self.gate is not None:
                self.gate.take(shard, entry, reply)
        except StreamProtocolError as error:
            # where not even its call can be read: that call misses a number, or hears nothing any
            # more, and ends by that
            log.error("undecodable reply", extra={"shard": shard})
            if (call := self.calls.get(layout.call_of_reply(blob))) is not None:
                call.fail(error)
            return
        if self.gate is None:
            self._deliver(reply)

    def _deliver(self, reply: layout.Reply) -> None:
        call = self.calls.get(reply.call_id)
        if call is not None:
            call.on_reply(reply)
            self._heard[call.id] = call
            if not self._is_reading:
                self._relay()
        elif (
            (reply.number == 0 or reply.keepalive)
            and not reply.failed
            and reply.call_id not in self._sending
        ):
            # its START was never confirmed to us, or its client is gone, or Redis lost our last
            # entry: nobody must wait for what follows
            orphan = OpenCall(reply.call_id, DEFAULT, b"", activity_s=0, deadline=time.monotonic())
            orphan.appender.go_on_behind(reply.processed)
            # how far an end that was lost had come is not known here any more
            orphan.appender.append("closed", number=-1 if reply.number else 0, text="client_gone")
            self.append(orphan)

    # --- heartbeats ---

    @property
    def trouble(self) -> str:
        """Why this gateway hears nothing of its calls, or takes none, in a sentence; empty where it
        does."""
        return next((r.trouble for r in self._replies if r.trouble), "") or self.clock.fault()

    @property
    def warnings(self) -> list[str]:
        """Warnings about this gateway, which may still work. None hides another: a full gateway may
        also lack descriptors."""
        messages = [
            message for message in (self.notice, self.clock.warning, self.shards_warning) if message
        ]
        if self.untaken >= UNTAKEN:
            problem = (
                f"no policy worker took the last {self.untaken} calls, and this gateway received"
                " nothing meanwhile"
            )
            messages.append(
                f"{problem}: check that policy workers have capacity and use the same Redis as this"
                " gateway"
            )
        return messages + self._unrecorded.warnings

    async def _beat_loop(self) -> None:
        while True:
            await self._try_beat()
            await asyncio.sleep(BEAT_S)

    async def _try_beat(self) -> None:
        try:
            await self._beat()
            self.is_refused = False
        except (StreamConnectionLost, RedisError) as error:
            if isinstance(error, RedisError) and not self.is_refused:
                log.error("heartbeat refused by Redis", extra={"error": str(error)[:80]})
            self.is_refused = True
        except NOT_AN_ANSWER as error:
            log.error(
                "unreadable answer from Redis: reconnecting", extra={"error": type(error).__name__}
            )
            self.redis.cut()

    async def _forget_gateways(self) -> None:
        """Take away what is shown of gateways that ended long ago."""
        shown, clock = await asyncio.gather(
            self.redis.call("HGETALL", layout.GATEWAYS_KEY), self.redis.call("TIME")
        )
        for name, sign in layout.gateway_signs(
            dict(zip(shown[::2], shown[1::2], strict=True))
        ).items():
            if layout.time_ms(clock) - sign.at > layout.GATEWAY_KNOWN_MS:
                self.redis.send_quiet("HDEL", layout.GATEWAYS_KEY, name)

    async def _beat(self) -> None:
        # first, as a Redis that refuses writes says here why. All of it: Redis 6 takes no list of
        # sections
        reply = (await self.redis.call("INFO")).decode()
        asked = time.monotonic()
        self.clock.note(layout.time_ms(await self.redis.call("TIME")) / 1000, asked)
        info = dict(_INFO_FIELD(reply))
        self.memory_full, self.info = fitness.memory_share(info) > self.limits.memory_share, info
        most = fitness.key_bytes(
            info, self.limits.memory_share, without_bound=self.limits.upload_bytes
        )
        # calls of one key lie on all shards; on each there is room for the largest
        most = max(most // self.shards, min(most, self.limits.body_bytes))
        for shard, replies in enumerate(self._replies):
            answer = await scripts.beat(
                self.redis,
                shard,
                self.gateway,
                position=replies.position,
                ttl_ms=self._alive_ms,
                key_bytes=most,
            )
            if not replies.beaten(answer):
                self._unrecorded.report_all()
        trouble = layout.gateway_says(self.trouble, self.warnings)
        self.redis.quiet(scripts.show_gateway(self.redis, self.gateway, trouble))
        if self.gate is not None:
            self.gate.look()
        if await self._unrecorded.look(info):
            self._unchecked = {call.id: call for call in self.calls.values() if call.is_begun}
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
            has_all = await self.redis.call("XLEN", call.appender.stream_key) >= expected
        except RedisError as error:
            # stops no heartbeat
            has_all = not error.is_spoilt_key
        if not has_all and call.id in self.calls and not call.appender.closed:
            log.error("Redis has lost the last entries of a call", extra={"call_id": call.id})
            # its end comes behind a gap, by which the worker ends it too
            call.fail(StreamConnectionLost("Redis lost a part of this call", code=STREAM_LOST))


def _pack(entry: Entry) -> tuple[bytes, bytes, bytes]:
    """The id of an entry, the entry, and what is published of it."""
    blob = layout.pack(entry)
    return (
        b"%d-0" % entry.seq,
        blob,
        blob if len(blob) <= CHANNEL_MAX else layout.pack(Entry(entry.seq, entry.at, "see")),
    )
