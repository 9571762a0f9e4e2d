"""Plots as SVG text: bars of rates with intervals, curves, histograms. Readable in greyscale;
without a script or a style."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

_WIDTH, _LEFT, _RIGHT = 720, 190, 70
_BAR, _GAP = 11, 7
DARK, LIGHT = "#222222", "#b8b8b8"
_NAME = 30


class Bar(NamedTuple):
    """A rate from 0 to 1 with its interval; None where nothing was counted."""

    rate: float | None
    low: float
    high: float


class BlockedShares(NamedTuple):
    """A category: what is blocked of the harmful, and of the benign."""

    name: str
    harmful: Bar
    benign: Bar


class Curve(NamedTuple):
    """A curve of points between 0 and 1. Each line of a plot has its own dashes."""

    name: str
    points: Sequence[tuple[float, float]]


def bars(rows: Sequence[BlockedShares], title: str) -> str:
    """Two bars for each row: dark for harmful calls blocked, light for benign ones."""
    height = 34 + len(rows) * (2 * _BAR + _GAP) + 22
    parts = [
        _text(_LEFT, 14, "dark: harmful blocked; light: benign blocked; lines: 95 % intervals")
    ]
    for tick in range(0, 101, 25):
        x = _across(tick / 100)
        parts += [
            _line(x, 22, x, height - 20, "#dddddd"),
            _text(x, height - 6, f"{tick} %", anchor="middle"),
        ]
    y = 28
    for row in rows:
        parts.append(_text(_LEFT - 8, y + _BAR + 4, _cut(row.name), anchor="end"))
        for bar, fill in ((row.harmful, DARK), (row.benign, LIGHT)):
            if bar.rate is not None:
                parts.append(_box(_LEFT, y, _across(bar.rate) - _LEFT, _BAR - 2, fill))
                middle = y + _BAR / 2 - 1
                parts.append(
                    _line(_across(bar.low), middle, _across(bar.high), middle, "#777777", width=2)
                )
            y += _BAR
        y += _GAP
    return _svg(_WIDTH, height, title, parts)


def curves(
    lines: Sequence[Curve], title: str, *, across: str, up: str, diagonal: bool = False
) -> str:
    """Curves in a square from 0 to 1."""
    size, left, top = 320, 56, 14
    parts = []
    for tick in range(0, 101, 25):
        at = tick / 100 * size
        parts += [
            _line(left + at, top, left + at, top + size, "#dddddd"),
            _text(left + at, top + size + 16, f"{tick} %", anchor="middle"),
            _line(left, top + size - at, left + size, top + size - at, "#dddddd"),
            _text(left - 6, top + size - at + 4, f"{tick} %", anchor="end"),
        ]
    if diagonal:
        parts.append(_line(left, top + size, left + size, top, "#999999"))
    for number, line in enumerate(lines):
        points = " ".join(
            f"{left + x * size:.1f},{top + size - y * size:.1f}" for x, y in line.points
        )
        dashes = _DASHES[number % len(_DASHES)]
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{DARK}" stroke-width="2"'
            f' stroke-dasharray="{dashes}"/>'
        )
        y = top + 20 + 18 * number
        parts.append(
            f'<line x1="{left + size + 16}" y1="{y}" x2="{left + size + 56}" y2="{y}"'
            f' stroke="{DARK}" stroke-width="2" stroke-dasharray="{dashes}"/>'
        )
        parts.append(_text(left + size + 62, y + 4, _cut(line.name)))
    parts += [_text(left + size / 2, top + size + 34, across, anchor="middle"), _text(left, 10, up)]
    return _svg(_WIDTH, top + size + 42, title, parts)


def histogram(harmful: Sequence[int], benign: Sequence[int], title: str) -> str:
    """How many scores lie in each part of 0 to 1: harmful upwards, benign downwards."""
    most = max(*harmful, *benign, 1)
    half, left, width = 80, 56, 560
    step = width / len(harmful)
    parts = [_text(left, 10, f"up: harmful, down: benign; the highest is {most}")]
    for number, (up, down) in enumerate(zip(harmful, benign, strict=True)):
        x = left + number * step
        parts.append(_box(x, 20 + half - up / most * half, step - 2, up / most * half, DARK))
        parts.append(_box(x, 20 + half, step - 2, down / most * half, LIGHT))
    parts.append(_line(left, 20 + half, left + width, 20 + half, "#777777"))
    parts += [
        _text(left + width * at, 38 + 2 * half, f"{at:g}", anchor="middle")
        for at in (0, 0.25, 0.5, 0.75, 1)
    ]
    return _svg(_WIDTH, 46 + 2 * half, title, parts)


_DASHES = ("none", "6 3", "2 3", "10 3 2 3", "1 2")


def _across(rate: float) -> float:
    return _LEFT + rate * (_WIDTH - _LEFT - _RIGHT)


def _svg(width: float, height: float, title: str, parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"'
        f' width="{width:g}" height="{height:g}" role="img" font-family="sans-serif"'
        f' font-size="12">\n<title>{escape(title)}</title>\n{body}\n</svg>'
    )


def _text(x: float, y: float, label: str, *, anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{DARK}">{escape(label)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, stroke: str, *, width: int = 1) -> str:
    return (
        f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{stroke}"'
        f' stroke-width="{width}"/>'
    )


def _box(x: float, y: float, width: float, height: float, fill: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"/>'
    )


def _cut(text: str) -> str:
    return text if len(text) <= _NAME else f"{text[: _NAME - 3]}..."
