"""The policy worker: claims calls, keeps their leases, feeds their sessions, releases what they approve.

Loops, each with one task: claim (new calls, and those whose owner is gone), renew (leases at a quarter of their
length), sweep (keepalives, silent calls, asks whose judge died). Chunks need no task: they come by callback from the
subscriber connection and go out at the end of the tick. Never holds provider credentials; never writes Postgres.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import time
from typing import Any

from policy.base import Policy
from policy.effects import SESSION_VERSION, CallInfo
from policy.loading import load
from policy.session import Session
from protocol.config import Config, Runtime
from protocol.errors import Forbidden, NotFound, PipelineError, PolicyFailed, StreamConnectionLost
from protocol.records import EventRecord, encode_records
from streams import layout, scripts
from streams.connection import Argument, Connection, RedisError
from streams.layout import Start
from workers import process
from workers.call import OwnedCall, now_ms
from workers.facts import Facts
from workers.finish import Finisher
from workers.judge_queue import JudgeQueue
from workers.release import Releaser
from workers.turns import TurnLookup

log = logging.getLogger(__name__)
CLAIM_BATCH = 32
READ_BATCH = 256
MAX_TAKEOVERS = 2
"""A call taken over this often without a single output in between ends: its content kills workers."""


def moment() -> int:
    """A number for events of this worker's own, which have no place in the session: Unix seconds."""
    return time.time_ns() // 1_000_000_000


class PolicyWorker:
    """All calls of one process."""

    def __init__(self, settings: Runtime) -> None:
        config = settings.config
        self.settings, self.config, self.limits = settings, config, config.limits
        self.name = settings.name or f"{socket.gethostname()}-{os.getpid()}"
        self.calls: dict[str, OwnedCall] = {}
        self._channels: dict[bytes, OwnedCall] = {}
        self._facts: dict[bytes, OwnedCall] = {}
        self._series = series_of(config, settings.search_path)
        url, silent_s = settings.redis_url, self.limits.redis_silent_s
        self._redis = Connection(url, name="policy", silent_s=silent_s, on_connect=self._restored)
        self._sub = Connection(url, name="policy-sub", silent_s=silent_s, on_push=self._on_push, on_connect=self._resubscribe)
        self._blocking = Connection(url, name="policy-claim", silent_s=silent_s)
        self._releaser = Releaser(
            self._redis, max_reply=self.limits.reply_entries, strict=config.durability == "strict", on_refused=self._refused
        )
        self._finisher = Finisher(self._redis, ended_ttl_ms=int(self.limits.ended_ttl_s * 1000), is_mine=self._is_mine)
        self._known = Facts(
            self._redis, JudgeQueue(url, silent_s=silent_s), TurnLookup(settings.database_url, durable=config.durability != "relaxed"),
            self.limits, is_mine=self._is_mine, after=self._after, spawn=self._spawn,
        )  # fmt: skip
        self._reading: set[str] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stopping = asyncio.Event()
        self._reclaim_after = 0.0
        self.lag_s = 0.0

    # --- life ---

    async def run(self) -> None:
        """Work until `stop`, then hand every call over (a lone worker drains to its grace)."""
        await asyncio.gather(self._redis.open(), self._sub.open(), self._blocking.open())
        for shard in range(self.config.shards):
            with contextlib.suppress(RedisError):
                await self._redis.call("XGROUP", "CREATE", layout.dispatch_key(shard), layout.POLICY_GROUP, "0", "MKSTREAM")
        process.tell_ready(self.settings)
        log.info("policy worker ready", extra={"worker": self.name})
        try:
            async with asyncio.TaskGroup() as group:
                loops = [
                    group.create_task(loop(), name=loop.__name__)
                    for loop in (
                        self._renew_loop,
                        self._sweep_loop,
                        self._presence_loop,
                        self._forget_loop,
                        *(self._claimer(s) for s in range(self.config.shards)),
                    )
                ]
                await self._stopping.wait()
                # not cancelled: a read that Redis still holds for this worker would swallow what is handed over
                await asyncio.wait(loops[4:])
                await self._hand_over()
                for task in loops:
                    task.cancel()
        finally:
            await asyncio.gather(self._redis.close(), self._sub.close(), self._blocking.close(), self._known.close())

    def stop(self) -> None:
        """Begin to stop."""
        self._stopping.set()

    def _is_mine(self, call: OwnedCall) -> bool:
        return self.calls.get(call.id) is call

    def _spawn(self, coroutine: Any, name: str) -> None:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task failed", extra={"task": task.get_name(), "error": type(error).__name__}, exc_info=error)

    # --- claiming ---

    def _claimer(self, shard: int) -> Any:
        async def claim_loop() -> None:
            await self._claim_loop(shard)

        return claim_loop

    async def _claim_loop(self, shard: int) -> None:
        key, lease_ms = layout.dispatch_key(shard), int(self.limits.lease_s * 1000)
        last_sweep = 0.0
        while not self._stopping.is_set():
            room = min(CLAIM_BATCH, self.limits.max_calls - len(self.calls))
            if room <= 0 or self.lag_s > 0.5:
                await asyncio.sleep(0.05)
                continue
            try:
                found = await self._blocking.call(
                    "XREADGROUP",
                    "GROUP",
                    layout.POLICY_GROUP,
                    self.name,
                    "COUNT",
                    room,
                    "BLOCK",
                    min(500, lease_ms // 4, self._blocking.block_ms),
                    "STREAMS",
                    key,
                    ">",
                )
                entries = [(e, False) for e in found[0][1]] if found else []
                if time.monotonic() - last_sweep > self.limits.lease_s / 4 and time.monotonic() > self._reclaim_after:
                    last_sweep = time.monotonic()
                    claimed = await self._blocking.call(
                        "XAUTOCLAIM", key, layout.POLICY_GROUP, self.name, lease_ms, "0-0", "COUNT", max(1, room - len(entries))
                    )
                    entries += [(e, True) for e in claimed[1] if e[1]]
                if entries:
                    claims = (self._claim(shard, e[0].decode(), e[1], takeover) for e, takeover in entries)
                    for said in await asyncio.gather(*claims, return_exceptions=True):
                        if isinstance(said, Exception):
                            # the entry stays pending: this worker or another claims it again after a lease
                            log.error("claim failed", extra={"error": type(said).__name__}, exc_info=said)
            except (StreamConnectionLost, RedisError) as error:
                if isinstance(error, RedisError) and "NOGROUP" in str(error):
                    with contextlib.suppress(RedisError, StreamConnectionLost):
                        await self._redis.call("XGROUP", "CREATE", key, layout.POLICY_GROUP, "0", "MKSTREAM")
                await asyncio.sleep(0.1)

    async def _claim(self, shard: int, entry: str, fields: list[bytes], takeover: bool) -> None:
        values = dict(zip(fields[::2], fields[1::2], strict=True))
        call_id, due = values[b"c"].decode(), int(values[b"d"])
        if call_id in self.calls and not takeover:
            return
        token = secrets.token_hex(8)
        subscribed = [
            self._sub.call("SUBSCRIBE", layout.chunk_channel(call_id)),
            self._sub.call("SUBSCRIBE", layout.facts_channel(call_id)),
        ]
        if takeover:
            await asyncio.gather(*subscribed)
        said = await self._run_claim(shard, call_id, token, entry, due, takeover, late=False)
        if said[0] == b"EXPIRED":
            said = await self._run_claim(shard, call_id, token, entry, due, takeover, late=True)
            if said[0] == b"OK":
                await asyncio.gather(*subscribed)
                self._adopt(call_id, token, entry, said, expired=True)
                return
        await asyncio.gather(*subscribed)
        if said[0] == b"OK":
            self._adopt(call_id, token, entry, said, expired=False)
            return
        if said[0] == b"CLOSED":
            self._redis.send_quiet("XACK", layout.dispatch_key(shard), layout.POLICY_GROUP, entry)
            self._redis.send_quiet("XDEL", layout.dispatch_key(shard), entry)
        self._unsubscribe(call_id)

    def _run_claim(
        self, shard: int, call_id: str, token: str, entry: str, due: int, takeover: bool, *, late: bool
    ) -> "asyncio.Future[Any]":
        keys = [
            layout.ctl_key(call_id),
            layout.dispatch_key(shard),
            layout.call_key(call_id),
            layout.body_key(call_id),
            layout.facts_key(call_id),
        ]
        ttl = int(self.limits.call_ttl_s * 1000)
        return self._redis.script(scripts.CLAIM, keys, [token, entry, self.name, due, "1" if takeover else "0", ttl, "1" if late else "0"])

    def _adopt(self, call_id: str, token: str, entry: str, said: list[Any], *, expired: bool) -> None:
        _, released, digest, recorded, policy, revision, takeovers, entries, body, facts = said
        if not entries:
            log.error("a call's stream is gone", extra={"call_id": call_id})
            self._spawn(self._finisher.end_lost(call_id, token), "end lost")
            return
        start = layout.unpack_start(entries[0][1][1])
        fresh = takeovers == b"-1"
        name, loaded, error = self._choose(start, policy.decode() or None, revision.decode())
        series, rev = loaded
        session = Session(self._call_info(start, name, rev), series, self.config)
        call = OwnedCall(
            start,
            token,
            entry,
            session,
            policy_header=f"{name}@{rev}" if rev else "",
            released=int(released),
            digest=digest.decode(),
            recorded=int(recorded),
        )
        call.facts = {k.decode(): v for k, v in zip(facts[::2], facts[1::2], strict=True)}
        self.calls[call_id] = call
        self._channels[layout.chunk_channel(call_id).encode()] = call
        self._facts[layout.facts_channel(call_id).encode()] = call
        if expired:
            self._close(call, "unclaimed")
            return
        if not fresh:
            call.note("takeover", moment(), f"worker {self.name}", now_ms())
            if int(takeovers) >= MAX_TAKEOVERS:
                error = PolicyFailed("the workers that took this call died on it")
        if error is not None:
            session.refuse(error)
            if fresh:
                call.collect()
        else:
            if not policy:
                call.pin = (name, rev)
            call.begin(body)
        for _, fields in entries[1:]:
            call.take_entry(layout.unpack_entry(fields[1]))
        if not fresh and error is not None:
            self._close(call, error.error_code)
        elif not fresh:
            call.replaying = True
            self._spawn(self._replay(call, digest.decode()), "replay")
        else:
            self._after(call)

    async def _replay(self, call: OwnedCall, digest: str) -> None:
        """Read the rest of the stream of a call taken over, and check that the session came out where the last owner stood."""
        while call.id in self.calls and not await self._read(call):
            await asyncio.sleep(0.1)
        if call.id not in self.calls:
            return
        if call.released and call.session.checkpoint_digest != digest:
            log.error("replay came out differently", extra={"call_id": call.id})
            call.note("replay_mismatch", moment(), "the replayed session gave other outputs", now_ms())
            self._close(call, "stream_protocol_error")
            return
        call.replaying = False
        self._after(call)
        await self._read(call)

    def _choose(self, start: Start, pinned: str | None, revision: str) -> tuple[str, tuple[list[Policy], str], PipelineError | None]:
        """Return the policy's name, its series and revision, or why there is none."""
        name = pinned or start.policy or start.policies[0]
        if name not in self._series:
            return name, ([], ""), NotFound(f"there is no policy {name!r}", code="policy_not_found", param="x-sluice-policy")
        if name not in start.policies:
            return name, ([], ""), Forbidden(f"this key may not use the policy {name!r}", code="policy_forbidden", param="x-sluice-policy")
        loaded = self._series[name]
        if pinned and revision != loaded[1]:
            return name, ([], ""), PolicyFailed("no worker has this call's policy revision any more")
        return name, loaded, None

    def _call_info(self, start: Start, policy: str, revision: str) -> CallInfo:
        return CallInfo(
            call_id=start.call_id, at=start.at, dialect=start.dialect, endpoint=start.endpoint, key=start.key, session=start.session,
            nonce=start.nonce, gateway=start.gateway, policy=policy, revision=revision, durable=self.config.durability != "relaxed",
            max_arguments_bytes=self.limits.event_bytes, betas=start.betas, server_tools=start.server_tools,
        )  # fmt: skip

    # --- entries and facts ---

    def _on_push(self, message: list[Any]) -> None:
        _, channel, payload = message
        if (call := self._channels.get(channel)) is not None:
            if call.replaying:
                return
            if call.take_entry(layout.unpack_entry(payload)):
                self._after(call)
            else:
                self._spawn(self._read(call), "read gap")
        elif (call := self._facts.get(channel)) is not None:
            self._spawn(self._known.fetch(call, payload.decode()), "fetch fact")

    async def _read(self, call: OwnedCall) -> bool:
        """Read what is missing from the stream; a gap that is still there after one read ends the call. False: not read."""
        if call.id in self._reading:
            return False
        self._reading.add(call.id)
        try:
            while call.id in self.calls:
                found = await self._redis.call("XRANGE", layout.call_key(call.id), f"{call.expected}-0", "+", "COUNT", READ_BATCH)
                for _, fields in found:
                    if not call.take_entry(layout.unpack_entry(fields[1])):
                        self._close(call, "stream_protocol_error")
                        return True
                if len(found) < READ_BATCH:
                    break
            if call.id in self.calls and not call.replaying:
                self._after(call)
            return True
        except (StreamConnectionLost, RedisError):
            return False
        finally:
            self._reading.discard(call.id)

    def _after(self, call: OwnedCall) -> None:
        """Do what the call wants after it was fed."""
        if call.broken:
            self._close(call, "policy_failed")
            return
        if call.new_asks or call.new_waits or call.new_lookup:
            self._known.wait_for(call)
        if call.wants_release:
            self._releaser.add(call)
        if call.closed is not None and call.sending is None:
            self._finish(call, call.closed.text, call.closed.number)

    # --- leases, keepalives ---

    async def _renew_loop(self) -> None:
        while True:
            await asyncio.sleep(self.limits.lease_s / 4)
            with contextlib.suppress(StreamConnectionLost, RedisError):
                await self._renew()

    async def _renew(self) -> None:
        for shard in range(self.config.shards):
            mine = [c for c in self.calls.values() if c.shard == shard]
            for start in range(0, len(mine), 100):
                batch = mine[start : start + 100]
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
            for call in list(self.calls.values()):
                if now - call.last_sign > self.limits.keepalive_s:
                    call.last_sign = now
                    call.ask_keepalive()
                    self._releaser.add(call)
                if now - call.last_heard > 2.0 and not call.replaying:
                    call.last_heard = now
                    self._spawn(self._read(call), "sweep")
                    self._spawn(self._known.look_after(call), "asks")

    async def _presence_loop(self) -> None:
        await process.show_presence(self._redis, "policy", self.name)

    async def _forget_loop(self) -> None:
        streams = [layout.dispatch_key(shard) for shard in range(self.config.shards)]
        await process.forget_consumers(self._redis, streams, layout.POLICY_GROUP)

    async def _restored(self) -> None:
        # others may think us dead: renew first, reclaim only a quarter lease later
        self._reclaim_after = time.monotonic() + self.limits.lease_s / 4
        for call in self.calls.values():
            self._releaser.repeat(call)

    async def _resubscribe(self) -> None:
        for call in list(self.calls.values()):
            self._sub.send_quiet("SUBSCRIBE", layout.chunk_channel(call.id))
            self._sub.send_quiet("SUBSCRIBE", layout.facts_channel(call.id))
            self._spawn(self._read(call), "read after reconnect")
            self._spawn(self._known.look_after(call), "facts after reconnect")

    # --- endings ---

    def _refused(self, call: OwnedCall, outcome: str) -> None:
        match outcome:
            case "CLOSE":
                self._after(call)
            case "BROKEN":
                self._close(call, "policy_failed")
            case "GATEWAY_LOST":
                self._spawn(self._end_without_gateway(call), "gateway lost")
            case "GONE" if time.monotonic() - call.last_owned < self.limits.ended_ttl_s:
                # had another ended it since, that would still be there: Redis has lost it, and only this worker can say so
                self._finish(call, "stream_lost", -1, gone=True)
            case _:
                # FENCED, CLOSED, SEQ, GONE: another owns the call, or it is over; nothing of ours may go out any more
                log.warning("call lost", extra={"call_id": call.id, "action": outcome})
                record = EventRecord(call_id=call.id, kind="fenced", number=moment(), at=now_ms(), detail=f"{outcome} worker {self.name}")
                self._redis.send_quiet("XADD", layout.audit_key(call.shard), "*", layout.BLOB, encode_records([record]))
                self._drop(call)

    def _close(self, call: OwnedCall, reason: str) -> None:
        self._finish(call, reason, -1)

    def _finish(self, call: OwnedCall, reason: str, relayed: int, *, gone: bool = False) -> None:
        if call.finishing:
            return
        call.finishing = True
        self._spawn(self._write_end(call, reason, relayed, gone=gone), "finish")

    async def _write_end(self, call: OwnedCall, reason: str, relayed: int, *, gone: bool) -> None:
        await self._finisher.end(call, reason, relayed, gone=gone)
        self._drop(call)

    async def _end_without_gateway(self, call: OwnedCall) -> None:
        """End a call whose gateway is gone. One that stopped in order has said how far it got; its sign of life went after that."""
        while self._is_mine(call) and not await self._read(call):
            await asyncio.sleep(0.1)
        if call.closed is not None:
            self._finish(call, call.closed.text, call.closed.number)
        else:
            self._close(call, "gateway_lost")

    def _drop(self, call: OwnedCall) -> None:
        if self.calls.get(call.id) is call:
            del self.calls[call.id]
            self._channels.pop(layout.chunk_channel(call.id).encode(), None)
            self._facts.pop(layout.facts_channel(call.id).encode(), None)
            self._unsubscribe(call.id)

    def _unsubscribe(self, call_id: str) -> None:
        if call_id not in self.calls:
            self._sub.send_quiet("UNSUBSCRIBE", layout.chunk_channel(call_id))
            self._sub.send_quiet("UNSUBSCRIBE", layout.facts_channel(call_id))

    async def _hand_over(self) -> None:
        """Give every call to the others at once; without others, drain to the grace time."""
        with contextlib.suppress(StreamConnectionLost, RedisError):
            others = await process.others_present(self._redis, "policy", self.name)
            async with asyncio.timeout(self.limits.drain_s):
                while self.calls and not others:
                    await asyncio.sleep(0.05)
                    others = await process.others_present(self._redis, "policy", self.name)
                while any(c.sending for c in self.calls.values()):
                    await asyncio.sleep(0.005)
        due = now_ms() + int(self.limits.lease_s * 4000)
        for call in list(self.calls.values()):
            with contextlib.suppress(StreamConnectionLost, RedisError):
                await self._redis.script(
                    scripts.HANDOVER, [layout.ctl_key(call.id), layout.dispatch_key(call.shard)], [call.token, call.id, due]
                )
            self._drop(call)
        await process.hide_presence(self._redis, "policy", self.name)


def series_of(config: Config, search_path: tuple[str, ...]) -> dict[str, tuple[list[Policy], str]]:
    """Load every policy of the configuration. Raises PolicyFailed naming the one that cannot be loaded."""
    return {name: load(steps, search_path=search_path, session_version=SESSION_VERSION) for name, steps in config.policies.items()}


async def run(settings: Runtime) -> None:
    """Run one policy worker until SIGTERM."""
    worker = PolicyWorker(settings)
    process.on_stop(worker.stop)
    process.watch_loop()
    await worker.run()
