"""What a list shows of given calls: statements whose text and plan are the same whatever is asked for.

Each looks a call up by the primary keys of its tables, so no value needs a plan of its own, and a connection plans it once, for all
partitions (5 to 25 ms, kept in 1 to 2 MB), instead of every time for each day and filter (25 of 32 ms of a question for something rare).
"""

from collections import namedtuple
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import ClauseElement, LargeBinary, Table, text
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from db.filters import Filters, ListName, Order, State
from db.read.keysets import values
from db.read.plans import KeptPlans
from db.read.views import CALL_LOG, JUDGED_LOGS, TOOL_CALL_LOG, StoredText, each_of
from db.text import ESCAPE, from_column

_OF_CALL = ("session", "model", "key", "key_id")
_NAMES = (*_OF_CALL, "name", "verdict", "policy", "words")


class Key(NamedTuple):
    """The key of an item; a call has no block. The id is text."""

    call_id: str
    block: int
    view: str


def key_of(of: ListName, row: Sequence[Any]) -> Key:
    """Return a row of the statements of `db.read.keysets` as a key."""
    match of:
        case "calls":
            return Key(str(row[0]), 0, CALL_LOG.name)
        case "tool-calls":
            return Key(str(row[0]), row[1], TOOL_CALL_LOG.name)
        case _:
            return Key(str(row[0]), *row[1:])


async def keys_among(plans: KeptPlans, of: ListName, filters: Filters, ids: Sequence[str], limit: int) -> list[Key]:
    """Return the first `limit` keys that a list shows of these calls, which are in order, behind the cursor."""
    chosen, after = values(filters), filters.after
    given = {name: chosen.get(name) for name in _NAMES} | {"ids": _array(ids), "limit": str(limit), "after_id": None, "after_number": None}
    given |= _ends(ids[0], ids[-1])
    if after is not None:
        given |= {"after_id": str(after.call_id), "after_number": str(after.number)}
    return [Key(*row) for row in await plans.ask(_keys(of, filters.order, filters.state), given)]


async def whole_rows(plans: KeptPlans, keys: Sequence[Key], order: Order, most_bytes: int) -> list[Any]:
    """Return the rows that have these keys, in order; of what belongs to one view none behind `most_bytes` of payload."""
    found: list[Any] = []
    views = {key.view for key in keys}
    for name in sorted(views):
        own = [key for key in keys if key.view == name]
        given = {
            "ids": _array([key.call_id for key in own]),
            "blocks": _array([key.block for key in own]),
            "most": str(most_bytes),
            **_ends(own[0].call_id, own[-1].call_id),
        }
        found += map(_shown_as(name), await plans.ask(_rows(name), given))
    if len(views) > 1:
        found.sort(key=lambda row: (row.call_id, row.block), reverse=order == "desc")
    return found


def text_of(statement: ClauseElement) -> str:
    """Return a statement as the driver takes it."""
    return str(statement.compile(dialect=PGDialect_psycopg()))  # type: ignore[no-untyped-call]


def _ends(one: str, other: str) -> dict[str, str]:
    """The first and the last call of a statement, given the ends of a list in any order."""
    return {"first": min(one, other), "last": max(one, other)}


def _array(values: Sequence[Any]) -> str:
    """As text, like all parameters here: the driver keeps a statement for each set of types, and None has none."""
    return f"{{{','.join(map(str, values))}}}"


@cache
def _shown_as(view: str) -> Callable[[Sequence[Any]], Any]:
    """What makes a row of `_rows` one of the view: values by name, text as it was before it was stored."""
    columns = _columns(view)
    row: Any = namedtuple("row", [column.name for column in columns])  # type: ignore[misc]
    stored = [n for n, column in enumerate(columns) if isinstance(column.type, StoredText)]

    def shown(values: Sequence[Any]) -> Any:
        escaped = [n for n in stored if values[n] and ESCAPE in values[n]]
        if not escaped:
            return row._make(values)
        return row._make(from_column(value) if n in escaped else value for n, value in enumerate(values))

    return shown


def _columns(view: str) -> list[Any]:
    return [column for column in CALL_LOG.metadata.tables[view].c if column.name != "search"]


@cache
def _rows(view: str) -> str:
    """The statement for whole rows, in the order of their keys. Payloads are measured where they lie, and read up to the bound only."""
    table: Table = CALL_LOG.metadata.tables[view]
    columns = _columns(view)
    names = ", ".join(f"v.{column.name}" for column in columns)
    payloads = [f"coalesce(octet_length(v.{column.name}), 0)" for column in columns if isinstance(column.type, LargeBinary)]
    before = f"sum({' + '.join(payloads) or '0'}) OVER (ORDER BY given.n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    shown = f"""
        SELECT {names} FROM (
            SELECT given.n, {before} AS before, {names}
            FROM unnest(CAST(:ids AS uuid[]), CAST(:blocks AS integer[])) WITH ORDINALITY AS given (call_id, block, n)
            CROSS JOIN LATERAL ({each_of(table)} OFFSET 0) AS v
        ) AS v WHERE coalesce(v.before, 0) <= CAST(:most AS bigint) ORDER BY v.n
    """
    return text_of(text(shown))


@cache
def _keys(of: ListName, order: Order, state: State | None = None) -> str:
    """The statement for the keys of a list among some calls; filters that are not given are null.

    The calls are looked up as they come, until there are enough: ordered all together, each would be looked up first.
    """
    of_calls = _CALLS if state is None else f"{_CALLS} AND coalesce({_STATE}, '{State.ACTIVE}') = '{state}'"
    calls, found = {"calls": ("", of_calls), "tool-calls": (_UNDER, _TOOL_CALLS)}.get(of, (_UNDER, _JUDGE_BLOCKS))
    way, past = ("ASC", ">") if order == "asc" else ("DESC", "<")
    statement = f"""
        SELECT CAST(k.call_id AS text), k.block, k.view
        FROM ({calls or "SELECT unnest(CAST(:ids AS uuid[])) AS call_id"}) AS given CROSS JOIN LATERAL ({found} ORDER BY 2 {way}) AS k
        WHERE CAST(:after_id AS uuid) IS NULL OR (k.call_id, k.block) {past} (CAST(:after_id AS uuid), CAST(:after_number AS integer))
        LIMIT CAST(:limit AS integer)
    """
    return text_of(text(statement))


def _is(column: str, name: str) -> str:
    return f"(CAST(:{name} AS text) IS NULL OR {column} = CAST(:{name} AS text))"


def _of(table: str, given: str = "given") -> str:
    """The rows of a call, in a table whose other partitions are left out from the start (1.7 ms)."""
    return f"{table}.call_id = {given}.call_id AND {table}.call_id BETWEEN CAST(:first AS uuid) AND CAST(:last AS uuid)"


def _matches(column: str) -> str:
    return f"(CAST(:words AS text) IS NULL OR {column} @@ plainto_tsquery('simple', CAST(:words AS text)))"


_STATE = f"(SELECT e.state FROM ends e WHERE {_of('e')} OFFSET 0)"
"""Only in the statements that ask for it: planning it for all partitions takes time."""
_UNDER = f"""
    SELECT ids.call_id, c.policy FROM unnest(CAST(:ids AS uuid[])) AS ids (call_id)
    LEFT JOIN LATERAL (SELECT * FROM calls c WHERE {_of("c", "ids")} OFFSET 0) AS c ON true
    WHERE {" AND ".join(_is(f"c.{name}", name) for name in _OF_CALL)} OFFSET 0
"""
"""What is not in such a call is not looked at any further. Without the inner OFFSET all calls between the ends were read (10 ms)."""
_TOOL_CALLS = f"""
    SELECT t.call_id, t.block, '{TOOL_CALL_LOG.name}' AS view
    FROM tool_calls t LEFT JOIN blocks b ON {_of("b")} AND b.block = t.block
    WHERE {_of("t")} AND {_is("t.name", "name")} AND {_is("coalesce(b.verdict, t.verdict)", "verdict")}
        AND {_matches("t.search")} AND ({_is("coalesce(b.policy, t.policy)", "policy")} OR given.policy = CAST(:policy AS text))
"""
_REFUSED = "verdict NOT IN ('allow', 'replace')"
_JUDGE_BLOCKS = f"""
    SELECT w.call_id, w.block, w.view
    FROM (
        SELECT t.call_id, t.block, t.name, t.verdict, t.policy, t.search, '{JUDGED_LOGS[0].name}' AS view
        FROM tool_calls t WHERE {_of("t")} AND t.{_REFUSED}
            AND NOT EXISTS (SELECT FROM blocks b WHERE {_of("b")} AND b.block = t.block OFFSET 0)
        UNION ALL
        SELECT b.call_id, b.block, t.name, b.verdict, b.policy,
            CASE WHEN t.call_id IS NULL THEN to_tsvector('simple', b.reason) ELSE t.search END,
            CASE WHEN t.call_id IS NULL THEN '{JUDGED_LOGS[1].name}' ELSE '{JUDGED_LOGS[0].name}' END
        FROM blocks b LEFT JOIN tool_calls t ON {_of("t")} AND t.block = b.block
        WHERE {_of("b")} AND b.{_REFUSED}
    ) AS w
    WHERE {_is("w.name", "name")} AND {_is("w.verdict", "verdict")} AND {_matches("w.search")}
        AND EXISTS (SELECT FROM judgements j WHERE {_of("j")} AND j.block = w.block AND j.policy = w.policy OFFSET 0)
        AND ({_is("w.policy", "policy")} OR given.policy = CAST(:policy AS text))
"""
"""What the two views of judge blocks show, without what only a whole row needs: a third of the time. A word is the first or the later one
on a tool call, or that on a block of its own."""
_CALLS = f"""
    SELECT c.call_id, 0 AS block, 'call_log' AS view FROM calls c WHERE {_of("c")}
        AND {" AND ".join(_is(f"c.{name}", name) for name in (*_OF_CALL, "policy"))} AND (
        coalesce(CAST(:name AS text), CAST(:verdict AS text), CAST(:words AS text)) IS NULL
        OR EXISTS (
            SELECT FROM tool_calls t LEFT JOIN blocks b ON {_of("b")} AND b.block = t.block
            WHERE {_of("t")} AND {_is("t.name", "name")} AND {_is("coalesce(b.verdict, t.verdict)", "verdict")}
                AND {_matches("t.search")}
        )
        OR coalesce(CAST(:name AS text), CAST(:words AS text)) IS NULL AND EXISTS (
            SELECT FROM blocks b WHERE {_of("b")} AND b.verdict = CAST(:verdict AS text)
        )
    )
"""
"""`name`, `verdict` and `q` choose calls with such a tool call, a verdict alone also those with such a block."""
