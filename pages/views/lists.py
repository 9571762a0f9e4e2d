"""The lists: calls, the ledger of tool calls, and what judges blocked."""

from datetime import datetime
from typing import Any
from uuid import UUID

from db.filters import ListName
from db.read.items import JsonObject
from pages import links, listing
from pages.listing import Listing
from pages.page import Answer, Asked, Page, Redirect, Route, Shown
from protocol.records import PASSED

_FILTERS: dict[ListName, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "calls": (("q", "state", "key", "session", "since", "until"), ("model", "policy", "name", "verdict", "call_id", "key_id")),
    "tool-calls": (("q", "name", "key", "session", "since", "until"), ("model", "policy", "verdict", "call_id", "key_id")),
    "judge-blocks": (("q", "policy", "key", "session", "since", "until"), ("model", "name", "verdict", "call_id", "key_id")),
}
"""Filters in sight, and those behind "More"."""
_WINDOWS = (("15 min", "-15m"), ("1 h", "-1h"), ("24 h", "-24h"), ("7 d", "-7d"))
_VERDICTS = {
    "tool-calls": (("All", None), ("Blocked", "block"), ("Replaced", "replace"), ("Withheld", "withheld"), ("Allowed", "allow")),
    "judge-blocks": (("Refused", None), ("Replaced", "replace"), ("Allowed", "allow")),
}


async def calls(asked: Asked) -> Answer:
    """The calls, newest first; on the first page those that are open come first."""
    found = listing.read(asked, "calls")
    if isinstance(found, Redirect):
        return found
    loaded = await listing.load(asked.services.reader, found)
    if isinstance(loaded, Redirect):
        return loaded
    items, pager = loaded
    if pager["newest"] is None:
        items = sorted(items, key=lambda item: item["state"] != "ACTIVE")
    return page_of(asked, "calls.html", "Calls", found, items, pager)


async def tool_calls(asked: Asked) -> Answer:
    """The ledger: what models tried to do."""
    return await _list(asked, "tool-calls", "tool_calls.html", "Tool calls")


async def judge_blocks(asked: Asked) -> Answer:
    """What was refused because of a judgement."""
    return await _list(asked, "judge-blocks", "judge_blocks.html", "Judge")


async def _list(asked: Asked, of: ListName, template: str, title: str) -> Answer:
    found = listing.read(asked, of, more=("said",))
    if isinstance(found, Redirect):
        return found
    loaded = await listing.load(asked.services.reader, found)
    return loaded if isinstance(loaded, Redirect) else page_of(asked, template, title, found, *loaded)


def page_of(asked: Asked, template: str, title: str, found: Listing, items: list[JsonObject], pager: JsonObject) -> Page:
    """Return the page of a list."""
    shown, more = _FILTERS[found.of]
    verdict = found.given.get("verdict")
    for item in items:
        item["label"] = None
        item["took_ms" if found.of == "calls" else "released_ms"] = _between(
            item["created_at"], item.get("ended_at" if found.of == "calls" else "released_at")
        )
    values: dict[str, Any] = {
        "items": items,
        "pager": pager,
        "chips": found.chips(),
        "fields": listing.fields(found.of, shown, found.given),
        "more_fields": listing.fields(found.of, more, found.given),
        "windows": [(name, found.link(since=since, until=None)) for name, since in _WINDOWS],
        "tabs": [(name, found.link(verdict=value), verdict == value, None, None) for name, value in _VERDICTS.get(found.of, ())],
        "list": found.path,
        "origin": found.origin(),
        "back": found.here(),
        "passed": verdict in PASSED,
        "said": asked.one("said"),
        "canonical": listing.PATHS[found.of],
    }
    calls = tuple(dict.fromkeys(UUID(item["call_id"]) for item in items))
    active = ", ".join(f"{name} {value}" for name, value in found.given.items() if name not in ("since", "until"))
    return Page(template=template, title=f"{title} · {active[:80]}" if active else title, values=values, shown=Shown(calls, len(items)))


def _between(begin: str | None, end: str | None) -> float | None:
    """Milliseconds between two times of an item."""
    return None if begin is None or end is None else (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds() * 1000


ROUTES = (
    Route(links.CALLS, calls),
    Route(links.TOOL_CALLS, tool_calls),
    Route(f"{links.ROOT}/tool-call-logs", tool_calls),
    Route(links.JUDGE_BLOCKS, judge_blocks),
)
