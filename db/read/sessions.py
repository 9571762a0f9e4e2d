"""Sessions of clients: the list, newest call first, and the calls of one with what identifies its
conversation (`protocol.conversations.prefix_tree`).

A session is an API key's name and an id. The list goes through calls from the newest on, and takes
a session where it meets its last call; so it needs no table of sessions, and a page is bounded by
the calls it looks through. Must not know: the content of turns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from db.filters import Filters, Position, created_at, encode_cursor
from db.read.items import JsonObject
from db.read.items import time as iso
from db.read.lists import find_keys
from db.read.queries import reading
from db.text import INDEXED, from_column, to_column, to_short
from protocol.conversations import sessions
from protocol.conversations.prefix_tree import Marked

LOOK_THROUGH, _STEP = 20_000, 1_000
"""Calls that a page of the list looks through at most."""
COUNTED = 150
"""The newest calls of a session of which the list shows figures."""
MOST_CALLS = 2_000
"""Calls of a session that are put together as one conversation."""
_FIRST = 3
"""Of a session's first calls, one shows what it was about: others ask for a title, or whether there
is quota."""
MARK_BYTES = 16 * 2**20
"""Marks of a session's turns that are put together: of 1,000 calls that grow by two turns each. The
offsets are half as many bytes."""
TURN_BYTES, ARGUMENT_BYTES, RELEASED_BYTES = 256 * 1024, 256 * 1024, 2 * 2**20
"""What is read of a call's new turns, of its tool calls' arguments, and of what its client got;
more is on the call's own pages. What the client got is counted as it was sent: of a streamed answer
2 MiB are some 8,000 tokens."""
TOOL_CALLS, TOOL_BYTES = 200, 500
"""Tool calls that are read of a call, what was refused before all else, and what is read of each
where all are too large together."""
_AT_ONCE = 10
"""Sessions of the list that are read in one go: 150 calls of each are 1,500 rows, which hold up
whatever else the process does."""
Id = tuple[str, str]
"""A session: the API key's name and the id, as columns hold them."""

_NAMED = text("SELECT call_id, key, session FROM calls WHERE call_id = ANY(:ids)")
_LAST = text("""
SELECT v.key, v.session, l.call_id FROM unnest(CAST(:keys AS text[]), CAST(:sessions AS text[])) v
    (key, session)
CROSS JOIN LATERAL (SELECT call_id FROM calls c WHERE c.session = v.session AND c.key = v.key
    AND c.call_id >= :after LIMIT 1) l
""")
_OF_LIST = text("""
SELECT v.key, v.session, c.call_id, c.model, c.user_agent, c.newest
FROM unnest(CAST(:keys AS text[]), CAST(:sessions AS text[])) v (key, session)
CROSS JOIN LATERAL (
    (SELECT call_id, model, user_agent, true AS newest FROM calls n WHERE n.session = v.session
        AND n.key = v.key
        ORDER BY n.session DESC, n.call_id DESC LIMIT :counted)
    UNION ALL
    (SELECT call_id, model, user_agent, false FROM calls o WHERE o.session = v.session
        AND o.key = v.key
        ORDER BY o.session, o.call_id LIMIT :first)
) c
""")
_TOOLS = text("""
SELECT t.call_id, count(*) AS tool_calls, count(*) FILTER (WHERE coalesce(b.verdict, t.verdict) =
    'replace') AS replaced,
    count(*) FILTER (WHERE coalesce(b.verdict, t.verdict) = 'block') AS refused
FROM tool_calls t LEFT JOIN blocks b ON b.call_id = t.call_id AND b.block = t.block
    AND b.call_id = ANY(:ids)
WHERE t.call_id = ANY(:ids) GROUP BY 1
""")
_TEXTS = text("""
SELECT b.call_id, count(*) FILTER (WHERE b.verdict = 'replace') AS replaced, count(*)
    FILTER (WHERE b.verdict = 'block') AS refused
FROM blocks b WHERE b.call_id = ANY(:ids) AND b.verdict NOT IN ('allow', 'hold')
    AND NOT EXISTS (SELECT FROM tool_calls t WHERE t.call_id = b.call_id AND t.block = b.block
        AND t.call_id = ANY(:ids)) GROUP BY 1
""")
_ENDS = text("""
SELECT call_id, at, state, reason, status, stop_reason, input_tokens, output_tokens FROM ends
    WHERE call_id = ANY(:ids)
""")
_SAID = text("SELECT call_id, detail FROM events WHERE call_id = ANY(:ids) AND kind = 'identified'")
_PREVIEWS = text("SELECT call_id, turns, preview FROM histories WHERE call_id = ANY(:ids)")
_OF_SESSION = text("""
SELECT call_id, model, upstream, dialect, endpoint, policy, policy_revision, stream, user_agent
    FROM calls
WHERE session = :session AND key = :key ORDER BY session, call_id LIMIT :most
""")
_HISTORIES = text("""
SELECT call_id, turns, CASE WHEN upto <= :most THEN marks END AS marks, CASE
    WHEN upto <= :most THEN offsets END AS offsets, is_side FROM (
    SELECT call_id, turns, marks, offsets, is_side, sum(octet_length(marks)) OVER (ORDER BY call_id)
        AS upto
    FROM histories WHERE call_id = ANY(:ids)
) h
""")
_SPANS = text("""
SELECT v.call_id, substring(b.body FROM v.begins + 1 FOR v.size) AS piece
FROM unnest(CAST(:calls AS uuid[]), CAST(:begins AS int[]), CAST(:sizes AS int[])) v (call_id,
    begins, size)
JOIN request_bodies b ON b.call_id = v.call_id AND b.call_id = ANY(:ids)
""")
_RELEASES = text("""
SELECT call_id, number, total, CASE WHEN upto <= :most THEN payload END AS payload FROM (
    SELECT call_id, number, payload, sum(octet_length(payload)) OVER (PARTITION BY call_id
        ORDER BY number) AS upto,
        sum(octet_length(payload)) OVER (PARTITION BY call_id) AS total
    FROM releases WHERE call_id = ANY(:ids)
) r WHERE upto - octet_length(payload) <= :most ORDER BY call_id, number
""")
_CALLS_OF = text("""
SELECT call_id, block, tool_call_id, name, size, verdict, reason, policy, substring(arguments FOR
    part) AS arguments,
    CASE WHEN released <> arguments THEN substring(released FOR part) END AS released
FROM (
    SELECT c.*, octet_length(arguments) AS size,
        CASE WHEN sum(greatest(octet_length(arguments), octet_length(released))) OVER nth <=
            CAST(:most AS bigint)
            THEN CAST(:most AS integer) ELSE CAST(:least AS integer) END AS part,
        row_number() OVER nth AS number
    FROM (
        SELECT t.call_id, t.block, t.tool_call_id, t.name, t.arguments,
            CASE WHEN b.call_id IS NULL THEN t.released_arguments END AS released,
            coalesce(b.verdict, t.verdict) AS verdict, coalesce(b.reason, t.reason) AS reason,
                coalesce(b.policy, t.policy) AS policy
        FROM tool_calls t LEFT JOIN blocks b ON b.call_id = t.call_id AND b.block = t.block
            AND b.call_id = ANY(:ids)
        WHERE t.call_id = ANY(:ids)
    ) c WINDOW nth AS (PARTITION BY call_id ORDER BY verdict = 'allow', block)
) n WHERE number <= :calls ORDER BY call_id, block
""")
_BLOCKS_OF = text("""
SELECT b.call_id, b.block, b.kind, b.verdict, b.reason, b.policy FROM blocks b
WHERE b.call_id = ANY(:ids) AND b.verdict NOT IN ('allow', 'hold')
    AND NOT EXISTS (SELECT FROM tool_calls t WHERE t.call_id = b.call_id AND t.block = b.block
        AND t.call_id = ANY(:ids))
ORDER BY b.call_id, b.block
""")


class SessionCall(NamedTuple):
    """A call of a session, with what places it in its conversation."""

    call_id: UUID
    item: JsonObject
    marked: Marked
    turns: int
    offsets: bytes


class SessionCalls(NamedTuple):
    """The calls of a session, the oldest first; `more`: there are others behind them."""

    calls: list[SessionCall]
    more: bool
    program: str
    source: str
    parent: str


class RecordedCalls(NamedTuple):
    """What is on record of some calls: pieces of their bodies, what their clients got, and the
    verdicts."""

    pieces: dict[UUID, tuple[int, bytes]]
    """With where in the body each begins."""
    releases: dict[UUID, list[bytes]]
    cut: dict[UUID, int]
    """Calls whose releases are not all here, with the bytes of all."""
    tool_calls: dict[UUID, list[JsonObject]]
    blocks: dict[UUID, list[JsonObject]]


class SessionReader:
    """Reads sessions by the engine of an `AuditReader`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def page(self, filters: Filters) -> JsonObject:
        """Return a page of the list: sessions with a call that the filters choose, by their last
        such call.

        `next_cursor` is None at the end; `looked_to` says up to which time was looked where the
        page is not full for all the calls of few sessions. By other filters than key and session,
        one may come again on a later page. Raises AuditUnavailable.
        """
        async with reading(self._engine) as connection:
            last_calls, behind = await _last_calls(connection, filters)
            items = await _list_items(connection, last_calls)
        cursor = None if behind is None else encode_cursor(Position("calls", "desc", behind, 0))
        is_cut = behind is not None and len(last_calls) < filters.limit
        return {
            "items": items,
            "next_cursor": cursor,
            "looked_to": iso(created_at(behind)) if behind and is_cut else None,
        }

    async def calls(self, key: str, session: str) -> SessionCalls:
        """Return the calls of one session, up to `MOST_CALLS`: none where nobody knows it. Raises
        AuditUnavailable."""
        asked = {
            "key": to_column(key),
            "session": to_column(to_short(session, INDEXED)),
            "most": MOST_CALLS + 1,
        }
        async with reading(self._engine) as connection:
            rows = list(await connection.execute(_OF_SESSION, asked))
            ids = [row.call_id for row in rows[:MOST_CALLS]]
            if not ids:
                return SessionCalls([], False, "", "", "")
            histories = {
                row.call_id: row
                for row in await connection.execute(_HISTORIES, {"ids": ids, "most": MARK_BYTES})
            }
            # past the bound marks are null
            ids = list(
                takewhile(
                    lambda call: call not in histories or histories[call].marks is not None, ids
                )
            )
            ends, tools, texts = [
                await _by_call(connection, query, ids) for query in (_ENDS, _TOOLS, _TEXTS)
            ]
            identities = {
                row.call_id: sessions.identified(from_column(row.detail))
                for row in await connection.execute(_SAID, {"ids": ids})
            }
        calls = []
        for row in rows[: len(ids)]:
            call, known, who = row.call_id, histories.get(row.call_id), identities.get(row.call_id)
            item = _session_item(row, ends.get(call), tools.get(call), texts.get(call))
            marks, is_side = (bytes(known.marks), known.is_side) if known else (b"", False)
            if item["endpoint"] == "count_tokens":
                # it has the history of the call that it counts for, which goes on from what was
                # before
                marks, is_side = b"", True
            marked = Marked(marks, is_side, who.agent if who else "")
            calls.append(
                SessionCall(
                    call,
                    item,
                    marked,
                    known.turns if known else 0,
                    bytes(known.offsets) if known else b"",
                )
            )
        first = next(iter(identities.values()), sessions.Identified(""))
        program = sessions.program(first.source, from_column(rows[0].user_agent or ""))
        return SessionCalls(
            calls, len(rows) > len(ids), program, first.source, "" if first.agent else first.parent
        )

    async def read_contents(
        self, spans: Mapping[UUID, tuple[int, int]], ids: Sequence[UUID]
    ) -> RecordedCalls:
        """Return what is on record of calls: of each in `spans` that piece of its body, and of
        `ids` what came of them."""
        real = {call: (begin, end) for call, (begin, end) in spans.items() if end > begin}
        parameters = {
            "calls": list(real),
            "begins": [begin for begin, _ in real.values()],
            "sizes": [end - begin for begin, end in real.values()],
        }
        async with reading(self._engine) as connection:
            rows = await connection.execute(_SPANS, {**parameters, "ids": parameters["calls"]})
            pieces = {row.call_id: (spans[row.call_id][0], bytes(row.piece)) for row in rows}
            releases: dict[UUID, list[bytes]] = {}
            cut: dict[UUID, int] = {}
            for row in await connection.execute(
                _RELEASES, {"ids": list(ids), "most": RELEASED_BYTES}
            ):
                if row.payload is None:
                    cut[row.call_id] = int(row.total)
                else:
                    releases.setdefault(row.call_id, []).append(bytes(row.payload))
            tools: dict[UUID, list[JsonObject]] = {}
            bounds = {"most": ARGUMENT_BYTES, "least": TOOL_BYTES, "calls": TOOL_CALLS}
            for row in await connection.execute(_CALLS_OF, {"ids": list(ids), **bounds}):
                tools.setdefault(row.call_id, []).append(_tool_item(row))
            blocks: dict[UUID, list[JsonObject]] = {}
            for row in await connection.execute(_BLOCKS_OF, {"ids": list(ids)}):
                blocks.setdefault(row.call_id, []).append(_block_item(row))
        return RecordedCalls(pieces, releases, cut, tools, blocks)


async def _last_calls(
    connection: AsyncConnection, filters: Filters
) -> tuple[dict[Id, UUID], UUID | None]:
    """The sessions of a page with their last calls, and the call behind which the next page
    begins."""
    filter_names = [
        name for name in ("key", "session", "key_id") if getattr(filters, name) is not None
    ]
    is_by_session = not (_other_filters(filters) - {*filter_names})
    begun_at = filters.after
    last_calls: dict[Id, UUID] = {}
    looked, after = 0, filters.after
    while looked < LOOK_THROUGH:
        keys = await find_keys(
            connection, "calls", replace(filters, after=after, order="desc"), _STEP
        )
        ids = [key.call_id for key in keys]
        named = {
            row.call_id: (row.key, row.session)
            for row in await connection.execute(_NAMED, {"ids": ids})
        }
        fresh: dict[Id, UUID] = {}
        for call in ids:
            if (of := named.get(call)) is not None and of[1] and of not in last_calls:
                fresh.setdefault(of, call)
        if fresh and begun_at is not None and is_by_session:
            # on an earlier page
            columns = {
                "keys": [key for key, _ in fresh],
                "sessions": [session for _, session in fresh],
                "after": begun_at.call_id,
            }
            shown = {(row.key, row.session) for row in await connection.execute(_LAST, columns)}
            fresh = {of: call for of, call in fresh.items() if of not in shown}
        for of, call in fresh.items():
            if len(last_calls) == filters.limit:
                return last_calls, list(last_calls.values())[-1]
            last_calls[of] = call
        looked += len(ids)
        if len(ids) < _STEP:
            return last_calls, None
        after = Position("calls", "desc", ids[-1], 0)
    return last_calls, after.call_id if after else None


def _other_filters(filters: Filters) -> set[str]:
    named = (
        "call_id",
        "prefix",
        "state",
        "session",
        "model",
        "key",
        "key_id",
        "name",
        "verdict",
        "policy",
        "high",
        "words",
    )
    return {name for name in named if getattr(filters, name) is not None}


async def _list_items(
    connection: AsyncConnection, last_calls: Mapping[Id, UUID]
) -> list[JsonObject]:
    named = list(last_calls.items())
    return [
        item
        for begin in range(0, len(named), _AT_ONCE)
        for item in await _some_items(connection, dict(named[begin : begin + _AT_ONCE]))
    ]


async def _some_items(
    connection: AsyncConnection, last_calls: Mapping[Id, UUID]
) -> list[JsonObject]:
    columns = {
        "keys": [key for key, _ in last_calls],
        "sessions": [session for _, session in last_calls],
    }
    newest: dict[Id, list[Any]] = {of: [] for of in last_calls}
    oldest: dict[Id, list[Any]] = {of: [] for of in last_calls}
    for row in await connection.execute(
        _OF_LIST, {**columns, "counted": COUNTED + 1, "first": _FIRST}
    ):
        (newest if row.newest else oldest)[row.key, row.session].append(row)
    ids = [row.call_id for rows in newest.values() for row in rows[:COUNTED]]
    ends, tools, texts = [
        await _by_call(connection, query, ids) for query in (_ENDS, _TOOLS, _TEXTS)
    ]
    edges = [
        row.call_id
        for rows in (*oldest.values(), *(r[:1] for r in newest.values()))
        for row in rows
    ]
    identities = {
        row.call_id: sessions.identified(from_column(row.detail))
        for row in await connection.execute(_SAID, {"ids": edges})
    }
    previews = await _by_call(connection, _PREVIEWS, edges)
    return [
        _list_item(
            of,
            last,
            newest[of],
            sorted(oldest[of], key=lambda row: row.call_id.int),
            ends,
            tools,
            texts,
            identities,
            previews,
        )
        for of, last in last_calls.items()
    ]


def _list_item(
    of: Id,
    last: UUID,
    newest: Sequence[Any],
    oldest: Sequence[Any],
    ends: Mapping[UUID, Any],
    tools: Mapping[UUID, Any],
    texts: Mapping[UUID, Any],
    identities: Mapping[UUID, sessions.Identified],
    previews: Mapping[UUID, Any],
) -> JsonObject:
    counted = [row.call_id for row in newest[:COUNTED]]
    closed = [ends[call] for call in counted if call in ends]
    of_tools, of_texts = (
        [table[call] for call in counted if call in table] for table in (tools, texts)
    )
    begun = [row.call_id for row in oldest]
    who = next(
        (identities[call] for call in (*begun, *counted[:1]) if call in identities),
        sessions.Identified(""),
    )
    shown = [previews[call] for call in begun if call in previews and previews[call].preview]
    # a call of one turn may ask for a title; one of several is the conversation
    preview = next((history for history in shown if history.turns > 1), shown[0] if shown else None)
    # the call of that preview is the first one with it
    preview_of = next(
        (history.call_id for history in shown if preview and history.preview == preview.preview),
        None,
    )
    return {
        "key": from_column(of[0]),
        "session": from_column(of[1]),
        "source": who.source,
        "guessed": who.source == sessions.GUESSED,
        "program": sessions.program(
            who.source, from_column(oldest[0].user_agent or "") if oldest else ""
        ),
        "preview": from_column(preview.preview) if preview else "",
        "preview_call_id": str(preview_of) if preview_of else None,
        "first_at": iso(created_at(begun[0])) if begun else None,
        "last_at": iso(created_at(counted[0] if counted else last)),
        "call_id": str(last),
        "calls": len(counted),
        "more": len(newest) > COUNTED,
        "open": len(counted) - len(closed),
        "failed": sum(end.state == "FAILED" for end in closed),
        "tool_calls": sum(row.tool_calls for row in of_tools),
        "refused": sum(row.refused for row in (*of_tools, *of_texts)),
        "replaced": sum(row.replaced for row in (*of_tools, *of_texts)),
        "input_tokens": sum(end.input_tokens or 0 for end in closed),
        "output_tokens": sum(end.output_tokens or 0 for end in closed),
        "models": sorted({from_column(row.model) for row in newest[:COUNTED]}),
    }


def _session_item(row: Any, end: Any, tools: Any, texts: Any) -> JsonObject:
    named = ("model", "upstream", "dialect", "endpoint", "policy", "policy_revision")
    return {
        "call_id": str(row.call_id),
        "at": iso(created_at(row.call_id)),
        "ended_at": iso(end.at) if end else None,
        **{name: from_column(getattr(row, name)) for name in named},
        "stream": row.stream,
        "state": end.state if end else "ACTIVE",
        "reason": end.reason if end else "",
        "status": end.status if end else None,
        "stop_reason": end.stop_reason if end else "",
        "input_tokens": end.input_tokens if end else None,
        "output_tokens": end.output_tokens if end else None,
        "tool_calls": tools.tool_calls if tools else 0,
        "refused": (tools.refused if tools else 0) + (texts.refused if texts else 0),
        "replaced": (tools.replaced if tools else 0) + (texts.replaced if texts else 0),
    }


def _tool_item(row: Any) -> JsonObject:
    return {
        "block": row.block,
        "tool_call_id": from_column(row.tool_call_id),
        "name": from_column(row.name),
        "arguments": bytes(row.arguments),
        "size": row.size,
        "released": None if row.released is None else bytes(row.released),
        "verdict": row.verdict,
        "reason": from_column(row.reason),
        "policy": from_column(row.policy),
    }


def _block_item(row: Any) -> JsonObject:
    return {
        "block": row.block,
        "kind": row.kind,
        "verdict": row.verdict,
        "reason": from_column(row.reason),
        "policy": from_column(row.policy),
    }


async def _by_call(
    connection: AsyncConnection, statement: Any, ids: Sequence[UUID]
) -> dict[UUID, Any]:
    return {row.call_id: row for row in await connection.execute(statement, {"ids": list(ids)})}
