"""Why tool calls were decided as they were, in a sentence: events of their calls. Must not know:
lists, pages.
"""

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from db.read.json_rows import JsonObject
from db.text import from_column
from protocol.records import WHY

_WHYS: Final[LiteralString] = (
    "SELECT call_id, number, detail FROM events WHERE call_id = ANY (:calls) AND kind = :kind"
)


async def read_whys(
    connection: AsyncConnection, calls: Sequence[UUID]
) -> dict[tuple[UUID, int], str]:
    """Return the sentences of these calls, by call and block."""
    if not calls:
        return {}
    rows = await connection.execute(text(_WHYS), {"calls": list(calls), "kind": WHY})
    return {(row.call_id, row.number): from_column(row.detail) for row in rows}


async def add_whys(connection: AsyncConnection, items: Sequence[JsonObject]) -> None:
    """Add to items of tool calls why each was decided as it was; null where nothing says so."""
    calls = {UUID(item["call_id"]) for item in items}
    whys = await read_whys(connection, sorted(calls))
    for item in items:
        item["why"] = whys.get((UUID(item["call_id"]), item["block"]))
