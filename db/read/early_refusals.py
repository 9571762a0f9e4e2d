"""What gateways refused before a call began: how often, by key and error, between two times.

A row holds a gateway's sum since its start, at the end of a minute in which it changed. So what
came between two times is the difference of the newest sums before each. Must not know: HTTP.
"""

from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from db.engine import reading
from db.read.json_rows import JsonObject, time
from db.text import from_column, to_column

MAX_ROWS = 1_000
_BETWEEN = """
SELECT key, code, sum(n - before) AS n, max(minute) AS newest FROM (
    SELECT d.key, d.code, max(d.n) AS n, max(d.minute) AS minute, coalesce((
        SELECT b.n FROM door_counts b WHERE (b.gateway, b.key, b.code) = (d.gateway, d.key, d.code)
            AND b.minute < :since
        ORDER BY b.minute DESC LIMIT 1), 0) AS before
    FROM door_counts d WHERE d.minute >= :since AND d.minute < :until {of}
        GROUP BY d.gateway, d.key, d.code
) AS one GROUP BY key, code HAVING sum(n - before) > 0 ORDER BY n DESC, key, code LIMIT :most
"""

_BY_DAY = """
SELECT day, sum(n - before) FROM (
    SELECT to_char(d.minute AT TIME ZONE 'UTC', 'YYYY-MM-DD') AS day, d.n, coalesce(
        lag(d.n) OVER (PARTITION BY d.gateway, d.code ORDER BY d.minute), (
        SELECT b.n FROM door_counts b WHERE (b.gateway, b.key, b.code) = (d.gateway, d.key, d.code)
            AND b.minute < :since
        ORDER BY b.minute DESC LIMIT 1), 0) AS before
    FROM door_counts d WHERE d.key = :key AND d.minute >= :since AND d.minute < :until
) AS one GROUP BY day HAVING sum(n - before) > 0
"""


async def door_by_day(
    engine: AsyncEngine, since: datetime, until: datetime, *, key: str
) -> dict[str, int]:
    """Return how many requests of a key were refused on each day (UTC) on which there were some.
    Raises AuditUnavailable."""
    parameters = {
        "since": since.replace(second=0, microsecond=0),
        "until": until,
        "key": to_column(key),
    }
    async with reading(engine) as connection:
        return {row[0]: int(row[1]) for row in await connection.execute(text(_BY_DAY), parameters)}


async def read_door(
    engine: AsyncEngine, since: datetime, until: datetime, *, key: str | None = None
) -> JsonObject:
    """Return how many requests were refused from the minute of `since` on and before `until`, by
    key and error. Raises AuditUnavailable.

    An item has `key` (None: no key that is known), `status`, `code`, `n`, and `newest`, the last
    minute in which there was one.
    """
    since = since.replace(second=0, microsecond=0)
    parameters = {"since": since, "until": until, "most": MAX_ROWS}
    statement = _BETWEEN.format(of="AND d.key = :key" if key is not None else "")
    async with reading(engine) as connection:
        rows = list(
            await connection.execute(
                text(statement), parameters | ({"key": to_column(key)} if key is not None else {})
            )
        )
    items = []
    for row in rows:
        status, _, code = from_column(row.code).partition(" ")
        items.append(
            {
                "key": from_column(row.key) or None,
                "status": int(status) if status.isdecimal() else 0,
                "code": code,
                "n": int(row.n),
                "newest": time(row.newest),
            }
        )
    return {"since": time(since), "until": time(until), "items": items}
