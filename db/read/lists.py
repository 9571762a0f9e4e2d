"""The audit lists: the rows of each, what each filter compares, and how a page is found. One definition, for pages, counts and the export.

A page is found in two steps. First the keys of its rows, by one statement for each day, the newest day first, until there are enough: within
a day PostgreSQL plans by the statistics of that day, over all days by averages. Then the rows with these keys, as the views show them.
Every table is bounded by the ids of the day, because PostgreSQL leaves out partitions by what is said of the table itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import ARRAY, Integer, LargeBinary, Table, TextClause, Uuid, cast, func, literal, select, text, tuple_, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from db.filters import Filters, ListName, Order, first_id
from db.read.views import CALL_LOG, JUDGED_LOGS, TOOL_CALL_LOG, VIEWS, ids_of, rows_of
from db.text import INDEXED, to_column, to_short

_LOWEST, _HIGHEST = UUID(int=0), UUID(int=2**128 - 1)


def _within(table: str) -> str:
    return f"{table}.call_id >= :low AND {table}.call_id < :high"


def _among(row: str, column: str, *tables: str) -> str:
    """Only calls that have the value of a filter in one of these tables.

    It rules out nothing that the filter's own condition allows. But that is a coalesce or an OR, for which there is no index.
    """
    found = (f"SELECT x.call_id FROM {table} x WHERE x.{column} = :{column} AND {_within('x')}" for table in tables)
    return f"{row}.call_id IN ({' UNION ALL '.join(found)})"


def _judged(row: str, verdict: str, policy: str) -> str:
    """What a judge block is: something refused by a policy whose judgement is on record."""
    judgement = f"j.call_id = {row}.call_id AND j.block = {row}.block AND j.policy = {policy} AND {_within('j')}"
    return f"{verdict} NOT IN ('allow', 'replace') AND EXISTS (SELECT FROM judgements j WHERE {judgement})"


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a list, in SQL: what they are of, those that the list shows, and what each filter compares."""

    view: Table
    row: str
    """The name of the table in `source` that each row is of."""
    source: str
    compares: dict[str, str]
    shows: str = "true"

    def where(self, names: frozenset[str]) -> str:
        """Return the condition for the filters of these names."""
        chosen = [condition for name, condition in self.compares.items() if name in names]
        if self.view is CALL_LOG and (said := names & {"name", "verdict", "words"}):
            chosen.append(_with_tool_call(said))
        return " AND ".join([_within(self.row), self.shows, *chosen])


_VERDICT, _POLICY = "coalesce(b.verdict, t.verdict)", "coalesce(b.policy, t.policy)"
_IS_VERDICT, _IS_POLICY = (f"CASE WHEN b.call_id IS NULL THEN t.{x} = :{x} ELSE b.{x} = :{x} END" for x in ("verdict", "policy"))
"""Not a coalesce: PostgreSQL takes one in two hundred to equal a value, and then reads and sorts the whole day for a common one."""
_LATER = f"LEFT JOIN blocks b ON b.call_id = t.call_id AND b.block = t.block AND {_within('b')}"
"""A block under the key of a tool call is the later word on it."""
_OF_CALL = {name: f"c.{name} = :{name}" for name in ("session", "model", "key", "key_id")}
_OF_TOOL_CALL = {
    "name": "t.name = :name",
    "verdict": f"{_IS_VERDICT} AND {_among('t', 'verdict', 'tool_calls', 'blocks')}",
    "words": "t.search @@ plainto_tsquery('simple', :words)",
}
_CALLS = Rows(
    CALL_LOG, "c", f"calls c LEFT JOIN ends e ON e.call_id = c.call_id AND {_within('e')}",
    {**_OF_CALL, "policy": "c.policy = :policy", "state": "coalesce(e.state, 'ACTIVE') = :state"},
)  # fmt: skip
_TOOL_CALLS = Rows(
    TOOL_CALL_LOG, "t", f"tool_calls t {_LATER} LEFT JOIN calls c ON c.call_id = t.call_id AND {_within('c')}",
    {
        **_OF_CALL, **_OF_TOOL_CALL,
        "policy": f"({_IS_POLICY} OR c.policy = :policy) AND {_among('t', 'policy', 'calls', 'tool_calls', 'blocks')}",
    },
)  # fmt: skip
_JUDGED_CALLS = Rows(
    JUDGED_LOGS[0], "t", _TOOL_CALLS.source,
    {**_TOOL_CALLS.compares, "policy": f"({_IS_POLICY} OR c.policy = :policy) AND {_among('t', 'policy', 'calls', 'judgements')}"},
    _judged("t", _VERDICT, _POLICY),
)  # fmt: skip
_JUDGED_BLOCKS = Rows(
    JUDGED_LOGS[1], "b", f"blocks b LEFT JOIN calls c ON c.call_id = b.call_id AND {_within('c')}",
    {
        **_OF_CALL, "name": "false", "verdict": "b.verdict = :verdict", "words": "to_tsvector('simple', b.reason) @@ plainto_tsquery('simple', :words)",
        "policy": f"(b.policy = :policy OR c.policy = :policy) AND {_among('b', 'policy', 'calls', 'judgements')}",
    },
    _judged("b", "b.verdict", "b.policy")
    + f" AND NOT EXISTS (SELECT FROM tool_calls t WHERE t.call_id = b.call_id AND t.block = b.block AND {_within('t')})",
)  # fmt: skip
LISTS: dict[ListName, tuple[Rows, ...]] = {"calls": (_CALLS,), "tool-calls": (_TOOL_CALLS,), "judge-blocks": (_JUDGED_CALLS, _JUDGED_BLOCKS)}
COUNTED = {
    "day": "CAST(timezone(CAST(:zone AS text), sluice_call_at(t.call_id)) AS date)", "key": "c.key", "key_id": "c.key_id",
    "session": "c.session", "model": "c.model", "name": "t.name", "verdict": _VERDICT, "policy": _POLICY,
    "reason": "coalesce(b.reason, t.reason)",
}  # fmt: skip
"""What tool calls can be counted by."""


def _with_tool_call(names: frozenset[str]) -> str:
    """Calls with a tool call that these filters mean; a verdict alone also means calls with such a block."""
    of_tool = " AND ".join([_within("t"), *(_OF_TOOL_CALL[name] for name in sorted(names))])
    found = f"SELECT t.call_id FROM tool_calls t {_LATER} WHERE {of_tool}"
    if names == {"verdict"}:
        found += f" UNION ALL SELECT x.call_id FROM blocks x WHERE x.verdict = :verdict AND {_within('x')}"
    return f"c.call_id IN ({found})"


class Key(NamedTuple):
    """The key of a row, and the view that shows it. A call has block 0."""

    call_id: UUID
    block: int
    view: str


def values(filters: Filters) -> dict[str, Any]:
    """Return the parameters of all statements for these filters, but for `limit`."""
    names = ("session", "model", "key", "key_id", "name", "verdict", "policy", "words", "state")
    # as what is long was stored (`db.write.fit`); words have an index of their own
    given = {name: str(value) for name in names if (value := getattr(filters, name)) is not None}
    found: dict[str, Any] = {name: to_column(v if name == "words" else to_short(v, INDEXED)) for name, v in given.items()}
    low, high = filters.low or _LOWEST, filters.high or _HIGHEST
    if (one := filters.call_id) is not None:
        low, high = max(low, one), min(high, _next(one))
    if (after := filters.after) is not None:
        found |= {"after_id": after.call_id, "after_number": after.number}
        low, high = (max(low, after.call_id), high) if filters.order == "asc" else (low, min(high, _next(after.call_id)))
    return {**found, "low": low, "high": high}


async def find_keys(connection: AsyncConnection, of: ListName, filters: Filters, limit: int) -> list[Key]:
    """Return the first `limit` keys after the cursor, in the order of the list."""
    given = values(filters)
    found: list[Key] = []
    if of == "judge-blocks" and given.get("verdict") in ("allow", "replace"):
        # none of those is one, which to find out would take a look at all of them
        return found
    statement = _keys(of, frozenset(given), filters.order)
    for low, high in await _days(connection, given["low"], given["high"], filters.order):
        rows = await connection.execute(statement, given | {"low": low, "high": high, "limit": limit - len(found)})
        found += map(Key._make, rows)
        if len(found) == limit:
            break
    return found


async def whole_rows(connection: AsyncConnection, keys: Sequence[Key], order: Order, most_bytes: int) -> list[Any]:
    """Return the rows that have these keys, in order, none behind `most_bytes` of payload. Payloads are measured where they lie."""
    if not keys:
        return []
    pages, given = [], {}
    for view in (VIEWS.tables[name] for name in sorted({key.view for key in keys})):
        own = [key for key in keys if key.view == view.name]
        rows = rows_of(view)
        page = select(*(column for column in rows.c if column.name != "search"))
        if view is not CALL_LOG:
            lists = cast(literal([key.call_id for key in own], ARRAY(Uuid)), ARRAY(Uuid)), cast(literal([key.block for key in own], ARRAY(Integer)), ARRAY(Integer))
            asked = func.unnest(*lists).table_valued("call_id", "block").render_derived(name=f"{view.name}_asked")
            page = page.where(tuple_(rows.c.call_id, rows.c.block).in_(select(asked.c.call_id, asked.c.block)))
        pages.append(page)
        given[ids_of(view)] = [key.call_id for key in own]
    found = (union_all(*pages) if len(pages) > 1 else pages[0]).subquery()
    way = [column.asc() if order == "asc" else column.desc() for column in (found.c.call_id, found.c.get("block")) if column is not None]
    payloads = [func.coalesce(func.octet_length(column), 0) for column in found.c if isinstance(column.type, LargeBinary)]
    before = func.sum(sum(payloads, start=literal(0))).over(order_by=way, rows=(None, -1)).label("before")
    measured = select(found, before).subquery()
    within = select(measured).where(func.coalesce(measured.c.before, 0) <= most_bytes)
    way = [column.asc() if order == "asc" else column.desc() for column in (measured.c.call_id, measured.c.get("block")) if column is not None]
    return list(await connection.execute(within.order_by(*way), given))


def chosen_calls(filters: Filters) -> str:
    """Return the statement for the ids of all calls that the filters choose, for `values`."""
    return f"SELECT c.call_id FROM {_CALLS.source} WHERE {_CALLS.where(frozenset(values(filters)))}"


def counted_calls(filters: Filters, by: Sequence[str]) -> TextClause:
    """Return the statement for counts of tool calls, for `values`, a `limit` and a time `zone`: the columns of `by`, then tool calls and calls,
    in the order of `by`."""
    columns = ", ".join(f"{COUNTED[name]} AS {name}" for name in by)
    order = ", ".join(str(n + 1) for n in range(len(by)))
    return text(
        f"SELECT {columns}, count(*) AS tool_calls, count(DISTINCT t.call_id) AS calls FROM {_TOOL_CALLS.source} "
        f"WHERE {_TOOL_CALLS.where(frozenset(values(filters)))} GROUP BY {order} ORDER BY {order} LIMIT :limit"
    )


@cache
def _keys(of: ListName, names: frozenset[str], order: Order) -> TextClause:
    """The statement for the keys of a list between two calls, with the filters of these names."""
    way, past = ("ASC", ">") if order == "asc" else ("DESC", "<")
    pages = []
    for rows in LISTS[of]:
        block = "0" if rows.view is CALL_LOG else f"{rows.row}.block"
        behind = f" AND ({rows.row}.call_id, {block}) {past} (:after_id, :after_number)" if "after_id" in names else ""
        keys = f"SELECT {rows.row}.call_id, {block} AS block, '{rows.view.name}' AS view FROM {rows.source} WHERE {rows.where(names)}{behind}"
        by = f"{rows.row}.call_id {way}" if rows.view is CALL_LOG else f"{rows.row}.call_id {way}, {block} {way}"
        pages.append(f"({keys} ORDER BY {by} LIMIT :limit)")
    return text(pages[0] if len(pages) == 1 else f"{' UNION ALL '.join(pages)} ORDER BY 1 {way}, 2 {way} LIMIT :limit")


_DAYS = text("""
SELECT DISTINCT right(CAST(CAST(inhrelid AS regclass) AS text), 8) FROM pg_inherits
WHERE inhparent IN (CAST('calls' AS regclass), CAST('tool_calls' AS regclass), CAST('blocks' AS regclass))
""")


async def _days(connection: AsyncConnection, low: UUID, high: UUID, order: Order) -> list[tuple[UUID, UUID]]:
    """The days between two ids that have partitions, in order, each up to the next: what lies between is in the default partitions.

    Days to come, whose partitions are made beforehand, belong to today.
    """
    days = [datetime.strptime(day, "%Y%m%d").replace(tzinfo=UTC) for day in await connection.scalars(_DAYS) if day.isdecimal()]
    begins = [first for day in sorted(days) if day <= datetime.now(UTC) and low < (first := first_id(day)) < high]
    found = list(pairwise([low, *begins, high])) if low < high else []
    return found if order == "asc" else found[::-1]


def _next(call_id: UUID) -> UUID:
    return UUID(int=min(call_id.int + 1, _HIGHEST.int))
