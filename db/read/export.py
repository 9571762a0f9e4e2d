"""The record as lines of JSON, in constant memory: in one snapshot, call by call from server-side
cursors over some calls at a time.

Each call is a line of type `call` and then, in this order, `request`, `chunk`, `release`, `block`,
`tool_call`, `judgement`, `score`, `decision`, `attempt` and `event` lines; calls come in the order
of their ids. The last line is of type `export_end` with the number of calls and lines: an export
without it was cut short.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, Select, TextClause, any_, select, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncResult

from db.engine import reading, wait_longer
from db.filters import Filters
from db.models import (
    Attempt,
    BlockRow,
    DecisionRow,
    Event,
    JudgementRow,
    ReleaseRow,
    RequestBody,
    ScoreRow,
)
from db.read.json_rows import (
    JsonObject,
    attempt_item,
    block_item,
    call_item,
    chunk_item,
    decision_item,
    dump_json,
    dump_pieces,
    event_item,
    judgement_item,
    payload,
    release_item,
    score_item,
    tool_call_item,
)
from db.read.lists import chosen_calls, values
from db.read.queries import array_of
from db.read.views import CALL_LOG, CHUNK_LOG, TOOL_CALL_LOG, VIEWS, ids_of, rows_of

BATCH_BYTES = 65_536
BATCH_CALLS = 200
ON_LOOP_BYTES = 64 * 1024
"""Of a row, so much is made into a line on the event loop."""
# A client that stops reading must not hold a snapshot for ever: it would keep vacuum from its work.
_SETTINGS = "SET LOCAL idle_in_transaction_session_timeout = '300s'"
FETCH_S = 600.0
"""How long the next rows may take: a filter may choose one call in millions."""


@dataclass(frozen=True, slots=True)
class _Source:
    """Lines of one type. `fetch` bounds the rows in memory: fewer where one row may be
    megabytes."""

    type: str
    table: Any
    order: tuple[str, ...]
    item: Callable[[Any], JsonObject]
    fetch: int = 50


_SOURCES = (
    _Source("request", RequestBody.__table__, (), lambda row: payload("body", row.body), 5),
    _Source("chunk", CHUNK_LOG, ("seq",), lambda row: chunk_item(row), 100),
    _Source("release", ReleaseRow.__table__, ("number",), release_item, 20),
    _Source("block", BlockRow.__table__, ("block",), block_item),
    _Source("tool_call", TOOL_CALL_LOG, ("block",), tool_call_item, 20),
    _Source("judgement", JudgementRow.__table__, ("block", "step"), judgement_item, 20),
    _Source("score", ScoreRow.__table__, ("block", "step"), score_item),
    _Source("decision", DecisionRow.__table__, ("block", "step"), decision_item),
    _Source("attempt", Attempt.__table__, ("segment", "attempt"), attempt_item),
    _Source("event", Event.__table__, ("at", "kind", "number"), event_item),
)


class Progress:
    """How far an export is; for a progress bar."""

    def __init__(self) -> None:
        self.calls = 0
        self.lines = 0


class _Cursor:
    """The rows of one source, one ahead."""

    def __init__(self, source: _Source, rows: AsyncIterator[Any]) -> None:
        self.source = source
        self.rows = rows
        self.head: Any = None

    async def advance(self) -> None:
        self.head = await anext(self.rows, None)


async def export_lines(
    engine: AsyncEngine,
    filters: Filters,
    progress: Progress | None = None,
    *,
    fetch_s: float = FETCH_S,
) -> AsyncGenerator[bytes]:
    """Yield the export in pieces of whole lines. Raises AuditUnavailable when PostgreSQL is away or
    silent, at first or half-way."""
    progress = progress or Progress()
    batch: list[bytes] = []
    size = 0
    async with (
        reading(engine) as connection,
        aclosing(_lines(connection, filters, progress, fetch_s)) as lines,
    ):
        async for line in lines:
            batch.append(line)
            size += len(batch[-1])
            if size >= BATCH_BYTES:
                yield b"\n".join(batch) + b"\n"
                batch, size = [], 0
    end = {"type": "export_end", "calls": progress.calls, "lines": progress.lines}
    yield b"\n".join([*batch, dump_json(end)]) + b"\n"


async def _lines(
    connection: AsyncConnection, filters: Filters, progress: Progress, fetch_s: float
) -> AsyncGenerator[bytes]:
    connection = await connection.execution_options(isolation_level="REPEATABLE READ")
    await wait_longer(connection, fetch_s)
    await connection.execute(text(_SETTINGS))
    chosen = text(chosen_calls(filters)).bindparams(**values(filters))
    async with AsyncExitStack() as open_cursors:
        keys = await _stream(connection, chosen, BATCH_CALLS, open_cursors)
        async for batch in keys.partitions():
            async with aclosing(_batch(connection, batch, progress)) as lines:
                async for line in lines:
                    yield line


async def _batch(
    connection: AsyncConnection, keys: Sequence[Row[Any]], progress: Progress
) -> AsyncGenerator[bytes]:
    """The lines of some calls. Few enough that each statement reads a stretch of one index,
    whatever the statistics say."""
    ids = [key.call_id for key in keys]
    cursors = []
    async with AsyncExitStack() as open_cursors:
        for source in _SOURCES:
            # a table's own bounds, or those of every table that a view joins
            rows = rows_of(source.table) if source.table.metadata is VIEWS else source.table
            key = rows.c.call_id
            statement = select(rows).where(
                key == any_(array_of(ids, key)), key.between(ids[0], ids[-1])
            )
            statement = statement.order_by(key, *(rows.c[name] for name in source.order))
            statement = statement.params({ids_of(source.table): ids})
            cursors.append(
                _Cursor(
                    source, aiter(await _stream(connection, statement, source.fetch, open_cursors))
                )
            )
            await cursors[-1].advance()
        calls = rows_of(CALL_LOG)
        chosen = select(calls).order_by(calls.c.call_id).params({ids_of(CALL_LOG): ids})
        async for call in await _stream(connection, chosen, 50, open_cursors):
            progress.calls += 1
            progress.lines += 1
            yield dump_json({"type": "call", **call_item(call)})
            for cursor in cursors:
                while cursor.head is not None and cursor.head.call_id == call.call_id:
                    progress.lines += 1
                    yield await _line(
                        {"type": cursor.source.type, "call_id": str(call.call_id)},
                        cursor.source.item,
                        cursor.head,
                    )
                    await cursor.advance()


async def _line(head: JsonObject, item: Callable[[Any], JsonObject], row: Row[Any]) -> bytes:
    """Return a row as a line. A large one is made beside the loop: 16 MB take half a second, and
    are seconds where they are no UTF-8."""
    if sum(len(value) for value in row if isinstance(value, bytes | str)) <= ON_LOOP_BYTES:
        return dump_json(head | item(row))
    return await asyncio.to_thread(lambda: b"".join(dump_pieces(head | item(row))))


async def _stream(
    connection: AsyncConnection,
    statement: Select[Any] | TextClause,
    fetch: int,
    open_cursors: AsyncExitStack,
) -> AsyncResult[Any]:
    result: AsyncResult[Any] = await connection.stream(statement.execution_options(yield_per=fetch))
    open_cursors.push_async_callback(result.close)
    return result
