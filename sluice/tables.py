"""The tables of all commands: as wide as the terminal; in a pipe, a line of tab-separated values
for each item.

A column is cut at its end, with an ellipsis, or left out, unless it must be whole. Text wraps
between words, JSON between values. Text from outside is shown with its control characters escaped:
a tool call must not drive the reader's terminal. Must not know: what the items are.
"""

import itertools
import json
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TextIO

import typer
from rich.cells import cell_len, chop_cells, set_cell_size
from rich.console import Console
from rich.text import Text

Item = dict[str, Any]
_GAP = 2
_ENOUGH = 20
"""Columns that may be cut have no more than so much where others would be left out for it."""
_READABLE = 24
"""Extra columns are left out, and others cut, until one that stretches has so much."""
_INDENT = 10
"""Before what is below a line: the width of its time."""
_MOST = 400
"""So many characters of a cell are looked at; no terminal shows more on a line."""
_MOST_WRAPPED = 4_000
"""And so many of one that goes on in the next line."""
_WORD = re.compile(r"\S+\s*|\s+")
_PIECE = re.compile(r"[^,{\[:_/-]*[,{\[:_/-]+\s*|[^,{\[:_/-]+")
_BETWEEN = 12
"""Characters of a call id that name a millisecond, but for the dash: fewer stand for several calls
more often than not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """One column of a terminal. `value` is its path in an item (steps separated by dots), or a
    function that makes it from an item."""

    heading: str
    value: str | Callable[[Item], object]
    least: int = 0
    """It may be cut to so many characters; 0: it is shown whole."""
    stretches: bool = False
    """It takes what room is left, and gives up its own first."""
    wraps: bool = False
    """What does not fit goes on in the next line, between words."""
    is_whole: bool = False
    """It is never cut: what does not fit goes on below, under its heading. It gives up room
    last."""
    is_extra: bool = False
    """Only where there is room for it beside all others."""
    is_below: bool = False
    """On lines of its own, below that of the other columns."""
    leaves: int = 1
    """Where there is too little room the column with the highest number is left out first, of
    several the last."""


@dataclass(slots=True)
class Layout:
    """The state of a table that continues: by the headings of its columns, the width each has
    needed so far and has now."""

    needed: dict[str, int] = field(default_factory=dict)
    widths: dict[str, int] = field(default_factory=dict)
    day: str = ""
    has_begun: bool = False


def printable(text: str) -> str:
    """Return `text` with line ends, control characters, escapes and invisible characters spelled
    out."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text
    )


def at(item: Item, path: str) -> object:
    """Return what an item has at a path, None where a step is missing."""
    value: object = item
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value


def clock(value: object) -> str:
    """Return a time of the record as local time of day."""
    return (
        ""
        if not isinstance(value, str)
        else datetime.fromisoformat(value).astimezone().strftime("%H:%M:%S")
    )


def minute(value: object) -> str:
    """Return a time of the record as local day and time of day, to the minute."""
    return (
        ""
        if not isinstance(value, str)
        else datetime.fromisoformat(value).astimezone().strftime("%Y-%m-%d %H:%M")
    )


def day(value: object) -> str:
    """Return the local day of a time of the record, with the zone."""
    return (
        ""
        if not isinstance(value, str)
        else datetime.fromisoformat(value).astimezone().strftime("%Y-%m-%d (%Z)")
    )


def short_ids(items: Iterable[Item]) -> Callable[[Item], str]:
    """Return what shortens the call ids of these items: to as much as tells them apart, and
    commands take."""
    ids = sorted({str(item["call_id"]) for item in items})
    length = _BETWEEN + 1
    for first, other in itertools.pairwise(ids):
        same = next(
            (n for n, (a, b) in enumerate(zip(first, other, strict=False)) if a != b), len(first)
        )
        length = max(length, same + 1)
    return lambda item: str(item["call_id"])[:length]


def is_terminal(stream: TextIO | None = None) -> bool:
    """Does a person read this, or standard output? Variables that ask for colours say nothing of
    that; `_SLUICE_TERMINAL` is for tests."""
    return (stream or sys.stdout).isatty() or "_SLUICE_TERMINAL" in os.environ


def wrap(text: str, width: int) -> list[str]:
    """Return the lines of `text` in so many columns, at least one. A word that is longer is broken
    as JSON is, then anywhere."""
    lines, line = [], ""
    for word in _WORD.findall(text):
        parts = [word]
        if cell_len(word.rstrip()) > width:
            pieces = _PIECE.findall(word)
            parts = [
                part
                for piece in pieces
                for part in (
                    chop_cells(piece, width) if cell_len(piece.rstrip()) > width else [piece]
                )
            ]
        for part in parts:
            if cell_len(line + part.rstrip()) > width:
                lines += [line.rstrip()] if line.strip() else []
                line = ""
            line += part
    return [*lines, line.rstrip()]


def show(
    items: Sequence[Item],
    columns: Sequence[TableColumn],
    values: Sequence[str],
    *,
    title: str = "",
    time: str = "",
    empty: str = "nothing matches",
    layout: Layout | None = None,
) -> None:
    """Print a table: `columns` on a terminal, `values` (paths, which are the header line too) into
    a pipe.

    time: path of a time; on a terminal each new day has a line. layout: of a table that goes on,
    whose heading comes once.
    """
    layout = layout or Layout()
    if not is_terminal():
        if not layout.has_begun:
            typer.echo("\t".join(values))
        for item in items:
            typer.echo("\t".join(_plain(at(item, path)) for path in values))
        if not items:
            typer.echo(empty, err=True)
        layout.has_begun = True
        return
    console = Console(highlight=False)
    if title:
        _line(console, title, bold=True)
    if items:
        _show_lines(console, items, columns, time, layout)
    else:
        _line(console, empty)


def note(text: str) -> None:
    """Say something beside a table, on standard error; a terminal breaks it between words, and
    never within one: it may be copied."""
    width = Console(stderr=True).width if is_terminal(sys.stderr) else _MOST_WRAPPED
    for line in textwrap.wrap(
        printable(text), width, break_long_words=False, break_on_hyphens=False
    ):
        typer.echo(line, err=True)


def _show_lines(
    console: Console,
    items: Sequence[Item],
    columns: Sequence[TableColumn],
    time: str,
    layout: Layout,
) -> None:
    below, columns = [c for c in columns if c.is_below], [c for c in columns if not c.is_below]
    cells = {c.heading: [_cell(c, item) for item in items] for c in columns}
    for heading, lines in cells.items():
        layout.needed[heading] = max(
            layout.needed.get(heading, 0), cell_len(heading), *map(cell_len, lines)
        )
    widths = _widths(columns, layout.needed, console.width)
    shown = [c for c in columns if c.heading in widths]
    numeric = {c.heading for c in shown if _is_numeric([_value(c, item) for item in items])}
    if {c.heading: widths[c.heading] for c in shown if not c.stretches} != layout.widths:
        # also where a table goes on with what does not fit under its heading
        layout.widths = {c.heading: widths[c.heading] for c in shown if not c.stretches}
        _line(
            console,
            _joined(
                [_fit(c.heading, widths[c.heading], right=c.heading in numeric) for c in shown]
            ),
            bold=True,
        )
    for row, item in enumerate(items):
        if time and (this_day := day(at(item, time))) != layout.day:
            layout.day = this_day
            _line(console, this_day, dim=True)
        _show_row(
            console,
            [(c, cells[c.heading][row], widths[c.heading], c.heading in numeric) for c in shown],
        )
        for text in filter(None, (_cell(column, item) for column in below)):
            for line in wrap(text, max(console.width - _INDENT, _INDENT)):
                _line(console, " " * _INDENT + line)
    left_out = [c.heading for c in columns if c.heading not in widths and not c.is_extra]
    if left_out and not layout.has_begun:
        note(f"no room here for: {', '.join(left_out)} (a wider terminal, a pipe, or --json)")
    layout.has_begun = True


def _is_numeric(values: Sequence[object]) -> bool:
    return all(value is None or isinstance(value, int) for value in values) and any(
        value is not None for value in values
    )


def _show_row(console: Console, row: Sequence[tuple[TableColumn, str, int, bool]]) -> None:
    wrapped = [
        (
            wrap(cell, max(width, 1))
            if column.wraps or column.is_whole
            else [_fit(cell, width, right=right)]
        )
        for column, cell, width, right in row
    ]
    rooms = [width for _, _, width, _ in row]
    for lines in itertools.zip_longest(*wrapped, fillvalue=""):
        _line(
            console,
            _joined(
                [
                    _fit(line, max(room, cell_len(line)))
                    for line, room in zip(lines, rooms, strict=True)
                ]
            ),
        )


def _widths(columns: Sequence[TableColumn], needed: dict[str, int], room: int) -> dict[str, int]:
    """How wide each column is that is shown, by its heading."""
    eases = {
        c.heading: min(
            needed[c.heading], _READABLE if c.stretches else _ENOUGH if c.least else room
        )
        for c in columns
    }
    least = {
        c.heading: min(needed[c.heading], max(c.least, cell_len(c.heading)) if c.least else room)
        for c in columns
    }
    chosen = [c for c in columns if not c.is_extra]

    def over(widths: dict[str, int]) -> int:
        return sum(widths[c.heading] for c in chosen) + _GAP * (len(chosen) - 1) - room

    for column in columns:
        if column.is_extra:
            chosen.append(column)
            if over(eases) > 0:
                chosen.pop()
    while len(chosen) > 1 and over(least) > 0:
        chosen.remove(max(chosen, key=lambda c: (c.leaves, columns.index(c))))
    widths = {c.heading: needed[c.heading] for c in columns if c in chosen}
    stretching = [c.heading for c in chosen if c.stretches]
    whole = [c.heading for c in chosen if c.is_whole]
    others = [c.heading for c in chosen if not c.stretches and not c.is_whole]
    readable = {heading: max(least[heading], _READABLE) for heading in stretching}
    order = (
        (others, eases),
        (whole, eases),
        (stretching, readable),
        (others, least),
        (stretching, least),
        (whole, least),
    )
    for headings, bounds in order:
        while (too_much := over(widths)) > 0:
            # the widest first, down to the next one
            widest = max(
                headings, key=lambda heading: widths[heading] - bounds[heading], default=""
            )
            if not widest or widths[widest] <= bounds[widest]:
                break
            taken = too_much if len(headings) == 1 else 1
            widths[widest] = max(bounds[widest], widths[widest] - taken)
    return widths


def _value(column: TableColumn, item: Item) -> object:
    return at(item, column.value) if isinstance(column.value, str) else column.value(item)


def _cell(column: TableColumn, item: Item) -> str:
    return _plain(_value(column, item), _MOST_WRAPPED if column.wraps else _MOST)


def _plain(value: object, most: int | None = None) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value)
    return printable(text if most is None or len(text) <= most else f"{text[:most]}…")


def _fit(text: str, width: int, *, right: bool = False) -> str:
    size = cell_len(text)
    if size > width:
        # a character of two cells may leave one over
        return (
            set_cell_size(set_cell_size(text, width - 1).rstrip() + "…", width)
            if width > 1
            else "…"
        )
    return " " * (width - size) + text if right else text + " " * (width - size)


def _joined(cells: Sequence[str]) -> str:
    return (" " * _GAP).join(cells).rstrip()


def _line(console: Console, text: str, *, bold: bool = False, dim: bool = False) -> None:
    style = "bold" if bold else "dim" if dim else ""
    console.print(Text(text, style=style), no_wrap=True, overflow="ignore", crop=False)
