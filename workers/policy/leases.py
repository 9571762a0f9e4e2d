"""The leases of one worker's calls: renewed while it works, and handed over when it stops."""

import asyncio
import contextlib
import time
from collections.abc import Mapping

from protocol.errors import StreamConnectionLost
from settings.config import Config
from streams import heartbeats, layout, scripts
from streams.connection import NOT_AN_ANSWER, Connection, RedisError
from streams.script_outcomes import Outcome
from workers.policy.call.owned import OwnedCall
from workers.policy.calls import Calls
from workers.policy.claims import Claims

_TAKEN_WITHIN_S = 1.0
"""How long a worker that stops leaves a call to others before it looks for it itself."""


class Leases:
    """Keeps the calls of the worker `name` its own, and gives them to others."""

    def __init__(
        self, redis: Connection, calls: Calls, claims: Claims, config: Config, name: str
    ) -> None:
        self._redis, self._calls, self._claims, self._name = redis, calls, claims, name
        self._limits, self._shards = config.limits, config.shards

    async def renew_loop(self) -> None:
        """Renew all leases at a quarter of their length, until cancelled."""
        while True:
            await asyncio.sleep(self._limits.lease_s / 4)
            await self.renew()

    async def renew(self) -> None:
        """Renew all leases now."""
        with contextlib.suppress(StreamConnectionLost, RedisError):
            for shard in range(self._shards):
                owned = [c for c in self._calls.values() if c.shard == shard]
                for start in range(0, len(owned), 100):
                    await self._renew_batch(shard, owned[start : start + 100])

    async def _renew_batch(self, shard: int, batch: list[OwnedCall]) -> None:
        leases = [(call.id, call.token, call.entry) for call in batch]
        outcomes = await scripts.renew(
            self._redis, shard, self._name, int(self._limits.call_ttl_s * 1000), leases
        )
        for call, outcome in zip(batch, outcomes, strict=True):
            if outcome == Outcome.OK:
                call.confirm_owned()
            elif not call.is_ending:
                self._calls.lose(call, outcome)

    async def hand_over(self) -> None:
        """Give each call at once to others that may take it; go on with those that nobody may, to
        the grace time.

        Theory. A call always has a worker that lives, or one that looks after it. This worker shows
        that it stops before it looks who else is there; so of two that stop at once at least one
        sees the other stop, and neither leaves its calls to it. Whoever it does leave them to may
        be asked to stop a moment later, or die. So this worker stays until each call that it gave
        has an owner again, and takes back what nobody takes. Where no other worker is left it also
        takes what is new.
        """
        until = time.monotonic() + self._limits.drain_s
        handed_over: dict[str, float] = {}
        returned = set[str]()
        while time.monotonic() < until:
            with contextlib.suppress(StreamConnectionLost, RedisError, *NOT_AN_ANSWER):
                live = await heartbeats.live(self._redis)
                is_alone = not heartbeats.others(live, "policy", self._name)
                if is_alone or any(
                    time.monotonic() - at > _TAKEN_WITHIN_S for at in handed_over.values()
                ):
                    for shard in range(self._shards):
                        await self._claims.take_what_waits(shard)
                    # nobody took these: the others have no room for them
                    returned |= {call.id for call in self._calls.values() if call.id in handed_over}
                for call in [
                    c
                    for c in self._calls.values()
                    if not c.queue.sending and c.id not in returned and may_take(live, c)
                ]:
                    await self._give(call)
                    handed_over[call.id] = time.monotonic()
                for call_id in list(handed_over):
                    if await self._redis.call("HGET", layout.ctl_key(call_id), "t") != b"":
                        del handed_over[call_id]
            if not self._calls and not handed_over:
                break
            await asyncio.sleep(0.05)
        for call in list(self._calls.values()):
            with contextlib.suppress(StreamConnectionLost, RedisError):
                await self._give(call)

    async def _give(self, call: OwnedCall) -> None:
        within_ms = int(self._limits.lease_s * 4000)
        await scripts.hand_over(self._redis, call.id, call.token, within_ms=within_ms)
        self._calls.drop(call)


def may_take(live: Mapping[str, set[str]], call: OwnedCall) -> bool:
    """Is there a worker that may go on with this call? One that is pinned needs its revision,
    another one of its policy sets."""
    is_pinned = call.queue.pin == ("", "")
    policy_header = call.writer.policy_header
    if is_pinned and policy_header:
        name, _, revision = policy_header.rpartition("@")
        return (name, revision) in heartbeats.held_revisions(live)
    # a call that was refused before it had a revision gets the same answer anywhere
    sets = {shown.partition(":")[0] for shown in live.get("set", set())}
    return bool(sets) and (
        is_pinned or not call.start.policy_sets or not sets.isdisjoint(call.start.policy_sets)
    )
