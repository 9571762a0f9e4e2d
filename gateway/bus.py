"""The gateway's side of Redis: starts calls, delivers replies, ends calls, and puts together what
does the rest: `Starts`, `Appends`, `Replies` and the `Heartbeat`. Must not know: clients,
upstreams."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from gateway.appends import Appends
from gateway.call.calls import OpenCall
from gateway.heartbeat import Heartbeat
from gateway.reply_stream import Replies
from gateway.starts import Starts
from gateway.strict_commits import CommitGate
from gateway.unrecorded_calls import UnrecordedCalls
from protocol.dialects.table import DEFAULT
from protocol.errors import Overloaded, StreamConnectionLost, StreamError, StreamProtocolError
from settings.limits import Limits
from streams import layout
from streams.connection import NOT_AN_ANSWER, Connection, RedisError
from streams.debug_lines import DebugLines
from streams.layout import Start
from streams.metrics import ProcessFigures

log = logging.getLogger(__name__)
UNREAD = (StreamError, Overloaded)
"""Errors after which no worker reads the call's end: the worker gave the call up, no longer has it,
or got it too late."""
READ_TOGETHER = 10
"""Entries of the reply stream that are taken in one turn of the loop."""
UNTAKEN = 3
"""After this many calls in a row without a worker, and with nothing received meanwhile, it is not
just one call at a bad moment."""


class Bus:
    """All traffic between this gateway process and Redis. `calls` are the open calls by id."""

    def __init__(
        self, url: str, gateway: str, limits: Limits, shards: int, *, strict: bool = False
    ) -> None:
        self.gateway, self.limits, self.shards = gateway, limits, shards
        self.calls: dict[str, OpenCall] = {}
        self.figures = ProcessFigures()
        self.redis = Connection(url, name="gateway", silent_s=limits.redis_silent_s)
        # a megabyte ahead of other calls' chunks is what their clients would wait for
        self._bodies = Connection(url, name="gateway-bodies", silent_s=limits.redis_silent_s)
        self.lines = DebugLines(
            self.redis, f"gateway {gateway}", memory_share=limits.memory_share, shards=shards
        )
        self.starts = Starts(self.redis, self._bodies, limits)
        self._appends = Appends(self.redis, self._lose)
        self.append = self._appends.append
        self._unrecorded = UnrecordedCalls(self.redis, shards)
        self._replies = [
            Replies(url, gateway, s, silent_s=limits.redis_silent_s, again=partial(self._again, s))
            for s in range(shards)
        ]
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
        self.heartbeat = Heartbeat(
            self.redis,
            gateway,
            limits,
            replies=self._replies,
            unrecorded=self._unrecorded,
            gate=self.gate,
            calls=self.calls,
            says=lambda: layout.gateway_says(self.trouble, self.warnings),
        )
        self.untaken = 0
        """Calls that no policy worker took since anything was heard."""
        self._heard: dict[str, OpenCall] = {}
        """Calls with replies that are not yet on their way to the client."""
        self._is_reading = False
        self.shards_warning = ""
        """Which processes read fewer shards than this gateway writes to, as a sentence."""
        self.notices: list[Callable[[], list[str]]] = []
        """What others of this process warn of, as sentences."""

    async def open(self) -> None:
        """Connect and write the first heartbeat. Raises StreamConnectionLost."""
        await asyncio.gather(
            self.redis.open(),
            self._bodies.open(),
            *(r.open() for r in self._replies),
            *([self.gate.open()] if self.gate else []),
        )
        await self.heartbeat.begin()

    async def run(self) -> None:
        """Read replies and beat until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.heartbeat.run(), name="gateway beat")
            for shard in range(self.shards):
                group.create_task(self._read_loop(shard), name=f"replies {shard}")

    async def close(self) -> None:
        """Report what Redis may have lost, say that this gateway is gone, and disconnect."""
        await self.heartbeat.report_last()
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

    async def start(self, start: Start, body: bytes) -> None:
        """Put a call onto its stream and the dispatch stream. Raises Overloaded, RateLimited,
        StreamConnectionLost."""
        call_id = start.call_id
        if self.heartbeat.memory_full:
            raise Overloaded(
                "Sluice has too little memory left for new calls; try again in 5 seconds",
                retry_after_s=5,
            )
        # by the time in the call's id, which says on which day it is on record
        if fault := self.heartbeat.clock.fault(layout.began_ms(call_id) / 1000):
            raise Overloaded(
                f"{fault}; try again in 5 seconds", code="gateway_clock", retry_after_s=5
            )
        await self.starts.start(start, body)

    # --- ending ---

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
                await self.heartbeat.try_beat()

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
            and reply.call_id not in self._appends.sending
        ):
            # its START was never confirmed to us, or its client is gone, or Redis lost our last
            # entry: nobody must wait for what follows
            orphan = OpenCall(reply.call_id, DEFAULT, b"", activity_s=0, deadline=time.monotonic())
            orphan.appender.go_on_behind(reply.processed)
            # how far an end that was lost had come is not known here any more
            orphan.appender.append("closed", number=-1 if reply.number else 0, text="client_gone")
            self.append(orphan)

    # --- what is wrong ---

    @property
    def trouble(self) -> str:
        """Why this gateway hears nothing of its calls, or takes none, in a sentence; empty where it
        does."""
        return (
            next((r.trouble for r in self._replies if r.trouble), "")
            or self.heartbeat.clock.fault()
        )

    @property
    def warnings(self) -> list[str]:
        """Warnings about this gateway, which may still work. None hides another: a full gateway may
        also lack descriptors."""
        messages = [
            message for message in (self.heartbeat.clock.warning, self.shards_warning) if message
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
        return [
            *(message for said in self.notices for message in said()),
            *messages,
            *self._unrecorded.warnings,
        ]
