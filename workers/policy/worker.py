"""The policy worker: claims calls, keeps their leases, feeds their sessions, releases what they approve.

Loops, each with one task: claim (new calls, and those whose owner is gone), renew (leases at a quarter of their
length), sweep (keepalives, silent calls, asks whose judge died), gateways that are gone. Chunks need no task: they come by
callback from the subscriber connection and go out at the end of the tick. Never holds provider credentials; never writes Postgres.
"""

import asyncio
import contextlib
import hashlib
import logging
import os
import socket
import time
from collections import Counter
from typing import Any

from policy.base import Policy
from policy.loading import load
from policy.session.effects import SESSION_VERSION, CallInfo
from policy.session.opening import no_policy
from policy.session.session import Session
from protocol.bounds import LARGE_STEP_BYTES
from protocol.config import Config, Runtime
from protocol.errors import Overloaded, PipelineError, PolicyFailed, StreamConnectionLost, StreamProtocolError
from protocol.records import STREAM_LOST, UNCLAIMED, EventRecord, encode_records
from streams import layout, lifecycle, scripts
from streams.connection import Argument, Connection, RedisError
from streams.layout import Start
from workers import process
from workers.judge_queue import JudgeQueue
from workers.lane import Lane
from workers.policy.call import OwnedCall, now_ms
from workers.policy.claims import Claimed, Claims
from workers.policy.facts import Facts
from workers.policy.feeding import Feeder, moment
from workers.policy.finish import Finisher
from workers.policy.release import Releaser
from workers.policy.subscriptions import Subscriptions
from workers.policy.turns import TurnLookup

log = logging.getLogger(__name__)
GATEWAY_LOOKS = 3
KEY_SHARE = 4
"""Of a worker's calls one API key has at most so many times of what is free, four fifths where it is alone: others always find room."""
STEPS = frozenset(m.__code__ for m in (OwnedCall.begin, OwnedCall.take_entry, OwnedCall.take_fact))
"""What the watchdog interrupts: each ends its call where it took too long."""


class PolicyWorker:
    """All calls of one process."""

    def __init__(self, settings: Runtime) -> None:
        config = settings.config
        self.settings, self.config, self.limits = settings, config, config.limits
        self.name = settings.name or f"{socket.gethostname()}-{os.getpid()}"
        self.calls: dict[str, OwnedCall] = {}
        self._series, self._set = series_of(config, settings.search_path), settings.policy_set
        url, silent_s = settings.redis_url, self.limits.redis_silent_s
        self._redis = Connection(url, name="policy", silent_s=silent_s, on_connect=self._restored)
        self._sub = Connection(url, name="policy-sub", silent_s=silent_s, on_push=self._on_push, on_connect=self._resubscribe)
        self._hears = Subscriptions(self._sub)
        self._blocking = Connection(url, name="policy-claim", silent_s=silent_s)
        self._bodies = Connection(url, name="policy-bodies", silent_s=silent_s)
        self._releaser = Releaser(
            self._redis, max_reply=self.limits.reply_entries, strict=config.durability == "strict", on_refused=self._refused
        )
        self._finisher = Finisher(self._redis, ended_ttl_ms=int(self.limits.ended_ttl_s * 1000), is_mine=self._is_mine, done=self._drop)
        self.feeder = Feeder(
            self._redis, self._bodies, Lane(blocked_s=2 * self.limits.lease_s), self._releaser,
            is_mine=self._is_mine, after=self._after, close=self._close,
        )  # fmt: skip
        self._known = Facts(
            self._redis, JudgeQueue(url, self._redis, silent_s=silent_s),
            TurnLookup(settings.database_url, durable=config.durability != "relaxed"), self.limits,
            is_mine=self._is_mine, feed=self.feeder.feed, after=self._after, close=self._close, spawn=self._spawn,
        )  # fmt: skip
        pins = [f"{name}@{rev}" for name, (_, rev) in self._series.items()]
        kind = hashlib.sha256("\n".join(sorted(pins)).encode()).hexdigest()[:12]
        self._presences = (("policy", self.name), ("policies", f"{kind}:{self.name}"), ("set", f"{self._set}:{self.name}"))
        self._claims = Claims(
            self._redis, self._blocking, self.limits, self.name, [*pins, f"={self._set}"],
            room=self._room, served=self._served, holds=self.calls.__contains__,
            subscribe=self._hears.begin, unsubscribe=self._unsubscribe, adopt=self._adopt,
        )  # fmt: skip
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stopping = asyncio.Event()
        self.lag_s = 0.0

    # --- life ---

    async def run(self) -> None:
        """Work until `stop`, then hand every call over (a lone worker drains to its grace)."""
        await asyncio.gather(*(connection.open() for connection in (self._redis, self._sub, self._blocking, self._bodies)))
        for shard in range(self.config.shards):
            await self._claims.make_group(shard)
        process.tell_ready(self.settings)
        log.info("policy worker ready", extra={"worker": self.name, "policy_set": self._set})
        try:
            async with asyncio.TaskGroup() as group:
                loops = [
                    group.create_task(loop(), name=loop.__name__)
                    for loop in (self._renew_loop, self._sweep_loop, self._gateway_loop, self._presence_loop, self._forget_loop)
                ]
                claims = [group.create_task(self._claims.run(s, self._stopping), name="claims") for s in range(self.config.shards)]
                await self._stopping.wait()
                # not cancelled: a read that Redis still holds for this worker would swallow what is handed over
                await asyncio.wait(claims)
                await self._hand_over()
                for task in loops:
                    task.cancel()
        finally:
            await asyncio.gather(*(one.close() for one in (self._redis, self._sub, self._blocking, self._bodies, self._known)))

    def stop(self) -> None:
        """Begin to stop."""
        self._stopping.set()

    def _is_mine(self, call: OwnedCall) -> bool:
        return self.calls.get(call.id) is call

    def _spawn(self, coroutine: Any, name: str) -> None:
        _ = self._start(coroutine, name)

    def _start(self, coroutine: Any, name: str) -> "asyncio.Task[Any]":
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task failed", extra={"task": task.get_name(), "error": type(error).__name__}, exc_info=error)

    # --- claiming ---

    def _room(self) -> int:
        """How many more calls this worker takes now: none while its loop lags."""
        return 0 if self.lag_s > 0.5 else self.limits.max_calls - len(self.calls)

    def _served(self) -> list[str]:
        """The API keys that have their share of this worker: so many times of what is free. Nobody has while a fifth is."""
        free = self.limits.max_calls - len(self.calls)
        if len(self.calls) < KEY_SHARE * free:
            return []
        return [key for key, calls in Counter(c.start.key for c in self.calls.values()).items() if calls >= KEY_SHARE * free]

    def _adopt(self, claimed: Claimed) -> "asyncio.Task[Any] | None":
        """Begin or go on with a claimed call; returns its replay, where there is one."""
        start = self._start_of(claimed)
        if start is None:
            return None
        name, (series, revision), error = self._choose(start, claimed.policy or None, claimed.revision)
        call = OwnedCall(
            start, claimed.token, claimed.entry, Session(self._call_info(start, name, revision), series, self.config),
            policy_header=f"{name}@{revision}" if revision else "",
            released=claimed.released, digest=claimed.digest, recorded=claimed.recorded, written=claimed.written,
        )  # fmt: skip
        facts = claimed.facts
        call.facts = {k.decode(errors="replace"): v for k, v in zip(facts[::2], facts[1::2], strict=True)}
        self.calls[call.id] = call
        has_more = self._hears.adopt(call) or len(claimed.entries) > 1
        if claimed.expired:
            self._close(call, UNCLAIMED)
            return None
        if not claimed.is_fresh:
            detail = f"worker {self.name}" + (", the one before died in it" if claimed.died_in_it else "")
            call.note("takeover", moment(), detail, now_ms())
            if claimed.is_hopeless:
                error = PolicyFailed("the workers that took this call died on it")
        if not claimed.policy:
            # pinned with the first release, as the call's own record came with it
            call.pin = (name, revision)
            if start.policy_sets and self._set != start.policy_sets[0]:
                call.note("policy_set", moment(), f"began under {self._set}, the gateway's own being {start.policy_sets[0]}", now_ms())
        call.replaying = not claimed.is_fresh
        call.from_stream = call.replaying or claimed.is_large
        if error is not None and claimed.revision:
            call.has_begun = True
            self._spawn(self._end_with_all_that_came(call, error.error_code), "give up")
            return None
        if error is not None:
            call.refuse(error)
        if not claimed.is_fresh:
            return self._start(self.feeder.replay(call, claimed), "replay")
        if error is None and claimed.is_large:
            self._spawn(self.feeder.begin_large(call), "begin")
            return None
        call.from_stream = False
        if error is None:
            call.begin(claimed.body)
        if has_more:
            self._spawn(self.feeder.read(call), "read on")
        else:
            self._after(call)
        return None

    def _start_of(self, claimed: Claimed) -> Start | None:
        """What a claimed call began with. One that cannot be read, or not be begun, is ended: nobody could go on with it."""
        reason, gateway = STREAM_LOST, ""
        if claimed.entries:
            reason = StreamProtocolError.code
            with contextlib.suppress(StreamProtocolError):
                start = layout.unpack_start(claimed.entries[0][1][1])
                if start.call_id == claimed.call_id:
                    if not claimed.is_spoilt:
                        return start
                    gateway = start.gateway
        log.error("a call cannot be read in Redis", extra={"call_id": claimed.call_id, "action": reason})
        self._finisher.end_lost(claimed.call_id, claimed.token, reason, gateway=gateway)
        self._unsubscribe(claimed.call_id)
        return None

    def _choose(self, start: Start, pinned: str | None, revision: str) -> tuple[str, tuple[list[Policy], str], PipelineError | None]:
        """Return the policy's name, its series and revision, or why there is none."""
        name = pinned or start.policy or start.policies[0]
        if name not in self._series or name not in start.policies:
            return name, ([], ""), no_policy(name, asked=start.policy, own=start.policies, known=self._series)
        loaded = self._series[name]
        if pinned and revision != loaded[1]:
            return name, ([], ""), PolicyFailed("no worker has this call's policy revision any more")
        if not pinned and start.policy_sets and self._set not in start.policy_sets:
            return name, ([], ""), Overloaded("no worker has this call's policy set any more", code="no_worker", retry_after_s=1)
        return name, loaded, None

    def _call_info(self, start: Start, policy: str, revision: str) -> CallInfo:
        return CallInfo(
            call_id=start.call_id, at=start.at, dialect=start.dialect, endpoint=start.endpoint, key=start.key, session=start.session,
            nonce=start.nonce, gateway=start.gateway, policy=policy, revision=revision, durable=self.config.durability != "relaxed",
            max_arguments_bytes=self.limits.event_bytes, betas=start.betas, server_tools=start.server_tools,
            key_id=start.key_id, policy_set=self._set, body_sha256=start.body_sha256 or None, facts=start.facts,
        )  # fmt: skip

    # --- entries and facts ---

    def _on_push(self, message: list[Any]) -> None:
        _, channel, payload = message
        if (call := self._hears.entries.get(channel)) is not None:
            if call.from_stream or len(payload) > LARGE_STEP_BYTES:
                call.missed = True
                if call.has_begun and not call.replaying:
                    self._spawn(self.feeder.read(call), "read")
                return
            try:
                taken = call.take_entry(layout.unpack_entry(payload))
            except StreamProtocolError:
                # anyone may publish; the stream is the truth
                taken = False
            if taken:
                self._after(call)
            else:
                self._spawn(self.feeder.read(call), "read gap")
        elif (call := self._hears.facts.get(channel)) is not None:
            self._spawn(self._known.fetch(call, payload.decode(errors="replace")), "fetch fact")
        else:
            self._hears.miss(channel)

    def _after(self, call: OwnedCall) -> None:
        """Do what the call wants after it was fed; nothing while it is replayed, whose outputs went out before."""
        if call.replaying or call.busy is not None:
            return
        if not call.broken and (call.new_asks or call.new_waits or call.new_lookup):
            self._hears.hear_facts(call)
            with call.contained():
                self._known.wait_for(call)
        if call.broken:
            self._close(call, "policy_failed")
            return
        self._releaser.add(call)
        # not while a release of it is under way: its end says how many there are
        if call.closed is not None and call.sending is None and not call.wants_release:
            self._finish(call, call.closed.text, call.closed.number)

    # --- leases, keepalives ---

    async def _renew_loop(self) -> None:
        while True:
            await asyncio.sleep(self.limits.lease_s / 4)
            await self._renew()

    async def _renew(self) -> None:
        with contextlib.suppress(StreamConnectionLost, RedisError):
            for shard in range(self.config.shards):
                mine = [c for c in self.calls.values() if c.shard == shard]
                for start in range(0, len(mine), 100):
                    await self._renew_batch(shard, mine[start : start + 100])

    async def _renew_batch(self, shard: int, batch: list[OwnedCall]) -> None:
        args: list[Argument] = [self.name, int(self.limits.call_ttl_s * 1000)]
        for call in batch:
            args += (call.token, call.entry)
        said = await self._redis.script(scripts.RENEW, [layout.dispatch_key(shard), *(layout.ctl_key(c.id) for c in batch)], args)
        for call, word in zip(batch, said, strict=True):
            if word == b"OK":
                call.last_owned = time.monotonic()
            elif not call.finishing:
                self._refused(call, word.decode())

    async def _sweep_loop(self) -> None:
        every = min(1.0, self.limits.keepalive_s / 4)
        while True:
            before = time.monotonic()
            await asyncio.sleep(every)
            now = time.monotonic()
            self.lag_s = now - before - every
            for call in [c for c in self.calls.values() if c.has_begun and not c.replaying and c.busy is None]:
                if now - call.last_sign > self.limits.keepalive_s:
                    call.last_sign = now
                    call.ask_keepalive()
                    self._releaser.add(call)
                elif call.record_held():
                    self._releaser.add(call)
                if now - call.last_heard > 2.0:
                    call.last_heard = now
                    self._spawn(self.feeder.sweep(call), "sweep")
                if now - call.last_looked > 2.0:
                    # also while upstream talks: a judge may have died over a call that still goes on
                    call.last_looked = now
                    self._spawn(self._known.look_after(call), "asks")

    async def _gateway_loop(self) -> None:
        """End the calls of a gateway that is gone: no chunk comes any more whose release would find that out."""
        missing: dict[tuple[int, str], int] = {}
        while True:
            await asyncio.sleep(1.0)
            places = list({(c.shard, c.gateway) for c in self.calls.values()})
            try:
                alive = await asyncio.gather(*(self._redis.call("GET", layout.gateway_key(*place)) for place in places))
                # where this worker cannot show itself either, no gateway could
                await process.show(self._redis, *self._presences)
            except (StreamConnectionLost, RedisError):
                missing = {}
                continue
            # several looks: after an outage of Redis a gateway must have time to show itself
            missing = {place: missing.get(place, 0) + 1 for place, read in zip(places, alive, strict=True) if read is None}
            lost = {place for place, looks in missing.items() if looks >= GATEWAY_LOOKS}
            for call in [c for c in self.calls.values() if (c.shard, c.gateway) in lost]:
                self._refused(call, "GATEWAY_LOST")

    async def _presence_loop(self) -> None:
        await process.show_presence(self._redis, *self._presences, alive_file=self.settings.alive_file)

    async def _forget_loop(self) -> None:
        streams = [layout.dispatch_key(shard) for shard in range(self.config.shards)]
        await process.forget_consumers(self._redis, streams, layout.POLICY_GROUP)

    async def _restored(self) -> None:
        self._claims.pause_reclaiming()
        # at once: others pause for a quarter lease only, and each from a moment of its own
        self._spawn(self._renew(), "renew after reconnect")
        for call in self.calls.values():
            self._releaser.repeat(call)

    async def _resubscribe(self) -> None:
        self._hears.renew()
        for call in list(self.calls.values()):
            self._spawn(self.feeder.read(call), "read after reconnect")
            self._spawn(self._known.look_after(call), "facts after reconnect")

    # --- endings ---

    def _refused(self, call: OwnedCall, outcome: str) -> None:
        if not self._is_mine(call):
            # a renewal and a release were both under way: it was let go of at the first word
            return
        match outcome:
            case "CLOSE":
                self._after(call)
            case "REFUSED" if call.closed is not None:
                self._finish(call, call.closed.text, call.closed.number)
            case "BROKEN":
                self._close(call, "policy_failed")
            case "GATEWAY_LOST":
                self._spawn(self._end_with_all_that_came(call, "gateway_lost"), "gateway lost")
            case "GONE" if time.monotonic() - call.last_owned < self.limits.ended_ttl_s:
                # had another ended it since, that would still be there: Redis has lost it, and only this worker can say so
                self._finish(call, STREAM_LOST, -1, gone=True)
            case _:
                # FENCED, CLOSED, SEQ, GONE: another owns the call, or it is over; nothing of ours may go out any more
                log.warning("call lost", extra={"call_id": call.id, "action": outcome})
                record = EventRecord(call_id=call.id, kind="fenced", number=moment(), at=now_ms(), detail=f"{outcome} worker {self.name}")
                self._redis.send_quiet("XADD", layout.audit_key(call.shard), "*", layout.BLOB, encode_records([record]))
                self._drop(call)

    def _close(self, call: OwnedCall, reason: str) -> None:
        # one that has its gateway's end knows how far that came
        self._finish(call, reason, call.closed.number if call.closed is not None else -1)

    def _finish(self, call: OwnedCall, reason: str, relayed: int, *, gone: bool = False) -> None:
        if call.finishing:
            return
        call.finishing = True
        if call.busy is not None:
            # its records are in the hands of a step; the end is theirs to come before
            call.busy.add_done_callback(lambda _: self._finisher.end(call, reason, relayed, gone=gone))
        else:
            self._finisher.end(call, reason, relayed, gone=gone)

    async def _end_with_all_that_came(self, call: OwnedCall, reason: str) -> None:
        """End a call for `reason`, what is still on its stream being on record too; the gateway may have said another there.

        One that stopped in order has said how far it got; its sign of life went after that.
        """
        while self._is_mine(call) and not await self.feeder.read(call):
            await asyncio.sleep(0.1)
        if call.closed is not None:
            self._finish(call, call.closed.text, call.closed.number)
        else:
            self._close(call, reason)

    def _drop(self, call: OwnedCall) -> None:
        if self.calls.get(call.id) is call:
            del self.calls[call.id]
            self._hears.end(call.id)

    def _unsubscribe(self, call_id: str) -> None:
        if call_id not in self.calls:
            self._hears.end(call_id)

    async def _hand_over(self) -> None:
        """Give every call at once to those with the same policies; without such, drain to the grace time."""
        with contextlib.suppress(StreamConnectionLost, RedisError):
            async with asyncio.timeout(self.limits.drain_s):
                while self.calls and not await self._has_heirs():
                    await asyncio.sleep(0.05)
                while any(c.sending for c in self.calls.values()):
                    await asyncio.sleep(0.005)
        within_ms = int(self.limits.lease_s * 4000)
        for call in list(self.calls.values()):
            with contextlib.suppress(StreamConnectionLost, RedisError):
                await self._redis.script(
                    scripts.HANDOVER, [layout.ctl_key(call.id), layout.dispatch_key(call.shard)], [call.token, call.id, within_ms]
                )
            self._drop(call)
        for role, name in self._presences:
            await process.hide_presence(self._redis, role, name)

    async def _has_heirs(self) -> bool:
        """Is there another worker that has the same revision of every policy?"""
        role, mine = self._presences[1]
        kind = mine.partition(":")[0]
        return any(n != mine and n.partition(":")[0] == kind for n in await process.present(self._redis, role))


def series_of(config: Config, search_path: tuple[str, ...]) -> dict[str, tuple[list[Policy], str]]:
    """Load every policy of the configuration. Raises PolicyFailed naming the one that cannot be loaded."""
    return {
        name: load(steps, search_path=search_path, session_version=SESSION_VERSION, config=config)
        for name, steps in config.policies.items()
    }


async def run(settings: Runtime) -> None:
    """Run one policy worker until SIGTERM."""
    worker = PolicyWorker(settings)
    lifecycle.on_stop(worker.stop)
    # by then its calls are others'
    process.watch_loop(2 * settings.config.limits.lease_s, steps=STEPS, beside=lambda: worker.feeder.lane.is_busy)
    await worker.run()
