"""Heartbeats of worker processes: each writes its own every second, as `role:name`, on Redis' clock. Who lives is read here alone."""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from streams import layout, scripts
from streams.connection import Connection

EVERY_S = 1.0
STALE_MS = 5_000
"""A process whose last heartbeat is older does not count as living."""


class Heartbeats(NamedTuple):
    """What time it is, and when each process last wrote one, both in ms on Redis' clock."""

    now: int
    last: dict[str, int]

    @property
    def live(self) -> dict[str, set[str]]:
        """Names of the living processes by role."""
        found: dict[str, set[str]] = {}
        for field, at in self.last.items():
            if self.now - at <= STALE_MS:
                role, _, name = field.partition(":")
                found.setdefault(role, set()).add(name)
        return found


def held_revisions(live: Mapping[str, set[str]]) -> dict[tuple[str, str], int]:
    """Return how many living policy workers have each revision of each policy."""
    found: dict[tuple[str, str], int] = {}
    for shown in live.get("series", set()):
        policy, _, rest = shown.rpartition("@")
        key = policy, rest.partition(":")[0]
        found[key] = found.get(key, 0) + 1
    return found


def fewer_shards(live: Mapping[str, set[str]], shards: int) -> list[str]:
    """Return the living workers and writers that read fewer shards than a gateway writes to: calls of the others wait for them in vain."""
    shown = (one.partition(":") for one in live.get("shards", set()))
    return sorted(f"{name} ({count})" for count, _, name in shown if count.isdecimal() and int(count) < shards)


def parse(now: int, fields: Mapping[bytes, bytes]) -> Heartbeats:
    """Read what `WORKERS_KEY` holds. Raises ValueError."""
    return Heartbeats(now, {field.decode(errors="replace"): int(at) for field, at in fields.items()})


async def read(redis: Connection) -> Heartbeats:
    """Ask for the heartbeats of all workers. Raises StreamConnectionLost, RedisError; ValueError where the answer is none."""
    found, clock = await asyncio.gather(redis.call("HGETALL", layout.WORKERS_KEY), redis.call("TIME"))
    return parse(layout.time_ms(clock), dict(zip(found[::2], found[1::2], strict=True)))


def write(redis: Connection, *shown: tuple[str, str]) -> "asyncio.Future[object]":
    """Write a heartbeat under each role and name."""
    return redis.script(scripts.HEARTBEAT, [layout.WORKERS_KEY], [f"{role}:{name}" for role, name in shown])


async def withdraw(redis: Connection, role: str, name: str) -> None:
    """Take the heartbeat back: this process is going."""
    redis.quiet(redis.call("HDEL", layout.WORKERS_KEY, f"{role}:{name}"))
    await asyncio.sleep(0)


async def live(redis: Connection, role: str) -> set[str]:
    """Names of the living processes of a role; those that are not are forgotten. Raises StreamConnectionLost, RedisError."""
    found = await read(redis)
    for field in (field for field, at in found.last.items() if found.now - at > STALE_MS):
        redis.quiet(redis.call("HDEL", layout.WORKERS_KEY, field))
    return found.live.get(role, set())
