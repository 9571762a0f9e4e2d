"""Why tool calls were decided as they were, in a sentence: events of their calls. Must not know:
lists, pages.
"""

from collections.abc import Collection, Sequence
from typing import Final, LiteralString
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from db.read.json_rows import JsonObject
from db.text import from_column
from protocol.records import WHY

_WHYS: Final[LiteralString] = """
SELECT call_id, number, detail FROM events
WHERE call_id BETWEEN :low AND :high AND call_id = ANY (:calls) AND kind = :kind
"""
"""Bounded twice: PostgreSQL prunes partitions by values, not by arrays that it does not know yet."""


async def read_whys(
    connection: AsyncConnection, calls: Collection[UUID]
) -> dict[tuple[str, int], str]:
    """Return the sentences of these calls, at least one, by call and block."""
    ids = sorted(calls)
    rows = await connection.execute(
        text(_WHYS), {"calls": ids, "low": ids[0], "high": ids[-1], "kind": WHY}
    )
    return {(str(row.call_id), row.number): from_column(row.detail) for row in rows}


async def add_whys(connection: AsyncConnection, items: Sequence[JsonObject]) -> None:
    """Add to items of tool calls why each was decided as it was; null where nothing says so."""
    if items:
        whys = await read_whys(connection, {UUID(item["call_id"]) for item in items})
        for item in items:
            item["why"] = whys.get((item["call_id"], item["block"]))
