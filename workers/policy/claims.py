"""Claims calls: new calls through the consumer group, orphaned calls by the idle time of their
entry.

A call that its worker had not begun cannot wait for the idle time: its gateway refuses it after
`claim_s`, by default no longer than a lease. Another worker takes it as soon as that worker's
heartbeat stops. Should the first worker be alive after all, the claim script decides who owns the
call. One script checks and renews both parts of a lease.

A worker begins only calls whose START names its policy set. A call keeps the policy revision that
it began with. A worker without that revision leaves the call to others, and closes it only when
nobody took it in time.

A call may crash the workers that take it, and each crash affects other calls. So a worker marks the
call before a step that may crash it (`scripts.mark_inside`). A call whose owner died in such a step
is replayed after all others, alone. After a second owner in a row died in it, no worker tries
again."""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable
from typing import Any

from protocol.errors import StreamConnectionLost, StreamProtocolError
from settings.limits import Limits
from streams import layout, scripts
from streams.connection import Connection, RedisError
from streams.script_outcomes import Outcome
from streams.scripts import ClaimAnswer, Claimed, Delivery
from workers.policy.calls import Calls
from workers.policy.dead_workers import CHECK_S, SILENT_MS, DeadWorkers

log = logging.getLogger(__name__)
CLAIM_BATCH = 32
SLICE_S = 0.002
"""How long calls that were claimed together begin, each 0.3 ms, before other calls' chunks and what
these release have their turn."""
MOST_WARNED = 64


class Claims:
    """The claiming of one worker. `pins` names what it may claim; `adopt` takes each call it is
    given, and returns its replay."""

    def __init__(
        self,
        redis: Connection,
        blocking: Connection,
        limits: Limits,
        name: str,
        pins: Callable[[], list[str]],
        calls: Calls,
        adopt: Callable[[Claimed], "asyncio.Task[Any] | None"],
    ) -> None:
        self._redis, self._blocking, self._calls, self._adopt = redis, blocking, calls, adopt
        self._limits, self._name, self._pins = limits, name, pins
        self._reclaim_after = 0.0
        self._unanswered = set[int]()
        """Shards on which a delivery or a claim was not answered."""
        self._dead = DeadWorkers(redis, name)
        self._warned = set[str]()
        """Policy sets of calls that were left to others."""

    def pause_reclaiming(self, leases: float = 0.25) -> None:
        """After a reconnect: others may not have renewed yet, so take nothing over for a quarter
        lease."""
        self._reclaim_after = time.monotonic() + self._limits.lease_s * leases
        self._dead.forget()

    async def make_group(self, shard: int) -> None:
        """Make the consumer group unless it is there."""
        with contextlib.suppress(RedisError):
            await self._redis.call(
                "XGROUP", "CREATE", layout.dispatch_key(shard), layout.POLICY_GROUP, "0", "MKSTREAM"
            )

    async def run(self, shard: int, stopping: asyncio.Event) -> None:
        """Claim until `stopping`; a read that is under way returns first, so that nothing is
        delivered to a worker that stops."""
        swept = checked = 0.0
        # a restarted container has the name of the process before, whose deliveries nobody else
        # looks for
        self._unanswered.add(shard)
        while not stopping.is_set():
            room = self._calls.room()
            if room <= 0:
                await asyncio.sleep(0.05)
                continue
            try:
                if shard in self._unanswered:
                    self._unanswered.discard(shard)
                    await self._take_over(shard, await self._unanswered_deliveries(shard))
                await self._claim_all(shard, await self._read(shard, room), takeover=False)
                now = time.monotonic()
                if now - swept > self._limits.lease_s / 4 and now > self._reclaim_after:
                    swept = now
                    await self._take_over(
                        shard, await self._orphans(shard, max(1, self._calls.room()))
                    )
                if now - checked > CHECK_S and now > self._reclaim_after:
                    checked = now
                    await self._take_over(
                        shard, await self._orphans_not_begun(shard, max(1, self._calls.room()))
                    )
                if shard in self._unanswered:
                    await asyncio.sleep(0.1)
            except (StreamConnectionLost, RedisError) as error:
                self._unanswered.add(shard)
                # where Redis refused this, it refused the others' renewals; they come within a
                # quarter lease
                self.pause_reclaiming(0.5)
                if isinstance(error, RedisError) and "NOGROUP" in str(error):
                    with contextlib.suppress(StreamConnectionLost):
                        await self.make_group(shard)
                await asyncio.sleep(0.1)

    async def take_what_waits(self, shard: int) -> None:
        """Claim what nobody has, without waiting for more, once `run` is over. Raises
        StreamConnectionLost, RedisError."""
        if (room := self._calls.room()) > 0:
            await self._claim_all(shard, await self._read(shard, room, block_ms=1), takeover=False)
            await self._take_over(shard, await self._orphans(shard, room))

    async def _read(self, shard: int, room: int, *, block_ms: int = 500) -> list[Delivery]:
        # the last places a few at a time, or one key's calls would have them all before they are
        # counted
        block_ms = min(block_ms, int(self._limits.lease_s * 250), self._blocking.block_ms)
        reply = await self._blocking.call(
            "XREADGROUP",
            "GROUP",
            layout.POLICY_GROUP,
            self._name,
            "COUNT",
            min(CLAIM_BATCH, max(1, room // 4)),
            "BLOCK",
            block_ms,
            "STREAMS",
            layout.dispatch_key(shard),
            ">",
        )
        return self._deliveries(shard, reply[0][1] if reply else [])

    def _deliveries(self, shard: int, entries: list[Any]) -> list[Delivery]:
        """Read entries; what stands for no call is taken off the stream: nobody waits for it, and
        everyone would find it again."""
        deliveries = []
        for entry, fields in entries:
            if not fields:
                continue
            try:
                deliveries.append(Delivery(entry.decode(), *layout.unpack_dispatch(fields)))
            except StreamProtocolError:
                log.error("removed an undecodable dispatch entry", extra={"entry": entry.decode()})
                self._forget(shard, entry.decode())
        return deliveries

    def _forget(self, shard: int, entry: str) -> None:
        self._redis.send_quiet("XACK", layout.dispatch_key(shard), layout.POLICY_GROUP, entry)
        self._redis.send_quiet("XDEL", layout.dispatch_key(shard), entry)

    async def _unanswered_deliveries(self, shard: int) -> list[Delivery]:
        """Calls delivered to this worker that it does not have, because the answer to a delivery or
        claim was lost. Nobody else looks for them before the lease is over, which may be too late
        to claim them."""
        count = self._limits.max_calls + CLAIM_BATCH
        reply = await self._blocking.call(
            "XREADGROUP",
            "GROUP",
            layout.POLICY_GROUP,
            self._name,
            "COUNT",
            count,
            "STREAMS",
            layout.dispatch_key(shard),
            "0",
        )
        return [d for d in self._deliveries(shard, reply[0][1]) if d.call_id not in self._calls]

    async def _orphans(self, shard: int, count: int) -> list[Delivery]:
        """Orphaned calls: nobody renewed them for a lease. All pending entries are searched, of
        which one step skips ten times `count`."""
        lease_ms = int(self._limits.lease_s * 1000)
        orphans: list[Delivery] = []
        cursor = b"0-0"
        while len(orphans) < count:
            cursor, entries, *_ = await self._blocking.call(
                "XAUTOCLAIM",
                layout.dispatch_key(shard),
                layout.POLICY_GROUP,
                self._name,
                lease_ms,
                cursor,
                "COUNT",
                count - len(orphans),
            )
            orphans += self._deliveries(shard, entries)
            if cursor == b"0-0":
                break
        return orphans

    async def _orphans_not_begun(self, shard: int, count: int) -> list[Delivery]:
        """Calls that were delivered to dead workers in the last `claim_s` and not begun; those that
        were begun wait for their lease."""
        try:
            now, dead = await self._dead.check(shard)
            since, pending = now - int(self._limits.claim_s * 1000), list[Delivery]()
            for name, held in dead.items():
                pending += await self._pending(shard, name, since, held)
            begun = await asyncio.gather(*(self._has_begun(d.call_id) for d in pending))
            wanted = {
                d.entry: d for d, has_begun in zip(pending, begun, strict=True) if not has_begun
            }
            if not wanted:
                return []
            # those that another worker took meanwhile are not idle any more
            taken = await self._redis.call(
                "XCLAIM",
                layout.dispatch_key(shard),
                layout.POLICY_GROUP,
                self._name,
                SILENT_MS,
                *list(wanted)[:count],
                "JUSTID",
            )
        except RedisError as error:
            log.error("calls of a dead worker wait for their leases", extra={"error": str(error)})
            return []
        if taken:
            log.warning(
                "orphaned calls that were not begun are taken over",
                extra={"workers": ", ".join(dead), "calls": len(taken)},
            )
        return [wanted[entry.decode()] for entry in taken]

    async def _has_begun(self, call_id: str) -> bool:
        """Did anything of the call go out? Not while nobody has it: a worker handed it over, and
        none has claimed it since."""
        try:
            token, number = await self._redis.call("HMGET", layout.ctl_key(call_id), "t", "n")
        except RedisError:
            # its keys are spoilt; the claim reports it
            return False
        return bool(token) and number != b"0"

    async def _pending(self, shard: int, name: str, since: int, count: int) -> list[Delivery]:
        """What was delivered to a worker, of what came since a moment (Unix ms)."""
        key = layout.dispatch_key(shard)
        pending = await self._redis.call(
            "XPENDING", key, layout.POLICY_GROUP, "IDLE", SILENT_MS, since, "+", count, name
        )
        if not pending:
            return []
        ids = {entry for entry, *_ in pending}
        entries = await self._redis.call("XRANGE", key, pending[0][0], pending[-1][0])
        return self._deliveries(shard, [e for e in entries if e[0] in ids])

    async def _take_over(self, shard: int, entries: list[Delivery]) -> None:
        """Claim calls that somebody had."""
        suspect = await asyncio.gather(*(self._is_suspect(d.call_id) for d in entries))
        await self._claim_all(
            shard, [e for e, bad in zip(entries, suspect, strict=True) if not bad], takeover=True
        )
        for entry in [e for e, bad in zip(entries, suspect, strict=True) if bad]:
            if replays := await self._claim_all(shard, [entry], takeover=True):
                await asyncio.wait(replays, timeout=self._limits.lease_s)

    async def _is_suspect(self, call_id: str) -> bool:
        """Did its owner die in a step of it, or did the call do nothing since it was last taken
        over?"""
        try:
            number, before, inside = await self._redis.call(
                "HMGET", layout.ctl_key(call_id), "n", "kn", "i"
            )
        except RedisError:
            # its keys are spoilt; the claim reports it
            return False
        return inside is not None or (number is not None and number == before)

    async def _claim_all(
        self, shard: int, entries: list[Delivery], *, takeover: bool
    ) -> "list[asyncio.Task[Any]]":
        """Claim entries, a batch in one step, and adopt their calls; returns the replays that
        began."""
        # its own, after it was too slow to renew: that it was moved here is a renewal. Another's by
        # now, the next one drops it
        wanted: dict[str, Delivery] = {}
        for delivery in entries:
            if delivery.call_id not in self._calls:
                wanted.setdefault(delivery.call_id, delivery)
        replays: list[asyncio.Task[Any]] = []
        deliveries = list(wanted.values())
        for first in range(0, len(deliveries), CLAIM_BATCH):
            batch = deliveries[first : first + CLAIM_BATCH]
            try:
                claimed = await self._claim(shard, batch, takeover=takeover)
            except Exception as error:  # noqa: BLE001 - whatever it was, they may be this worker's now
                self._failed(shard, error)
                for unclaimed in batch:  # whoever claims them next subscribes to them then
                    self._calls.unsubscribe(unclaimed.call_id)
                continue
            await self._adopt_all(shard, claimed, replays)
        return replays

    async def _adopt_all(
        self, shard: int, claimed: list[Claimed], replays: "list[asyncio.Task[Any]]"
    ) -> None:
        until = time.monotonic() + SLICE_S
        for claim in claimed:
            if time.monotonic() > until:
                await asyncio.sleep(0)
                until = time.monotonic() + SLICE_S
            self._begin(shard, claim, replays)

    def _begin(self, shard: int, claimed: Claimed, replays: "list[asyncio.Task[Any]]") -> None:
        try:
            replay = self._adopt(claimed)
        except Exception as error:  # noqa: BLE001 - the others go on
            self._failed(shard, error)
            return
        if replay is not None:
            replays.append(replay)

    def _failed(self, shard: int, error: Exception) -> None:
        self._unanswered.add(shard)
        log.error("claim failed", extra={"error": type(error).__name__}, exc_info=error)

    async def _claim(self, shard: int, entries: list[Delivery], *, takeover: bool) -> list[Claimed]:
        """Return the calls that are this worker's now. Raises StreamConnectionLost, RedisError."""
        tokens = {d.call_id: secrets.token_hex(8) for d in entries}
        subscribed = self._calls.hears.begin([d.call_id for d in entries], takeover)
        if takeover:
            await subscribed
        answers = await self._run_script(shard, entries, tokens, takeover=takeover, late=False)
        late = [d for d in entries if answers[d.call_id].outcome == Outcome.EXPIRED]
        if late:
            answers |= await self._run_script(shard, late, tokens, takeover=takeover, late=True)
        await subscribed
        claimed = []
        for delivery in entries:
            call_id = delivery.call_id
            answer = answers[call_id]
            if answer.claimed is not None:
                claimed.append(answer.claimed)
                continue
            match answer.outcome:
                case Outcome.ERROR:
                    self._failed(shard, RedisError(answer.detail))
                case Outcome.SET:
                    self._warn_of(answer.detail)
                case Outcome.OTHER:
                    log.info(
                        "a call of another policy revision is left to others",
                        extra={"call_id": call_id},
                    )
                case Outcome.CLOSED:
                    self._forget(shard, delivery.entry)
            self._calls.unsubscribe(call_id)
        return claimed

    def _warn_of(self, sets: str) -> None:
        if sets not in self._warned:
            # once: it is the same for every call of those gateways
            self._warned = {*self._warned, sets} if len(self._warned) < MOST_WARNED else {sets}
            log.warning(
                "calls of another policy set are left to others; where no worker has that set they"
                " are refused after limits.claim_s: `sluice doctor` says which processes have"
                " which",
                extra={
                    "action": "policy_set",
                    "sets": sets,
                    "mine": [pin[1:] for pin in self._pins() if pin[0] == "="],
                },
            )

    async def _run_script(
        self,
        shard: int,
        entries: list[Delivery],
        tokens: dict[str, str],
        *,
        takeover: bool,
        late: bool,
    ) -> dict[str, ClaimAnswer]:
        limits = self._limits
        return await scripts.claim(
            self._redis,
            shard,
            entries,
            tokens,
            consumer=self._name,
            pins=[*self._pins(), *(f"!{key}" for key in self._calls.served())],
            is_takeover=takeover,
            is_late=late,
            call_ttl_ms=int(limits.call_ttl_s * 1000),
            lease_ms=int(limits.lease_s * 1000),
            patience_ms=int(limits.claim_s * 1000),
        )
