"""The `ended` stream: which calls it names, and how far audit writers have checked them.

Each entry names calls: `c` is the id of one, and `b` after it the packed `closed` entry of the
gateway that reports it. Workers name each call that they end, in the script that writes its end;
gateways name those that Redis may have lost.
"""

from collections.abc import Sequence
from typing import NamedTuple

from streams import layout
from streams.audit_stream import NO_ENTRY, EntryId, entry_id
from streams.connection import Connection, NotAnAnswer


def calls_of(fields: Sequence[bytes]) -> list[tuple[str, bytes | None]]:
    """Return the calls that an entry names, each with what a gateway reports of it, if one does."""
    calls: list[tuple[str, bytes | None]] = []
    for name, value in zip(fields[::2], fields[1::2], strict=False):
        if name == b"c":
            calls.append((value.decode(errors="replace"), None))
        elif name == b"b" and calls:
            calls[-1] = calls[-1][0], value
    return [(call_id, blob) for call_id, blob in calls if layout.is_call_id(call_id)]


async def newest(redis: Connection, shard: int) -> EntryId:
    """Return the newest entry's id; trimming leaves that entry. Raises StreamConnectionLost,
    RedisError; NotAnAnswer is one."""
    entries = await redis.call("XREVRANGE", layout.ended_key(shard), "+", "-", "COUNT", 1)
    return entry_id(entries[0][0]) if entries else NO_ENTRY


class CheckedUpTo(NamedTuple):
    """How far audit writers are: each call named up to there was looked up, and is marked where
    something of it is missing."""

    first: EntryId = NO_ENTRY
    """In the first turn: every call."""
    last: EntryId = NO_ENTRY
    """In the last turn: what gateways reported is also compared."""


async def read_checked(redis: Connection, shard: int) -> CheckedUpTo:
    """Raises StreamConnectionLost, RedisError; NotAnAnswer is one."""
    value = await redis.call("GET", layout.checked_key(shard))
    if value is None:
        return CheckedUpTo()
    parts = value.split()
    if len(parts) != len(CheckedUpTo._fields):
        raise NotAnAnswer("not two entry ids")
    return CheckedUpTo(*map(entry_id, parts))


async def write_checked(redis: Connection, shard: int, first: str, last: str) -> None:
    """Publish how far a writer is. Raises StreamConnectionLost, RedisError."""
    await redis.call("SET", layout.checked_key(shard), f"{first} {last}", "PX", layout.CHECKED_MS)
