"""The read side of debug logs: pages of lines, and all lines of one call in the order of time over
processes, with what is missing.

A page goes call by call, the newest first, and within a call from its last line back. Must not
know: HTTP.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from db.engine import reading
from db.filters import Filters, LinePosition, encode_cursor
from db.read.json_rows import JsonObject, payload
from db.text import from_column, to_column
from protocol.debug import BITS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LINES = """
SELECT l.call_id, l.process, l.n, l.at, l.type, l.event, l.seq, l.number, l.block, l.policy, l.hook,
    l.duration_us, l.bytes, l.detail,
    c.key, c.session FROM debug_logs l LEFT JOIN calls c ON c.call_id = l.call_id
"""
_COMPARED = {
    "call_id": "l.call_id = :call_id",
    "low": "l.call_id >= :low",
    "high": "l.call_id < :high",
    "type": "l.type = :type",
    "event": "l.event = :event",
    "policy": "l.policy = :policy",
    "hook": "l.hook = :hook",
    "key": "c.key = :key",
    "session": "c.session = :session",
    "contains": "position(CAST(:contains AS bytea) IN l.detail) > 0",
}
MOST_LINES = 50_000
"""Of one call that are read; the answer says when there are more."""
_AT_ONCE = 500
CHUNKS = {
    "gateway wrote": ("transport", ("append",)),
    "worker read": ("transport", ("read",)),
    "worker decided": ("endpoint", ()),
}
"""Where chunks pass, and the entries that end them, in this order: the type and the events of the
lines that say so; no events: all that have a seq."""
OUTPUTS = {
    "worker released": ("transport", ("release",)),
    "gateway read": ("transport", ("reply",)),
    "client was sent": ("callback", ("relayed",)),
}
"""Where a session's outputs pass."""


@dataclass(frozen=True, slots=True)
class StoredLines:
    """All lines of a call. `items` are lines and, where some are missing before one, an item with
    `lost`: how many. That has no `n`, and the `process`, `call_id` and `at` of the line behind
    it."""

    items: Sequence[JsonObject]
    totals: Sequence[JsonObject]
    """A row for each place that chunks or outputs pass: `of`, `place`, `upto` (the number behind
    the last that passed; None: no line says so), and `parts_at`, where it has fewer than the place
    before."""
    counts: Mapping[str, int]
    """How many lines of each type there are."""
    lost: int
    is_cut: bool
    """There are more than `MOST_LINES`."""


async def read_lines(
    engine: AsyncEngine, filters: Filters, *, most_detail: int | None = None
) -> JsonObject:
    """Return a page: `items` and `next_cursor`. `most_detail`: so many bytes of each `detail`.
    Raises AuditUnavailable."""
    parameters: dict[str, Any] = {
        name: value for name in _COMPARED if (value := getattr(filters, name)) is not None
    }
    conditions = [_COMPARED[name] for name in parameters]
    parameters |= {
        name: to_column(parameters[name])
        for name in ("key", "session", "policy", "hook", "event")
        if name in parameters
    }
    if "contains" in parameters:
        parameters["contains"] = parameters["contains"].encode(errors="replace")
    if (after := filters.after_line) is not None:
        # the first leaves days out, which the second does not
        conditions += [
            "l.call_id <= :after_call",
            (
                "(l.call_id, l.at, l.process, l.n) < (:after_call, :after_at, :after_process,"
                " :after_n)"
            ),
        ]
        at = _EPOCH + timedelta(microseconds=min(max(after.at, 0), _MOST_US))
        parameters |= {
            "after_call": after.call_id,
            "after_at": at,
            "after_process": to_column(after.process),
            "after_n": after.n,
        }
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    order = "ORDER BY l.call_id DESC, l.at DESC, l.process DESC, l.n DESC LIMIT :most"
    lines, cut = _cut(most_detail)
    async with reading(engine) as connection:
        rows = list(
            await connection.execute(
                text(f"{lines} {where} {order}"), parameters | cut | {"most": filters.limit + 1}
            )
        )
    shown = rows[: filters.limit]
    last = shown[-1] if len(rows) > len(shown) else None
    return {
        "items": [line_item(row) for row in shown],
        "next_cursor": None if last is None else encode_cursor(_place(last)),
    }


async def newest_of_types(engine: AsyncEngine) -> list[JsonObject]:
    """Return each type with the newest line of it that there is, by the time of its call, without
    what the line says: `call_id`, `at` and `event`. Raises AuditUnavailable."""
    items = []
    newest = (
        "SELECT call_id, at, event FROM debug_logs WHERE type = :type ORDER BY call_id DESC, at"
        " DESC LIMIT 1"
    )
    async with reading(engine) as connection:
        for kind in BITS:
            row = (await connection.execute(text(newest), {"type": kind})).one_or_none()
            item = (
                None
                if row is None
                else {
                    "call_id": str(row.call_id),
                    "at": _time(row.at),
                    "event": from_column(row.event),
                }
            )
            items.append({"type": kind, "newest": item})
    return items


async def lines_of_call(
    engine: AsyncEngine, call_id: UUID, *, most_detail: int | None = None
) -> StoredLines:
    """Return all lines of a call, in the order of time. `most_detail`: so many bytes of each
    `detail`. Raises AuditUnavailable."""
    order = "WHERE l.call_id = :call_id ORDER BY l.at, l.process, l.n LIMIT :most"
    lines, cut = _cut(most_detail)
    parameters = {"call_id": call_id, "most": MOST_LINES + 1, **cut}
    items: list[JsonObject] = []
    async with reading(engine) as connection:
        # some at a time, and made beside the loop: all of them would hold it for over a second
        rows = await connection.stream(
            text(f"{lines} {order}"), parameters, execution_options={"yield_per": _AT_ONCE}
        )
        async for some in rows.partitions():
            items += await asyncio.to_thread(_line_items, some)
    is_cut = len(items) > MOST_LINES
    return await asyncio.to_thread(assemble_lines, items[:MOST_LINES], is_cut=is_cut)


def _line_items(rows: Sequence[Any]) -> list[JsonObject]:
    return [line_item(row) for row in rows]


def _cut(most_detail: int | None) -> tuple[str, dict[str, int]]:
    """The lines with so much of what they say."""
    if most_detail is None:
        return _LINES, {}
    return _LINES.replace("l.detail,", "substring(l.detail for :cut) AS detail,"), {
        "cut": most_detail
    }


async def details_of(
    engine: AsyncEngine, call_id: UUID, places: Sequence[tuple[str, int]], *, most: int
) -> dict[tuple[str, int], JsonObject]:
    """Return what some lines of a call say, by process and number: `detail`, `detail_base64`, and
    `detail_bytes`, its whole size."""
    chosen = (
        "SELECT l.process, l.n, substring(l.detail for :most) AS detail, length(l.detail) AS size"
        " FROM debug_logs l "
    )
    joined = (
        "JOIN unnest(CAST(:processes AS text[]), CAST(:ns AS integer[])) AS p (process, n) ON"
        " p.process = l.process AND p.n = l.n "
    )
    parameters = {
        "call_id": call_id,
        "most": most,
        "processes": [to_column(process) for process, _ in places],
        "ns": [n for _, n in places],
    }
    async with reading(engine) as connection:
        rows = list(
            await connection.execute(
                text(f"{chosen}{joined}WHERE l.call_id = :call_id"), parameters
            )
        )
    return {
        (from_column(row.process), row.n): {
            **payload("detail", row.detail),
            "detail_bytes": row.size,
        }
        for row in rows
    }


def assemble_lines(lines: Sequence[JsonObject], *, is_cut: bool = False) -> StoredLines:
    """Put the lines of a call together with what is missing between them, and how far chunks and
    outputs came."""
    items: list[JsonObject] = []
    last: dict[str, int] = {}
    lost = 0
    for line in lines:
        gap = line["n"] - last.get(line["process"], 0) - 1
        if gap > 0:
            items.append(
                {
                    "lost": gap,
                    "call_id": line["call_id"],
                    "process": line["process"],
                    "at": line["at"],
                }
            )
            lost += gap
        last[line["process"]] = max(line["n"], last.get(line["process"], 0))
        items.append(line)
    counts = {kind: sum(line["type"] == kind for line in lines) for kind in BITS}
    return StoredLines(
        items,
        [*_totals(lines, "entries", CHUNKS), *_totals(lines, "outputs", OUTPUTS)],
        counts,
        lost,
        is_cut,
    )


def _totals(
    lines: Iterable[JsonObject], of: str, places: Mapping[str, tuple[str, tuple[str, ...]]]
) -> list[JsonObject]:
    seen = [line for line in lines if line["number"] is not None]
    totals: list[JsonObject] = []
    before: int | None = None
    for place, (kind, events) in places.items():
        matching = [
            line
            for line in seen
            if line["type"] == kind and (line["event"] in events if events else _is_chunk(line))
        ]
        upto = max((line["number"] for line in matching), default=None)
        parts_at = upto if upto is not None and before is not None and upto < before else None
        totals.append({"of": of, "place": place, "upto": upto, "parts_at": parts_at})
        before = upto if upto is not None else before
    return totals


def _is_chunk(line: JsonObject) -> bool:
    return line["seq"] is not None and line["event"] in (
        "chunks",
        "body",
        "status",
        "eof",
        "failed",
        "closed",
    )


_MOST_US = 253_402_300_799_000_000
"""The last second of the year 9999."""


def line_item(row: Any) -> JsonObject:
    """A line as users see it."""
    texts = {
        name: None if (value := getattr(row, name)) is None else from_column(value)
        for name in ("policy", "hook", "key", "session")
    }
    return {
        "call_id": str(row.call_id),
        "process": from_column(row.process),
        "n": row.n,
        "at": _time(row.at),
        "type": row.type,
        "event": from_column(row.event),
        "seq": row.seq,
        "number": row.number,
        "block": row.block,
        "policy": texts["policy"],
        "hook": texts["hook"],
        "duration_us": row.duration_us,
        "bytes": row.bytes,
        **payload("detail", row.detail),
        "key": texts["key"],
        "session": texts["session"],
    }


def _time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _place(row: Any) -> LinePosition:
    return LinePosition(
        "debug-logs",
        row.call_id,
        (row.at - _EPOCH) // timedelta(microseconds=1),
        from_column(row.process),
        row.n,
    )
