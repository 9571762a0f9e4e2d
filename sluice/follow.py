"""`--follow`: what comes onto record, as it comes. A poll of the newest calls, because ids are in the order of beginnings, not of ends."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from db.filters import Filters, ListName, first_id
from db.queries import AuditReader
from sluice.audit_columns import Listed
from sluice.audit_run import print_json, read_filters, run
from sluice.tables import Item, Layout, show

EVERY_S = 1.0
BACK = timedelta(minutes=15)
"""A call that takes longer is not shown."""
PAGE = 200
PAGES = 5
"""So many pages are looked through at a time: nothing is shown of what is behind them, which is more a second than anybody reads."""
FIRST = 10
"""So many items from before are shown at the start."""


def follow(of: ListName, chosen: list[tuple[str, str]], listed: Callable[[Sequence[Item]], Listed], as_json: bool) -> None:
    """Show what is there, then what is new, until the program is interrupted. Raises typer.Exit."""
    with contextlib.suppress(KeyboardInterrupt):
        run(lambda reader: _follow(reader, of, chosen, listed, as_json), as_json)


async def _follow(
    reader: AuditReader, of: ListName, chosen: list[tuple[str, str]], listed: Callable[[Sequence[Item]], Listed], as_json: bool
) -> None:
    filters = replace(await reader.named(read_filters(chosen, of)), order="desc", after=None)
    seen: set[tuple[object, ...]] = set()
    layout, is_first = Layout(), True
    while True:
        found = await _newest(reader, of, filters)
        new = [item for item in found if _key(item) not in seen]
        # what is behind the pages now does not come back: only newer calls come before it
        seen = set(map(_key, found))
        if is_first:
            new, is_first = new[:FIRST], False
        for item in reversed(new) if as_json else ():
            print_json(item)
        if new and not as_json:
            shown = listed(new)
            show(new[::-1], shown.columns, shown.values, time=shown.time, layout=layout)
        await asyncio.sleep(EVERY_S)


async def _newest(reader: AuditReader, of: ListName, filters: Filters) -> list[Item]:
    """The newest items, the newest first."""
    bound = first_id(datetime.now(UTC) - BACK)
    filters = replace(filters, limit=PAGE, low=bound if filters.low is None else max(filters.low, bound))
    found: list[Item] = []
    for _ in range(PAGES):
        page = await (reader.calls(filters) if of == "calls" else reader.tool_calls(filters))
        # of a call that goes on nobody can say yet what became of it
        found += [item for item in page["items"] if of != "calls" or item["state"] != "ACTIVE"]
        if not page["next_cursor"]:
            break
        filters = replace(filters, after=read_filters([("cursor", page["next_cursor"])], of).after)
    return found


def _key(item: Item) -> tuple[object, ...]:
    return item["call_id"], item.get("index"), item.get("tool_call_id"), item.get("decided_at")
