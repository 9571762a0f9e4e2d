"""Debug logs, and what gateways refused, over HTTP: parts of the audit API. Must not know: SQL."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from db.filters import Filters, created_at
from db.read.call.debug_logs import read_lines
from db.read.early_refusals import read_door
from db.read.json_rows import JsonObject
from db.read.queries import AuditReader

HOUR = timedelta(hours=1)


async def debug_lines(reader: AuditReader, filters: Filters) -> JsonObject:
    """Return a page of lines."""
    return await read_lines(reader.engine, await reader.named(filters))


async def door(reader: AuditReader, filters: Filters) -> JsonObject:
    """Return what was refused between two times; of the last hour where none are given."""
    now = datetime.now(UTC)
    until = _at(filters.high) or now + timedelta(minutes=1)
    since = _at(filters.low) or min(until, now) - HOUR
    return await read_door(reader.engine, since, until, key=filters.key)


def _at(bound: UUID | None) -> datetime | None:
    return None if bound is None else created_at(bound)
