"""A time axis above a list: a bar for each hour, which links to it. Pure. Must not know: the
database, templates."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from db.read.json_rows import JsonObject
from db.read.json_rows import time as iso

HOURS = 48
"""Hours of an axis."""
HEIGHT, BELOW = 36, 12
"""Of the bars of calls, and of those of blocks, which hang below the line."""
_HOUR = timedelta(hours=1)


def end_of(until: datetime | None, now: datetime) -> datetime:
    """Return the hour that an axis ends with: that of the list's end, of now at most."""
    last = now if until is None else min(until, now)
    whole = last.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    return whole if whole == last else whole + _HOUR


Span = tuple[datetime | None, datetime | None]


def axis(
    items: Sequence[JsonObject], end: datetime, chosen: Span, link: Callable[[str, str], str]
) -> dict[str, Any] | None:
    """Return the bars of the hours before `end`, from sums by hour; None where nothing was. `link`
    makes the address of a time span, and `chosen` is that of the list."""
    begin = end - HOURS * _HOUR
    by_hour = {item["hour"]: item for item in items}
    most = max((item["calls"] for item in items), default=0)
    blocks = max((_blocked(item) for item in items), default=0)
    if not most:
        return None
    bars = []
    for place in range(HOURS):
        since, until = iso(begin + place * _HOUR) or "", iso(begin + (place + 1) * _HOUR) or ""
        item = by_hour.get(since)
        if item is not None:
            failed = _part(item["failed"], most, HEIGHT)
            bars.append(
                {
                    "place": place,
                    "since": since,
                    "calls": item["calls"],
                    "failed": item["failed"],
                    "blocked": _blocked(item),
                    "whole_px": max(failed, _part(item["calls"], most, HEIGHT)),
                    "failed_px": failed,
                    "blocked_px": _part(_blocked(item), blocks, BELOW),
                    "to": link(since, until),
                }
            )
    return {
        "since": iso(begin),
        "until": iso(end),
        "hours": HOURS,
        "bars": bars,
        "height": HEIGHT,
        "below": BELOW,
        "most": most,
        "chosen": _chosen(begin, chosen),
    }


def _chosen(begin: datetime, chosen: Span) -> tuple[float, float] | None:
    """Where the time that is chosen begins, and how long it is, in hours of the axis; None: all of
    it."""
    if chosen == (None, None):
        return None
    low, high = (
        None if at is None else min(float(HOURS), max(0.0, (at - begin) / _HOUR)) for at in chosen
    )
    first = low or 0.0
    return round(first, 2), round((HOURS if high is None else high) - first, 2)


def _blocked(item: JsonObject) -> int:
    return int(item["refused"] + item["blocks_refused"])


def _part(n: int, most: int, height: int) -> float:
    """The pixels of so many: something is never nothing."""
    return round(max(2.0, height * n / most), 1) if n else 0.0
