"""What a person sees first of the record: how much comes in, what was not released lately, what is
open, how far it is sealed.

Each answer is bounded and found by an index; nothing counts over chunks. Must not know: HTTP,
Redis.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from db.filters import created_at, first_id
from db.read.json_rows import JsonObject, judge_block_item, time
from db.read.lists import RowKey, whole_rows
from db.read.views import JUDGED_LOGS
from db.text import from_column
from protocol.records import PASSED

MOST_CALLS = 200_000
"""So many calls are counted by minute: half a second of an index."""
MOST_BLOCKED = 1_000
"""Blocks are counted up to here."""
LOOK_BACK = timedelta(days=7)
"""How far back the newest that were not released are looked for."""
MAX_BYTES = 1 << 20

_BY_MINUTE = """
SELECT floor(extract(epoch FROM sluice_call_at(call_id)) / 60)::bigint, count(*)
FROM (SELECT call_id FROM calls WHERE call_id >= CAST(:low AS uuid) LIMIT :most) c GROUP BY 1
"""
_NOT_RELEASED = f"call_id >= CAST(:low AS uuid) AND verdict NOT IN {PASSED}"
_COUNTED = f"""
SELECT count(*) FROM (SELECT call_id, block FROM (
    (SELECT call_id, block FROM tool_calls WHERE {_NOT_RELEASED} AND verdict = 'block' LIMIT :most)
        UNION
    (SELECT call_id, block FROM blocks WHERE {_NOT_RELEASED} AND verdict = 'block' LIMIT :most)) r
        LIMIT :most) n
"""
_NEWEST = f"""
SELECT call_id, block, bool_or(is_tool) FROM (
    (SELECT call_id, block, true AS is_tool FROM tool_calls WHERE {_NOT_RELEASED}
        ORDER BY call_id DESC, block DESC LIMIT :most) UNION ALL
    (SELECT b.call_id, b.block, EXISTS (SELECT FROM tool_calls t WHERE t.call_id = b.call_id
        AND t.block = b.block
            AND t.call_id >= CAST(:low AS uuid))
        FROM blocks b WHERE b.call_id >= CAST(:low AS uuid) AND b.verdict NOT IN {PASSED}
            ORDER BY b.call_id DESC, b.block DESC LIMIT :most)
) r GROUP BY 1, 2 ORDER BY 1 DESC, 2 DESC LIMIT :most
"""
_OPEN = """
SELECT o.id::text, c.key, c.model, c.policy, c.policy_revision, c.session, k.seq, k.verdict, r.seq
FROM unnest(CAST(:ids AS uuid[])) o (id)
LEFT JOIN calls c ON c.call_id = o.id AND c.call_id >= CAST(:low AS uuid)
LEFT JOIN LATERAL (
    SELECT seq, verdict FROM chunks WHERE call_id = o.id AND call_id >= CAST(:low AS uuid)
        ORDER BY seq DESC LIMIT 1) k ON true
LEFT JOIN LATERAL (
    SELECT seq FROM releases WHERE call_id = o.id AND call_id >= CAST(:low AS uuid)
        ORDER BY number DESC LIMIT 1) r ON true
ORDER BY o.id
"""
_SEALED = """
SELECT (SELECT at FROM seals ORDER BY position DESC LIMIT 1), (SELECT text FROM checkpoints
    ORDER BY size DESC LIMIT 1)
"""


async def calls_by_minute(connection: AsyncConnection, since: datetime) -> dict[int, int]:
    """Return how many calls began in each minute from then on, by its number since 1970."""
    rows = await connection.execute(
        text(_BY_MINUTE), {"low": str(first_id(since)), "most": MOST_CALLS}
    )
    return {int(minute): int(n) for minute, n in rows}


async def blocked_since(connection: AsyncConnection, since: datetime) -> int:
    """Return how much was blocked of calls that began then or later, `MOST_BLOCKED` at most."""
    return int(
        await connection.scalar(text(_COUNTED), {"low": str(first_id(since)), "most": MOST_BLOCKED})
        or 0
    )


async def open_calls(connection: AsyncConnection, ids: Sequence[str]) -> list[JsonObject]:
    """Return what the record has of these open calls, the oldest first: names, chunks that came,
    and how many of them are held."""
    if not ids:
        return []
    rows = await connection.execute(text(_OPEN), {"ids": list(ids), "low": min(ids)})
    return [
        {
            "call_id": call_id,
            "since": time(created_at(UUID(call_id))),
            "key": _text(key),
            "model": _text(model),
            "policy": _text(policy),
            "revision": _text(revision),
            "session": _text(session),
            "chunks": seq or 0,
            "held": max(0, (seq or 0) - (released or 0)) if verdict == "hold" else 0,
        }
        for call_id, key, model, policy, revision, session, seq, verdict, released in rows
    ]


async def newest_not_released(
    connection: AsyncConnection, now: datetime, most: int
) -> list[JsonObject]:
    """Return the newest tool calls and other content blocks that were not released, as lists show
    them."""
    parameters = {"low": str(first_id(now - LOOK_BACK)), "most": most}
    keys = [
        RowKey(call_id, block, JUDGED_LOGS[0 if is_tool else 1].name)
        for call_id, block, is_tool in await connection.execute(text(_NEWEST), parameters)
    ]
    return [
        {**judge_block_item(row), "index": row.index, "call_policy": row.call_policy}
        for row in await whole_rows(connection, keys, "desc", MAX_BYTES)
    ]


async def ping(connection: AsyncConnection) -> None:
    """Ask for nothing, to know how long an answer takes."""
    await connection.scalar(text("SELECT 1"))


async def sealed(connection: AsyncConnection) -> tuple[datetime | None, str | None]:
    """Return when the newest seal was made, and the text of the newest checkpoint."""
    at, checkpoint = (await connection.execute(text(_SEALED))).one()
    return at, checkpoint


def _text(value: str | None) -> str | None:
    return None if value is None else from_column(value)


def minutes_before(now: datetime, minutes: int) -> datetime:
    """Return the beginning of the minute that was so many before this one."""
    return now.astimezone(UTC).replace(second=0, microsecond=0) - timedelta(minutes=minutes)
