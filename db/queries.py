"""The read side of the record: lists with filters and keyset paging, one call whole, and its chunks.

Read-only by the server's word, with a pool and a statement timeout of its own, so that no reader holds up a writer.
Every method raises AuditUnavailable when PostgreSQL is away or too slow. Keys of paging are the primary keys: rows that
come in while somebody pages neither repeat nor hide an item.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self
from uuid import UUID

from sqlalchemy import ColumnElement, Select, Table, exists, false, func, literal_column, or_, select, true, tuple_, union_all
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from db.engine import open_engine
from db.filters import Filters, ListName, Position, encode_cursor
from db.items import (
    JsonObject,
    block_item,
    call_item,
    chunk_item,
    event_item,
    judge_block_item,
    judgement_item,
    payload,
    tool_call_item,
)
from db.models import Block, Chunk, Event, Judgement, Release, RequestBody, ToolCall
from db.text import to_column
from db.views import CALL_LOG, CHUNK_LOG, JUDGED_LOGS, TOOL_CALL_LOG
from protocol.errors import AuditUnavailable

PAGE_BYTES = 16 * 2**20
"""A page ends early past this many bytes of payload, so that a page of 5 MB arguments fits in memory."""
_FETCH = 25
Found = tuple[Table, Select[Any]]
"""A view and the statement that chooses from it."""


@asynccontextmanager
async def reading(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Lend a connection; what the driver raises becomes AuditUnavailable."""
    try:
        async with engine.connect() as connection:
            yield connection
    except (DBAPIError, PoolTimeout, OSError) as error:
        if getattr(getattr(error, "orig", None), "sqlstate", None) == "57014":
            raise AuditUnavailable("the query took too long; narrow it with since, until or call_id") from error
        raise AuditUnavailable("the record cannot be read now") from error


class AuditReader:
    """Reads the record. Share one per process; close it at the end."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine

    @classmethod
    def open(cls, database_url: str, *, pool_size: int = 5, answer_s: float = 15.0) -> Self:
        """Return a reader with an engine of its own; nothing connects yet. `answer_s` is what one statement may take."""
        return cls(open_engine(database_url, read_only=True, pool_size=pool_size, answer_s=answer_s))

    @property
    def url(self) -> str:
        """The address of the database, password and all."""
        return self.engine.url.render_as_string(hide_password=False)

    async def close(self) -> None:
        """Close all connections."""
        await self.engine.dispose()

    async def calls(self, filters: Filters) -> JsonObject:
        """Return a page of calls; name, verdict and q choose calls with such a tool call."""
        found = [(CALL_LOG, select(CALL_LOG).where(*call_conditions(CALL_LOG, filters)))]
        return await self._page("calls", found, None, filters, call_item)

    async def tool_calls(self, filters: Filters) -> JsonObject:
        """Return a page of tool calls."""
        return await self._page("tool-calls", _decisions(filters, TOOL_CALL_LOG), "block", filters, tool_call_item)

    async def judge_blocks(self, filters: Filters) -> JsonObject:
        """Return a page of judge blocks: tool calls and content blocks that a judgement blocked."""
        return await self._page("judge-blocks", _decisions(filters, *JUDGED_LOGS), "block", filters, judge_block_item)

    async def chunks(self, call_id: UUID, filters: Filters) -> JsonObject | None:
        """Return a page of a call's chunks, each with what was released up to it; None when there is no such call."""
        statement = select(CHUNK_LOG).where(CHUNK_LOG.c.call_id == call_id)
        if filters.verdict is not None:
            statement = statement.where(CHUNK_LOG.c.verdict == filters.verdict)
        async with reading(self.engine) as connection:
            if not await _known(connection, call_id):
                return None
            rows, cursor = await _rows(connection, "chunks", [(CHUNK_LOG, statement)], "seq", filters)
            released = await _releases(connection, call_id, [row.seq for row in rows])
        return {"items": [chunk_item(row, released.get(row.seq, ())) for row in rows], "next_cursor": cursor}

    async def call(self, call_id: UUID) -> JsonObject | None:
        """Return one call with its request, tool calls, blocks, judgements and events; None when there is no such call."""
        async with reading(self.engine) as connection:
            row = (await connection.execute(select(CALL_LOG).where(CALL_LOG.c.call_id == call_id))).one_or_none()
            if row is None:
                return None
            body = await connection.scalar(select(RequestBody.body).where(RequestBody.call_id == call_id))
            chunks = await connection.scalar(select(func.count()).select_from(Chunk).where(Chunk.call_id == call_id))
            released = (
                await connection.execute(
                    select(func.count(), func.coalesce(func.sum(func.octet_length(Release.payload)), 0)).where(Release.call_id == call_id)
                )
            ).one()
            tool_calls = select(TOOL_CALL_LOG).where(TOOL_CALL_LOG.c.call_id == call_id).order_by(TOOL_CALL_LOG.c.block)
            parts = {
                "tool_calls": [tool_call_item(r) for r in await connection.execute(tool_calls)],
                "blocks": [block_item(r) for r in await connection.execute(_of_call(Block, call_id, Block.block))],
                "judgements": [
                    judgement_item(r) for r in await connection.execute(_of_call(Judgement, call_id, Judgement.block, Judgement.step))
                ],
                "events": [event_item(r) for r in await connection.execute(_of_call(Event, call_id, Event.at, Event.kind, Event.number))],
            }
        request = {"request": None, "request_base64": None} if body is None else payload("request", body)
        return {**call_item(row), **request, "chunks": chunks, "releases": released[0], "released_bytes": int(released[1]), **parts}

    async def count_calls(self, filters: Filters) -> int:
        """Return how many calls a filter chooses: what a progress bar needs."""
        async with reading(self.engine) as connection:
            statement = select(func.count()).select_from(CALL_LOG).where(*call_conditions(CALL_LOG, filters))
            return int(await connection.scalar(statement) or 0)

    async def _page(
        self, of: ListName, found: Sequence[Found], number: str | None, filters: Filters, item: Callable[[Any], JsonObject]
    ) -> JsonObject:
        async with reading(self.engine) as connection:
            rows, cursor = await _rows(connection, of, found, number, filters)
        return {"items": [item(row) for row in rows], "next_cursor": cursor}


def _decisions(filters: Filters, *views: Table) -> list[Found]:
    """What chooses from views with the columns of a tool call."""
    found = []
    for view in views:
        conditions = _bounds(view, filters)
        names = ("session", "model", "key", "name", "verdict")
        conditions += [view.c[name] == value for name in names if (value := getattr(filters, name))]
        if filters.policy is not None:
            conditions.append(or_(view.c.policy == filters.policy, view.c.call_policy == filters.policy))
        if filters.words is not None:
            conditions.append(_matches(view.c.search, filters.words))
        found.append((view, select(view).where(*conditions)))
    return found


def call_conditions(view: Table, filters: Filters) -> list[ColumnElement[bool]]:
    """Return what chooses calls from a view or table with the columns of a call."""
    conditions = _bounds(view, filters)
    conditions += [view.c[name] == value for name in ("session", "model", "key", "policy") if (value := getattr(filters, name))]
    of_tool: list[ColumnElement[bool]] = []
    if filters.name is not None:
        of_tool.append(ToolCall.name == to_column(filters.name))
    if filters.words is not None:
        of_tool.append(_matches(ToolCall.search, filters.words))
    if filters.verdict is not None:
        later = select(Block.verdict).where(Block.call_id == ToolCall.call_id, Block.block == ToolCall.block).scalar_subquery()
        of_tool.append(func.coalesce(later, ToolCall.verdict) == filters.verdict)
    if len(of_tool) == 1 and filters.verdict is not None:
        # Scalar subqueries, because two EXISTS joined by OR are answered by reading both tables whole.
        tool = select(true()).where(ToolCall.call_id == view.c.call_id, *of_tool).limit(1).scalar_subquery()
        block = select(true()).where(Block.call_id == view.c.call_id, Block.verdict == filters.verdict).limit(1).scalar_subquery()
        conditions.append(func.coalesce(tool, block, false()))
    elif of_tool:
        conditions.append(exists().where(ToolCall.call_id == view.c.call_id, *of_tool))
    return conditions


def _bounds(view: Table, filters: Filters) -> list[ColumnElement[bool]]:
    key = view.c.call_id
    conditions: list[ColumnElement[bool]] = []
    if filters.call_id is not None:
        conditions.append(key == filters.call_id)
    if filters.low is not None:
        conditions.append(key >= filters.low)
    if filters.high is not None:
        conditions.append(key < filters.high)
    return conditions


def _matches(column: Any, words: str) -> ColumnElement[bool]:
    matched: ColumnElement[bool] = column.op("@@", is_comparison=True)(func.plainto_tsquery(literal_column("'simple'::regconfig"), words))
    return matched


def _in_order(selectable: Any, number: str | None, filters: Filters) -> list[Any]:
    keys = [selectable.c.call_id, *([selectable.c[number]] if number else [])]
    return [key.asc() if filters.order == "asc" else key.desc() for key in keys]


def _after(view: Table, number: str | None, filters: Filters) -> list[ColumnElement[bool]]:
    """The row comparison decides; the one on the call id alone is what partitions are pruned by."""
    if filters.after is None:
        return []
    call_id, at = view.c.call_id, filters.after
    key: Any = tuple_(call_id, view.c[number]) if number else tuple_(call_id)
    here: Any = tuple_(at.call_id, at.number) if number else tuple_(at.call_id)
    return [call_id >= at.call_id, key > here] if filters.order == "asc" else [call_id <= at.call_id, key < here]


async def _rows(
    connection: AsyncConnection, of: ListName, found: Sequence[Found], number: str | None, filters: Filters
) -> tuple[list[Any], str | None]:
    """Return a page's rows and the cursor behind the last of them, None at the end."""
    limit = filters.limit + 1
    pages = [
        chosen.where(*_after(view, number, filters)).order_by(*_in_order(view, number, filters)).limit(limit) for view, chosen in found
    ]
    statement = pages[0]
    if len(pages) > 1:
        both = union_all(*(select(page.subquery()) for page in pages)).subquery()
        statement = select(both).order_by(*_in_order(both, number, filters)).limit(limit)
    rows: list[Any] = []
    size = 0
    more = False
    result = await connection.stream(statement.execution_options(yield_per=_FETCH))
    async for row in result:
        if len(rows) == filters.limit or size > PAGE_BYTES:
            more = True
            break
        rows.append(row)
        size += sum(len(value) for value in row if isinstance(value, bytes))
    await result.close()
    if not more:
        return rows, None
    last = rows[-1]
    return rows, encode_cursor(Position(of, filters.order, last.call_id, getattr(last, number) if number else 0))


async def _known(connection: AsyncConnection, call_id: UUID) -> bool:
    calls = select(exists().where(CALL_LOG.c.call_id == call_id))
    return bool(await connection.scalar(calls))


async def _releases(connection: AsyncConnection, call_id: UUID, seqs: Sequence[int]) -> dict[int, list[Any]]:
    """Releases by the chunk of the page that they end with."""
    found: dict[int, list[Any]] = {}
    if seqs:
        statement = select(*Release.__table__.columns).where(Release.call_id == call_id, Release.seq.in_(seqs)).order_by(Release.number)
        for row in await connection.execute(statement):
            found.setdefault(row.seq, []).append(row)
    return found


def _of_call(model: Any, call_id: UUID, *order: Any) -> Select[Any]:
    return select(*model.__table__.columns).where(model.call_id == call_id).order_by(*order)
