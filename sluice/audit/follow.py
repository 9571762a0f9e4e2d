"""`--follow`: new records as they are written. It polls the newest calls, because ids are in the
order in which calls begin, not end."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from db.filters import Filters, ListName, first_id
from protocol.errors import AuditUnavailable, InvalidRequest
from sluice.audit.audit_columns import Listed
from sluice.audit.audit_run import print_json, read_filters, run
from sluice.tables import Item, Layout, note, show

if TYPE_CHECKING:
    from db.read.queries import AuditReader

EVERY_S = 1.0
BACK = timedelta(minutes=15)
"""A call that takes longer is not shown."""
PAGE = 200
PAGES = 5
"""So many pages are looked through at a time: nothing is shown of what is behind them, which is
more a second than anybody reads."""
_ROOM = {"key": 12, "tool": 14}
"""Columns begin with so much room, because what comes later may be longer."""


def follow(
    of: ListName,
    chosen: list[tuple[str, str]],
    listed: Callable[[Sequence[Item]], Listed],
    as_json: bool,
) -> None:
    """Show the newest of what is there, as many as the limit says, then what is new, until somebody
    interrupts it. Raises typer.Exit."""
    with contextlib.suppress(KeyboardInterrupt):
        run(lambda reader: _follow(reader, of, chosen, listed, as_json), as_json)


async def _follow(
    reader: "AuditReader",
    of: ListName,
    chosen: list[tuple[str, str]],
    listed: Callable[[Sequence[Item]], Listed],
    as_json: bool,
) -> None:
    for name, value in chosen:
        if name in ("cursor", "until") or (name, value) == ("order", "asc"):
            raise InvalidRequest(
                "does not go with --follow, which goes on with what is new, the newest last: leave"
                " one out",
                param=name,
            )
    filters = await reader.named(read_filters(chosen, of))
    items = await _newest(reader, of, filters)
    new = _of_interest(of, (await reader.page(of, filters))["items"])
    if not new:
        note(f"waiting for {'calls' if of == 'calls' else 'tool calls'} (Ctrl-C ends it)")
    seen, layout, is_away = (
        {_key(item) for item in (*items, *new)},
        Layout(needed=dict(_ROOM)),
        False,
    )
    while True:
        for item in reversed(new) if as_json else ():
            print_json(item)
        if new and not as_json:
            # their ids are as long as tells them apart from what is shown already
            shown = listed([*items, *new])
            show(new[::-1], shown.columns, shown.values, time=shown.time, layout=layout)
        await asyncio.sleep(EVERY_S)
        try:
            items = await _newest(reader, of, filters)
        except AuditUnavailable as error:
            if not is_away:
                note(f"{error.message}: trying again")
            new, is_away = [], True
            continue
        is_away = False
        new = [item for item in items if _key(item) not in seen]
        # what is behind the pages now does not come back: only newer calls come before it
        seen = set(map(_key, items))


async def _newest(reader: "AuditReader", of: ListName, filters: Filters) -> list[Item]:
    """The newest items, the newest first."""
    bound = first_id(datetime.now(UTC) - BACK)
    filters = replace(
        filters, limit=PAGE, low=bound if filters.low is None else max(filters.low, bound)
    )
    items: list[Item] = []
    for _ in range(PAGES):
        page = await reader.page(of, filters)
        items += _of_interest(of, page["items"])
        if not page["next_cursor"]:
            break
        filters = replace(filters, after=read_filters([("cursor", page["next_cursor"])], of).after)
    return items


def _of_interest(of: ListName, items: Sequence[Item]) -> list[Item]:
    # of a call that goes on nobody can say yet what became of it
    return [item for item in items if of != "calls" or item["state"] != "ACTIVE"]


def _key(item: Item) -> tuple[object, ...]:
    return item["call_id"], item.get("index"), item.get("tool_call_id"), item.get("decided_at")
