"""Tool calls that wait for people: the list, one with what is needed to decide about it, and the
decision. Both pages notice at once what others decide."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

from db.access_log import of_item
from db.engine import reading
from db.filters import APPROVAL_STATES, Filters, approval_state
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
from protocol.errors import NotFound

STREAM_S = 1800.0
"""After so long the stream ends, and the browser asks for the next one."""
LOOK_S = 1.0
"""How often it is looked whether something changed."""
EVENTS = f"{links.APPROVALS}/events"
ONE = f"{links.APPROVALS}/{{approval_id}}"
_TRIED, _TRIED_BYTES = 10, 400
_HIDDEN = re.compile(f"[{UNSEEN}]")


def _reader(asked: PageRequest) -> ApprovalReader:
    who = asked.who
    return ApprovalReader.of(asked.services.reader.engine, who.key, who.roles)


async def list_approvals(asked: PageRequest) -> Page:
    """Those in one state, the newest first; first those that are open."""
    check_query(asked, "state", "cursor")
    chosen, cursor, approvals = asked.one("state", "open"), asked.one("cursor"), _reader(asked)
    waiting, changes = await approvals.changes()
    page = await approvals.page(approval_state(chosen), after=cursor)
    values = {
        **page,
        "waiting": waiting,
        "states": (*APPROVAL_STATES, "all"),
        "chosen": chosen,
        "cursor": cursor,
        "changes": changes,
    }
    calls, rows = of_item(page)
    return Page(
        template="approvals.html",
        title=f"({waiting}) Approvals" if waiting else "Approvals",
        values=values,
        shown=ShownContent(calls, rows) if rows else None,
    )


async def show_approval(asked: PageRequest) -> Page:
    """One, with its call, what led to it, and forms for who may decide."""
    check_query(asked)
    approvals = _reader(asked)
    _, changes = await approvals.changes()
    item = await approvals.one(asked.params["approval_id"])
    if item is None:
        raise NotFound(NO_APPROVAL)
    async with reading(asked.services.reader.engine) as connection:
        overview = await read_overview(connection, UUID(item["call_id"]))
    turns = None if overview is None else (await read_turns(asked, overview))["request"]
    tried, text, size = await _tried(asked, item), item["arguments"], item["arguments_bytes"]
    values = {
        "item": item,
        # arguments that are one long list take most of a second
        **await asyncio.to_thread(_sides, text, size, item["edited"]),
        "turns": turns["open"] if turns else [],
        "tried": tried,
        "changes": changes,
    }
    shown = ShownContent(*of_item({"items": [item, *tried, *item["earlier"]]}))
    title = f"{spelled(item['tool'])[:60]} · approval"
    return Page(template="approval.html", title=title, values=values, shown=shown)


def _sides(text: str, size: int, edited: str | None) -> dict[str, Any]:
    """The arguments in lines, what an approver made of them, and what there is to edit."""
    return {
        "side": arguments.one_side({"text": text, "size": size, "cut": False, "tail": ""}),
        "change": None if edited is None else arguments.compared(text, edited)["lines"],
        "draft": visible(text),
    }


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
        _, changes = await approvals.changes()
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
