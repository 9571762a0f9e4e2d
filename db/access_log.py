"""Who was shown what of the record: a row before anything is sent. Whoever cannot write it shows
nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncEngine

from db.engine import reading
from db.models import Read
from db.text import to_column, to_short
from protocol.errors import AuditUnavailable

_MAY_NOT = "42501"
"""PostgreSQL's word for a right that is missing."""
MAX_CALLS = 1_000
"""Calls that one row names; an answer that shows more has several rows, each with the number of
rows of the whole answer."""
MAX_CHARS = 2_000
"""Of a path or of filters; longer ones are kept as their beginning and their hash."""


@dataclass(frozen=True, slots=True)
class PageRead:
    """Who reads what: the name and id of a key (or a name of the operating system and no id), the
    login, the path and the filters."""

    key: str
    key_id: str
    path: str
    filters: str = ""
    session: str = ""
    call_ids: Sequence[UUID] = ()
    rows: int = 0


def of_item(item: Mapping[str, Any]) -> tuple[list[UUID], int]:
    """Return the calls that an answer of the audit API names, and how many rows it has."""
    items = item["items"] if isinstance(item.get("items"), list) else [item]
    named = dict.fromkeys(
        str(nested[name])
        for nested in items
        if isinstance(nested, Mapping)
        for name in ("call_id", "preview_call_id")
        if nested.get(name)
    )
    return [UUID(call_id) for call_id in named], len(items)


async def note(engine: AsyncEngine, read: PageRead) -> None:
    """Write it down; it is durable when this returns. Raises AuditUnavailable."""
    values = {
        "key": to_column(read.key),
        "key_id": read.key_id,
        "session": read.session,
        "path": to_column(to_short(read.path, MAX_CHARS)),
        "filters": to_column(to_short(read.filters, MAX_CHARS)),
        "rows": read.rows,
    }
    calls = list(read.call_ids)
    named = [calls[begin : begin + MAX_CALLS] for begin in range(0, len(calls), MAX_CALLS)] or [[]]
    try:
        async with reading(engine) as connection:
            await connection.execute(insert(Read), [{**values, "call_ids": some} for some in named])
            await connection.commit()
    except AuditUnavailable as error:
        if getattr(getattr(error.__cause__, "orig", None), "sqlstate", None) == _MAY_NOT:
            raise AuditUnavailable(
                "this database login may not note who reads the record, so nothing is shown: run"
                " `sluice migrate`, or let it have the role sluice_noter"
            ) from error
        raise AuditUnavailable(
            "who reads the record cannot be noted now, so nothing is shown"
        ) from error
