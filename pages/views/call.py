"""The page of a call: its story, one block of it, its bytes, and its export."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from db.engine import reading
from db.read.call.story import (
    MOST_COUNTED,
    Connection,
    Overview,
    read_details,
    read_gone,
    read_overview,
)
from db.read.json_rows import time as iso
from pages import links
from pages.call import arguments, head, story
from pages.call.story import Cut
from pages.listing import neighbours
from pages.page import Page, PageRequest, Route, SeeOther, ShownContent
from pages.render import short, size
from pages.views.call_sides import sides_of
from protocol.errors import InvalidRequest, NotFound
from protocol.records import ASKED

MAX_VALUE, MAX_ORIGIN = 200, 8_000
"""Characters of a parameter, and of the one that names a list with its filters."""
_NUMBER = 10
"""Digits of a number in a path."""
CALL = f"{links.CALLS}/{{call_id}}"
TABS = (
    ("Story", ""),
    ("Request", "request"),
    ("Wire", "wire"),
    ("Diff", "diff"),
    ("Hooks", "hooks"),
    ("Text", "text"),
    ("Proof", "proof"),
)


async def call_of(asked: PageRequest) -> UUID:
    """Return the call that the path names, by its id or the beginning of it. Raises InvalidRequest,
    NotFound."""
    return await asked.services.reader.find_call(asked.params["call_id"])


async def overview_of(asked: PageRequest, call_id: UUID) -> Overview:
    """Return what is on record of a call. Raises NotFound."""
    async with reading(asked.services.reader.engine) as connection:
        overview = await read_overview(connection, call_id)
    if overview is None:
        raise NotFound(f"no call {call_id} is on record", param="call_id")
    return overview


def check_query(asked: PageRequest, *known: str) -> None:
    """Refuse what the page does not know. Raises InvalidRequest with the parameter's name."""
    for name, value in asked.query:
        if name not in known:
            raise InvalidRequest(
                f"this page takes {', '.join(known) or 'no parameters'}", param=name[:64]
            )
        if len(value) > (MAX_ORIGIN if name == "from" else MAX_VALUE):
            raise InvalidRequest("too long", param=name)


def number_of(text: str, name: str) -> int:
    """Return a number of a path or a query. Raises InvalidRequest."""
    if not text.isascii() or not text.isdecimal() or len(text) > _NUMBER or int(text) >= 2**31:
        raise InvalidRequest("must be a whole number", param=name)
    return int(text)


async def show_call(asked: PageRequest) -> Page | SeeOther:
    """The story: one row a content block."""
    call_id = await call_of(asked)
    check_query(asked, "page", "block", "from")
    if asked.params["call_id"] != str(call_id):
        return SeeOther(links.call(call_id, **dict(asked.query)))
    async with reading(asked.services.reader.engine) as connection:
        overview = await read_overview(connection, call_id)
        if overview is None:
            return await _gone(connection, call_id)
        pages = max(1, -(-len(overview.numbers) // story.PAGE))
        page = min(max(1, number_of(asked.one("page", "1"), "page")), pages)
        if (block := asked.one("block")) and (
            number := number_of(block, "block")
        ) in overview.numbers:
            page = overview.numbers.index(number) // story.PAGE + 1
    numbers = overview.numbers[(page - 1) * story.PAGE : page * story.PAGE]
    rows = await _rows(asked, overview, numbers)
    now = datetime.now(UTC)
    values = {
        **await frame(asked, overview, "", now),
        "rows": rows["rows"],
        **bounded_left(rows["left"] if rows["left"] != rows["failed"] else "", arguments.ENDS),
        "failed": rows["failed"],
        "problem": rows["problem"],
        "timeline": head.timeline(overview, now),
        "events": head.events(overview),
        "attempts": overview.attempts,
        "pager": _pager(asked, call_id, page, pages, len(overview.numbers)),
    }
    return Page(
        template="call.html",
        title=_title(values),
        values=values,
        shown=ShownContent((call_id,), len(numbers)),
    )


def bounded_left(text: str, most: int) -> dict[str, Any]:
    """What the client got that is of no block, as far as a page shows it, and how much of it there
    is."""
    return {"left": text[:most], "left_length": len(text)}


def origin(asked: PageRequest) -> dict[str, object]:
    """Return the list that a call was opened from, as the parameter by which links of its pages
    keep it."""
    return {"from": asked.one("from")}


async def _beside(asked: PageRequest, overview: Overview, tab: str) -> dict[str, Any]:
    """The same tab of the calls before and behind this one: in the list that it was opened from, or
    else in its session."""

    def to(call: str | None, **query: object) -> str | None:
        return call and (
            links.tab(call, tab, **query) if tab not in ("", "live") else links.call(call, **query)
        )

    if name := asked.one("from"):
        newer, older = await neighbours(asked.services.reader, name, overview.call_id)
        if newer or older:
            return {
                "before": to(newer, **origin(asked)),
                "next": to(older, **origin(asked)),
                "of": "list",
            }
    return {"before": to(overview.before), "next": to(overview.next), "of": "session"}


async def frame(
    asked: PageRequest, overview: Overview, tab: str, now: datetime | None = None
) -> dict[str, Any]:
    """Return what every tab of a call shows above its own."""
    made = head.head(overview, now or datetime.now(UTC))
    figures = {"Wire": f"{made['chunks']:,}", "Proof": _proof(made["sealed"])}
    figures["Text"] = size(made["chunk_bytes"] + made["released_bytes"] + (made["body_bytes"] or 0))
    refused = (
        (made["tool_calls_blocked"] or 0) if isinstance(made["tool_calls_blocked"], int) else 0
    )
    if refused:
        figures["Diff"] = f"{refused:,}"
    if lines := overview.counts.debug_lines:
        figures["Hooks"] = f"{lines:,}" if lines <= MOST_COUNTED else f"more than {MOST_COUNTED:,}"
    # the text is a file, which has no links
    queries = {path: origin(asked) if path != "text" else {} for _, path in TABS}
    tabs = [
        [
            name,
            (
                links.tab(overview.call_id, path, **queries[path])
                if path
                else links.call(overview.call_id, **queries[path])
            ),
            path == tab,
            figures.get(name),
            path or None,
        ]
        for name, path in TABS
    ]
    return {"call": made, "tabs": tabs, "beside": await _beside(asked, overview, tab)}


def _proof(sealed: dict[str, Any] | None) -> str:
    """What stands beside the tab Proof."""
    if sealed is None:
        return "not sealed"
    return f"✓ sealed, checkpoint {sealed['checkpoint']:,}" if sealed["checkpoint"] else "✓ sealed"


def _title(values: dict[str, Any]) -> str:
    """`blocked bash · 01a1fcc0`: what happened comes first, because browsers cut the end."""
    refused = next((row for row in values["rows"] if row["verdict"] in ("block", "replace")), None)
    call = values["call"]
    first = (
        f"{refused['word'].lower()} {refused['name'] or refused['label']}"
        if refused
        else "open"
        if call["is_open"]
        else call["model"]
    )
    return f"{first or 'call'} · {short(call['call_id'])}"


def _pager(
    asked: PageRequest, call_id: UUID, page: int, pages: int, blocks: int
) -> dict[str, Any] | None:
    """Links to the other pages of a call with many blocks."""
    if pages == 1:
        return None
    return {
        "page": page,
        "pages": pages,
        "blocks": blocks,
        "first": (page - 1) * story.PAGE + 1,
        "last": min(page * story.PAGE, blocks),
        "before": links.call(call_id, **origin(asked), page=page - 1) if page > 1 else None,
        "after": links.call(call_id, **origin(asked), page=page + 1) if page < pages else None,
    }


async def _gone(connection: Connection, call_id: UUID) -> Page:
    """A call whose day was dropped has a page that says so. Raises NotFound where there never was
    one."""
    gone = await read_gone(connection, call_id)
    if gone is None:
        raise NotFound(f"no call {call_id} is on record", param="call_id")
    values = {"call_id": str(call_id), "at": iso(gone[0]), "why": gone[1]}
    return Page(
        template="call_gone.html",
        title=f"dropped · {short(str(call_id))}",
        values=values,
        status=404,
    )


async def _rows(
    asked: PageRequest, overview: Overview, numbers: Sequence[int], cut: Cut | None = None
) -> dict[str, Any]:
    """Read and make the rows of some blocks."""
    cut = cut or story.cut_for(overview, numbers)
    async with reading(asked.services.reader.engine) as connection:
        details = await read_details(
            connection, overview.call_id, numbers, most=cut.most, tail=cut.tail
        )
    sides = await sides_of(asked, overview, numbers)
    # beside the loop: each call that was replaced is compared for up to 50 ms
    rows = await asyncio.to_thread(story.rows, overview, numbers, details, sides, cut)
    labels = await asked.services.labels.newest(
        (overview.call_id, row["number"]) for row in rows if row["is_decided"]
    )
    asked_about = {event["number"] for event in overview.events if event["kind"] == ASKED}
    for row in rows:
        row["label_of"] = labels.get((overview.call_id, row["number"]))
        row["may_allow"] = row["number"] in asked_about
    return {
        "rows": rows,
        "left": sides.left,
        "failed": sides.failed,
        "problem": sides.problem,
    }


async def show_block(asked: PageRequest) -> Page:
    """One content block, with as much of it as a page may hold."""
    call_id, number = await call_of(asked), number_of(asked.params["block"], "block")
    check_query(asked, "from")
    overview = await overview_of(asked, call_id)
    if number not in overview.numbers:
        raise NotFound(f"no block {number} of call {call_id} is on record", param="block")
    rows = await _rows(asked, overview, [number], Cut(arguments.WHOLE, arguments.ENDS))
    place = overview.numbers.index(number)
    adjacent = {
        "before": (
            links.block(call_id, overview.numbers[place - 1], **origin(asked)) if place else None
        ),
        "after": (
            links.block(call_id, overview.numbers[place + 1], **origin(asked))
            if place + 1 < len(overview.numbers)
            else None
        ),
    }
    row = rows["rows"][0]
    values = {**await frame(asked, overview, ""), "row": row, **adjacent}
    title = (
        f"{row['word'].lower()} {row['name'] or row['label']} · #{number} · {short(str(call_id))}"
    )
    return Page(
        template="call_block.html", title=title, values=values, shown=ShownContent((call_id,), 1)
    )


ROUTES = (
    Route(CALL, show_call),
    Route(f"{CALL}/blocks/{{block}}", show_block),
)
