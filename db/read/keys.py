"""What the record has of a key beside its sums: its last call, and which debug logs are on for it. Must not know: HTTP."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from db.filters import created_at
from db.read.items import time
from db.text import from_column, to_column

_LAST = "SELECT call_id FROM calls WHERE key = :key ORDER BY call_id DESC LIMIT 1"
_SWITCHES = (
    "SELECT key, loggers, content, by, at, until FROM debug_switches WHERE until > now() AND key = :key ORDER BY until DESC LIMIT 20"
)


async def last_call(connection: AsyncConnection, key: str) -> tuple[UUID, datetime | None] | None:
    """Return the last call of a key and when it began."""
    found = await connection.scalar(text(_LAST), {"key": to_column(key)})
    return None if found is None else (found, created_at(found))


async def switches(connection: AsyncConnection, key: str) -> list[dict[str, Any]]:
    """Return the debug logs that are on for a key."""
    rows = await connection.execute(text(_SWITCHES), {"key": to_column(key)})
    return [
        {"loggers": list(row.loggers), "content": row.content, "by": from_column(row.by), "at": time(row.at), "until": time(row.until)}
        for row in rows
    ]
