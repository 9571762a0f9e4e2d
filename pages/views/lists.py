"""The lists: calls, the ledger of tool calls, and what judges blocked."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from db.filters import ListName, created_at, parse_filters
from db.labels import WORDS
from db.read.counts import UsageGroup
from db.read.json_rows import JsonObject
from db.read.usage import HOUR, HourSpan, usage
from pages import links, listing
from pages.listing import Listing
from pages.page import Answer, Page, PageRequest, Route, SeeOther, ShownContent
from pages.time_axis import HOURS, axis, end_of
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


async def calls(asked: PageRequest) -> Answer:
    """The calls, newest first, below an axis of the hours around them."""
    page = await _list(asked, "calls", "calls.html", "Calls")
    return (
        replace(page, values={**page.values, "axis": await _axis(asked)})
        if isinstance(page, Page)
        else page
    )


async def _axis(asked: PageRequest) -> dict[str, Any] | None:
    """The hours around a list of calls; None where it has filters by which nothing is summed up."""
    parameters = {
        name: value
        for name, value in asked.query
        if value and name not in ("since", "until", "cursor")
    }
    only = {UsageGroup(name): parameters[name] for name in _SUMMED if name in parameters}
    if parameters.keys() - {*_SUMMED, "limit", "order"}:
        return None
    chosen = parse_filters(
        [(name, value) for name in ("since", "until") if (value := asked.one(name))], of="calls"
    )
    low, high = (
        created_at(position) if position else None for position in (chosen.low, chosen.high)
    )
    end = end_of(high, datetime.now(UTC))
    counted = await usage(
        asked.services.reader.engine, HourSpan(end - HOURS * HOUR, end), (UsageGroup.HOUR,), only
    )

    def link(since: str, until: str) -> str:
        return links.with_query(links.CALLS, {**parameters, "since": since, "until": until})

    return axis(counted["items"], end, (low, high), link)


async def tool_calls(asked: PageRequest) -> Answer:
    """The ledger: what models tried to do."""
    return await _labelled(asked, "tool-calls", "tool_calls.html", "Tool calls")


async def judge_blocks(asked: PageRequest) -> Answer:
    """What was blocked because of a judgement."""
    return await _labelled(asked, "judge-blocks", "judge_blocks.html", "Judge")


async def _labelled(asked: PageRequest, of: ListName, template: str, title: str) -> Answer:
    """A list of decisions, with readers' labels; as a page, or as a file."""
    list_query = listing.read(asked, of, more=("said", "format"), label=WORDS)
    if isinstance(list_query, SeeOther):
        return list_query
    if form := asked.one("format"):
        if form not in labels.FORMS:
            raise InvalidRequest(f"must be {' or '.join(labels.FORMS)}", param="format")
        return await labels.FORMS[form](asked, list_query)
    loaded = await listing.load(asked.services.reader, list_query)
    if isinstance(loaded, SeeOther):
        return loaded
    items, pager = loaded
    labels_by_block = await asked.services.labels.newest(
        (UUID(item["call_id"]), item["block"]) for item in items
    )
    for item in items:
        item["label"] = labels_by_block.get((UUID(item["call_id"]), item["block"]))
    page = page_of(asked, template, title, list_query, items, pager)
    words = [
        (
            word or "any label",
            list_query.link(label=word),
            list_query.raw_filters.get("label") == word,
        )
        for word in (None, *WORDS)
    ]
    more = {
        "passed": list_query.raw_filters.get("verdict") in PASSED,
        "said": asked.one("said"),
        "labels": words,
        "exports": [(name, list_query.link(format=form)) for form, name in labels.NAMES],
    }
    return replace(page, values={**page.values, **more})


async def judge(asked: PageRequest) -> SeeOther:
    """Judges write no debug log: what they answered is on record."""
    return SeeOther(links.with_query(links.JUDGE_BLOCKS, dict(asked.query)))


async def _list(asked: PageRequest, of: ListName, template: str, title: str) -> Answer:
    list_query = listing.read(asked, of)
    if isinstance(list_query, SeeOther):
        return list_query
    loaded = await listing.load(asked.services.reader, list_query)
    return (
        loaded
        if isinstance(loaded, SeeOther)
        else page_of(asked, template, title, list_query, *loaded)
    )


def page_of(
    asked: PageRequest,
    template: str,
    title: str,
    list_query: Listing,
    items: list[JsonObject],
    pager: JsonObject,
) -> Page:
    """Return the page of a list."""
    shown, more = _FILTERS[list_query.of]
    verdict = list_query.raw_filters.get("verdict")
    names = ("ended",) if list_query.of == "calls" else ("decided", "released", "notice")
    for item in items:
        item |= {f"{name}_ms": _between(item["created_at"], item[f"{name}_at"]) for name in names}
    values: dict[str, Any] = {
        "items": items,
        "pager": pager,
        **list_query.form(shown, more),
        "tabs": [
            (name, list_query.link(verdict=value), verdict == value, None, None)
            for name, value in _VERDICTS.get(list_query.of, ())
        ],
        "keep": list_query.paging_query()
        | ({"verdict": verdict} if verdict and list_query.of in _VERDICTS else {}),
        "elsewhere": list_query.elsewhere(),
        "origin": list_query.origin(),
        "back": list_query.here(),
        "canonical": listing.PATHS[list_query.of],
    }
    calls = tuple(dict.fromkeys(UUID(item["call_id"]) for item in items))
    active = ", ".join(
        f"{name} {value}"
        for name, value in list_query.raw_filters.items()
        if name not in ("since", "until")
    )
    return Page(
        template=template,
        title=f"{title} · {active[:80]}" if active else title,
        values=values,
        shown=ShownContent(calls, len(items)),
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
