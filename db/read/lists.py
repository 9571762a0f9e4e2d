"""The audit lists: the rows of each, what each filter compares, how a page is found. One definition
for pages, counts and the export.

A page is found in two steps. First the keys of its rows, by one statement for each day, the newest
day first, until there are enough: in a day PostgreSQL plans by the statistics of that day, over all
days by averages. Then the rows with these keys, as the views show them. Every table is bounded by
the ids of the day, because PostgreSQL prunes partitions only by conditions on the table itself.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Integer,
    LargeBinary,
    Subquery,
    Table,
    TextClause,
    Uuid,
    func,
    literal,
    select,
    text,
    tuple_,
    union_all,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from db.filters import Filters, ListName, Order, first_id
from db.read.views import CALL_LOG, JUDGED_LOGS, TOOL_CALL_LOG, VIEWS, ids_of, rows_of
from db.text import INDEXED, to_column, to_short
from protocol.records import PASSED

_LOWEST, _HIGHEST = UUID(int=0), UUID(int=2**128 - 1)


def _within(table: str) -> str:
    return f"{table}.call_id >= :low AND {table}.call_id < :high"


def _exists(table: str, name: str, row: str, condition: str = "true") -> str:
    """The row has one of another table under its key. By look-ups: without the OFFSET it were a
    join, which may begin with that table."""
    same = f"{name}.call_id = {row}.call_id AND {name}.block = {row}.block AND {_within(name)}"
    return f"EXISTS (SELECT FROM {table} {name} WHERE {same} AND {condition} OFFSET 0)"


class _Rows(NamedTuple):
    """Rows of a list: the view that shows them, what they are of, the table name of a row, and its
    number within the call."""

    view: Table
    source: str
    row: str
    block: str
    word: str
    """The table name under which the verdict and its policy stand."""
    shows: str = "true"
    search_vector: str = "t.search"
    """Where words are looked for."""


_CALLS = _Rows(CALL_LOG, "calls c", "c", "0", "c")
_TOOL_CALLS = _Rows(TOOL_CALL_LOG, "tool_calls t", "t", "t.block", "t")
_FIRST = _TOOL_CALLS._replace(shows=f"NOT {_exists('blocks', 'b', 't')}")
"""Tool calls without a later verdict."""
_LATER_ON = f"b.call_id = t.call_id AND b.block = t.block AND {_within('b')}"
_LATER = _TOOL_CALLS._replace(
    source=f"tool_calls t JOIN blocks b ON {_LATER_ON} AND b.kind NOT IN ('text', 'thinking')",
    word="b",
)
"""Those of which something was: a block under the key of a tool call is the later word on it, and
of neither of these kinds."""
_ANY_BLOCKS = _Rows(
    JUDGED_LOGS[1], "blocks b", "b", "b.block", "b", search_vector="to_tsvector('simple', b.reason)"
)
_BLOCKS = _ANY_BLOCKS._replace(shows=f"NOT {_exists('tool_calls', 't', 'b')}")
"""Content blocks that are no tool calls."""


def _judged(rows: _Rows, view: Table, refused: str = "NOT IN") -> _Rows:
    """What a judge block is: something refused by a policy whose judgement is on record. Or what
    such a policy let pass."""
    judgement = _exists("judgements", "j", rows.word, f"j.policy = {rows.word}.policy")
    return rows._replace(
        view=view, shows=f"{rows.shows} AND {rows.word}.verdict {refused} {PASSED} AND {judgement}"
    )


_JUDGED, _PASSED = (
    (
        _judged(_FIRST, JUDGED_LOGS[0], way),
        _judged(_LATER, JUDGED_LOGS[0], way),
        _judged(_BLOCKS, JUDGED_LOGS[1], way),
    )
    for way in ("NOT IN", "IN")
)
_CALL_FILTERS = ("session", "model", "key", "key_id")
_OF_CALL = "c.policy = :policy"
_COMPARED = {
    **{name: f"c.{name} = :{name}" for name in _CALL_FILTERS},
    "state": (
        "coalesce((SELECT e.state FROM ends e WHERE e.call_id = c.call_id AND "
        + _within("e")
        + "), 'ACTIVE') = :state"
    ),
    "name": "t.name = :name",
    "verdict": "{word}.verdict = :verdict",
    # a word of three letters or more also finds those that begin with it
    "words": (
        "{said} @@ CAST(regexp_replace(CAST(plainto_tsquery('simple', :words) AS text), "
        "'([^ '']{{3,}})' || chr(39), '\\1' || chr(39) || ':*', 'g') AS tsquery)"
    ),
    "label": (
        ":label = (SELECT l.label FROM labels l WHERE (l.call_id, l.block) = ({word}.call_id,"
        " {word}.block) ORDER BY l.at DESC LIMIT 1)"
    ),
}
"""What each filter compares; but for `policy`, which compares the policy that decided, or that of
the call."""
_PLACES = {
    **dict.fromkeys(_CALL_FILTERS, ("calls x",)),
    "name": ("tool_calls x",),
    "verdict": ("tool_calls x", "blocks x"),
    "label": ("labels x",),
}
"""Where there is an index of what a filter compares. Not of words: PostgreSQL may read a day's rows
until one says them."""
_LATER_BLOCKS = "(SELECT policy, call_id FROM blocks WHERE kind NOT IN ('text', 'thinking')) x"
_POLICY_PLACES: dict[ListName, tuple[str, ...]] = {
    "calls": ("calls x",),
    "tool-calls": ("calls x", "tool_calls x", _LATER_BLOCKS),
    "judge-blocks": ("calls x", "judgements x"),
}
"""Those for `policy`: one that decided on a judge block has a judgement there."""
_LOOK_AFTER = 2
"""Where so many days did not fill the page, it is asked in which of the others a filter finds
something."""
Bounds = tuple[UUID, UUID]
COUNTED = {
    "day": "CAST(timezone(CAST(:zone AS text), sluice_call_at(t.call_id)) AS date)",
    "key": "c.key",
    "key_id": "c.key_id",
    "session": "c.session",
    "model": "c.model",
    "name": "t.name",
    "verdict": "coalesce(b.verdict, t.verdict)",
    "policy": "coalesce(b.policy, t.policy)",
    "reason": "coalesce(b.reason, t.reason)",
}
"""What tool calls can be counted by."""


def _rows(of: ListName, names: Set[str]) -> tuple[_Rows, ...]:
    """What a list shows with the filters of these names.

    For a coalesce there is no index, so what compares the word on a tool call is asked of the first
    words and of the later ones.
    """
    if of == "judge-blocks":
        judged = _PASSED if "passed" in names else _JUDGED
        return tuple(rows for rows in judged if rows.row == "t" or "name" not in names)
    if of == "tool-calls":
        return (_FIRST, _LATER) if names & {"verdict", "policy"} else (_TOOL_CALLS,)
    if not (of_tools := names & {"name", "verdict", "words"}):
        return (_CALLS,)
    # calls with such a tool call; by a verdict alone also those with such a block
    sources = (
        (_TOOL_CALLS,)
        if "verdict" not in names
        else (_FIRST, _ANY_BLOCKS if len(of_tools) == 1 else _LATER)
    )
    return tuple(rows._replace(view=CALL_LOG, block="0") for rows in sources)


def _policies(of: ListName, word: str) -> tuple[str, ...]:
    """What the filter `policy` compares: the policy that decided, or that of the call. There is no
    index for an OR: each is asked for."""
    decided = f"{word}.policy = :policy"
    if of == "judge-blocks":
        # a day without a judgement of that policy need not be read
        decided += (
            f" AND EXISTS (SELECT FROM judgements g WHERE g.policy = :policy AND {_within('g')})"
        )
    return (_OF_CALL,) if of == "calls" else (_OF_CALL, decided)


def _cases(of: ListName, names: Set[str]) -> Iterator[tuple[_Rows, str]]:
    """Yield statements for keys: all together what a list shows with the filters of these names."""
    for rows in _rows(of, names):
        compared = [
            how.format(word=rows.word, said=rows.search_vector)
            for name, how in _COMPARED.items()
            if name in names
        ]
        for policy in _policies(of, rows.word) if "policy" in names else ("true",):
            needs_call = of == "calls" or policy == _OF_CALL or not names.isdisjoint(_CALL_FILTERS)
            is_joined = needs_call and rows is not _CALLS
            joined = (
                f" JOIN calls c ON c.call_id = {rows.row}.call_id AND {_within('c')}"
                if is_joined
                else ""
            )
            # several tool calls may be of one call
            each = "DISTINCT " if is_joined and of == "calls" else ""
            conditions = " AND ".join([_within(rows.row), rows.shows, *compared, policy])
            keys = f"SELECT {each}{rows.row}.call_id, {rows.block}, '{rows.view.name}'"
            yield rows, f"{keys} FROM {rows.source}{joined} WHERE {conditions}"


class RowKey(NamedTuple):
    """The key of a row, and the view that shows it. A call has block 0."""

    call_id: UUID
    block: int
    view: str


def values(filters: Filters) -> dict[str, Any]:
    """Return the parameters of all statements for these filters, but for `limit`."""
    names = "session model key key_id name verdict policy words state label".split()
    # as what is long was stored (`db.write.fit_columns`); words have an index of their own
    filter_values = {
        name: str(value) for name in names if (value := getattr(filters, name)) is not None
    }
    parameters: dict[str, Any] = {
        name: to_column(v if name == "words" else to_short(v, INDEXED))
        for name, v in filter_values.items()
    }
    low, high = filters.low or _LOWEST, filters.high or _HIGHEST
    if (call_id := filters.call_id) is not None:
        low, high = max(low, call_id), min(high, _next(call_id))
    if (after := filters.after) is not None:
        parameters |= {"after_id": after.call_id, "after_number": after.number}
        low, high = (
            (max(low, after.call_id), high)
            if filters.order == "asc"
            else (low, min(high, _next(after.call_id)))
        )
    return {**parameters, "low": low, "high": high}


async def find_keys(
    connection: AsyncConnection, of: ListName, filters: Filters, limit: int
) -> list[RowKey]:
    """Return the first `limit` keys after the cursor, in the order of the list."""
    parameters = values(filters)
    keys: list[RowKey] = []
    names = frozenset(parameters)
    if of == "judge-blocks" and parameters.get("verdict") in PASSED:
        if not filters.passed:
            # none of those is one, which to find out would take a look at all of them
            return keys
        names |= {"passed"}
    statement = _keys(of, names, filters.order)
    days = await _days(connection, parameters["low"], parameters["high"], filters.order)
    looked = 0
    while days and len(keys) < limit:
        (low, high), *days = days
        rows = await connection.execute(
            statement, parameters | {"low": low, "high": high, "limit": limit - len(keys)}
        )
        keys += map(RowKey._make, rows)
        looked += 1
        if (
            looked == _LOOK_AFTER
            and len(keys) < limit
            and days
            and (places := _places(of, parameters.keys()))
        ):
            days = await _days_with(connection, places, parameters, days)
    return keys


async def whole_rows(
    connection: AsyncConnection,
    keys: Sequence[RowKey],
    order: Order,
    most_bytes: int,
    *,
    first: int | None = None,
) -> list[Any]:
    """Return the rows that have these keys, in order, none behind `most_bytes` of payload. Payloads
    are measured where they lie.

    With `first` a row has only the first bytes of each payload, and its length as `NAME_bytes`.
    """
    pages, parameters = [], dict[str, Any]()
    for view in (VIEWS.tables[name] for name in sorted({key.view for key in keys})):
        ids, blocks = ([key[n] for key in keys if key.view == view.name] for n in (0, 1))
        rows = rows_of(view)
        page = select(
            *(
                shown
                for column in rows.c
                if column.name != "search"
                for shown in _shown(column, first)
            )
        )
        if view is not CALL_LOG:
            lists = literal(ids, ARRAY(Uuid)), literal(blocks, ARRAY(Integer))
            asked = (
                func.unnest(*lists)
                .table_valued("call_id", "block")
                .render_derived(name=f"{view.name}_asked")
            )
            page = page.where(
                tuple_(rows.c.call_id, rows.c.block).in_(select(asked.c.call_id, asked.c.block))
            )
        pages.append(page)
        parameters[ids_of(view)] = ids
    if not pages:
        return []
    combined = union_all(*pages).subquery()
    payloads = [
        func.coalesce(func.octet_length(column), 0)
        for column in combined.c
        if isinstance(column.type, LargeBinary)
    ]
    before = func.sum(sum(payloads, start=literal(0))).over(
        order_by=_in_order(combined, order), rows=(None, -1)
    )
    measured = select(combined, before.label("before")).subquery()
    within = (
        select(measured)
        .where(func.coalesce(measured.c.before, 0) <= most_bytes)
        .order_by(*_in_order(measured, order))
    )
    return list(await connection.execute(within, parameters))


def _shown(column: ColumnElement[Any], first: int | None) -> list[ColumnElement[Any]]:
    if first is None or not isinstance(column.type, LargeBinary):
        return [column]
    name = str(column.name)
    return [
        func.substring(column, 1, first, type_=LargeBinary).label(name),
        func.octet_length(column).label(f"{name}_bytes"),
    ]


def _in_order(rows: Subquery, order: Order) -> list[ColumnElement[Any]]:
    return [
        rows.c[name].asc() if order == "asc" else rows.c[name].desc()
        for name in ("call_id", "block")
        if name in rows.c
    ]


def chosen_calls(filters: Filters) -> str:
    """Return the statement for the ids of all calls that the filters choose, in order, for
    `values`."""
    cases = " UNION ".join(case for _, case in _cases("calls", values(filters).keys()))
    return f"SELECT call_id FROM ({cases}) AS chosen (call_id, block, view) ORDER BY call_id"


def counted_calls(filters: Filters, by: Sequence[str]) -> TextClause:
    """Return the statement for counts of tool calls, for `values`, a `limit` and a time `zone`: the
    columns of `by`, then `tool_calls` and `calls`, in the order of `by`."""
    parameters = values(filters)
    conditions = [
        _within("t"),
        *(
            f"{COUNTED[name]} = :{name}"
            for name in COUNTED
            if name in parameters and name != "policy"
        ),
    ]
    if "policy" in parameters:
        conditions.append(f"({COUNTED['policy']} = :policy OR c.policy = :policy)")
    columns = ", ".join(f"{COUNTED[name]} AS {name}" for name in by)
    order = ", ".join(str(n + 1) for n in range(len(by)))
    return text(
        f"SELECT {columns}, count(*) AS tool_calls, count(DISTINCT t.call_id) AS calls FROM"
        f" tool_calls t LEFT JOIN blocks b ON {_LATER_ON} LEFT JOIN calls c ON c.call_id ="
        f" t.call_id AND {_within('c')} WHERE {' AND '.join(conditions)} GROUP BY {order} ORDER BY"
        f" {order} LIMIT :limit"
    )


@cache
def _keys(of: ListName, names: frozenset[str], order: Order) -> TextClause:
    """The statement for the first keys of a list between two calls, with the filters of these
    names."""
    way, past = ("ASC", ">") if order == "asc" else ("DESC", "<")
    by = f"ORDER BY 1 {way}" if of == "calls" else f"ORDER BY 1 {way}, 2 {way}"
    pages = []
    for rows, case in _cases(of, names):
        behind = (
            f" AND ({rows.row}.call_id, {rows.block}) {past} (:after_id, :after_number)"
            if "after_id" in names
            else ""
        )
        pages.append(f"({case}{behind} {by} LIMIT :limit)")
    return text(pages[0] if len(pages) == 1 else f"{' UNION '.join(pages)} {by} LIMIT :limit")


_DAYS = text("""
SELECT DISTINCT right(CAST(CAST(inhrelid AS regclass) AS text), 8) FROM pg_inherits
WHERE inhparent IN (CAST('calls' AS regclass), CAST('tool_calls' AS regclass), CAST('blocks' AS
    regclass))
""")


async def _days(connection: AsyncConnection, low: UUID, high: UUID, order: Order) -> list[Bounds]:
    """The days between two ids that have partitions, in order, each up to the next: what lies
    between is in the default partitions.

    Days to come, whose partitions are made beforehand, belong to today.
    """
    days = [
        datetime.strptime(day, "%Y%m%d").replace(tzinfo=UTC)
        for day in await connection.scalars(_DAYS)
        if day.isdecimal()
    ]
    begins = [
        first
        for day in sorted(days)
        if day <= datetime.now(UTC) and low < (first := first_id(day)) < high
    ]
    spans = list(pairwise([low, *begins, high])) if low < high else []
    return spans if order == "asc" else spans[::-1]


def _places(of: ListName, names: Set[str]) -> dict[str, tuple[str, ...]]:
    """Where each of these filters finds what a list shows, as far as that has an index."""
    return {
        name: tables
        for name, tables in (_PLACES | {"policy": _POLICY_PLACES[of]}).items()
        if name in names
    }


async def _days_with(
    connection: AsyncConnection,
    places: Mapping[str, Sequence[str]],
    parameters: Mapping[str, Any],
    days: Sequence[Bounds],
) -> list[Bounds]:
    """Those of the days in which each filter by itself finds something, by its index: planning a
    statement for a day costs more."""
    conditions = []
    for name, tables in places.items():
        within = f"x.{name} = :{name} AND x.call_id >= day.low AND x.call_id < day.high"
        conditions.append(
            " OR ".join(f"EXISTS (SELECT FROM {table} WHERE {within} OFFSET 0)" for table in tables)
        )
    lows, highs = zip(*days, strict=True)
    statement = f"""
        SELECT day.low, day.high FROM unnest(CAST(:lows AS uuid[]), CAST(:highs AS uuid[])) WITH
            ORDINALITY AS day (low, high, n)
        WHERE ({") AND (".join(conditions)}) ORDER BY day.n
    """
    return [
        (low, high)
        for low, high in await connection.execute(
            text(statement), {**parameters, "lows": list(lows), "highs": list(highs)}
        )
    ]


def _next(call_id: UUID) -> UUID:
    return UUID(int=min(call_id.int + 1, _HIGHEST.int))
