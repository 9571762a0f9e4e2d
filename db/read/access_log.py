"""Who read what of the record, the newest first."""

import base64
import binascii
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import ColumnElement, select, tuple_
from sqlalchemy.ext.asyncio import AsyncEngine

from db.engine import reading
from db.models import Read
from db.read.json_rows import JsonObject, time
from db.text import from_column, to_column
from protocol.errors import InvalidRequest

PAGE = 50
SHOWN_CALLS = 20
"""Calls that a row of the page names."""


async def newest_reads(
    engine: AsyncEngine,
    *,
    key: str = "",
    call_id: UUID | None = None,
    cursor: str = "",
    limit: int = PAGE,
) -> tuple[list[JsonObject], str]:
    """Return readings, and the cursor of those before them, empty where there are none. Raises
    InvalidRequest, AuditUnavailable."""
    wanted: list[ColumnElement[bool]] = []
    if key:
        wanted.append(Read.key == to_column(key))
    if call_id is not None:
        wanted.append(Read.call_ids.contains([call_id]))
    if cursor:
        wanted.append(tuple_(Read.at, Read.id) < tuple_(*_position(cursor)))
    statement = (
        select(*Read.__table__.columns)
        .where(*wanted)
        .order_by(Read.at.desc(), Read.id.desc())
        .limit(limit + 1)
    )
    async with reading(engine) as connection:
        rows = (await connection.execute(statement)).all()
    more = _cursor(rows[limit - 1]) if len(rows) > limit else ""
    return [_item(row) for row in rows[:limit]], more


def _item(row: Any) -> JsonObject:
    return {
        "at": time(row.at),
        "key": from_column(row.key),
        "key_id": row.key_id,
        "login": row.session,
        "path": from_column(row.path),
        "filters": from_column(row.filters),
        "call_ids": [str(call_id) for call_id in row.call_ids[:SHOWN_CALLS]],
        "calls": len(row.call_ids),
        "rows": row.rows,
    }


def _cursor(row: Any) -> str:
    return (
        base64.urlsafe_b64encode(msgspec.msgpack.encode((row.at.isoformat(), row.id.bytes)))
        .rstrip(b"=")
        .decode()
    )


def _position(cursor: str) -> tuple[datetime, UUID]:
    try:
        packed = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        at, packed_id = msgspec.msgpack.decode(packed, type=tuple[str, bytes])
        timestamp = datetime.fromisoformat(at)
        if timestamp.tzinfo is None or not 1970 < timestamp.year < 9999:
            raise ValueError
        return timestamp, UUID(bytes=packed_id)
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise InvalidRequest("not a cursor of this page", param="cursor") from None
