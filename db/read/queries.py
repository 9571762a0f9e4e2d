"""The read side of the audit log: lists with filters and keyset paging, one call whole, and its
chunks.

Read-only on the server, with its own pool and statement timeout, so readers never delay a writer.
Every method raises AuditUnavailable when PostgreSQL is down or too slow. Pages are keyed by primary
keys: rows that arrive between two pages neither repeat nor hide an item. `db.read.lists` defines
the lists and finds the pages.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partialmethod
from typing import Any, Self
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Select,
    Text,
    cast,
    func,
    literal,
    select,
    text,
    union,
)
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from db.engine import open_engine, reading
from db.filters import (
    Filters,
    ListName,
    Position,
    encode_cursor,
    ids_with,
    parse_call_id,
)
from db.models import (
    CallRow,
    End,
    Event,
    Seal,
    ToolCallRow,
)
from db.read.client_output import read_written
from db.read.counts import MAX_COUNTS, Dimension, counted, week_before
from db.read.json_rows import JsonObject, call_item, chunk_item, judge_block_item, tool_call_item
from db.read.lists import chosen_calls, counted_calls, find_keys, values, whole_rows
from db.read.one_call import is_known, read_call
from db.read.reviews import counts_of, read_page
from db.read.sample_check import check_draws
from db.read.views import CHUNK_LOG
from db.read.whys import add_whys
from db.text import INDEXED, from_column, to_column, to_short
from protocol.errors import InvalidRequest, NotFound

KEY_ID_BEGINNING = re.compile(r"[0-9a-f]{4,15}")
"""What is taken for the beginning of a key's id, which has 16 digits."""
PAGE_BYTES = 16 * 2**20
"""A page ends early past this many bytes of payload, so that a page of 5 MB arguments fits in
memory."""
_FETCH = 25
_CANDIDATES = 5
"""So many calls are named where a beginning of an id is not enough."""
_ITEMS: dict[ListName, Callable[[Any], JsonObject]] = {
    "calls": call_item,
    "tool-calls": tool_call_item,
    "judge-blocks": judge_block_item,
}


class AuditReader:
    """Reads the record. Share one per process; close it at the end."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine

    @classmethod
    def open(cls, database_url: str, *, pool_size: int = 5, answer_s: float = 15.0) -> Self:
        """Return a reader with an engine of its own; nothing connects yet. `answer_s` is what one
        statement may take."""
        return cls(
            open_engine(database_url, read_only=True, pool_size=pool_size, answer_s=answer_s)
        )

    @property
    def url(self) -> str:
        """The address of the database, password and all."""
        return self.engine.url.render_as_string(hide_password=False)

    async def close(self) -> None:
        """Close all connections."""
        await self.engine.dispose()

    async def page(self, of: ListName, filters: Filters) -> JsonObject:
        """Return a page of a list of `db.read.lists`; of calls, name, verdict and q choose those
        with such a tool call."""
        filters = await self.named(filters)
        async with reading(self.engine) as connection:
            keys = await find_keys(connection, of, filters, filters.limit + 1)
            # not all of them, where days are dropped meanwhile
            rows = await whole_rows(connection, keys[: filters.limit], filters.order, PAGE_BYTES)
            items = [_ITEMS[of](row) for row in rows]
            if of != "calls":
                await add_whys(connection, items)
        return {
            "items": items,
            "next_cursor": _cursor(of, rows, len(keys) > len(rows), filters),
        }

    async def lines(
        self, of: ListName, filters: Filters, *, first: int
    ) -> tuple[list[JsonObject], bool]:
        """Return a page of a list for people, and whether there are more: of each payload the first
        bytes, and its length in bytes.

        Each item has its `block`, so that its place is known; calls have block 0.
        """
        filters = await self.named(filters)
        async with reading(self.engine) as connection:
            keys = await find_keys(connection, of, filters, filters.limit + 1)
            rows = await whole_rows(
                connection, keys[: filters.limit], filters.order, PAGE_BYTES, first=first
            )
            items = [_line(of, row) for row in rows]
            if of != "calls":
                await add_whys(connection, items)
        return items, len(keys) > len(rows)

    calls = partialmethod(page, "calls")
    tool_calls = partialmethod(page, "tool-calls")
    judge_blocks = partialmethod(page, "judge-blocks")

    async def reviews(self, filters: Filters) -> JsonObject:
        """Return a page of the decisions that a person is to look at, and how many there are in
        each state."""
        filters = await self.named(filters)
        async with reading(self.engine) as connection:
            rows, items, more = await read_page(connection, filters, PAGE_BYTES)
            counts = await counts_of(connection, filters)
        return {
            "items": items,
            "counts": counts,
            "next_cursor": _cursor("reviews", rows, more, filters),
        }

    async def review(self, call_id: UUID, block: int) -> JsonObject | None:
        """Return one such decision; None where there is none."""
        before = Position("reviews", "asc", call_id, block - 1)
        async with reading(self.engine) as connection:
            asked = Filters(call_id=call_id, order="asc", limit=1, after=before)
            _, items, _ = await read_page(connection, asked, PAGE_BYTES)
        return next((item for item in items if item["block"] == block), None)

    async def draws(self, filters: Filters) -> JsonObject:
        """Draw the sample for audits again, and return what is not as it was."""
        filters = await self.named(filters)
        async with reading(self.engine) as connection:
            return (await check_draws(connection, filters)).item()

    async def chunks(self, call_id: UUID, filters: Filters) -> JsonObject | None:
        """Return a page of a call's chunks; None when there is no such call.

        Each chunk comes with what was written to the client before the next one. `released` on the
        first chunk's page holds what was written before any chunk, unless a filter by verdict is
        given: no chunk's verdict applies to that.
        """
        seq, is_up, after = CHUNK_LOG.c.seq, filters.order == "asc", filters.after
        statement = (
            select(CHUNK_LOG)
            .where(CHUNK_LOG.c.call_id == call_id)
            .order_by(seq.asc() if is_up else seq.desc())
        )
        if filters.verdict is not None:
            statement = statement.where(CHUNK_LOG.c.verdict == filters.verdict)
        if after is not None:
            statement = statement.where(seq > after.number if is_up else seq < after.number)
        async with reading(self.engine) as connection:
            if not await is_known(connection, call_id):
                return None
            rows, more = await _read(connection, statement.limit(filters.limit + 1), filters.limit)
            # ascending, the page without a cursor; descending, the one behind which there is none
            first = filters.verdict is None and (after is None if is_up else not more)
            written = await read_written(
                connection, call_id, [row.seq for row in rows], first=first
            )
        return {
            "released": written.get(None, []),
            "items": [chunk_item(row, written.get(row.seq, [])) for row in rows],
            "next_cursor": _cursor("chunks", rows, more, filters),
        }

    async def call(self, call_id: UUID) -> JsonObject | None:
        """Return one call with its request, tool calls, blocks, judgements and events; None when
        there is no such call."""
        async with reading(self.engine) as connection:
            return await read_call(connection, call_id)

    async def find_call(self, text: str) -> UUID:
        """Return the call id that a text is, or is the only one on record to begin with; pages
        shorten one to its beginning, an ellipsis and its end. Raises InvalidRequest, NotFound."""
        beginning, _, end = text.partition("…")
        parsed = parse_call_id(beginning)
        return parsed if isinstance(parsed, UUID) else await self._call_with(parsed, end.lower())

    async def named(self, filters: Filters) -> Filters:
        """Return the filters with the beginnings of a call id and of a key id made whole. Raises
        InvalidRequest, NotFound."""
        if filters.prefix is not None:
            filters = replace(filters, prefix=None, call_id=await self._call_with(filters.prefix))
        if filters.key_id is not None and KEY_ID_BEGINNING.fullmatch(filters.key_id):
            filters = replace(filters, key_id=await self._key_with(filters.key_id))
        return filters

    async def has_call(self, call_id: UUID) -> bool:
        """Is anything of this call on record?"""
        async with reading(self.engine) as connection:
            return await is_known(connection, call_id)

    async def find_tool_call(self, tool_call_id: str) -> tuple[UUID, int] | None:
        """Return the newest call with a tool call of this id, and its block."""
        condition = ToolCallRow.tool_call_id == to_column(to_short(tool_call_id, INDEXED))
        statement = (
            select(ToolCallRow.call_id, ToolCallRow.block)
            .where(condition)
            .order_by(ToolCallRow.call_id.desc())
            .limit(1)
        )
        async with reading(self.engine) as connection:
            row = (await connection.execute(statement)).one_or_none()
        return None if row is None else (row.call_id, row.block)

    async def find_session(self, session: str) -> list[str]:
        """Return the names of two keys at most that used a session of this name: the one that used
        it last, and any other."""
        condition = CallRow.session == to_column(to_short(session, INDEXED))
        if (key := await self._newest_key(condition)) is None:
            return []
        other = await self._newest_key(condition & (CallRow.key != to_column(key)))
        return [key] if other is None else [key, other]

    async def has_key(self, name: str) -> bool:
        """Is there a call of a key of this name?"""
        return await self._newest_key(CallRow.key == to_column(to_short(name, INDEXED))) is not None

    async def _newest_key(self, condition: ColumnElement[bool]) -> str | None:
        async with reading(self.engine) as connection:
            key: str | None = await connection.scalar(
                select(CallRow.key).where(condition).order_by(CallRow.call_id.desc()).limit(1)
            )
        return None if key is None else from_column(key)

    async def _key_with(self, beginning: str) -> str:
        # two ends of an index
        statement = select(func.min(CallRow.key_id), func.max(CallRow.key_id)).where(
            CallRow.key_id.between(beginning, beginning + "g")
        )
        async with reading(self.engine) as connection:
            first, last = (await connection.execute(statement)).one()
        if first != last:
            raise InvalidRequest(
                f"several key ids begin with {beginning}: {first}, {last}", param="key_id"
            )
        return first or beginning

    async def _call_with(self, prefix: str, end: str = "") -> UUID:
        # as in `is_known`, and those of which only a seal is left; by indexes, a few of each
        tables = (CallRow, End, Event, ToolCallRow, Seal)
        ids = [
            select(t.call_id)
            .where(t.call_id.between(*ids_with(prefix)))
            .distinct()
            .limit(_CANDIDATES + 1)
            for t in tables
        ]
        if end:
            ids = [
                statement.where(
                    func.right(cast(statement.selected_columns.call_id, Text), len(end)) == end
                )
                for statement in ids
            ]
        ids[-1] = ids[-1].where(Seal.part >= 0)
        async with reading(self.engine) as connection:
            call_ids: list[UUID] = sorted(
                await connection.scalars(
                    union(*(select(statement.subquery()) for statement in ids))
                )
            )
        if not call_ids:
            raise NotFound(f"no call on record begins with {prefix}", param="call_id")
        if len(call_ids) > 1:
            named = ", ".join(map(str, call_ids[:_CANDIDATES])) + (
                " and more" if len(call_ids) > _CANDIDATES else ""
            )
            raise InvalidRequest(
                f"several calls begin with {prefix}: {named}",
                param="call_id",
                code="ambiguous_call_id",
            )
        return call_ids[0]

    async def counts(
        self, filters: Filters, by: Sequence[Dimension], *, zone: str = "UTC"
    ) -> JsonObject:
        """Return how many tool calls, of how many calls, there are for each value of `by`; of the
        last week where no time is given.

        `zone` names the time zone of the days; Python and PostgreSQL must know it.
        """
        filters = await self.named(filters)
        if filters.low is None:
            filters = replace(filters, low=week_before(filters.high, zone))
        async with reading(self.engine) as connection:
            parameters = values(filters) | {"limit": MAX_COUNTS + 1, "zone": zone}
            rows = (await connection.execute(counted_calls(filters, by), parameters)).all()
        return counted(filters, by, rows)

    async def count_calls(self, filters: Filters) -> int:
        """Return how many calls a filter chooses: what a progress bar needs."""
        async with reading(self.engine) as connection:
            return int(
                await connection.scalar(
                    text(f"SELECT count(*) FROM ({chosen_calls(filters)}) AS c"), values(filters)
                )
                or 0
            )


def array_of(values: Sequence[Any], like: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return values as one array, of the type that a column has."""
    return literal(values, ARRAY(like.type))


async def _read(
    connection: AsyncConnection, statement: Select[Any], limit: int
) -> tuple[list[Any], bool]:
    """Return a page's rows, and whether there are more."""
    rows: list[Any] = []
    size = 0
    more = False
    result = await connection.stream(statement.execution_options(yield_per=_FETCH))
    async for row in result:
        if len(rows) == limit or size > PAGE_BYTES:
            more = True
            break
        rows.append(row)
        size += _size(row)
    await result.close()
    return rows, more


def _size(row: Any) -> int:
    return sum(len(value) for value in row if isinstance(value, bytes))


def _line(of: ListName, row: Any) -> JsonObject:
    if of == "calls":
        return {"block": 0, **call_item(row)}
    lengths = {name: getattr(row, name) for name in row._fields if name.endswith("_bytes")}
    return {
        **_ITEMS[of](row),
        "block": row.block,
        **lengths,
        "threshold": row.judge_threshold,
        "call_policy": row.call_policy,
    }


def _cursor(of: ListName, rows: Sequence[Any], more: bool, filters: Filters) -> str | None:
    """The cursor behind the last row, None at the end."""
    if not more or not rows:
        return None
    number = {"calls": None, "chunks": "seq"}.get(of, "block")
    return encode_cursor(
        Position(of, filters.order, rows[-1].call_id, getattr(rows[-1], number) if number else 0)
    )
