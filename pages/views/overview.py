"""The overview: the state of the product, open calls, what was last not released. Its figures are
updated by one stream of events."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from db.engine import reading
from db.read import overview
from db.read.approvals import ApprovalReader
from db.read.call.debug_logs import newest_of_types
from db.read.early_refusals import read_door
from db.read.json_rows import dump_json
from pages import links
from pages.escape import spelled
from pages.figures import Figures, figures_of
from pages.page import Download, Page, PageRequest, Route, ShownContent
from pages.render import duration, size
from pages.views.call import check_query

NEWEST = 10
STREAM_S = 1800.0
"""After so long the stream ends, and the browser asks for the next one."""
EVENTS = f"{links.ROOT}/events"
_STEPS = "▁▂▃▄▅▆▇█"
Text = tuple[str, str]
"""The name of the group that a figure is of, and the figure in words."""


async def show_overview(asked: PageRequest) -> Page:
    """The page as of now."""
    check_query(asked, "said")
    figures = figures_of(asked.services)
    engine, now = asked.services.reader.engine, datetime.now(UTC)
    values, newest, waiting, door, logs = await asyncio.gather(
        figures.look(),
        _newest(asked),
        ApprovalReader(engine).changes(),
        read_door(engine, now - timedelta(hours=1), now + timedelta(minutes=1)),
        newest_of_types(engine),
    )
    shown = (
        ShownContent([UUID(call) for call in {row["call_id"] for row in newest}], len(newest))
        if newest
        else None
    )
    made = {
        "figures": texts(values),
        "roles": values["workers"].get("roles"),
        "open": _rows(values),
        "many_open": _many_open(values),
        "doctor": values["doctor"].get("found"),
        "per_minute": values["record"].get("per_minute"),
        "not_released": newest,
        "waiting": waiting[0],
        "events": EVENTS,
        "door": _door(door["items"]),
        "logs": logs,
        "read": {name: group["age_s"] is not None for name, group in values.items()},
    }
    return Page(template="overview.html", title="Overview", values=made, shown=shown)


async def _newest(asked: PageRequest) -> list[dict[str, Any]]:
    async with reading(asked.services.reader.engine) as connection:
        return await overview.newest_not_released(connection, datetime.now(UTC), NEWEST)


def _door(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Requests that were refused before a call began, by status: how many, and how many of them
    with no key that is known."""
    by_status: dict[int, dict[str, Any]] = {}
    for item in items:
        group = by_status.setdefault(
            item["status"], {"status": item["status"], "n": 0, "unknown": 0, "codes": {}}
        )
        group["n"] += item["n"]
        group["unknown"] += item["n"] if item["key"] is None else 0
        group["codes"][item["code"]] = group["codes"].get(item["code"], 0) + item["n"]
    return sorted(by_status.values(), key=lambda group: -group["n"])


async def stream_figures(asked: PageRequest) -> Download:
    """The figures once a second, as a stream of events."""
    return Download(pieces=_events(figures_of(asked.services)), media_type="text/event-stream")


async def _events(figures: Figures) -> AsyncIterator[bytes]:
    until = time.monotonic() + STREAM_S
    looks = figures.watch()
    assert isinstance(looks, AsyncGenerator)
    try:
        async for values in looks:
            payload = {
                "figures": {name: _with_age(values, text) for name, text in texts(values).items()},
                "open": _rows(values),
            }
            yield b"data: " + dump_json(payload) + b"\n\n"
            if time.monotonic() > until:
                return
    finally:
        await looks.aclose()


def _with_age(values: Mapping[str, Any], text: Text) -> list[Any]:
    group = values[text[0]]
    return [text[1], group["age_s"], group["limit_s"]]


def texts(values: Mapping[str, Any]) -> dict[str, Text]:
    """Return each figure in words, with the group that it is of; what was never read is a dash."""
    streams, record, redis, doctor = (
        values[name] for name in ("streams", "record", "redis", "doctor")
    )
    shown: dict[str, Text] = {}

    def say(name: str, group: str, makes: Any) -> None:
        shown[name] = group, "–" if values[group]["age_s"] is None else makes()

    say("open_calls", "streams", lambda: f"{streams['open_calls']:,}")
    say("open", "open", lambda: f"{len(values['open']['calls']):,} shown")
    say("records", "streams", lambda: _waiting(streams["waiting"], streams["oldest_ms"]))
    say("questions", "streams", lambda: _waiting(streams["questions"], streams["question_ms"]))
    say("per_minute", "record", lambda: f"{record['calls_per_minute']:,}")
    say("spark", "record", lambda: sparkline(record["per_minute"]))
    say(
        "blocked",
        "record",
        lambda: f"{record['blocked']:,}{' or more' if record['is_more'] else ''}",
    )
    say("postgres", "record", lambda: f"answers in {duration(record['answer_ms'])}")
    say("sealed", "record", lambda: _sealed(record))
    say(
        "redis",
        "redis",
        lambda: (
            f"{size(redis['used'])} of {size(redis['most']) if redis['most'] else 'what there is'}"
        ),
    )
    say(
        "workers",
        "workers",
        lambda: ", ".join(f"{n} {role}" for role, n in values["workers"]["roles"].items()),
    )
    say("doctor", "doctor", lambda: _findings(doctor["found"]))
    return shown


def _waiting(n: int, oldest_ms: int) -> str:
    return f"{n:,}, oldest {duration(oldest_ms)}" if n else "0"


def _sealed(record: Mapping[str, Any]) -> str:
    if record["sealed_at"] is None:
        return "none yet"
    age = _ago(record["sealed_at"])
    return (
        f"{age}, checkpoint {_ago(record['checkpoint_at'])}"
        if record["checkpoint"] is not None
        else age
    )


def _ago(at: str) -> str:
    try:
        ms = (datetime.now(UTC) - datetime.fromisoformat(at)).total_seconds() * 1000
    except ValueError:
        return at
    return (
        f"{max(0, round(ms / 1000))} s ago" if ms < 119_500 else f"{round(ms / 60_000):,} min ago"
    )


def _findings(findings: list[dict[str, str]]) -> str:
    if not findings:
        return "none"
    failed = sum(finding["state"] == "failed" for finding in findings)
    warned = len(findings) - failed
    counts = [f"{failed} failed"] * bool(failed) + [
        f"{warned} warning{'s' if warned > 1 else ''}"
    ] * bool(warned)
    return ", ".join(counts)


def sparkline(numbers: list[int]) -> str:
    """Return numbers as a line of blocks, the highest as high as there are; the same numbers stand
    in the page's table."""
    top = max([*numbers, 1])
    return "".join(
        _STEPS[0] if not n else _STEPS[min(len(_STEPS) - 1, 1 + n * (len(_STEPS) - 2) // top)]
        for n in numbers
    )


def _rows(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The open calls, in text that may be put into the page as it is."""
    names = ("key", "model", "policy")
    return [
        call
        | {"to": links.call(call["call_id"]), "live": links.tab(call["call_id"], "live")}
        | {name: spelled(call[name])[:80] for name in names}
        for call in values["open"].get("calls", [])
    ]


def _many_open(values: Mapping[str, Any]) -> int:
    """How many open calls are not shown."""
    return max(
        0, int(values["streams"].get("open_calls", 0)) - len(values["open"].get("calls", []))
    )


ROUTES = (Route(links.ROOT, show_overview), Route(EVENTS, stream_figures))
