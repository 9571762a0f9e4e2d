"""Where a text stands in what clients sent: the newest requests are looked through, because nothing
indexes them.

A request repeats the conversation, so it has what users wrote and what models answered before. Must
not know: words, templates.
"""

import json
from typing import Any, LiteralString, NamedTuple
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from db.filters import created_at
from db.read.json_rows import JsonObject, time
from db.text import from_column

MOST, MOST_BYTES = 1_000, 64 * 2**20
"""Requests that are looked through, the newest, and bytes of them."""
AROUND, BEFORE = 240, 60
"""Bytes that are shown of a request, and of those before the place."""
_LOOKED: LiteralString = """
WITH looked AS (
    SELECT call_id, body FROM (
        SELECT call_id, body, sum(octet_length(body)) OVER (ORDER BY call_id DESC) AS size FROM (
            SELECT call_id, body FROM request_bodies ORDER BY call_id DESC LIMIT :most
        ) newest
    ) measured WHERE size <= :bytes
)
"""
_FOUND: LiteralString = f"""{_LOOKED}
SELECT f.call_id, c.key, c.session, c.model, substring(f.body
    FROM greatest(1, f.place - :before) FOR :around) AS around
FROM (
    SELECT call_id, body, greatest(position(CAST(:plain AS bytea) IN body), position(CAST(:ascii AS
        bytea) IN body)) AS place FROM looked
) f LEFT JOIN calls c ON c.call_id = f.call_id
WHERE f.place > 0 ORDER BY f.call_id
"""
_COUNTED: LiteralString = (
    f"{_LOOKED} SELECT count(*) AS n, min(CAST(call_id AS text)) AS first FROM looked"
)


class TextMatches(NamedTuple):
    """Requests with a text, the newest first; how many were looked through, and since when those
    came."""

    items: list[JsonObject]
    looked: int
    since: str | None


async def requests_with(connection: AsyncConnection, wanted: str) -> TextMatches:
    """Look through the newest requests for a text, letter by letter. Of a session the first one
    with it is returned, which says how many have it."""
    parameters: dict[str, Any] = {"most": MOST, "bytes": MOST_BYTES}
    counted = (await connection.execute(text(_COUNTED), parameters)).one()
    plain, ascii_ = (
        json.dumps(wanted, ensure_ascii=is_ascii)[1:-1].encode(errors="surrogatepass")
        for is_ascii in (False, True)
    )
    look = {"plain": plain, "ascii": ascii_, "before": BEFORE, "around": AROUND}
    items: dict[tuple[str, str], JsonObject] = {}
    for row in await connection.execute(text(_FOUND), parameters | look):
        call, key, session = (
            str(row.call_id),
            from_column(row.key or ""),
            from_column(row.session or ""),
        )
        place = (key, session) if session else (call, "")
        if place in items:
            items[place]["requests"] += 1
            continue
        items[place] = {
            "call_id": call,
            "created_at": time(created_at(row.call_id)),
            "key": key,
            "session": session,
            "model": from_column(row.model or ""),
            "around": bytes(row.around).decode(errors="ignore"),
            "requests": 1,
        }
    since = None if counted.first is None else time(created_at(UUID(counted.first)))
    return TextMatches(list(items.values())[::-1], int(counted.n), since)
