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
from collections.abc import Mapping
from functools import partial
from typing import Any

from policy import touch
from protocol import debug
from protocol.bounds import LARGE_STEP_BYTES
from protocol.errors import PolicyFailed, StreamConnectionLost, StreamProtocolError
from protocol.records import STREAM_LOST, UNCLAIMED
from protocol.runtime import Runtime
from streams import heartbeats, layout, lifecycle, scripts
from streams.connection import NOT_AN_ANSWER, Argument, Connection, RedisError
from streams.debug_lines import DebugLines
from streams.layout import Start
from streams.outcomes import Outcome
from workers import process
from workers.policy.call import OwnedCall, now_ms
from workers.policy.claims import Claimed, Claims
from workers.policy.feeding import moment
from workers.policy.loaded import LoadedPolicies
from workers.policy.steps import Steps
from workers.policy.subscriptions import Subscriptions
from workers.policy.traced import CallTracer, TracedCall

log = logging.getLogger(__name__)
GATEWAY_CHECKS = 3
_TAKEN_WITHIN_S = 1.0
"""How long a worker that stops leaves a call to others before it looks for it itself."""
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
                        self._renew_loop,
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
                await self._hand_over()
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
        make = OwnedCall if lines is None else partial(TracedCall, lines)
        call = make(
            start,
            claimed.token,
            claimed.entry,
            policies.session(start, name, series, tracer),
            policy_header=f"{name}@{revision}" if revision else "",
            released=claimed.released,
            digest=claimed.digest,
            recorded=claimed.recorded,
            written=claimed.written,
        )
        facts = claimed.facts
        call.facts = {
            k.decode(errors="replace"): v for k, v in zip(facts[::2], facts[1::2], strict=True)
        }
        has_more = self.calls.adopt(call) or len(claimed.entries) > 1
        if start.debug & debug.REFUSED:
            call.note(
                debug.DEBUG_REFUSED, 0, "x-sluice-debug is for keys with the role admin", start.at
            )
        if claimed.expired:
            self.calls.close(call, UNCLAIMED)
            return None
        if not claimed.is_fresh:
            detail = f"worker {self.name}" + (
                ", the one before died in it" if claimed.died_in_it else ""
            )
            call.note("takeover", moment(), detail, now_ms())
            if claimed.is_hopeless:
                error = PolicyFailed("every worker that took this call died while processing it")
        if not claimed.policy:
            # pinned with the first release, as the call's own record came with it
            call.pin = (name, revision)
            if start.policy_sets and policies.set != start.policy_sets[0]:
                call.note(
                    "policy_set",
                    moment(),
                    f"began under {policies.set}, the gateway's own being {start.policy_sets[0]}",
                    now_ms(),
                )
        call.replaying = not claimed.is_fresh
        call.from_stream = call.replaying or claimed.is_large
        if error is not None and claimed.revision:
            call.has_begun = True
            self.calls.spawn(self.calls.end_with_all_that_came(call, error.error_code), "give up")
            return None
        if error is not None:
            call.refuse(error)
        if not claimed.is_fresh:
            return self.calls.start(self.calls.feeder.replay(call, claimed), "replay")
        if error is None and claimed.is_large:
            self.calls.spawn(self.calls.feeder.begin_large(call), "begin")
            return None
        call.from_stream = False
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
        if call is None or call.from_stream:
            self._on_push(message)
        else:
            self.calls.fair.put(call.start.key, partial(self._on_push, message, is_its_turn=True))

    def _on_push(self, message: list[Any], *, is_its_turn: bool = False) -> None:
        _, channel, payload = message
        if (call := self._heard.get(channel)) is not None:
            if (
                (queues := self._queues)
                and not is_its_turn
                and not call.from_stream
                and call.start.key in queues
            ):
                self._wait_for_turn(message)
                return
            if call.from_stream or len(payload) > LARGE_STEP_BYTES:
                call.missed = True
                if call.has_begun and not call.replaying:
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

    async def _renew_loop(self) -> None:
        while True:
            await asyncio.sleep(self.limits.lease_s / 4)
            await self._renew()

    async def _renew(self) -> None:
        with contextlib.suppress(StreamConnectionLost, RedisError):
            for shard in range(self.config.shards):
                owned = [c for c in self.calls.values() if c.shard == shard]
                for start in range(0, len(owned), 100):
                    await self._renew_batch(shard, owned[start : start + 100])

    async def _renew_batch(self, shard: int, batch: list[OwnedCall]) -> None:
        args: list[Argument] = [self.name, int(self.limits.call_ttl_s * 1000)]
        for call in batch:
            args += (call.token, call.entry)
        outcomes = await self._redis.script(
            scripts.RENEW,
            [layout.dispatch_key(shard), *(layout.ctl_key(c.id) for c in batch)],
            args,
        )
        for call, outcome in zip(batch, outcomes, strict=True):
            if outcome == Outcome.OK:
                call.last_owned = time.monotonic()
            elif not call.finishing:
                self.calls.lose(call, outcome)

    async def _sweep_loop(self) -> None:
        longest = self.limits.keepalive_s
        every = min(1.0, longest / 4)
        while True:
            before = time.monotonic()
            await asyncio.sleep(every)
            now = time.monotonic()
            self.calls.lag_s = now - before - every
            for call in [
                c for c in self.calls.values() if c.has_begun and not c.replaying and c.busy is None
            ]:
                interval = min(longest, call.start.numbers.get("keepalive_s", longest))
                if now - call.last_sent > interval or call.is_silent(now):
                    call.last_sent = now
                    call.ask_keepalive()
                    self.calls.releaser.add(call)
                elif call.record_held():
                    self.calls.releaser.add(call)
                if now - call.last_heard > 2.0:
                    call.last_heard = now
                    self.calls.spawn(self.calls.feeder.sweep(call), "sweep")
                if now - call.last_checked > 2.0:
                    # also while upstream sends: a judge may have died over a call that still goes
                    # on
                    call.last_checked = now
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
        self.calls.spawn(self._renew(), "renew after reconnect")
        for call in self.calls.values():
            self.calls.releaser.repeat(call)

    async def _resubscribe(self) -> None:
        self.calls.hears.renew()
        for call in list(self.calls.values()):
            self.calls.spawn(self.calls.feeder.read(call), "read after reconnect")
            self.calls.spawn(self.calls.facts.look_after(call), "facts after reconnect")

    # --- handing over ---

    async def _hand_over(self) -> None:
        """Give each call at once to others that may take it; go on with those that nobody may, to
        the grace time.

        Theory. A call always has a worker that lives, or one that looks after it. This worker shows
        that it stops before it looks who else is there; so of two that stop at once at least one
        sees the other stop, and neither leaves its calls to it. Whoever it does leave them to may
        be asked to stop a moment later, or die. So this worker stays until each call that it gave
        has an owner again, and takes back what nobody takes. Where no other worker is left it also
        takes what is new.
        """
        until = time.monotonic() + self.limits.drain_s
        handed_over: dict[str, float] = {}
        returned = set[str]()
        while time.monotonic() < until:
            with contextlib.suppress(StreamConnectionLost, RedisError, *NOT_AN_ANSWER):
                live = await heartbeats.live(self._redis)
                is_alone = not heartbeats.others(live, "policy", self.name)
                if is_alone or any(
                    time.monotonic() - at > _TAKEN_WITHIN_S for at in handed_over.values()
                ):
                    for shard in range(self.config.shards):
                        await self._claims.take_what_waits(shard)
                    # nobody took these: the others have no room for them
                    returned |= {call.id for call in self.calls.values() if call.id in handed_over}
                for call in [
                    c
                    for c in self.calls.values()
                    if not c.sending and c.id not in returned and may_take(live, c)
                ]:
                    await self._give(call)
                    handed_over[call.id] = time.monotonic()
                for call_id in list(handed_over):
                    if await self._redis.call("HGET", layout.ctl_key(call_id), "t") != b"":
                        del handed_over[call_id]
            if not self.calls and not handed_over:
                break
            await asyncio.sleep(0.05)
        for call in list(self.calls.values()):
            with contextlib.suppress(StreamConnectionLost, RedisError):
                await self._give(call)
        await heartbeats.withdraw(self._redis, *self._heartbeats)

    async def _give(self, call: OwnedCall) -> None:
        within_ms = int(self.limits.lease_s * 4000)
        keys = [layout.ctl_key(call.id), layout.dispatch_key(call.shard)]
        await self._redis.script(scripts.HANDOVER, keys, [call.token, call.id, within_ms])
        self.calls.drop(call)


def may_take(live: Mapping[str, set[str]], call: OwnedCall) -> bool:
    """Is there a worker that may go on with this call? One that is pinned needs its revision,
    another one of its policy sets."""
    is_pinned = call.pin == ("", "")
    if is_pinned and call.policy_header:
        name, _, revision = call.policy_header.rpartition("@")
        return (name, revision) in heartbeats.held_revisions(live)
    # a call that was refused before it had a revision gets the same answer anywhere
    sets = {shown.partition(":")[0] for shown in live.get("set", set())}
    return bool(sets) and (
        is_pinned or not call.start.policy_sets or not sets.isdisjoint(call.start.policy_sets)
    )


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
    await worker.run()
