"""A list as a page: its filters as a form and as chips, times relative to now made absolute, pages
both ways by key.

The filters are those of `db.filters` under the same names, so what is copied from a page works with
the API and the command line. A page is a position between two keys: rows that arrive meanwhile move
nothing. Must not know: SQL, what a list is about.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, urlencode
from uuid import UUID

from db.filters import Asked as Filtered
from db.filters import (
    Filters,
    ListName,
    Order,
    Position,
    encode_cursor,
    filters_of,
    parse_filters,
    read_cursor,
)
from db.read.json_rows import JsonObject
from db.read.queries import AuditReader
from pages import links
from pages.page import PageRequest, SeeOther
from protocol.errors import InvalidRequest

FIRST_BYTES = 1000
"""Of each payload that a list reads: more than its cell shows, in whatever script."""
MAX_ROWS = 200
"""Rows of a page: more makes browsers slow."""
PATHS: Mapping[ListName, str] = {
    "calls": links.CALLS,
    "tool-calls": links.TOOL_CALLS,
    "judge-blocks": links.JUDGE_BLOCKS,
}
NAMES: Mapping[ListName, str] = {"calls": "Calls", "tool-calls": "Tools", "judge-blocks": "Judge"}
"""As the head of a page calls them."""
_PAGING = ("cursor", "limit", "order")
WINDOWS = (("15 min", "-15m"), ("1 h", "-1h"), ("24 h", "-24h"), ("7 d", "-7d"))
"""Times that a list offers."""
_AGO = re.compile(r"-(\d{1,5})([smhdw])")
_TIMES = (
    "is no time: write it as 14:03, yesterday 14:03, -1h, today, 2026-01-31 or 2026-01-31 14:03"
)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_DAY = re.compile(r"(today|yesterday)(?: +(\d{1,2}:\d\d(?::\d\d)?))?", re.IGNORECASE)
_CLOCK = re.compile(r"([01]?\d|2[0-3]):[0-5]\d(:[0-5]\d)?")
_MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d(?=[ T]|$)|(?i:today|yesterday)(?= ))?["
    r" T]?((?P<minute>\d{1,2}:\d\d)(?P<second>:\d\d)?Z?)?"
)
_OPPOSITE: Mapping[Order, Order] = {"asc": "desc", "desc": "asc"}
_BESIDE: tuple[tuple[Order, int], ...] = (("asc", 2**31 - 1), ("desc", -1))
"""Past all rows of a call, upwards and downwards."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The query of a list page. `raw_filters` are its filters as they came, without those of
    paging."""

    of: ListName
    path: str
    raw_filters: Mapping[str, str]
    paging: Mapping[str, str]
    filters: Filters
    is_back: bool
    """The cursor is of the row above: the rows before it are asked for, the nearest first."""

    def link(self, **changed: str | None) -> str:
        """Return the address of this list, newest page, with filters changed, or taken away by
        None."""
        return links.with_query(self.path, {**self.raw_filters, **self.paging_query(), **changed})

    def paging_query(self) -> dict[str, str]:
        """Return what goes on to hold with other filters: the order, and the rows of a page."""
        return {name: self.paging[name] for name in ("order", "limit") if name in self.paging}

    def here(self) -> str:
        """Return the address of this very page."""
        return links.with_query(self.path, {**self.raw_filters, **self.paging})

    def form(self, names: Sequence[str], more_names: Sequence[str]) -> dict[str, Any]:
        """Return what a page says of its filters (`form_of`)."""
        keep = self.paging_query()
        return form_of(self.of, self.path, self.raw_filters, keep, names, more_names)

    def elsewhere(self) -> list[tuple[str, str]]:
        """Return the other lists that these filters choose something in: name, and address."""
        known = {of: [filter_.name for filter_ in filters_of(of)] for of in PATHS}
        return [
            (
                NAMES[of],
                links.with_query(
                    path,
                    {name: value for name, value in self.raw_filters.items() if name in known[of]},
                ),
            )
            for of, path in PATHS.items()
            if of != self.of
        ]

    def origin(self) -> str:
        """Return this list in short, for `from` in links to its rows."""
        return links.with_query(self.of, {**self.raw_filters, "order": self.paging.get("order")})


def read(
    asked: PageRequest, of: ListName, *, more: Sequence[str] = (), label: Sequence[str] = ()
) -> Listing | SeeOther:
    """Check what was asked. Relative times become absolute by a redirect, so that a link that is
    passed on means the same tomorrow.

    `more` names parameters of the page that are no filters; `label`: what the filter of that name
    may say, which the API does not know. Raises InvalidRequest.
    """
    query = [(name, value) for name, value in asked.query if value]
    if (absolute := in_full(query)) != query:
        return SeeOther(f"{asked.path}?{urlencode(absolute)}")
    for name, value in absolute:
        if name in ("since", "until") and _zoned(value) is None:
            raise InvalidRequest(_TIMES, param=name)
    list_query = [(name, value) for name, value in query if name not in more]
    known = [(name, value) for name, value in list_query if name != "label" or not label]
    label_filter = asked.one("label") if label else ""
    if label_filter and label_filter not in label:
        raise InvalidRequest(f"must be one of {', '.join(label)}", param="label")
    cursor = asked.one("cursor")
    filters = parse_filters([(name, value) for name, value in known if name != "cursor"], of=of)
    if filters.limit > MAX_ROWS:
        raise InvalidRequest(f"a page has at most {MAX_ROWS} rows", param="limit")
    filters, is_back = replace(filters, passed=True, label=label_filter or None), False
    if cursor:
        after = read_cursor(cursor)
        if after.list != of:
            raise InvalidRequest("belongs to another list", param="cursor")
        is_back = after.order != filters.order
        filters = replace(filters, after=after, order=after.order)
    raw_filters = {name: value for name, value in list_query if name not in _PAGING}
    return Listing(
        of,
        asked.path,
        raw_filters,
        {name: value for name, value in known if name in _PAGING},
        filters,
        is_back,
    )


async def load(
    reader: AuditReader, listing: Listing
) -> tuple[list[JsonObject], JsonObject] | SeeOther:
    """Return the rows of the page in the order of the list, and its pager. Past the newest end it
    is the newest page."""
    items, more = await reader.lines(listing.of, listing.filters, first=FIRST_BYTES)
    if listing.is_back:
        if not more:
            return SeeOther(listing.link())
        items.reverse()
    return items, _pager(listing, items, more)


async def neighbours(
    reader: AuditReader, origin: str, call_id: UUID
) -> tuple[str | None, str | None]:
    """Return the calls before and behind this one in the list that it was opened from, by
    `Listing.origin`: newer, older.

    A list that it does not name has none.
    """
    name, _, query = origin.partition("?")
    of = next((list_name for list_name in PATHS if list_name == name), None)
    if of is None:
        return None, None
    try:
        filters = parse_filters(parse_qsl(query, max_num_fields=len(filters_of(of))), of=of)
    except (InvalidRequest, ValueError):
        return None, None
    call_ids: list[str | None] = []
    for order, number in _BESIDE:
        after = Position(of, order, call_id, number)
        items, _ = await reader.lines(
            of, replace(filters, limit=1, order=order, after=after, passed=True), first=0
        )
        call_ids.append(items[0]["call_id"] if items else None)
    return call_ids[0], call_ids[1]


def _pager(listing: Listing, items: Sequence[JsonObject], more: bool) -> JsonObject:
    shown_order = _OPPOSITE[listing.filters.order] if listing.is_back else listing.filters.order
    parameters = {**listing.raw_filters, **listing.paging_query()}

    def at(item: JsonObject, order: Order) -> str:
        position = Position(listing.of, order, UUID(item["call_id"]), item["block"])
        return links.with_query(listing.path, {**parameters, "cursor": encode_cursor(position)})

    goes_on = listing.is_back or more
    ahead = at(items[-1], shown_order) if items and goes_on else None
    back = at(items[0], _OPPOSITE[shown_order]) if items and "cursor" in listing.paging else None
    older, newer = (ahead, back) if shown_order == "desc" else (back, ahead)
    newest = links.with_query(
        listing.path, {name: value for name, value in parameters.items() if name != "order"}
    )
    is_newest = shown_order == "desc" and "cursor" not in listing.paging
    return {
        "shown": len(items),
        "more": goes_on,
        "older": older,
        "newer": newer,
        "newest": None if is_newest else newest,
    }


def in_full(query: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the parameters with their times in full, in UTC: relative ones as they are now, and
    those without a zone.

    A clock time is the last one that has been, so that `23:50` finds something shortly after
    midnight; as `until` it is the first one behind `since`, or today's.
    """
    parameters, now = dict(query), datetime.now(UTC).replace(microsecond=0)
    since = _time(parameters.get("since", ""), now)
    if since is not None and since > now and _CLOCK.fullmatch(parameters["since"]):
        since -= timedelta(days=1)
    full = {"since": since, "until": _time(parameters.get("until", ""), now, since)}
    return [
        (
            name,
            value if (at := full.get(name)) is None or _zoned(value) is not None else _written(at),
        )
        for name, value in query
    ]


def _written(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


def _time(value: str, now: datetime, after: datetime | None = None) -> datetime | None:
    """The time that a text means: a clock time on the day of now, or the first one behind `after`.
    None: it is none."""
    try:
        if match := _AGO.fullmatch(value):
            return now - timedelta(seconds=int(match[1]) * _SECONDS[match[2]])
        if named := _DAY.fullmatch(value):
            day = now.date() - timedelta(days=named[1].lower() == "yesterday")
            value = f"{day} {(named[2] or '00:00').rjust(5, '0')}"
        if _CLOCK.fullmatch(value):
            hour, minute, *second = map(int, value.split(":"))
            day = now if after is None else after.astimezone(UTC)
            at = day.replace(
                hour=hour, minute=minute, second=second[0] if second else 0, microsecond=0
            )
            return at + timedelta(days=after is not None and at <= after)
        return _zoned(value) or datetime.fromisoformat(value).replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def _zoned(value: str) -> datetime | None:
    """A time that says its zone."""
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        return None
    return None if at.tzinfo is None else at


def moment(text: str) -> tuple[str, str] | None:
    """Return `since` and `until` of the day, minute or second that a text names: `14:03`,
    `2026-01-31`, `2026-01-31 14:03:07`."""
    match = _MOMENT.fullmatch(text)
    if match is None:
        return None
    ((_, since),) = in_full([("since", text)])
    at = _zoned(since)
    seconds = 1 if match["second"] else 60 if match["minute"] else 86_400
    try:
        return None if at is None else (since, _written(at + timedelta(seconds=seconds)))
    except OverflowError:
        return None


def form_of(
    of: Filtered,
    path: str,
    raw_filters: Mapping[str, str],
    keep: Mapping[str, str],
    names: Sequence[str],
    more_names: Sequence[str],
) -> dict[str, Any]:
    """Return what a page says of its filters: the fields in sight and those behind "More", the
    times that it offers, the active filters with the addresses without them, and what goes on to
    hold."""

    def link(**changed: str | None) -> str:
        return links.with_query(path, {**raw_filters, **keep, **changed})

    return {
        "list": path,
        "keep": keep,
        "fields": _fields(of, names, raw_filters),
        "more_fields": _fields(of, more_names, raw_filters),
        "chips": [(name, value, link(**{name: None})) for name, value in raw_filters.items()],
        "windows": [(name, link(since=since, until=None)) for name, since in WINDOWS],
    }


def _fields(
    of: Filtered, names: Sequence[str], parameters: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The filters of these names: name, value, and the values that it may have, if those are
    few."""
    known = {filter_.name: filter_ for filter_ in filters_of(of)}
    return [
        {"name": name, "value": parameters.get(name, ""), "values": list(known[name].values)}
        for name in names
    ]
