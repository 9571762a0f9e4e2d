"""`sluice audit debug-logs`: lines of debug logs, in pages or as they come."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from db.filters import Filters, first_id
from protocol.errors import AuditUnavailable, InvalidRequest
from sluice.audit.audit_options import AsJson, Chosen, Follow, Given, with_filters
from sluice.audit.audit_run import print_json, quiet_pipe, read_filters, run
from sluice.tables import Item, Layout, TableColumn, note, printable, short_ids, show

if TYPE_CHECKING:
    from db.read.queries import AuditReader

EVERY_S = 0.5
BACK = timedelta(minutes=15)
"""Of all calls those that began earlier are not followed."""
PAGE = 200
PAGES = 10
MOST_DETAIL = 2**30
"""Bytes of a line: all."""
_VALUES = (
    "at",
    "call_id",
    "process",
    "n",
    "type",
    "event",
    "seq",
    "number",
    "block",
    "policy",
    "hook",
    "duration_us",
    "bytes",
    "detail",
)
_ROOM = {"process": 14, "event": 10, "detail": 20}


@with_filters("debug-logs")
def debug_logs(chosen: Chosen = (), follows: Follow = False, as_json: AsJson = False) -> None:
    """List lines of debug logs, the newest first; with --call alone all of that call, the oldest
    first, with what is missing."""
    filters: Given = [*chosen]
    if follows:
        with contextlib.suppress(KeyboardInterrupt):
            run(lambda reader: _follow(reader, filters, as_json), as_json)
        return
    names = {name for name, _ in filters} - {"limit"}
    page = run(
        lambda reader: (
            _of_call(reader, filters) if names == {"call_id"} else _page(reader, filters)
        ),
        as_json,
    )
    if as_json:
        print_json(page)
        return
    with quiet_pipe():
        show(page["items"], _columns(page["items"]), _VALUES, time="at")
    for row in page.get("totals", ()):
        if row["parts_at"] is not None:
            note(f"{row['of']}: {row['place']} up to {row['upto']} only")
    if page.get("next_cursor"):
        note(f"there is more: --cursor {page['next_cursor']}")


def tail(
    call: Annotated[str, typer.Argument(help="The call id, or its first 8 characters or more.")],
    as_json: AsJson = False,
) -> None:
    """Follow the debug logs of one call: `sluice audit debug-logs --follow --call CALL`."""
    with contextlib.suppress(KeyboardInterrupt):
        run(lambda reader: _follow(reader, [("call_id", call)], as_json), as_json)


async def _page(reader: "AuditReader", chosen: Given) -> dict[str, Any]:
    from db.read.call.debug_logs import read_lines

    return await read_lines(reader.engine, await reader.named(read_filters(chosen, "debug-logs")))


async def _of_call(reader: "AuditReader", chosen: Given) -> dict[str, Any]:
    filters = await reader.named(read_filters(chosen, "debug-logs"))
    assert filters.call_id is not None
    from db.read.call.debug_logs import lines_of_call

    call_lines = await lines_of_call(reader.engine, filters.call_id)
    items = [
        item if "n" in item else {**item, "event": f"{item['lost']} lines lost"}
        for item in call_lines.items
    ]
    return {
        "items": items,
        "totals": call_lines.totals,
        "lost": call_lines.lost,
        "cut": call_lines.is_cut,
        "next_cursor": None,
    }


def _columns(items: Sequence[Item]) -> Sequence[TableColumn]:
    return (
        TableColumn(heading="time", value=lambda item: str(item.get("at", ""))[11:23]),
        TableColumn(heading="call", value=short_ids(items), leaves=3),
        TableColumn(
            heading="process",
            value=lambda item: item["process"].rpartition(" ")[0],
            least=8,
            leaves=2,
        ),
        TableColumn(heading="type", value="type", leaves=1),
        TableColumn(heading="event", value="event", leaves=0),
        TableColumn(heading="seq", value="seq", leaves=2),
        TableColumn(heading="next", value="number", leaves=2),
        TableColumn(heading="us", value="duration_us", leaves=2),
        TableColumn(heading="bytes", value="bytes", leaves=2),
        TableColumn(
            heading="hook",
            value=lambda item: f"{item['policy']}.{item['hook']}" if item.get("policy") else None,
            least=8,
        ),
        TableColumn(
            heading="detail",
            value=lambda item: printable(item.get("detail") or ""),
            least=12,
            stretches=True,
        ),
    )


async def _follow(reader: "AuditReader", chosen: Given, as_json: bool) -> None:
    for name, _ in chosen:
        if name in ("cursor", "until"):
            raise InvalidRequest(
                "does not go with --follow, which goes on with what is new, the newest last: leave"
                " it out",
                param=name,
            )
    filters = await reader.named(read_filters(chosen, "debug-logs"))
    layout, is_away = Layout(needed=dict(_ROOM)), False
    lines = await _newest(reader, filters)
    new = (
        (await _page(reader, chosen))["items"]
        if filters.call_id is None
        else await _whole(reader, lines)
    )
    # what is older than the first lines that are shown is not shown after them
    seen = set(map(_key, lines)) - set(map(_key, new))
    if not new:
        note("waiting for lines (Ctrl-C ends it)")
    while True:
        new = sorted(new, key=lambda line: (line["at"], line["process"], line["n"]))
        seen |= set(map(_key, new))
        for line in new if as_json else ():
            print_json(line)
        if new and not as_json:
            show(new, _columns(new), _VALUES, time="at", layout=layout)
        await asyncio.sleep(EVERY_S)
        try:
            lines = await _newest(reader, filters)
            new, is_away = (
                await _whole(reader, [line for line in lines if _key(line) not in seen]),
                False,
            )
        except AuditUnavailable as error:
            if not is_away:
                note(f"{error.message}: trying again")
            new, is_away = [], True


async def _newest(reader: "AuditReader", filters: Filters) -> list[Item]:
    """Lines without what they say, which may be megabytes: they are read again and again."""
    from db.read.call.debug_logs import read_lines

    filters = replace(filters, limit=PAGE)
    if filters.call_id is None:
        bound = first_id(datetime.now(UTC) - BACK)
        filters = replace(filters, low=bound if filters.low is None else max(filters.low, bound))
    lines: list[Item] = []
    for _ in range(PAGES):
        page = await read_lines(reader.engine, filters, most_detail=0)
        lines += page["items"]
        if not page["next_cursor"]:
            break
        filters = replace(
            filters,
            after_line=read_filters([("cursor", page["next_cursor"])], "debug-logs").after_line,
        )
    return lines


async def _whole(reader: "AuditReader", lines: Sequence[Item]) -> list[Item]:
    """The lines with what they say."""
    from db.read.call.debug_logs import details_of

    places: dict[str, list[tuple[str, int]]] = {}
    for line in lines:
        places.setdefault(line["call_id"], []).append((line["process"], line["n"]))
    details = {
        call: await details_of(reader.engine, UUID(call), of, most=MOST_DETAIL)
        for call, of in places.items()
    }
    pairs = [
        (line, details[line["call_id"]].get((line["process"], line["n"]), {})) for line in lines
    ]
    return [
        {**line, **{name: detail[name] for name in ("detail", "detail_base64") if name in detail}}
        for line, detail in pairs
    ]


def _key(line: Item) -> tuple[str, str, int]:
    return line["call_id"], line["process"], line["n"]
