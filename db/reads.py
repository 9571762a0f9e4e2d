"""Who was shown what of the record: a row before anything is sent. Whoever cannot write it shows nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncEngine

from db.models import Read
from db.read.queries import reading
from db.text import to_column, to_short

MAX_CALLS = 1_000
"""Calls that one row names; an answer that shows more says how many rows it has."""
MAX_CHARS = 2_000
"""Of a path or of filters; longer ones are kept as their beginning and their hash."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Who reads what: the name and id of a key (or a name of the operating system and no id), the login, the path and the filters."""

    key: str
    key_id: str
    path: str
    filters: str = ""
    session: str = ""
    call_ids: Sequence[UUID] = ()
    rows: int = 0


async def note(engine: AsyncEngine, read: Reading) -> None:
    """Write it down; it is durable when this returns. Raises AuditUnavailable."""
    values = {
        "key": to_column(read.key), "key_id": read.key_id, "session": read.session, "path": to_column(to_short(read.path, MAX_CHARS)),
        "filters": to_column(to_short(read.filters, MAX_CHARS)), "call_ids": list(read.call_ids[:MAX_CALLS]), "rows": read.rows,
    }  # fmt: skip
    async with reading(engine) as connection:
        await connection.execute(insert(Read).values(values))
        await connection.commit()
