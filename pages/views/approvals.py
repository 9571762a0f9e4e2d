"""Tool calls that wait for people: the list, one with what is needed to decide about it, and the
decision. Both pages notice at once what others decide."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

from db.engine import reading
from db.filters import APPROVAL_STATES, Filters
from db.read.approvals import ApprovalReader
from db.read.call.story import read_overview
from db.write.approvals import NO_APPROVAL, decide, read_decision
from db.write.reviews import Auditor
from pages import links
from pages.call import arguments
from pages.escape import UNSEEN, spelled
from pages.page import Download, Page, PageRequest, Route, SeeOther, ShownContent
from pages.views.call import check_query
from pages.views.request import read_turns
from protocol.errors import InvalidRequest, NotFound

STREAM_S = 1800.0
"""After so long the stream ends, and the browser asks for the next one."""
LOOK_S = 1.0
"""How often it is looked whether something changed."""
EVENTS = f"{links.APPROVALS}/events"
ONE = f"{links.APPROVALS}/{{approval_id}}"
MOST_EDITED = 16 * 1024
"""Arguments up to so many bytes can be edited in a form, which is sent escaped."""
_TRIED, _TRIED_BYTES = 10, 400
_HIDDEN = re.compile(f"[{UNSEEN}]")


def _reader(asked: PageRequest) -> ApprovalReader:
    who = asked.who
    return ApprovalReader(asked.services.reader.engine, None if who.is_reader else who.key)


async def list_approvals(asked: PageRequest) -> Page:
    """Those in one state, the newest first; first those that are open."""
    check_query(asked, "state", "cursor")
    chosen = asked.one("state", "open")
    state = next((word for word in APPROVAL_STATES if word == chosen), None)
    if state is None and chosen != "all":
        raise InvalidRequest(f"must be all or one of {', '.join(APPROVAL_STATES)}", param="state")
    approvals, cursor = _reader(asked), asked.one("cursor")
    changes = await approvals.changes()
    page = await approvals.page(state, after=cursor)
    items, waiting = page["items"], await approvals.count_open()
    older = page["next_cursor"]
    values = {
        "items": items,
        "waiting": waiting,
        "tabs": [
            (word, links.with_query(links.APPROVALS, {"state": word}), word == chosen, None, None)
            for word in (*APPROVAL_STATES, "all")
        ],
        "pager": {
            "shown": len(items),
            "more": older is not None,
            "newest": links.with_query(links.APPROVALS, {"state": chosen}) if cursor else None,
            "older": older
            and links.with_query(links.APPROVALS, {"state": chosen, "cursor": older}),
        },
        "events": EVENTS,
        "changes": changes,
    }
    called = [UUID(item["call_id"]) for item in items]
    return Page(
        template="approvals.html",
        title=f"({waiting}) Approvals" if waiting else "Approvals",
        values=values,
        shown=ShownContent(called, len(items)) if items else None,
    )


async def show_approval(asked: PageRequest) -> Page:
    """One, with its call, what led to it, and forms for who may decide."""
    check_query(asked)
    approvals = _reader(asked)
    changes = await approvals.changes()
    item = await approvals.one(asked.params["approval_id"])
    if item is None:
        raise NotFound(NO_APPROVAL)
    call_id = UUID(item["call_id"])
    async with reading(asked.services.reader.engine) as connection:
        overview = await read_overview(connection, call_id)
    turns = None if overview is None else (await read_turns(asked, overview))["request"]
    tried = await _tried(asked, item)
    text = item["arguments"]
    who = asked.who
    values = {
        "item": item,
        "side": arguments.one_side(
            {"text": text, "size": item["arguments_bytes"], "cut": False, "tail": ""}
        ),
        "change": None
        if item["edited"] is None
        else arguments.compared(text, item["edited"])["lines"],
        "turns": turns["open"] if turns else [],
        "tried": tried,
        "may_decide": "approver" in who.roles,
        "is_own": who.key_id == item["key_id"] or who.key == item["key"],
        "vote": next((vote for vote in item["votes"] if vote["voter"] == who.key), None),
        "draft": visible(text) if item["arguments_bytes"] <= MOST_EDITED else None,
        "events": EVENTS,
        "changes": changes,
    }
    shown = {call_id, *(UUID(one["call_id"]) for one in (*tried, *item["earlier"]))}
    return Page(
        template="approval.html",
        title=f"{spelled(item['tool'])[:60]} · approval",
        values=values,
        shown=ShownContent(sorted(shown), 1 + len(tried) + len(item["earlier"])),
    )


async def _tried(asked: PageRequest, item: dict[str, Any]) -> list[dict[str, Any]]:
    """The other newest tool calls of this session, of the same key."""
    if not item["session"]:
        return []
    filters = Filters(session=item["session"], key=item["key"], limit=_TRIED)
    lines, _ = await asked.services.reader.lines("tool-calls", filters, first=_TRIED_BYTES)
    its_own = (item["call_id"], item["block"])
    return [line for line in lines if (line["call_id"], line["block"]) != its_own]


def visible(text: str) -> str:
    """Return JSON with what nobody would see in a text field escaped: it says the same."""
    return _HIDDEN.sub(lambda found: json.dumps(found[0])[1:-1], text)


async def decide_approval(asked: PageRequest) -> SeeOther:
    """Keep a decision, and go back to what it is about."""
    form, who = asked.form, asked.who
    decision = read_decision(form.get("decision"), form.get("note", ""), form.get("arguments"))
    settings, approval_id = asked.services.settings, asked.params["approval_id"]
    await decide(
        asked.services.reader.url,
        Auditor(who.key_id, who.key),
        approval_id,
        decision,
        answer_s=settings.config.limits.audit_read_s,
    )
    return SeeOther(links.approval(approval_id))


async def follow_approvals(asked: PageRequest) -> Download:
    """Say when something changed, as a stream of events; pages load themselves again."""
    return Download(pieces=_changes(_reader(asked)), media_type="text/event-stream")


async def _changes(approvals: ApprovalReader) -> AsyncIterator[bytes]:
    until, last = time.monotonic() + STREAM_S, ""
    while time.monotonic() < until:
        changes = await approvals.changes()
        if changes != last:
            yield b"data: " + json.dumps(changes).encode() + b"\n\n"
        last = changes
        await asyncio.sleep(LOOK_S)


ROUTES = (
    Route(links.APPROVALS, list_approvals, role="any"),
    Route(EVENTS, follow_approvals, role="any"),
    Route(ONE, show_approval, role="any"),
    Route(ONE, decide_approval, method="POST", role="approver"),
)
