"""The lists: calls, the ledger of tool calls, and what judges blocked."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from db.filters import ListName, created_at, parse_filters
from db.labels import WORDS
from db.read.items import JsonObject
from db.read.usage import HOUR, Group, Span, usage
from pages import links, listing
from pages.axis import HOURS, axis, end_of
from pages.listing import Listing
from pages.page import Answer, Asked, Page, Redirect, Route, Shown
from pages.views import labels
from protocol.errors import InvalidRequest
from protocol.records import PASSED

_FILTERS: dict[ListName, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "calls": (
        ("q", "state", "key", "session", "since", "until"),
        ("model", "policy", "name", "verdict", "call_id", "key_id"),
    ),
    "tool-calls": (
        ("q", "name", "key", "session", "since", "until"),
        ("model", "policy", "call_id", "key_id"),
    ),
    "judge-blocks": (
        ("q", "policy", "key", "session", "since", "until"),
        ("model", "name", "call_id", "key_id"),
    ),
}
"""Filters in sight, and those behind "More". Where a list has tabs of verdicts, those are the
filter."""
_SUMMED = ("key", "model", "policy")
"""Filters by which sums of hours are known."""
_VERDICTS = {
    "tool-calls": (
        ("All", None),
        ("Blocked", "block"),
        ("Replaced", "replace"),
        ("Withheld", "withheld"),
        ("Allowed", "allow"),
    ),
    "judge-blocks": (("Blocked", None), ("Replaced", "replace"), ("Allowed", "allow")),
}


async def calls(asked: Asked) -> Answer:
    """The calls, newest first, below an axis of the hours around them."""
    page = await _list(asked, "calls", "calls.html", "Calls")
    return (
        replace(page, values={**page.values, "axis": await _axis(asked)})
        if isinstance(page, Page)
        else page
    )


async def _axis(asked: Asked) -> dict[str, Any] | None:
    """The hours around a list of calls; None where it has filters by which nothing is summed up."""
    given = {
        name: value
        for name, value in asked.query
        if value and name not in ("since", "until", "cursor")
    }
    only = {Group(name): given[name] for name in _SUMMED if name in given}
    if given.keys() - {*_SUMMED, "limit", "order"}:
        return None
    chosen = parse_filters(
        [(name, value) for name in ("since", "until") if (value := asked.one(name))], of="calls"
    )
    low, high = (created_at(one) if one else None for one in (chosen.low, chosen.high))
    end = end_of(high, datetime.now(UTC))
    found = await usage(
        asked.services.reader.engine, Span(end - HOURS * HOUR, end), (Group.HOUR,), only
    )

    def link(since: str, until: str) -> str:
        return links.with_query(links.CALLS, {**given, "since": since, "until": until})

    return axis(found["items"], end, (low, high), link)


async def tool_calls(asked: Asked) -> Answer:
    """The ledger: what models tried to do."""
    return await _labelled(asked, "tool-calls", "tool_calls.html", "Tool calls")


async def judge_blocks(asked: Asked) -> Answer:
    """What was blocked because of a judgement."""
    return await _labelled(asked, "judge-blocks", "judge_blocks.html", "Judge")


async def _labelled(asked: Asked, of: ListName, template: str, title: str) -> Answer:
    """A list of decisions, with readers' labels; as a page, or as a file."""
    found = listing.read(asked, of, more=("said", "format"), label=WORDS)
    if isinstance(found, Redirect):
        return found
    if form := asked.one("format"):
        if form not in labels.FORMS:
            raise InvalidRequest(f"must be html, json, {' or '.join(labels.FORMS)}", param="format")
        return await labels.FORMS[form](asked, found)
    loaded = await listing.load(asked.services.reader, found)
    if isinstance(loaded, Redirect):
        return loaded
    items, pager = loaded
    said = await asked.services.labels.newest(
        (UUID(item["call_id"]), item["block"]) for item in items
    )
    for item in items:
        item["label"] = said.get((UUID(item["call_id"]), item["block"]))
    page = page_of(asked, template, title, found, items, pager)
    words = [
        (word or "any label", found.link(label=word), found.given.get("label") == word)
        for word in (None, *WORDS)
    ]
    more = {
        "passed": found.given.get("verdict") in PASSED,
        "said": asked.one("said"),
        "labels": words,
        "exports": [(name, found.link(format=form)) for form, name in labels.NAMES],
    }
    return replace(page, values={**page.values, **more})


async def judge(asked: Asked) -> Redirect:
    """Judges write no debug log: what they answered is on record."""
    return Redirect(links.with_query(links.JUDGE_BLOCKS, dict(asked.query)))


async def _list(asked: Asked, of: ListName, template: str, title: str) -> Answer:
    found = listing.read(asked, of)
    if isinstance(found, Redirect):
        return found
    loaded = await listing.load(asked.services.reader, found)
    return (
        loaded if isinstance(loaded, Redirect) else page_of(asked, template, title, found, *loaded)
    )


def page_of(
    asked: Asked,
    template: str,
    title: str,
    found: Listing,
    items: list[JsonObject],
    pager: JsonObject,
) -> Page:
    """Return the page of a list."""
    shown, more = _FILTERS[found.of]
    verdict = found.given.get("verdict")
    names = ("ended",) if found.of == "calls" else ("decided", "released", "notice")
    for item in items:
        item |= {f"{name}_ms": _between(item["created_at"], item[f"{name}_at"]) for name in names}
    values: dict[str, Any] = {
        "items": items,
        "pager": pager,
        "chips": found.chips(),
        "fields": listing.fields(found.of, shown, found.given),
        "more_fields": listing.fields(found.of, more, found.given),
        "windows": [(name, found.link(since=since, until=None)) for name, since in listing.WINDOWS],
        "tabs": [
            (name, found.link(verdict=value), verdict == value, None, None)
            for name, value in _VERDICTS.get(found.of, ())
        ],
        "keep": found.kept() | ({"verdict": verdict} if verdict and found.of in _VERDICTS else {}),
        "elsewhere": found.elsewhere(),
        "list": found.path,
        "origin": found.origin(),
        "back": found.here(),
        "canonical": listing.PATHS[found.of],
    }
    calls = tuple(dict.fromkeys(UUID(item["call_id"]) for item in items))
    active = ", ".join(
        f"{name} {value}" for name, value in found.given.items() if name not in ("since", "until")
    )
    return Page(
        template=template,
        title=f"{title} · {active[:80]}" if active else title,
        values=values,
        shown=Shown(calls, len(items)),
    )


def _between(begin: str | None, end: str | None) -> float | None:
    """Milliseconds between two times of an item."""
    return (
        None
        if begin is None or end is None
        else (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds() * 1000
    )


ROUTES = (
    Route(links.CALLS, calls),
    Route(links.TOOL_CALLS, tool_calls),
    Route(f"{links.ROOT}/tool-call-logs", tool_calls),
    Route(links.JUDGE_BLOCKS, judge_blocks),
    Route(f"{links.ROOT}/judge", judge),
    Route(links.LABELS, labels.label, method="POST"),
)
