"""The list of sessions, newest call first. It goes through calls from the newest on, and takes a
session where it meets its last call; so it needs no table of sessions, and a page is bounded by the
calls it looks through. Must not know: the content of turns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from db.engine import reading
from db.filters import Filters, Position, created_at, encode_cursor
from db.read.json_rows import JsonObject
from db.read.json_rows import time as iso
from db.read.lists import find_keys
from db.read.sessions import by_call, read_identities, read_outcomes
from db.text import from_column
from protocol.conversations import sessions

LOOK_THROUGH, _STEP = 20_000, 1_000
"""Calls that a page of the list looks through at most."""


COUNTED = 150
"""The newest calls of a session of which the list shows figures."""


_FIRST = 3
"""Of a session's first calls, one shows what it was about: others ask for a title, or whether there
is quota."""


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


_PREVIEWS = text("SELECT call_id, turns, preview FROM histories WHERE call_id = ANY(:ids)")


async def list_sessions(engine: AsyncEngine, filters: Filters) -> JsonObject:
    """Return a page of the list: sessions with a call that the filters choose, by their last
    such call.

    `next_cursor` is None at the end; `looked_to` says up to which time was looked where the
    page is not full for all the calls of few sessions. By other filters than key and session,
    one may come again on a later page. Raises AuditUnavailable.
    """
    async with reading(engine) as connection:
        last_calls, behind = await _last_calls(connection, filters)
        items = await _list_items(connection, last_calls)
    cursor = None if behind is None else encode_cursor(Position("calls", "desc", behind, 0))
    is_cut = behind is not None and len(last_calls) < filters.limit
    return {
        "items": items,
        "next_cursor": cursor,
        "looked_to": iso(created_at(behind)) if behind and is_cut else None,
    }


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
    named = "call_id prefix state session model key key_id name verdict policy high words".split()
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
    ends, tools, texts = await read_outcomes(connection, ids)
    edges = [
        row.call_id
        for rows in (*oldest.values(), *(r[:1] for r in newest.values()))
        for row in rows
    ]
    identities = await read_identities(connection, edges)
    previews = await by_call(connection, _PREVIEWS, edges)
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
        "nanousd": sum(end.nanousd for end in closed),
        "models": sorted({from_column(row.model) for row in newest[:COUNTED]}),
    }
