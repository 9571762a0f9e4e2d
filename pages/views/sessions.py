"""Sessions: the list, and one as a conversation in pages of 20 calls, with its exports."""

import asyncio
from collections.abc import Sequence
from typing import Any

from db.read.sessions import COUNTED, SessionCalls, SessionReader
from db.reads import of_item
from pages import links, listing
from pages.conversation import Act, Step, Turn, branches, steps, wanted
from pages.diff import Diff
from pages.page import Answer, Asked, Download, Page, Redirect, Route, Shown
from pages.session_export import FORMS, export
from pages.views.call import check_query, number_of
from protocol.errors import InvalidRequest, NotFound
from protocol.prefix_tree import MAIN, Placed, place
from protocol.sessions import GUESSED

CALLS = 20
"""Calls of a page."""
_FIELDS, _MORE_FIELDS = (
    ("q", "key", "session", "since", "until"),
    (
        "model",
        "policy",
        "name",
        "verdict",
        "key_id",
    ),
)
"""Filters in sight, and those behind "More". They choose calls: a session with such a call is
listed by the last of them."""


async def sessions(asked: Asked) -> Answer:
    """The list, by last call."""
    found = listing.read(asked, "calls")
    if isinstance(found, Redirect):
        return found
    if found.filters.order != "desc":
        raise InvalidRequest("sessions are listed by their last call", param="order")
    reader = asked.services.reader
    page = await SessionReader(reader.engine).page(await reader.named(found.filters))
    kept = {
        **found.given,
        **{name: value for name, value in found.paging.items() if name != "cursor"},
    }
    older = page["next_cursor"] and links.with_query(
        found.path, {**kept, "cursor": page["next_cursor"]}
    )
    values = {
        **page,
        "chips": found.chips(),
        "list": found.path,
        "canonical": links.SESSIONS,
        "counted": COUNTED,
        "keep": found.kept(),
        "fields": listing.fields("calls", _FIELDS, found.given),
        "more_fields": listing.fields("calls", _MORE_FIELDS, found.given),
        "windows": [(name, found.link(since=since, until=None)) for name, since in listing.WINDOWS],
        "pager": {
            "shown": len(page["items"]),
            "more": bool(older),
            "older": older,
            "newest": found.link() if found.filters.after else None,
        },
    }
    shown = Shown(*of_item(page))
    return Page(template="sessions.html", title="Sessions", values=values, shown=shown)


async def session(asked: Asked) -> Answer:
    """One session, or its export."""
    check_query(asked, "export", "from", "call")
    key, name = asked.params["key"], asked.params["session"]
    reader = SessionReader(asked.services.reader.engine)
    found = await reader.calls(key, name)
    if not found.calls:
        raise NotFound(f"the key {key[:100]!r} has no session {name[:200]!r} on record")
    # in threads: what clients sent may take a second of CPU, in which live views would stand still
    placed = await asyncio.to_thread(place, [call.marked for call in found.calls])
    if form := asked.one("export"):
        if form not in FORMS:
            raise InvalidRequest(f"must be one of {', '.join(FORMS)}", param="export")
        kind, suffix, write = FORMS[form]
        ids = [call.call_id for call in found.calls]
        pieces = export(reader, found, placed, write)
        return Download(
            pieces=pieces, media_type=kind, filename=f"session.{suffix}", shown=Shown(ids, len(ids))
        )
    first = _index(found, asked.one("from"), asked.one("call"))
    indexes = range(first, min(first + CALLS, len(found.calls)))
    pieces_of, released = wanted(found.calls, placed, indexes)
    shown_steps = await asyncio.to_thread(
        steps, found.calls, placed, indexes, await reader.said(pieces_of, released)
    )
    values = {
        **_head(key, name, found),
        "first": first,
        "last": indexes[-1],
        "groups": _groups(found, placed, shown_steps),
        "marks": _marks(key, name, found, placed),
        **_links(key, name, found, first),
    }
    # where a history was changed, the page has the turns that were there before
    parents = [
        found.calls[step.placed.parent].call_id for step in shown_steps if step.change is not None
    ]
    ids = list(dict.fromkeys([*(step.call.call_id for step in shown_steps), *parents]))
    return Page(
        template="session.html",
        title=f"session {name[:40]}",
        values=values,
        shown=Shown(ids, len(shown_steps)),
    )


def _index(found: SessionCalls, call: str, number: str) -> int:
    """The place of the call with which a page begins: that with this id, or this number."""
    if not call:
        return min(max(1, number_of(number or "1", "call")), len(found.calls)) - 1
    place = next((at for at, one in enumerate(found.calls) if str(one.call_id) == call), None)
    if place is None:
        raise InvalidRequest("is no call of this session", param="from")
    return place


def _head(key: str, name: str, found: SessionCalls) -> dict[str, Any]:
    items = [call.item for call in found.calls]
    sums = {
        each: sum(item[each] or 0 for item in items)
        for each in ("tool_calls", "refused", "replaced", "input_tokens", "output_tokens")
    }
    return {
        "key": key,
        "session": name,
        "program": found.program,
        "source": found.source,
        "guessed": found.source == GUESSED,
        "parent": found.parent,
        "calls": len(items),
        "more": found.more,
        "models": sorted({item["model"] for item in items}),
        "first_at": items[0]["at"],
        "last_at": items[-1]["at"],
        "open": sum(item["state"] == "ACTIVE" for item in items),
        **sums,
    }


def _at(key: str, name: str, found: SessionCalls, index: int) -> str:
    """The page that begins with a call; its anchor is the call's."""
    call = found.calls[index].call_id
    return f"{links.session(key, name, **{'from': call})}#c{index + 1}"


def _links(key: str, name: str, found: SessionCalls, first: int) -> dict[str, Any]:
    total = len(found.calls)
    shown = range(first, min(first + CALLS, total))
    refused = [at for at in range(first, total) if found.calls[at].item["refused"]]
    to = [f"#c{at + 1}" if at in shown else _at(key, name, found, at) for at in refused]
    last = (total - 1) // CALLS * CALLS
    return {
        "pager": {
            "earlier": _at(key, name, found, max(0, first - CALLS)) if first else None,
            "later": _at(key, name, found, first + CALLS) if first + CALLS < total else None,
            "begin": links.session(key, name) if first else None,
            "end": _at(key, name, found, last) if first + CALLS < total else None,
        },
        "next_refusal": to[0] if to else None,
        # behind each refused call of this page the one that follows
        "following": {
            str(at): after for at, after in zip(refused, to[1:], strict=False) if at in shown
        },
        "exports": [(form, links.session(key, name, export=form)) for form in FORMS],
    }


def _marks(
    key: str, name: str, found: SessionCalls, placed: Sequence[Placed]
) -> list[dict[str, Any]]:
    """What the bar over the whole session shows: blocks and replacements, where the history was
    changed, and where branches are."""
    marks = []
    for at, (call, one) in enumerate(zip(found.calls, placed, strict=True)):
        item = call.item
        kind = (
            "block"
            if item["refused"]
            else "replace"
            if item["replaced"]
            else "changed"
            if one.changed or one.begins
            else ""
        )
        if kind:
            marks.append(
                {
                    "at": at,
                    "kind": kind,
                    "call_id": item["call_id"],
                    "time": item["at"],
                    "to": _at(key, name, found, at),
                }
            )
    return marks


def _groups(
    found: SessionCalls, placed: Sequence[Placed], shown: Sequence[Step]
) -> list[dict[str, Any]]:
    groups = []
    for branch, of in branches(shown):
        head = found.calls[branch] if branch != MAIN else None
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


def _step(step: Step) -> dict[str, Any]:
    return {
        "index": step.index,
        "call": step.call.item,
        "common": step.placed.common,
        "changed": step.placed.changed,
        "begins": step.placed.begins,
        "turns": [_turn(turn) for turn in step.turns],
        "skipped": step.skipped,
        "change": None if step.change is None else _diff(step.change),
        "change_cut": step.is_change_cut,
        "acts": [_act(act) for act in step.acts],
        "skipped_acts": step.skipped_acts,
        "answer_bytes": step.answer_bytes,
    }


def _turn(turn: Turn) -> dict[str, Any]:
    parts = [
        {"kind": one.kind, "text": one.text, "size": one.size, "name": one.name, "id": one.id}
        for one in turn.parts
    ]
    return {
        "role": turn.role,
        "number": turn.number,
        "is_foreign": turn.is_foreign,
        "parts": parts,
        "skipped": turn.skipped,
    }


def _act(act: Act) -> dict[str, Any]:
    return {
        "kind": act.kind,
        "text": act.text,
        "size": act.size,
        "name": act.name,
        "verdict": act.verdict,
        "reason": act.reason,
        "policy": act.policy,
        "block": act.block,
        "released": act.released,
        "begun": act.is_begun,
        "released_begun": act.is_released_begun,
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
