"""Which tables of a call lost their rows to retention: otherwise readers would think that the call
never had any."""

from typing import LiteralString
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from db.canonical import FORMS
from db.read.json_rows import JsonObject, time

# the table, from 1 on, stands in the last two bytes of the id (db.seals.shed); the first leaf past
# the call is the one that took its rows
_SHED: LiteralString = """
SELECT DISTINCT ON (right(call_id::text, 4)) right(call_id::text, 4) AS place, at, note FROM seals
WHERE part = -2 AND call_id > :call ORDER BY right(call_id::text, 4), call_id
"""


async def read_shed(connection: AsyncConnection, call_id: UUID) -> list[JsonObject]:
    """Return a line for each table of which the rows of this call went, if it had any: the table,
    when, and who did it and why."""
    items = []
    for row in await connection.execute(text(_SHED), {"call": call_id}):
        place = int(row.place, 16) - 1
        if 0 <= place < len(FORMS):
            items.append({"table": FORMS[place].table, "at": time(row.at), "note": row.note})
    return items
