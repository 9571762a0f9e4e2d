"""The record of a call that somebody follows while it runs: the decisions and releases that Redis
no longer has. As records, so that they are handled like those of the audit stream. Must not know:
Redis.
"""

from datetime import datetime
from typing import Any, LiteralString
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from db.engine import reading
from protocol.records import (
    BlockRecord,
    EndRecord,
    Record,
    ReleaseRecord,
    ToolCallRecord,
    ToolReleaseRecord,
)

MOST_RELEASES = 20_000
_RELEASES: LiteralString = """
SELECT number, number_next, at, seq, payload, sha256 FROM releases WHERE call_id = :call
    AND number >= :number ORDER BY number LIMIT :most
"""
_TOOLS: LiteralString = """
SELECT t.block, t.index, t.at, t.tool_call_id, t.name, t.executor, t.form, t.verdict, t.reason,
    t.policy, r.at AS released_at
FROM tool_calls t LEFT JOIN tool_releases r ON r.call_id = :call AND r.block = t.block
WHERE t.call_id = :call AND t.block >= :block ORDER BY t.block
"""
_BLOCKS: LiteralString = """
SELECT block, at, kind, verdict, reason, policy FROM blocks WHERE call_id = :call
    AND block >= :block ORDER BY block
"""
_END: LiteralString = "SELECT at, state, reason, status, releases FROM ends WHERE call_id = :call"
_CHUNKS: LiteralString = """
SELECT seq, at, raw FROM chunks WHERE call_id = :call AND seq >= :seq ORDER BY seq LIMIT :most
"""


async def read_since(engine: AsyncEngine, call_id: UUID, number: int, block: int) -> list[Record]:
    """Return the decisions on a call from `block` on, without arguments, its releases from `number`
    on, and its end.

    Raises AuditUnavailable.
    """
    name = str(call_id)
    parameters = {"call": call_id, "number": number, "block": block, "most": MOST_RELEASES}
    records: list[Record] = []
    async with reading(engine) as connection:
        for row in await connection.execute(text(_TOOLS), parameters):
            fields = _fields(name, row)
            released_at = fields.pop("released_at")
            records.append(ToolCallRecord(**fields, arguments=b"", released_arguments=None))
            if released_at is not None:
                records.append(
                    ToolReleaseRecord(call_id=name, block=row.block, at=_ms(released_at))
                )
        for row in await connection.execute(text(_BLOCKS), parameters):
            records.append(BlockRecord(**_fields(name, row)))
        for row in await connection.execute(text(_RELEASES), parameters):
            records.append(ReleaseRecord(**_fields(name, row)))
        for row in await connection.execute(text(_END), parameters):
            records.append(EndRecord(**_fields(name, row)))
    return records


async def read_chunks_since(
    engine: AsyncEngine, call_id: UUID, seq: int, most: int
) -> list[tuple[int, int, bytes]]:
    """Return chunks from `seq` on, each as its number, its time in Unix ms and its bytes. Raises
    AuditUnavailable."""
    async with reading(engine) as connection:
        rows = await connection.execute(text(_CHUNKS), {"call": call_id, "seq": seq, "most": most})
        return [(row.seq, _ms(row.at), bytes(row.raw)) for row in rows]


def _fields(call_id: str, row: Any) -> dict[str, Any]:
    """The fields of a record, which have the names of the columns."""
    return {**row._mapping, "call_id": call_id, "at": _ms(row.at)}


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)
