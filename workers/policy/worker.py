"""The policy worker: claims calls, keeps their leases, feeds their sessions, releases what they
approve.

Loops, each with one task: claim new and orphaned calls, renew leases at a quarter of their length,
sweep (keepalives, silent calls, questions whose judge died), end the calls of dead gateways. Chunks
need no task: a callback of the subscriber connection takes them, and releases go out at the end of
the tick. Never holds provider credentials; never writes Postgres.
"""

import asyncio
import contextlib
import logging
import os
import socket
import time
from functools import partial
from typing import Any

from policy.effects import touch
from protocol import debug
from protocol.bounds import LARGE_STEP_BYTES
from protocol.errors import PolicyFailed, StreamConnectionLost, StreamProtocolError
from protocol.records import STREAM_LOST, UNCLAIMED
from settings.runtime import Runtime
from streams import heartbeats, layout, lifecycle, metrics_port
from streams.connection import Connection, RedisError
from streams.debug_lines import DebugLines
from streams.layout import Start
from streams.metrics import Total
from streams.metrics_port import Exposition
from streams.scripts import Claimed
from workers import process
from workers.policy.call.line_observer import CallTracer, LineObserver
from workers.policy.call.owned import OwnedCall, now_ms
from workers.policy.call.phases import Phase
from workers.policy.claims import Claims
from workers.policy.feeding import moment
from workers.policy.leases import Leases
from workers.policy.loaded import LoadedPolicies
from workers.policy.steps import Steps
from workers.policy.subscriptions import Subscriptions

log = logging.getLogger(__name__)
GATEWAY_CHECKS = 3
_WARM_AFTER_S = 2.0
"""From ready to loading what the first calls need: as long as a start of all processes takes, whose
processors it would share."""
STEPS = frozenset(m.__code__ for m in (OwnedCall.begin, OwnedCall.feed_entry, OwnedCall.feed_fact))
"""What the watchdog interrupts: each ends its call where it took too long."""


class PolicyWorker:
    """All calls of one process."""

    def __init__(self, settings: Runtime) -> None:
        config = settings.config
        self.settings, self.config, self.limits = settings, config, config.limits
        self.name = settings.name or f"{socket.gethostname()}-{os.getpid()}"
        self._policies = LoadedPolicies(settings)
        url, silent_s = settings.redis_url, self.limits.redis_silent_s
        self._redis = Connection(url, name="policy", silent_s=silent_s, on_connect=self._restored)
        self._sub = Connection(
            url,
            name="policy-sub",
            silent_s=silent_s,
            on_push=self._on_push,
            on_late=self._wait_for_turn,
            on_connect=self._resubscribe,
        )
        self._blocking = Connection(url, name="policy-claim", silent_s=silent_s)
        self._lines = DebugLines(
            self._redis,
            f"policy {self.name}",
            memory_share=self.limits.memory_share,
            shards=config.shards,
        )
        self._bodies = Connection(url, name="policy-bodies", silent_s=silent_s)
        self.calls = Steps(settings, self.name, self._redis, self._bodies, Subscriptions(self._sub))
        self._heard, self._queues = self.calls.hears.entries, self.calls.fair.queues
        self._claims = Claims(
            self._redis,
            self._blocking,
            self.limits,
            self.name,
            lambda: self._policies.pins,
            self.calls,
            self._adopt,
        )
        self._leases = Leases(self._redis, self.calls, self._claims, config, self.name)
        self._stopping = asyncio.Event()

    # --- life ---

    async def run(self) -> None:
        """Work until `stop`, then hand over the calls that others may take, and drain the others to
        the grace."""
        await asyncio.gather(
            *(
                connection.open()
                for connection in (self._redis, self._sub, self._blocking, self._bodies)
            )
        )
        for shard in range(self.config.shards):
            await self._claims.make_group(shard)
        process.tell_ready(self.settings)
        log.info(
            "policy worker ready", extra={"worker": self.name, "policy_set": self._policies.set}
        )
        try:
            async with asyncio.TaskGroup() as group:
                loops = [
                    group.create_task(loop(), name=loop.__name__)
                    for loop in (
                        self._leases.renew_loop,
                        self._sweep_loop,
                        self._gateway_loop,
                        self._heartbeat_loop,
                        self._forget_loop,
                        self._warm,
                    )
                ]
                claims = [
                    group.create_task(self._claims.run(s, self._stopping), name="claims")
                    for s in range(self.config.shards)
                ]
                await self._stopping.wait()
                with contextlib.suppress(StreamConnectionLost, RedisError):
                    await heartbeats.withdraw(self._redis, *self._shown_until_stopped)
                    await heartbeats.write(self._redis, *self._heartbeats)
                # not cancelled: a read that Redis still blocks for this worker would get what is
                # handed over
                await asyncio.wait(claims)
                await self._leases.hand_over()
                await heartbeats.withdraw(self._redis, *self._heartbeats)
                for task in loops:
                    task.cancel()
        finally:
            await asyncio.gather(
                *(
                    client.close()
                    for client in (
                        self._redis,
                        self._sub,
                        self._blocking,
                        self._bodies,
                        self.calls.facts,
                    )
                )
            )

    async def _warm(self) -> None:
        """Load what the first calls would else wait for, once what starts beside this worker has
        had the processors."""
        await asyncio.sleep(_WARM_AFTER_S)
        await asyncio.to_thread(touch.warm)

    def stop(self) -> None:
        """Begin to stop."""
        self._stopping.set()

    @property
    def _heartbeats(self) -> list[tuple[str, str]]:
        is_stopping = self._stopping.is_set()
        shown = [
            *heartbeats.shown_by("policy", self.name, is_stopping=is_stopping),
            ("shards", f"{self.config.shards}:{self.name}"),
        ]
        return shown if is_stopping else [*shown, *self._shown_until_stopped]

    @property
    def _shown_until_stopped(self) -> list[tuple[str, str]]:
        """What others may leave to this worker."""
        policies = self._policies
        series = [("series", f"{revision}:{self.name}") for revision in policies.revisions]
        return [("set", f"{policies.set}:{self.name}"), *series]

    # --- claiming ---

    def _adopt(self, claimed: Claimed) -> "asyncio.Task[Any] | None":
        """Begin or go on with a claimed call; returns its replay, where there is one."""
        start = self._start_of(claimed)
        if start is None:
            return None
        policies = self._policies
        name, series, error = policies.choose(start, claimed.policy or None, claimed.revision)
        revision = series[1]
        lines = self._lines.of(start.call_id, start.debug) if start.debug & debug.ANY else None
        tracer = CallTracer(lines) if lines is not None and start.debug & debug.POLICY else None
        call = OwnedCall(
            start,
            claimed.token,
            claimed.entry,
            policies.session(start, name, series, tracer),
            policy_header=f"{name}@{revision}" if revision else "",
            released=claimed.released,
            digest=claimed.digest,
            recorded=claimed.recorded,
            written=claimed.written,
            observer=LineObserver(lines) if lines is not None else None,
            begun=self.calls.figures.began if claimed.is_fresh else None,
        )
        facts = claimed.facts
        for field, value in zip(facts[::2], facts[1::2], strict=True):
            call.waits.learn(field.decode(errors="replace"), value)
        is_fresh = claimed.is_fresh
        has_more = self.calls.adopt(call) or len(claimed.entries) > 1
        if start.debug & debug.REFUSED:
            call.note(
                debug.DEBUG_REFUSED, 0, "x-sluice-debug is for keys with the role admin", start.at
            )
        if claimed.expired:
            self.calls.close(call, UNCLAIMED)
            return None
        if not is_fresh:
            self.calls.figures.figures.add(Total.TAKEOVERS)
            detail = f"worker {self.name}" + (
                ", the one before died in it" if claimed.died_in_it else ""
            )
            call.note("takeover", moment(), detail, now_ms())
            if claimed.is_hopeless:
                error = PolicyFailed("every worker that took this call died while processing it")
        if not claimed.policy:
            # pinned with the first release, as the call's own record came with it
            call.queue.pin_policy(name, revision)
            if start.policy_sets and policies.set != start.policy_sets[0]:
                call.note(
                    "policy_set",
                    moment(),
                    f"began under {policies.set}, the gateway's own being {start.policy_sets[0]}",
                    now_ms(),
                )
        if not is_fresh:
            call.take_over()
        call.inbox.read_stream(only=not is_fresh or claimed.is_large)
        if error is not None and claimed.revision:
            call.skip_beginning()
            self.calls.spawn(self.calls.end_with_all_that_came(call, error.error_code), "give up")
            return None
        if error is not None:
            call.refuse(error)
        if not is_fresh:
            return self.calls.start(self.calls.feeder.replay(call, claimed), "replay")
        if error is None and claimed.is_large:
            self.calls.spawn(self.calls.feeder.begin_large(call), "begin")
            return None
        call.inbox.read_stream(only=False)
        if error is None:
            call.begin(claimed.body)
        if has_more:
            self.calls.spawn(self.calls.feeder.read(call), "read on")
        else:
            self.calls.after(call)
        return None

    def _start_of(self, claimed: Claimed) -> Start | None:
        """Return the START of a claimed call. A call whose START is unreadable is ended: no worker
        could continue it."""
        reason, gateway = STREAM_LOST, ""
        if claimed.entries:
            reason = StreamProtocolError.code
            with contextlib.suppress(StreamProtocolError):
                start = layout.unpack_start(claimed.entries[0][1][1])
                if start.call_id == claimed.call_id:
                    if not claimed.is_spoilt:
                        return start
                    gateway = start.gateway
        log.error(
            "a call cannot be read in Redis", extra={"call_id": claimed.call_id, "action": reason}
        )
        self.calls.finisher.end_lost(claimed.call_id, claimed.token, reason, gateway=gateway)
        self.calls.unsubscribe(claimed.call_id)
        return None

    # --- entries and facts ---

    def _wait_for_turn(self, message: list[Any]) -> None:
        """Take what came later, in its key's turn."""
        call = self.calls.hears.entries.get(message[1])
        if call is None or call.inbox.from_stream:
            self._on_push(message)
        else:
            self.calls.fair.put(call.start.key, partial(self._on_push, message, is_its_turn=True))

    def _on_push(self, message: list[Any], *, is_its_turn: bool = False) -> None:
        _, channel, payload = message
        if (call := self._heard.get(channel)) is not None:
            if (
                (queues := self._queues)
                and not is_its_turn
                and not call.inbox.from_stream
                and call.start.key in queues
            ):
                self._wait_for_turn(message)
                return
            if call.inbox.from_stream or len(payload) > LARGE_STEP_BYTES:
                call.inbox.note_missed()
                if call.phase is Phase.RUNNING:
                    self.calls.spawn(self.calls.feeder.read(call), "read")
                return
            try:
                taken = call.feed_entry(layout.unpack_entry(payload))
            except StreamProtocolError:
                # anyone may publish; the stream is the truth
                taken = False
            if taken:
                self.calls.after(call)
            else:
                self.calls.spawn(self.calls.feeder.read(call), "read gap")
        elif (call := self.calls.hears.facts.get(channel)) is not None:
            self.calls.spawn(
                self.calls.facts.fetch(call, payload.decode(errors="replace")), "fetch fact"
            )
        else:
            self.calls.hears.miss(channel)

    # --- leases, keepalives ---

    async def _sweep_loop(self) -> None:
        longest = self.limits.keepalive_s
        every = min(1.0, longest / 4)
        while True:
            before = time.monotonic()
            await asyncio.sleep(every)
            now = time.monotonic()
            self.calls.lag_s = now - before - every
            for call in [
                c for c in self.calls.values() if c.phase is Phase.RUNNING and c.busy is None
            ]:
                interval = min(longest, call.start.numbers.get("keepalive_s", longest))
                if now - call.writer.last_sent > interval or call.writer.is_silent(now):
                    call.writer.is_sent(now)
                    call.ask_keepalive()
                    self.calls.releaser.add(call)
                elif call.queue.record_held():
                    self.calls.releaser.add(call)
                if now - call.inbox.last_heard > 2.0:
                    call.inbox.is_heard(now)
                    self.calls.spawn(self.calls.feeder.sweep(call), "sweep")
                if now - call.waits.last_checked > 2.0:
                    # also while upstream sends: a judge may have died over a call that still goes
                    # on
                    call.waits.is_checked(now)
                    self.calls.spawn(self.calls.facts.look_after(call), "asks")

    async def _gateway_loop(self) -> None:
        """End the calls of a dead gateway: no further chunk comes, so no release would notice."""
        missing: dict[tuple[int, str], int] = {}
        while True:
            await asyncio.sleep(1.0)
            places = list({(c.shard, c.gateway) for c in self.calls.values()})
            try:
                alive = await asyncio.gather(
                    *(self._redis.call("GET", layout.gateway_key(*place)) for place in places)
                )
                # where this worker cannot write its heartbeat either, no gateway could
                await heartbeats.write(self._redis, *self._heartbeats)
            except (StreamConnectionLost, RedisError):
                missing = {}
                continue
            # several checks: after an outage of Redis a gateway must have time for its heartbeat
            missing = {
                place: missing.get(place, 0) + 1
                for place, read in zip(places, alive, strict=True)
                if read is None
            }
            lost = {place for place, checks in missing.items() if checks >= GATEWAY_CHECKS}
            for call in [c for c in self.calls.values() if (c.shard, c.gateway) in lost]:
                self.calls.spawn(
                    self.calls.end_with_all_that_came(call, "gateway_lost"), "gateway lost"
                )

    async def _heartbeat_loop(self) -> None:
        await process.send_heartbeats(
            self._redis, lambda: self._heartbeats, alive_file=self.settings.alive_file
        )

    async def _forget_loop(self) -> None:
        streams = [layout.dispatch_key(shard) for shard in range(self.config.shards)]
        await process.forget_consumers(self._redis, streams, layout.POLICY_GROUP)

    async def _restored(self) -> None:
        self._claims.pause_reclaiming()
        # at once: others pause for a quarter lease only, and each from a moment of its own
        self.calls.spawn(self._leases.renew(), "renew after reconnect")
        for call in self.calls.values():
            self.calls.releaser.repeat(call)

    async def _resubscribe(self) -> None:
        self.calls.hears.renew()
        for call in list(self.calls.values()):
            self.calls.spawn(self.calls.feeder.read(call), "read after reconnect")
            self.calls.spawn(self.calls.facts.look_after(call), "facts after reconnect")


async def run(settings: Runtime) -> None:
    """Run one policy worker until SIGTERM."""
    worker = PolicyWorker(settings)
    lifecycle.on_stop(worker.stop)
    # by then its calls are others'
    process.watch_loop(
        2 * settings.config.limits.lease_s,
        steps=STEPS,
        is_other_busy=lambda: worker.calls.feeder.lane.is_busy,
    )
    figures = worker.calls.figures.figures
    async with metrics_port.listening(settings, lambda: Exposition(figures, "policy")):
        await worker.run()
