"""What the record has of a key apart from its sums: its last call. Must not know: HTTP."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from db.filters import created_at
from db.text import to_column

_LAST = "SELECT call_id FROM calls WHERE key = :key ORDER BY call_id DESC LIMIT 1"


async def last_call(connection: AsyncConnection, key: str) -> tuple[UUID, datetime | None] | None:
    """Return the last call of a key and when it began."""
    call_id = await connection.scalar(text(_LAST), {"key": to_column(key)})
    return None if call_id is None else (call_id, created_at(call_id))
