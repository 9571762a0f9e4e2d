"""Sessions: the list, and one as a conversation in pages of 20 calls, with its exports."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from db.access_log import of_item
from db.read.session_list import COUNTED, list_sessions
from db.read.sessions import SessionCalls, SessionReader
from pages import links, listing
from pages.call.diff import Diff
from pages.conversation import ConversationStep, branches, steps, wanted
from pages.page import Answer, Download, Page, PageRequest, Route, SeeOther, ShownContent
from pages.session_export import FORMS, export
from pages.views.call import check_query, number_of
from protocol.conversations.prefix_tree import MAIN, Placed, place
from protocol.conversations.sessions import GUESSED
from protocol.errors import InvalidRequest, NotFound

CALLS = 20
"""Calls of a page."""
_FIELDS = ("q", "key", "session", "since", "until")
_MORE_FIELDS = ("model", "policy", "name", "verdict", "key_id")
"""Filters in sight, and those behind "More". They choose calls: a session with such a call is
listed by the last of them."""


async def sessions(asked: PageRequest) -> Answer:
    """The list, by last call."""
    list_query = listing.read(asked, "calls")
    if isinstance(list_query, SeeOther):
        return list_query
    if list_query.filters.order != "desc":
        raise InvalidRequest("sessions are listed by their last call", param="order")
    reader = asked.services.reader
    page = await list_sessions(reader.engine, await reader.named(list_query.filters))
    parameters = {
        **list_query.raw_filters,
        **{name: value for name, value in list_query.paging.items() if name != "cursor"},
    }
    older = page["next_cursor"] and links.with_query(
        list_query.path, {**parameters, "cursor": page["next_cursor"]}
    )
    values = {
        **page,
        **list_query.form(_FIELDS, _MORE_FIELDS),
        "canonical": links.SESSIONS,
        "counted": COUNTED,
        "pager": {
            "shown": len(page["items"]),
            "more": bool(older),
            "older": older,
            "newest": list_query.link() if list_query.filters.after else None,
        },
    }
    shown = ShownContent(*of_item(page))
    return Page(template="sessions.html", title="Sessions", values=values, shown=shown)


async def session(asked: PageRequest) -> Answer:
    """One session, or its export."""
    check_query(asked, "export", "from", "call")
    key, name = asked.params["key"], asked.params["session"]
    reader = SessionReader(asked.services.reader.engine)
    session_calls = await reader.calls(key, name)
    if not session_calls.calls:
        raise NotFound(f"the key {key[:100]!r} has no session {name[:200]!r} on record")
    # in threads: what clients sent may take a second of CPU, in which live views would stand still
    placed = await asyncio.to_thread(place, [call.marked for call in session_calls.calls])
    if form := asked.one("export"):
        if form not in FORMS:
            raise InvalidRequest(f"must be one of {', '.join(FORMS)}", param="export")
        kind, suffix, write = FORMS[form]
        ids = [call.call_id for call in session_calls.calls]
        pieces = export(reader, session_calls, placed, write)
        return Download(
            pieces=pieces,
            media_type=kind,
            filename=f"session.{suffix}",
            shown=ShownContent(ids, len(ids)),
        )
    first = _index(session_calls, asked.one("from"), asked.one("call"))
    indexes = range(first, min(first + CALLS, len(session_calls.calls)))
    pieces_of, released = wanted(session_calls.calls, placed, indexes)
    shown_steps = await asyncio.to_thread(
        steps, session_calls.calls, placed, indexes, await reader.read_contents(pieces_of, released)
    )
    values = {
        **_head(key, name, session_calls),
        "first": first,
        "last": indexes[-1],
        "groups": _groups(session_calls, placed, shown_steps),
        "marks": _marks(key, name, session_calls, placed),
        **_links(key, name, session_calls, first),
    }
    # where a history was changed, the page has the turns that were there before
    parents = [
        session_calls.calls[step.placed.parent].call_id
        for step in shown_steps
        if step.change is not None
    ]
    ids = list(dict.fromkeys([*(step.call.call_id for step in shown_steps), *parents]))
    return Page(
        template="session.html",
        title=f"session {name[:40]}",
        values=values,
        shown=ShownContent(ids, len(shown_steps)),
    )


def _index(session_calls: SessionCalls, call: str, number: str) -> int:
    """The place of the call with which a page begins: that with this id, or this number."""
    if not call:
        return min(max(1, number_of(number or "1", "call")), len(session_calls.calls)) - 1
    place = next(
        (at for at, candidate in enumerate(session_calls.calls) if str(candidate.call_id) == call),
        None,
    )
    if place is None:
        raise InvalidRequest("is no call of this session", param="from")
    return place


def _head(key: str, name: str, session_calls: SessionCalls) -> dict[str, Any]:
    items = [call.item for call in session_calls.calls]
    sums = {
        each: sum(item[each] or 0 for item in items)
        for each in (
            "tool_calls",
            "refused",
            "replaced",
            "input_tokens",
            "output_tokens",
            "nanousd",
        )
    }
    return {
        "key": key,
        "session": name,
        "program": session_calls.program,
        "source": session_calls.source,
        "guessed": session_calls.source == GUESSED,
        "parent": session_calls.parent,
        "calls": len(items),
        "more": session_calls.more,
        "models": sorted({item["model"] for item in items}),
        "first_at": items[0]["at"],
        "last_at": items[-1]["at"],
        "open": sum(item["state"] == "ACTIVE" for item in items),
        **sums,
    }


def _at(key: str, name: str, session_calls: SessionCalls, index: int) -> str:
    """The page that begins with a call; its anchor is the call's."""
    call = session_calls.calls[index].call_id
    return f"{links.session(key, name, **{'from': call})}#c{index + 1}"


def _links(key: str, name: str, session_calls: SessionCalls, first: int) -> dict[str, Any]:
    total = len(session_calls.calls)
    shown = range(first, min(first + CALLS, total))
    refused = [at for at in range(first, total) if session_calls.calls[at].item["refused"]]
    to = [f"#c{at + 1}" if at in shown else _at(key, name, session_calls, at) for at in refused]
    last = (total - 1) // CALLS * CALLS
    return {
        "pager": {
            "earlier": _at(key, name, session_calls, max(0, first - CALLS)) if first else None,
            "later": _at(key, name, session_calls, first + CALLS)
            if first + CALLS < total
            else None,
            "begin": links.session(key, name) if first else None,
            "end": _at(key, name, session_calls, last) if first + CALLS < total else None,
        },
        "next_refusal": to[0] if to else None,
        # behind each refused call of this page the one that follows
        "following": {
            str(at): after for at, after in zip(refused, to[1:], strict=False) if at in shown
        },
        "exports": [(form, links.session(key, name, export=form)) for form in FORMS],
    }


def _marks(
    key: str, name: str, session_calls: SessionCalls, placed: Sequence[Placed]
) -> list[dict[str, Any]]:
    """What the bar over the whole session shows: blocks and replacements, where the history was
    changed, and where branches are."""
    marks = []
    for at, (call, placement) in enumerate(zip(session_calls.calls, placed, strict=True)):
        item = call.item
        kind = (
            "block"
            if item["refused"]
            else "replace"
            if item["replaced"]
            else "changed"
            if placement.changed or placement.begins
            else ""
        )
        if kind:
            marks.append(
                {
                    "at": at,
                    "kind": kind,
                    "call_id": item["call_id"],
                    "time": item["at"],
                    "to": _at(key, name, session_calls, at),
                }
            )
    return marks


def _groups(
    session_calls: SessionCalls, placed: Sequence[Placed], shown: Sequence[ConversationStep]
) -> list[dict[str, Any]]:
    groups = []
    for branch, of in branches(shown):
        head = session_calls.calls[branch] if branch != MAIN else None
        first = next(
            (
                part.text
                for step in of
                for turn in step.turns
                for part in turn.parts
                if part.kind == "text"
            ),
            "",
        )
        groups.append(
            {
                "branch": branch,
                "is_main": branch == MAIN,
                "is_side": len(of) == 1 and of[0].placed.is_side,
                "agent": head.marked.agent if head else "",
                "goes_on": head is not None and of[0].index != branch,
                "forked": placed[branch].parent >= 0 if branch != MAIN else False,
                "head": first[:160],
                "steps": [_step(step) for step in of],
            }
        )
    return groups


def _step(step: ConversationStep) -> dict[str, Any]:
    return {
        "index": step.index,
        "call": step.call.item,
        "common": step.placed.common,
        "changed": step.placed.changed,
        "begins": step.placed.begins,
        "turns": [asdict(turn) for turn in step.turns],
        "skipped": step.skipped,
        "change": None if step.change is None else _diff(step.change),
        "change_cut": step.is_change_cut,
        "acts": [asdict(act) for act in step.acts],
        "skipped_acts": step.skipped_acts,
        "answer_bytes": step.answer_bytes,
    }


def _diff(made: Diff) -> dict[str, Any]:
    lines = [
        {"sign": line.sign, "parts": [[part.text, part.changed] for part in line.parts]}
        for line in made.lines
    ]
    return {"lines": [line for line in lines if line["sign"] != " "], "aligned": made.aligned}


ROUTES = (
    Route(links.SESSIONS, sessions),
    Route(f"{links.ROOT}/conversation-logs", sessions),
    Route(f"{links.SESSIONS}/{{key}}/{{session}}", session),
)
