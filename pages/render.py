"""Renders values as a page: the template environment and its filters. Must not know: HTTP, SQL,
what a page is about."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from db.filters import LEAST_PREFIX
from db.read.json_rows import time as iso
from pages import links, verdicts
from pages.assets import address
from pages.escape import beginning, coloured, exact, moment, seen, spelled, text_of
from pages.page import Page, PageRequest
from pages.pretty import pretty
from protocol.reasons import worded
from protocol.usage.prices import dollars
from settings.defaults import VERSION

CELL = 160
"""Characters that a cell of a list shows."""
_ENDS, _SHORT = 8, 17


def render(page: Page, asked: PageRequest) -> bytes:
    """Return the page as HTML."""
    return _render(page.template, {**page.values, "title": page.title, "asked": asked})


def render_outside(
    template: str, title: str, values: Mapping[str, Any], asked: PageRequest | None = None
) -> bytes:
    """Return a page that no view made. For somebody who is not logged in it has a head without
    links."""
    return _render(template, {**values, "title": title, "asked": asked})


def _render(template: str, values: Mapping[str, Any]) -> bytes:
    return _environment().get_template(template).render(values).encode(errors="backslashreplace")


@cache
def _environment() -> Environment:
    folder = str(resources.files("pages").joinpath("templates"))
    env = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        finalize=_finalize,
    )
    env.filters.update(
        seen=seen,
        spelled=spelled,
        exact=exact,
        cut=cut,
        json=_json,
        duration=duration,
        usd=dollars,
        iso=_iso,
        n=thousands,
        size=size,
        time=_shown_time,
        why=worded,
        short=short,
    )
    env.globals.update(link=links, verdicts=verdicts, asset=address, cell=CELL, version=VERSION)
    return env


def _finalize(value: object) -> object:
    """Text that went through no filter is spelled out all the same, and then escaped."""
    return spelled(value) if type(value) is str else value


def thousands(value: float | None) -> str:
    """Return a number with a comma between thousands."""
    return "" if value is None else f"{value:,}"


def size(value: int | None) -> str:
    """Return a number of bytes with a unit: 212 B, 4.1 kB, 1.2 MB."""
    if value is None:
        return ""
    amount = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 999.5 or unit == "GB":
            return (
                f"{amount:,.0f} {unit}"
                if unit == "B" or amount >= 99.95
                else f"{amount:.1f} {unit}"
            )
        amount /= 1000
    return ""


def short(call_id: str) -> str:
    """Return a call id in short: its beginning is the time, which all calls of a minute share, and
    its end tells them apart."""
    return call_id if len(call_id) <= _SHORT else f"{call_id[:LEAST_PREFIX]}…{call_id[-_ENDS:]}"


def duration(ms: float | None) -> str:
    """Return milliseconds as people read them: 0.4 ms, 812 ms, 4.78 s, 3 min 12 s."""
    if ms is None:
        return ""
    if ms < 10 and ms != int(ms):
        return f"{ms:.1f} ms"
    if ms < 999.5:
        return f"{ms:.0f} ms"
    seconds = ms / 1000
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    minutes, left_s = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min" if hours else f"{minutes} min {left_s} s"


def _iso(value: datetime | str | None) -> str:
    """Return a time as the API writes it, in UTC with milliseconds."""
    return (iso(value) or "") if isinstance(value, datetime) else value or ""


def _shown_time(value: datetime | str | None, part: str = "all") -> object:
    """Return a time as an element, in UTC; the script shows it in the zone of the browser. `part`:
    all, or the clock alone."""
    text = _iso(value)
    try:
        parsed = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return text
    clock = f"{parsed:%H:%M:%S}.{parsed.microsecond // 1000:03d}Z"
    return moment(text, "" if part == "clock" else f"{parsed:%Y-%m-%d}", clock)


def cut(value: object, length: int = CELL, whole: int | None = None) -> object:
    """Return the beginning of a text on one line, and how long all of it is where that is more.
    `whole`: bytes, where `value` is a part."""
    text = text_of(value)
    if whole is None:
        whole = len(value) if isinstance(value, bytes) else len(text.encode(errors="surrogatepass"))
    return beginning(text, length, size(whole))


def _json(value: object) -> object:
    """Return JSON in colours, indented: text in the order in which it was sent; what is no JSON as
    it is; other values as JSON."""
    text = (
        text_of(value)
        if isinstance(value, str | bytes)
        else json.dumps(value, ensure_ascii=False, indent=2)
    )
    pieces = pretty(text)
    return seen(text) if pieces is None else coloured(pieces)
