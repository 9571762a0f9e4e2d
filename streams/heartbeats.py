"""Heartbeats of worker processes: each writes its own every second, as `role:name`, on Redis'
clock. Only this module reads which processes live."""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from streams import layout, scripts
from streams.connection import Connection

EVERY_S = 1.0
STALE_MS = 5_000
"""A process whose last heartbeat is older does not count as living."""

STOPPING = "stopping"
"""The role under which a worker that is stopping shows itself, as `role:name`, before it looks who
else is there."""

RESTING = "resting"
"""The role under which a judge shows each model that its breaker lets it ask for a try alone."""


class Heartbeats(NamedTuple):
    """What time it is, and when each process last wrote one, both in ms on Redis' clock."""

    now: int
    last: dict[str, int]

    @property
    def live(self) -> dict[str, set[str]]:
        """Names of the living processes by role."""
        names_by_role: dict[str, set[str]] = {}
        for field, at in self.last.items():
            if self.now - at <= STALE_MS:
                role, _, name = field.partition(":")
                names_by_role.setdefault(role, set()).add(name)
        return names_by_role


def shown_by(role: str, name: str, *, is_stopping: bool) -> list[tuple[str, str]]:
    """What a worker writes: that it lives, and that it is stopping, once it is."""
    return [(role, name), *([(STOPPING, f"{role}:{name}")] if is_stopping else [])]


def others(live: Mapping[str, set[str]], role: str, name: str) -> set[str]:
    """Return the living workers of a role without this one and without those that are stopping,
    which nothing may be left to."""
    stopping = live.get(STOPPING, set())
    return {
        other
        for other in live.get(role, set())
        if other != name and f"{role}:{other}" not in stopping
    }


def held_revisions(live: Mapping[str, set[str]]) -> dict[tuple[str, str], int]:
    """Return how many living policy workers have each revision of each policy."""
    counts: dict[tuple[str, str], int] = {}
    for shown in live.get("series", set()):
        policy, _, suffix = shown.rpartition("@")
        key = policy, suffix.partition(":")[0]
        counts[key] = counts.get(key, 0) + 1
    return counts


def resting_models(live: Mapping[str, set[str]]) -> list[str]:
    """Return a sentence for each model that a living judge may ask for a try alone."""
    return [
        f"judges leave the model {name!r} alone, because it failed too often, and try it now and"
        " then: see their log, and the model's provider"
        for name in sorted(live.get(RESTING, set()))
    ]


def fewer_shards(live: Mapping[str, set[str]], shards: int) -> list[str]:
    """Return the living workers and writers that read fewer shards than a gateway writes to: calls
    of the others wait for them in vain."""
    shown = (report.partition(":") for report in live.get("shards", set()))
    return sorted(
        f"{name} ({count})" for count, _, name in shown if count.isdecimal() and int(count) < shards
    )


def parse(now: int, fields: Mapping[bytes, bytes]) -> Heartbeats:
    """Read what `WORKERS_KEY` holds. Raises ValueError."""
    return Heartbeats(
        now, {field.decode(errors="replace"): int(at) for field, at in fields.items()}
    )


async def read(redis: Connection) -> Heartbeats:
    """Ask for the heartbeats of all workers. Raises StreamConnectionLost, RedisError; ValueError
    where the answer is none."""
    fields, clock = await asyncio.gather(
        redis.call("HGETALL", layout.WORKERS_KEY), redis.call("TIME")
    )
    return parse(layout.time_ms(clock), dict(zip(fields[::2], fields[1::2], strict=True)))


def write(redis: Connection, *shown: tuple[str, str]) -> asyncio.Future[bytes]:
    """Write a heartbeat under each role and name."""
    return scripts.write_heartbeats(redis, (f"{role}:{name}" for role, name in shown))


async def withdraw(redis: Connection, *shown: tuple[str, str]) -> None:
    """Take heartbeats back: this process is going, or does no more what it showed."""
    redis.quiet(redis.call("HDEL", layout.WORKERS_KEY, *(f"{role}:{name}" for role, name in shown)))
    await asyncio.sleep(0)


async def live(redis: Connection) -> dict[str, set[str]]:
    """Names of the living processes by role; those that are not are forgotten. Raises what `read`
    does."""
    heartbeats = await read(redis)
    if gone := [field for field, at in heartbeats.last.items() if heartbeats.now - at > STALE_MS]:
        redis.quiet(redis.call("HDEL", layout.WORKERS_KEY, *gone))
    return heartbeats.live
