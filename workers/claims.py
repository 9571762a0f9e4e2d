"""Claiming calls: new ones by consumer group, those whose owner is gone by the idle time of their entry.

One script checks and touches both truths of a lease. A call stays with the policy revision that it began with: a worker
that does not have it leaves the call to those that do, and only when nobody came for it in time closes it.

A call may kill the workers that take it, and with each of them others lose theirs. So calls that were taken over before and
did nothing since are replayed one by one, after the rest: the next owner can tell which of them it was.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from protocol.config import Limits
from protocol.errors import StreamConnectionLost, StreamProtocolError
from streams import layout, scripts
from streams.connection import Argument, Connection, RedisError

log = logging.getLogger(__name__)
CLAIM_BATCH = 32
BODIES = 2
"""How many large bodies are on their way at once: the next comes while one is read, and not all lie here together.

On a connection of their own. Beside the releases, the answer to a call's first release came behind the bodies of all calls claimed with
it, and its first token waited for that.
"""


class Delivery(NamedTuple):
    """An entry of the dispatch stream: its id, its call, and until when that may be claimed (Unix ms)."""

    entry: str
    call_id: str
    due: int


class Claimed(msgspec.Struct):
    """A call as the claim script gave it: where its numbers stand, what it is pinned to, and the beginning of its stream."""

    call_id: str
    token: str
    entry: str
    released: int
    digest: str
    recorded: int
    policy: str
    revision: str
    takeovers: int
    """-1: nobody had it before."""
    entries: list[Any]
    body: bytes | None
    facts: list[bytes]
    expired: bool
    """Too late: its client was refused already."""

    @property
    def is_fresh(self) -> bool:
        """Did nobody have it before?"""
        return self.takeovers < 0


class Claims:
    """The claiming of one worker. `room` says how many more calls it takes now; `adopt` takes each it is given, and returns its replay."""

    def __init__(
        self,
        redis: Connection,
        blocking: Connection,
        bodies: Connection,
        limits: Limits,
        name: str,
        pins: list[str],
        *,
        room: Callable[[], int],
        holds: Callable[[str], bool],
        subscribe: Callable[[str], "asyncio.Future[Any]"],
        unsubscribe: Callable[[str], None],
        adopt: Callable[[Claimed], "asyncio.Task[Any] | None"],
    ) -> None:
        self._redis, self._blocking, self._bodies = redis, blocking, bodies
        self._limits, self._name, self._pins = limits, name, pins
        self._few_bodies = asyncio.Semaphore(BODIES)
        self._room, self._holds, self._subscribe, self._unsubscribe, self._adopt = room, holds, subscribe, unsubscribe, adopt
        self._reclaim_after = 0.0
        self._unanswered = set[int]()
        """Shards on which a delivery or a claim was not answered."""

    def pause_reclaiming(self, leases: float = 0.25) -> None:
        """After a reconnect: others may not have renewed yet, so take nothing over for a quarter lease."""
        self._reclaim_after = time.monotonic() + self._limits.lease_s * leases

    async def make_group(self, shard: int) -> None:
        """Make the consumer group unless it is there."""
        with contextlib.suppress(RedisError):
            await self._redis.call("XGROUP", "CREATE", layout.dispatch_key(shard), layout.POLICY_GROUP, "0", "MKSTREAM")

    async def run(self, shard: int, stopping: asyncio.Event) -> None:
        """Claim until `stopping`; a read that is under way returns first, so that nothing is delivered to a worker that is going."""
        swept = 0.0
        while not stopping.is_set():
            room = self._room()
            if room <= 0:
                await asyncio.sleep(0.05)
                continue
            try:
                if shard in self._unanswered:
                    self._unanswered.discard(shard)
                    await self._take_over(shard, await self._left(shard))
                await self._claim_all(shard, await self._read(shard, room), takeover=False)
                now = time.monotonic()
                if now - swept > self._limits.lease_s / 4 and now > self._reclaim_after:
                    swept = now
                    await self._take_over(shard, await self._orphans(shard, max(1, self._room())))
                if shard in self._unanswered:
                    await asyncio.sleep(0.1)
            except (StreamConnectionLost, RedisError) as error:
                self._unanswered.add(shard)
                # where Redis refused this, it refused the others' renewals; they come within a quarter lease
                self.pause_reclaiming(0.5)
                if isinstance(error, RedisError) and "NOGROUP" in str(error):
                    with contextlib.suppress(StreamConnectionLost):
                        await self.make_group(shard)
                await asyncio.sleep(0.1)

    async def _read(self, shard: int, room: int) -> list[Delivery]:
        block_ms = min(500, int(self._limits.lease_s * 250), self._blocking.block_ms)
        found = await self._blocking.call(
            "XREADGROUP", "GROUP", layout.POLICY_GROUP, self._name, "COUNT", min(CLAIM_BATCH, room), "BLOCK", block_ms,
            "STREAMS", layout.dispatch_key(shard), ">",
        )  # fmt: skip
        return self._deliveries(shard, found[0][1] if found else [])

    def _deliveries(self, shard: int, entries: list[Any]) -> list[Delivery]:
        """Read entries; what stands for no call is taken off the stream: nobody waits for it, and everyone would find it again."""
        found = []
        for entry, fields in entries:
            if not fields:
                continue
            try:
                found.append(Delivery(entry.decode(), *layout.unpack_dispatch(fields)))
            except StreamProtocolError:
                log.error("undecodable dispatch entry taken away", extra={"entry": entry.decode()})
                self._forget(shard, entry.decode())
        return found

    def _forget(self, shard: int, entry: str) -> None:
        self._redis.send_quiet("XACK", layout.dispatch_key(shard), layout.POLICY_GROUP, entry)
        self._redis.send_quiet("XDEL", layout.dispatch_key(shard), entry)

    async def _left(self, shard: int) -> list[Delivery]:
        """What was delivered to this worker and is not in its hands: the delivery, or a claim, was not answered.

        Nobody else looks for it before a lease is over, and then it may be too late to claim it.
        """
        count = self._limits.max_calls + CLAIM_BATCH
        found = await self._blocking.call(
            "XREADGROUP", "GROUP", layout.POLICY_GROUP, self._name, "COUNT", count, "STREAMS", layout.dispatch_key(shard), "0"
        )
        return [d for d in self._deliveries(shard, found[0][1]) if not self._holds(d.call_id)]

    async def _orphans(self, shard: int, count: int) -> list[Delivery]:
        """What nobody renewed for a lease. All pending entries are looked at: one step skips at most ten times `count` of the living."""
        lease_ms = int(self._limits.lease_s * 1000)
        found: list[Delivery] = []
        cursor = b"0-0"
        while len(found) < count:
            cursor, entries, *_ = await self._blocking.call(
                "XAUTOCLAIM", layout.dispatch_key(shard), layout.POLICY_GROUP, self._name, lease_ms, cursor, "COUNT", count - len(found)
            )
            found += self._deliveries(shard, entries)
            if cursor == b"0-0":
                break
        return found

    async def _take_over(self, shard: int, entries: list[Delivery]) -> None:
        """Claim calls that somebody had."""
        suspect = await asyncio.gather(*(self._is_suspect(d.call_id) for d in entries))
        await self._claim_all(shard, [e for e, bad in zip(entries, suspect, strict=True) if not bad], takeover=True)
        for entry in [e for e, bad in zip(entries, suspect, strict=True) if bad]:
            if replays := await self._claim_all(shard, [entry], takeover=True):
                await asyncio.wait(replays, timeout=self._limits.lease_s)

    async def _is_suspect(self, call_id: str) -> bool:
        """Did the call do nothing since it was last taken over?"""
        numbers = await self._redis.call("HMGET", layout.ctl_key(call_id), "n", "kn")
        return numbers[0] is not None and numbers[0] == numbers[1]

    async def _claim_all(self, shard: int, entries: list[Delivery], *, takeover: bool) -> "list[asyncio.Task[Any]]":
        """Claim entries side by side; returns the replays that began."""
        claims = (self._claim(shard, *d, takeover=takeover) for d in entries)
        replays = []
        for said in await asyncio.gather(*claims, return_exceptions=True):
            if isinstance(said, Exception):
                self._unanswered.add(shard)
                log.error("claim failed", extra={"error": type(said).__name__}, exc_info=said)
            elif isinstance(said, asyncio.Task):
                replays.append(said)
        return replays

    async def _claim(self, shard: int, entry: str, call_id: str, due: int, *, takeover: bool) -> "asyncio.Task[Any] | None":
        if self._holds(call_id):
            # its own, after it was too slow to renew: that it was moved here is a renewal. Another's by now, the next one drops it
            return None
        token, expired = secrets.token_hex(8), False
        subscribed = self._subscribe(call_id)
        if takeover:
            await subscribed
        said = await self._run_script(shard, call_id, token, entry, due, takeover=takeover, late=False)
        if said[0] == b"EXPIRED":
            expired = True
            said = await self._run_script(shard, call_id, token, entry, due, takeover=takeover, late=True)
        await subscribed
        if said[0] == b"OK":
            _, released, digest, recorded, policy, revision, takeovers, entries, body, facts = said
            claimed = Claimed(
                call_id, token, entry, int(released), digest.decode(), int(recorded), policy.decode(), revision.decode(),
                int(takeovers), entries, None if isinstance(body, int) else body, facts, expired,
            )  # fmt: skip
            if not isinstance(body, int):
                return self._adopt(claimed)
            async with self._few_bodies:
                claimed.body = await self._bodies.call("GET", layout.body_key(call_id))
                return self._adopt(claimed)
        if said[0] == b"OTHER":
            log.info("a call of another policy revision is left to others", extra={"call_id": call_id})
        elif said[0] == b"CLOSED":
            self._forget(shard, entry)
        self._unsubscribe(call_id)
        return None

    def _run_script(
        self, shard: int, call_id: str, token: str, entry: str, due: int, *, takeover: bool, late: bool
    ) -> "asyncio.Future[Any]":
        keys = [
            layout.ctl_key(call_id), layout.dispatch_key(shard), layout.call_key(call_id), layout.body_key(call_id),
            layout.facts_key(call_id),
        ]  # fmt: skip
        limits = self._limits
        args: list[Argument] = [
            token, entry, self._name, due, "1" if takeover else "0", int(limits.call_ttl_s * 1000), "1" if late else "0",
            int(limits.lease_s * 1000), int(limits.claim_s * 1000), *self._pins,
        ]  # fmt: skip
        return self._redis.script(scripts.CLAIM, keys, args)
