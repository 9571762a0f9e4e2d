"""What upstream sent compared with what the client got, block by block."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from db.read.call.story import MOST_BYTES, Overview
from pages import links
from pages.call import arguments, story
from pages.call.diff import MOST_S, diff
from pages.call.sides import in_order
from pages.call.story import Sides
from pages.page import Page, PageRequest, Route, ShownContent
from pages.render import short
from pages.views.call import (
    bounded_left,
    call_of,
    check_query,
    frame,
    number_of,
    origin,
    overview_of,
)
from pages.views.call_sides import read_sides, upstream_dialect, whole_sides
from pages.views.one_at_a_time import decoding
from protocol.errors import InvalidRequest

ALL_S = 1.0
"""How long all comparisons of a page may take."""
PAGE = 40
LINES, CHARS = 300, 2_000
"""Lines of a block, and characters of a line, that are shown."""
BUDGET, PART_COST = 200_000, 40
"""Characters of all blocks that a page shows, and how many of them each part of a line counts for:
it is an element. One thread makes the pages of all readers."""
VIEWS, BY = ("inline", "side"), ("block", "wire")


async def show_diff(asked: PageRequest) -> Page:
    """The blocks that changed, or all of them."""
    call_id = await call_of(asked)
    check_query(asked, "view", "by", "all", "page", "block", "from")
    view, by, is_all = (
        _one_of(asked, "view", VIEWS),
        _one_of(asked, "by", BY),
        _one_of(asked, "all", ("", "1")) == "1",
    )
    page = max(1, number_of(asked.one("page", "1"), "page"))
    block = number_of(asked.one("block"), "block") if asked.one("block") else None
    overview = await overview_of(asked, call_id)
    values: dict[str, Any] = {
        **await frame(asked, overview, "diff"),
        "view": view,
        "by": by,
        "all": is_all,
        "too_large": None,
        "blocks": [],
        "left": "",
        "left_length": 0,
        "problem": "",
        "unchanged": 0,
        "pager": None,
        "choices": _choices(asked, overview, view, by, is_all),
    }
    if overview.size > MOST_BYTES:
        values["too_large"] = overview.size
    else:
        async with decoding(overview.size):
            chunks, sent = await read_sides(asked, overview)
            dialects = in_order(upstream_dialect(asked, overview.call["upstream"]))
            made = await asyncio.to_thread(
                _compare,
                overview,
                dialects,
                chunks,
                sent,
                view=view,
                by=by,
                is_all=is_all,
                page=page,
                block=block,
            )
        values.update(made)
    return Page(
        template="call_diff.html",
        title=f"diff · {short(str(call_id))}",
        values=values,
        shown=ShownContent((call_id,), len(values["blocks"])),
    )


def _compare(
    overview: Overview,
    dialects: Sequence[Any],
    chunks: Sequence[tuple[int, int, bytes]],
    sent: Sequence[bytes],
    *,
    view: str,
    by: str,
    is_all: bool,
    page: int,
    block: int | None,
) -> dict[str, Any]:
    shown = _Shown(view, is_all=is_all)
    if by == "wire":
        old, new = (
            b"".join(pieces).decode(errors="backslashreplace")
            for pieces in ([raw for _, _, raw in chunks], sent)
        )
        return {"blocks": [shown.block(Pair(-1, "All bytes", "", "", old, new))]}
    sides = whole_sides(overview, dialects, chunks, sent)
    pairs = list(_pairs(overview, sides))
    changed = [pair for pair in pairs if is_all or pair.upstream_text != pair.got]
    pages = max(1, -(-len(changed) // PAGE))
    # the page with this block, if it is among them
    page = next(
        (at // PAGE + 1 for at, pair in enumerate(changed) if pair.number == block),
        min(page, pages),
    )
    listed = changed[(page - 1) * PAGE : page * PAGE]
    return {
        "blocks": [shown.block(pair) for pair in listed],
        **bounded_left(sides.left, LINES * 80),
        "problem": sides.problem,
        "unchanged": sum(pair.upstream_text == pair.got for pair in pairs),
        "pager": None if pages == 1 else {"page": page, "pages": pages, "blocks": len(changed)},
    }


class Pair(NamedTuple):
    """Both texts of a block, and notes on them."""

    number: int
    label: str
    verdict: str
    note: str
    upstream_text: str
    got: str


def _pairs(overview: Overview, sides: Sides) -> Iterator[Pair]:
    rows = {
        row["number"]: row
        for row in story.rows(overview, overview.numbers, story.NO_DETAILS, sides, story.Cut(0, 0))
    }
    seen: set[tuple[int, ...]] = set()
    for number in overview.numbers:
        row, upstream_block, got = rows[number], sides.upstream.get(number), sides.got.get(number)
        note = ""
        new = got.text if got is not None else ""
        if got is not None and got.shared:
            note = (
                f"The client got this for the blocks {', '.join(f'#{n}' for n in got.shared)}"
                " together."
            )
            if got.shared in seen:
                new, note = "", f"What the client got for it stands with #{got.shared[0]}."
            seen.add(got.shared)
        label = f"{row['label']} {row['name']}".strip()
        yield Pair(
            number,
            label,
            row["verdict"],
            note,
            upstream_block.text if upstream_block is not None else "",
            new,
        )


class _Shown:
    """The blocks of one page, which share a time and a number of characters."""

    def __init__(self, view: str, *, is_all: bool) -> None:
        self._is_beside, self._is_all = view == "side", is_all
        self._until, self._room = time.monotonic() + ALL_S, BUDGET

    def block(self, pair: Pair) -> dict[str, Any]:
        """Compare both texts of a block, as far as there is room. `pairs` are the lines for two
        columns, `lines` those for one; `left_out`: there was no room for any."""
        number, label, verdict, note, old, new = pair
        values: dict[str, Any] = {
            "number": number,
            "label": label,
            "verdict": verdict,
            "note": note,
            "aligned": True,
            "same": old == new,
            "old": len(old),
            "new": len(new),
            "lines": [],
            "pairs": [],
            "more": 0,
            "left_out": self._room <= 0,
        }
        if self._room <= 0:
            return values
        left, right = arguments.in_lines(old), arguments.in_lines(new)
        if left is None or right is None or (verdict not in ("allow", "replace") and number >= 0):
            left, right = old, new
        difference = diff(
            left, right, seconds=max(0.0, min(MOST_S, self._until - time.monotonic()))
        )
        folded = arguments.fold(difference, whole=self._is_all and len(difference.lines) <= LINES)
        lines = []
        for line in islice(folded, LINES):
            lines.append(self._bounded(line))
            if self._room <= 0:
                break
        made = {"pairs": _side_by_side(lines)} if self._is_beside else {"lines": lines}
        return {
            **values,
            "aligned": difference.aligned,
            "same": difference.is_same,
            "more": sum(1 for _ in folded),
            **made,
        }

    def _bounded(self, line: dict[str, Any]) -> dict[str, Any]:
        """Cut a line where it is long, or where there is no more room; it says how much of it there
        is not."""
        room, parts, length = min(CHARS, self._room), [], 0
        self._room -= PART_COST
        for part in line["parts"]:
            if length < room and self._room > 0:
                text = part["text"][: room - length]
                parts.append({**part, "text": text})
                self._room -= len(text) + PART_COST
            length += len(part["text"])
        return {**line, "parts": parts, "cut": length - sum(len(part["text"]) for part in parts)}


def _side_by_side(lines: list[dict[str, Any]]) -> list[list[dict[str, Any] | None]]:
    """Lines in two columns: removed ones beside those that were added in their place."""
    pairs: list[list[dict[str, Any] | None]] = []
    was: list[dict[str, Any]] = []
    now: list[dict[str, Any]] = []

    def settle() -> None:
        for at in range(max(len(was), len(now))):
            pairs.append([was[at] if at < len(was) else None, now[at] if at < len(now) else None])
        was.clear()
        now.clear()

    for line in lines:
        if line["sign"] == "-":
            if now:
                settle()
            was.append(line)
        elif line["sign"] == "+":
            now.append(line)
        else:
            settle()
            pairs.append([line, line])
    settle()
    return pairs


def _one_of(asked: PageRequest, name: str, values: Sequence[str]) -> str:
    value = asked.one(name, values[0])
    if value not in values:
        raise InvalidRequest(f"is one of {', '.join(filter(None, values))}", param=name)
    return value


def _choices(
    asked: PageRequest, overview: Overview, view: str, by: str, is_all: bool
) -> list[list[Any]]:
    """Links to the same comparison in other ways."""

    def to(**changes: object) -> str:
        now: dict[str, object] = (
            {"view": view, "by": by, "all": "1" if is_all else None} | origin(asked) | changes
        )
        return links.tab(
            overview.call_id,
            "diff",
            **{name: value for name, value in now.items() if value not in ("inline", "block")},
        )

    return [
        [[name.capitalize(), to(view=name), name == view] for name in VIEWS],
        [["Changed", to(all=None), not is_all], ["All blocks", to(all="1"), is_all]],
        [[f"By {name}", to(by=name), name == by] for name in BY],
    ]


ROUTES = (Route(f"{links.CALLS}/{{call_id}}/diff", show_diff),)
