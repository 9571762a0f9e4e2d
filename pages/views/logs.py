"""Debug logs: pages of lines, the tab Hooks of a call, and the switch for a key."""

from base64 import b64decode
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from db.filters import parse_filters
from db.read.call.debug_logs import (
    StoredLines,
    details_of,
    lines_of_call,
    newest_of_types,
    read_lines,
)
from db.read.call.story import Overview
from db.read.json_rows import JsonObject
from db.read.queries import AuditReader
from pages import links, listing
from pages.page import Answer, Download, Page, PageRequest, Route, SeeOther, ShownContent, sliced
from pages.render import short
from pages.views.call import call_of, check_query, frame, number_of, origin, overview_of
from protocol.debug import BITS, FULL_BYTES, KEPT_DAYS, LONGEST_MIN
from protocol.errors import InvalidRequest, NotFound

PAGE = 200
"""Lines of a page of a call."""
MOST_DETAIL, FIRST = 1_200, 200
"""Bytes of a line's detail that a page shows, and characters of its first line."""
_FIELDS = ("q", "key", "policy", "hook", "event", "since", "until", "session", "call_id")
_PAGING = ("cursor", "limit")
_WORDS = {
    "transport": "Entries written and read in Redis, by gateway and policy worker",
    "endpoint": "What a policy worker did with a call",
    "policy": "Each hook of each policy: what it was given, what it said, how long it took",
    "callback": "What the gateway did towards client and upstream",
}


async def logs(asked: PageRequest, kind: str = "") -> Answer:
    """Lines of all types or of one, call by call, the newest first."""
    query = [(name, value) for name, value in asked.query if value]
    if (absolute := listing.in_full(query)) != query:
        return SeeOther(f"{asked.path}?{urlencode(absolute)}")
    filters = parse_filters([*query, *([("type", kind)] if kind else [])], of="debug-logs")
    if filters.limit > listing.MAX_ROWS:
        raise InvalidRequest(f"a page has at most {listing.MAX_ROWS} lines", param="limit")
    reader = asked.services.reader
    page = await read_lines(reader.engine, await reader.named(filters))
    items = [_short(line) for line in page["items"]]
    parameters = {name: value for name, value in query if name not in _PAGING}
    types = [] if kind or parameters else await _newest(reader)
    values = {
        "kind": kind,
        "about": _WORDS.get(kind, ""),
        "items": items,
        **_around(asked, kind, parameters, page["next_cursor"], len(items)),
        "setting": _setting(asked),
        "switches": await asked.services.switches.active(),
        "may_switch": asked.who.is_admin,
        "loggers": list(BITS),
        "longest": LONGEST_MIN,
        "for_key": parameters.get("key", ""),
        "types": types,
    }
    lines = [*items, *(type_row["newest"] for type_row in types if type_row["newest"])]
    calls = tuple(dict.fromkeys(UUID(line["call_id"]) for line in lines))
    return Page(
        template="logs.html",
        title=f"{kind or 'debug'} logs",
        values=values,
        shown=ShownContent(calls, len(items)) if calls else None,
    )


async def _newest(reader: AuditReader) -> list[JsonObject]:
    """Each type of line with what it is about and its newest line."""
    rows = await newest_of_types(reader.engine)
    return [{**type_row, "about": _WORDS[type_row["type"]]} for type_row in rows]


def _around(
    asked: PageRequest, kind: str, parameters: dict[str, str], cursor: str | None, shown: int
) -> dict[str, Any]:
    """The filters of a page of lines, and its links to other pages."""
    names = _FIELDS if kind else (*_FIELDS, "type")
    limit = dict(asked.query).get("limit")

    def page_at(position: str | None) -> str:
        return links.with_query(asked.path, {**parameters, "limit": limit, "cursor": position})

    older = page_at(cursor) if cursor else None
    form = listing.form_of("debug-logs", asked.path, parameters, {}, names[:7], names[7:])
    return {
        **form,
        # lines are kept for days only
        "windows": form["windows"][:3],
        "keep": {"limit": limit} if limit else {},
        "pager": {
            "shown": shown,
            "more": older is not None,
            "older": older,
            "newest": page_at(None) if asked.one("cursor") else None,
        },
        "tabs": [
            (name.capitalize() or "All", links.logs(name), name == kind, None, None)
            for name in ("", *BITS)
        ],
    }


def _setting(asked: PageRequest) -> dict[str, Any]:
    """What the configuration switches on."""
    debug = asked.services.settings.config.debug
    return {
        "loggers": list(debug.loggers),
        "keys": list(debug.keys),
        "sample": debug.sample,
        "content": debug.content,
    }


async def switch(asked: PageRequest) -> Answer:
    """Switch debug logs of a key on for some minutes, or off."""
    form = asked.form
    minutes = form.get("minutes", "")
    if not minutes.isascii() or not minutes.isdigit() or len(minutes) > 3:
        raise InvalidRequest("must be a whole number of minutes", param="minutes")
    chosen = [] if "off" in form else [name for name in BITS if name in form]
    if not chosen and "off" not in form:
        raise InvalidRequest("choose at least one log", param="loggers")
    await asked.services.switches.add(
        form.get("key", "").strip(),
        chosen,
        int(minutes),
        content="content" in form,
        by=asked.who.key,
    )
    return SeeOther(links.LOGS)


async def hooks(asked: PageRequest) -> Answer:
    """All lines of one call, in the order of time over processes, with what is missing and how far
    chunks and outputs came."""
    call_id = await call_of(asked)
    check_query(asked, "page", "type", "from")
    if asked.params["call_id"] != str(call_id):
        return SeeOther(links.tab(call_id, "hooks", **dict(asked.query)))
    kind = asked.one("type")
    if kind and kind not in BITS:
        raise InvalidRequest(f"must be one of {', '.join(BITS)}", param="type")
    engine = asked.services.reader.engine
    overview = await overview_of(asked, call_id)
    # without what they say, which may be megabytes: of that only a page is read
    call_lines = await lines_of_call(engine, call_id, most_detail=0)
    items = [line for line in call_lines.items if not kind or line.get("type", kind) == kind]
    pages = max(1, -(-len(items) // PAGE))
    page = min(max(1, number_of(asked.one("page", "1"), "page")), pages)
    shown = items[(page - 1) * PAGE : page * PAGE]
    places = [(line["process"], line["n"]) for line in shown if "n" in line]
    details = await details_of(engine, call_id, places, most=MOST_DETAIL) if places else {}
    rows = _rows(shown, details)
    values = {
        **await frame(asked, overview, "hooks"),
        **_tab(asked, call_id, call_lines, kind, page, pages),
        "items": rows,
        "why": _why_none(overview),
        "kept_days": KEPT_DAYS,
        "has_no_end": _has_no_end(overview, call_lines),
    }
    return Page(
        template="hooks.html",
        title=f"hooks · {short(str(call_id))}",
        values=values,
        shown=ShownContent((call_id,), len(shown)),
    )


def _why_none(overview: Overview) -> str:
    """Why a call has no lines, as far as that is known: redacted, old, or off."""
    if any(event["kind"] == "redacted" for event in overview.events):
        return "redacted"
    return (
        "old"
        if datetime.fromisoformat(overview.call["created_at"])
        < datetime.now(UTC) - timedelta(days=KEPT_DAYS)
        else "off"
    )


def _has_no_end(overview: Overview, call_lines: StoredLines) -> bool:
    """Did a policy worker write lines of a call that is over, and not the last one? A process that
    is killed loses those that it holds."""
    is_over = (
        overview.call["state"] != "ACTIVE"
        and not call_lines.is_cut
        and call_lines.counts["endpoint"] > 0
    )
    return is_over and not any(
        line.get("event") == "end" and line["type"] == "endpoint"
        for line in call_lines.items
        if "lost" not in line
    )


async def line_raw(asked: PageRequest) -> Download:
    """What one line says, whole, as plain text. Raises NotFound."""
    call_id = await call_of(asked)
    check_query(asked, "process", "n")
    place = asked.one("process"), number_of(asked.one("n"), "n")
    details = (
        await details_of(asked.services.reader.engine, call_id, [place], most=2 * FULL_BYTES)
    ).get(place)
    if details is None:
        raise NotFound(f"no such debug line of call {call_id} is kept")
    content = (
        details["detail"].encode()
        if details["detail_base64"] is None
        else b64decode(details["detail_base64"])
    )
    return Download(pieces=sliced(content), shown=ShownContent((call_id,), 1))


def _tab(
    asked: PageRequest, call_id: UUID, call_lines: StoredLines, kind: str, page: int, pages: int
) -> dict[str, Any]:
    """What stands above and below the lines of a call."""

    def link(**changed: object) -> str:
        return links.tab(call_id, "hooks", **{"type": kind, **origin(asked), **changed})

    names = [
        ("All", "", sum(call_lines.counts.values())),
        *((name.capitalize(), name, call_lines.counts[name]) for name in BITS),
    ]
    return {
        "lost": call_lines.lost,
        "is_cut": call_lines.is_cut,
        "totals": call_lines.totals,
        "types": [
            (name, link(type=value), value == kind, f"{n:,}", None) for name, value, n in names
        ],
        "pager": (
            None
            if pages == 1
            else {
                "page": page,
                "pages": pages,
                "before": link(page=page - 1) if page > 1 else None,
                "after": link(page=page + 1) if page < pages else None,
            }
        ),
    }


def _rows(
    items: Sequence[JsonObject], details: dict[tuple[str, int], JsonObject]
) -> list[JsonObject]:
    nothing = {"detail": "", "detail_base64": None, "detail_bytes": 0}
    return [
        (
            line
            if "lost" in line
            else _short({**line, **details.get((line["process"], line["n"]), nothing)})
        )
        for line in items
    ]


def _short(line: JsonObject) -> JsonObject:
    """A line as a page shows it: the first line of its detail apart from the content below."""
    whole = line.get("detail_bytes", len(line["detail"].encode(errors="surrogatepass")))
    first, _, content = line["detail"][:MOST_DETAIL].partition("\n")
    role, _, name = line["process"].partition(" ")
    return {
        **{name: value for name, value in line.items() if name not in ("detail", "detail_base64")},
        "role": role,
        "name": name.rpartition(" ")[0],
        "first": first,
        "content": content,
        "detail_bytes": whole,
        "is_cut": whole > (MOST_DETAIL if content else FIRST),
    }


ROUTES = (
    Route(links.LOGS, logs),
    Route(links.LOGS, switch, method="POST", role="admin"),
    Route(f"{links.CALLS}/{{call_id}}/hooks", hooks),
    Route(f"{links.CALLS}/{{call_id}}/hooks/raw", line_raw),
    *(Route(f"{links.ROOT}/{kind}", partial(logs, kind=kind)) for kind in BITS),
)
