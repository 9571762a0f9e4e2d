"""The tables of all commands: as wide as the terminal, and for a pipe a line of tab-separated values for each item.

A column is cut at its end, with an ellipsis, or left out; no cell breaks in the middle of a word. Text from outside is shown with its
control characters escaped: a tool call must not drive the reader's terminal. Must not know: what the items are.
"""

import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

Item = dict[str, Any]
_GAP = 2
_COMFORT = 32
"""Extra columns are shown where a column that stretches keeps so much, or all it needs."""
_MOST = 400
"""So many characters of a cell are looked at; no terminal shows more on a line."""
_MOST_WRAPPED = 4_000
"""And so many of one that goes on in the next line."""
_BETWEEN = 12
"""Characters of a call id that name a millisecond, but for the dash: fewer stand for several calls more often than not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a terminal. `value` is where an item has it (steps with dots between), or what makes it of an item."""

    heading: str
    value: str | Callable[[Item], object]
    least: int = 0
    """It may be cut to so many characters; 0: it is shown whole."""
    stretches: bool = False
    """It takes what room is left, and gives up its own first."""
    wraps: bool = False
    """What does not fit goes on in the next line, between words."""
    is_extra: bool = False
    """Only where there is room for it beside all others."""


@dataclass(slots=True)
class Layout:
    """How a table began that goes on."""

    widths: dict[int, int] = field(default_factory=dict)
    day: str = ""
    has_begun: bool = False


def printable(text: str) -> str:
    """Return `text` with line ends, control characters, escapes and invisible characters spelled out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def at(item: Item, path: str) -> object:
    """Return what an item has at a path, None where a step is missing."""
    value: object = item
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value


def clock(value: object) -> str:
    """Return a time of the record as local time of day."""
    return "" if not isinstance(value, str) else datetime.fromisoformat(value).astimezone().strftime("%H:%M:%S")


def minute(value: object) -> str:
    """Return a time of the record as local day and time of day, to the minute."""
    return "" if not isinstance(value, str) else datetime.fromisoformat(value).astimezone().strftime("%Y-%m-%d %H:%M")


def day(value: object) -> str:
    """Return the local day of a time of the record, with the zone."""
    return "" if not isinstance(value, str) else datetime.fromisoformat(value).astimezone().strftime("%Y-%m-%d (%Z)")


def short_ids(items: Iterable[Item]) -> Callable[[Item], str]:
    """Return what shortens the call ids of these items: to as much as tells them apart, and commands take."""
    ids = sorted({str(item["call_id"]) for item in items})
    length = _BETWEEN + 1
    for one, other in itertools.pairwise(ids):
        same = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
        length = max(length, same + 1)
    return lambda item: str(item["call_id"])[:length]


def is_terminal() -> bool:
    """Does a person read standard output?"""
    return Console().is_terminal


def show(
    items: Sequence[Item],
    columns: Sequence[Column],
    values: Sequence[str],
    *,
    title: str = "",
    time: str = "",
    empty: str = "nothing matches",
    layout: Layout | None = None,
) -> None:
    """Print a table: `columns` on a terminal, `values` (paths, which are the header line too) into a pipe.

    time: path of a time; on a terminal each new day has a line. layout: of a table that goes on, whose heading comes once.
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
    """Say something beside a table, on standard error; a terminal breaks it between words."""
    console = Console(stderr=True, highlight=False)
    if console.is_terminal:
        console.print(Text(printable(text)))
    else:
        typer.echo(printable(text), err=True)


def _show_lines(console: Console, items: Sequence[Item], columns: Sequence[Column], time: str, layout: Layout) -> None:
    cells = [[_cell(column, item) for item in items] for column in columns]
    begins = not layout.has_begun
    if begins:
        layout.widths, layout.has_begun = _widths(columns, cells, console.width), True
    widths = layout.widths
    numeric = {n for n, c in enumerate(columns) if all(isinstance(_value(c, item), int) for item in items)}
    if begins:
        _line(console, _joined([_fit(columns[n].heading, widths[n], right=n in numeric) for n in sorted(widths)]), bold=True)
    for row, item in enumerate(items):
        if time and (this_day := day(at(item, time))) != layout.day:
            layout.day = this_day
            _line(console, this_day, dim=True)
        _show_row(console, [(columns[n], cells[n][row], widths[n], n in numeric) for n in sorted(widths)])
    left_out = [c.heading for n, c in enumerate(columns) if n not in widths and not c.is_extra]
    if left_out and begins:
        note(f"no room here for: {', '.join(left_out)} (a wider terminal, a pipe, or --json)")


def _show_row(console: Console, row: Sequence[tuple[Column, str, int, bool]]) -> None:
    *before, (column, cell, width, right) = row
    start = [_fit(text, room, right=is_right) for _, text, room, is_right in before]
    if not column.wraps:
        _line(console, _joined([*start, _fit(cell, width, right=right)]))
        return
    lines = [line.plain.rstrip() for line in Text(cell).wrap(console, max(width, 1), overflow="fold")] or [""]
    _line(console, _joined([*start, lines[0]]))
    for line in lines[1:]:
        _line(console, _joined([*(" " * room for _, _, room, _ in before), line]))


def _widths(columns: Sequence[Column], cells: Sequence[Sequence[str]], room: int) -> dict[int, int]:
    """The columns that are shown and how wide each is."""
    needed = [max(cell_len(c.heading), *map(cell_len, own)) for c, own in zip(columns, cells, strict=True)]
    chosen = [n for n, column in enumerate(columns) if not column.is_extra]

    def taken(numbers: Sequence[int]) -> int:
        each = (min(needed[n], _COMFORT) if columns[n].stretches else needed[n] for n in numbers)
        return sum(each) + _GAP * (len(numbers) - 1)

    for n, column in enumerate(columns):
        if column.is_extra and taken([*chosen, n]) <= room:
            chosen.append(n)
    least = {n: min(needed[n], max(columns[n].least, cell_len(columns[n].heading))) if columns[n].least else needed[n] for n in chosen}
    while len(chosen) > 1 and sum(least[n] for n in chosen) + _GAP * (len(chosen) - 1) > room:
        # the last that does not stretch: what a table is about stands in front and at its end
        chosen.remove(next((n for n in sorted(chosen, reverse=True) if not columns[n].stretches), chosen[-1]))
    widths = {n: needed[n] for n in chosen}
    over = sum(widths.values()) + _GAP * (len(chosen) - 1) - room
    for n in chosen:
        if over > 0 and columns[n].stretches:
            given = min(over, widths[n] - least[n])
            widths[n], over = widths[n] - given, over - given
    while over > 0:
        widest = max(chosen, key=lambda n: widths[n] - least[n])
        if widths[widest] <= least[widest]:
            break
        widths[widest], over = widths[widest] - 1, over - 1
    return widths


def _value(column: Column, item: Item) -> object:
    return at(item, column.value) if isinstance(column.value, str) else column.value(item)


def _cell(column: Column, item: Item) -> str:
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
        return set_cell_size(set_cell_size(text, width - 1).rstrip() + "…", width) if width > 1 else "…"
    return " " * (width - size) + text if right else text + " " * (width - size)


def _joined(cells: Sequence[str]) -> str:
    return (" " * _GAP).join(cells).rstrip()


def _line(console: Console, text: str, *, bold: bool = False, dim: bool = False) -> None:
    style = "bold" if bold else "dim" if dim else ""
    console.print(Text(text, style=style), no_wrap=True, overflow="ignore", crop=False)
