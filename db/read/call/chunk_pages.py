"""The chunks of a call page by page, each with its beginning and what was written to the client
before the next one; or all bytes in order.

What is read at once is bounded by bytes and not only by rows: one chunk may be 16 MB. Must not
know: words, templates.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString
from uuid import UUID

from sqlalchemy import func, select, text

from db.engine import reading
from db.models import ChunkRow
from db.read.client_output import read_written
from db.read.json_rows import JsonObject
from db.read.queries import AuditReader
from db.read.views import CHUNK_LOG

PAGE = 200
_AT_ONCE = 500
_BYTES = 2**20
MOST_PIECE = 2**16
_SIZES: LiteralString = """
SELECT seq, octet_length(raw) AS size FROM chunks WHERE call_id = :call AND seq > :after
    ORDER BY seq LIMIT :most
"""
_ROWS: LiteralString = f"""
SELECT seq, block, CASE WHEN octet_length(raw) <= {_BYTES} THEN raw
    END AS raw, octet_length(raw) AS size
FROM chunks WHERE call_id = :call AND seq > :after AND seq <= :last ORDER BY seq
"""
_LARGE: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "request": ("request_bodies", "body", ()),
    "chunk": ("chunks", "raw", ("seq",)),
    "release": ("releases", "payload", ("number",)),
    "arguments": ("tool_calls", "arguments", ("block",)),
    "released": ("tool_calls", "released_arguments", ("block",)),
    "prompt": ("judgements", "prompt", ("block", "step")),
    "reply": ("judgements", "reply", ("block", "step")),
}
"""What may be so large that it is read in slices: its table, its column, and what names the row
beside the call."""


@dataclass(frozen=True, slots=True)
class ChunkPageRow:
    """A chunk with the beginning of its bytes. `held`: it was kept back when it came; `written`:
    what the client got before the next."""

    seq: int
    at: datetime
    verdict: str
    held: bool
    block: int
    size: int
    start: bytes
    written: list[JsonObject]


async def read_wire(
    reader: AuditReader, call_id: UUID, after: int, *, most: int
) -> tuple[list[ChunkPageRow], list[JsonObject], bool]:
    """Return a page of chunks behind `after`, what was written before any chunk, and whether there
    are more chunks."""
    log = CHUNK_LOG.c
    columns = (
        log.seq,
        log.at,
        log.verdict,
        ChunkRow.verdict,
        log.block,
        func.octet_length(log.raw),
        func.substring(log.raw, 1, most),
    )
    statement = (
        select(*columns)
        .join(ChunkRow, (ChunkRow.call_id == log.call_id) & (ChunkRow.seq == log.seq))
        .where(log.call_id == call_id, ChunkRow.call_id == call_id, log.seq > after)
        .order_by(log.seq)
        .limit(PAGE + 1)
    )
    async with reading(reader.engine) as connection:
        rows: list[Any] = list(await connection.execute(statement))
        page = rows[:PAGE]
        written = await read_written(
            connection, call_id, [row[0] for row in page], first=after <= 0, most=most
        )
    chunks = [
        ChunkPageRow(
            seq, at, verdict, stored == "hold", block, size, bytes(start), written.get(seq, [])
        )
        for seq, at, verdict, stored, block, size, start in page
    ]
    return chunks, written.get(None, []), len(rows) > PAGE


async def read_all(
    reader: AuditReader, call_id: UUID
) -> AsyncIterator[list[tuple[int, int, bytes | None]]]:
    """Yield all chunks in order, some at a time: number, block and bytes; None for a large one.
    Between two times no connection is held."""
    after = -1
    while True:
        async with reading(reader.engine) as connection:
            last, size = after, 0
            for row in await connection.execute(
                text(_SIZES), {"call": call_id, "after": after, "most": _AT_ONCE}
            ):
                size += row.size
                if size > _BYTES and last > after:
                    break
                last = row.seq
            if last == after:
                return
            rows = await connection.execute(
                text(_ROWS), {"call": call_id, "after": after, "last": last}
            )
            chunks = [
                (row.seq, row.block, None if row.raw is None else bytes(row.raw)) for row in rows
            ]
        yield chunks
        after = last


async def read_all_written(reader: AuditReader, call_id: UUID) -> AsyncIterator[list[JsonObject]]:
    """Yield all that the client got in order, some pieces at a time; of a piece at most
    `MOST_PIECE` bytes."""
    async with reading(reader.engine) as connection:
        written = await read_written(connection, call_id, [], first=True, most=MOST_PIECE)
    yield written.get(None, [])
    after = -1
    while True:
        async with reading(reader.engine) as connection:
            chunks = (
                select(ChunkRow.seq)
                .where(ChunkRow.call_id == call_id, ChunkRow.seq > after)
                .order_by(ChunkRow.seq)
                .limit(PAGE)
            )
            seqs = list(await connection.scalars(chunks))
            if not seqs:
                return
            written = await read_written(connection, call_id, seqs, first=False, most=MOST_PIECE)
        yield [piece for seq in seqs for piece in written.get(seq, [])]
        after = seqs[-1]


async def read_slices(
    reader: AuditReader, call_id: UUID, of: str, *numbers: int, start: int = 0
) -> AsyncIterator[bytes]:
    """Yield one of `_LARGE` in slices, from the byte `start` on: nothing where there is none, and
    one empty slice of what is empty. `numbers` name it beside the call. Between two slices no
    connection is held. Raises KeyError for what is not there to be read.
    """
    table, column, names = _LARGE[of]
    query = (
        f"SELECT substring({column} FROM CAST(:at AS integer) FOR {_BYTES}) FROM {table} WHERE"
        " call_id = :call"
    )
    query = " AND ".join([query, *(f"{name} = :{name}" for name in names)])
    parameters = {"call": call_id, **dict(zip(names, numbers, strict=True))}
    at = start + 1
    while True:
        async with reading(reader.engine) as connection:
            data = await connection.scalar(text(query), {**parameters, "at": at})
        if data is None:
            return
        yield bytes(data)
        if len(data) < _BYTES:
            return
        at += _BYTES
