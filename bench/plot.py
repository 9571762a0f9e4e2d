"""Small line plots as one SVG, readable on light and dark pages: no library is worth its weight for
three panels."""

import math
from dataclasses import dataclass
from html import escape
from typing import Literal

Kind = Literal["first", "second", "ideal", "bound"]
Points = list[tuple[float, float]]
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, RIGHT = 340, 300, 58, 40, 52, 14
"""Of a panel, and the room around its axes."""
LEGEND = 34
STYLE = """
text { font-family: system-ui, sans-serif; font-size: 12px; fill: #1f2328; } .title { font-size: 13px; font-weight: 600; }
.end { text-anchor: end; } .mid { text-anchor: middle; } path { fill: none; stroke-width: 2; }
path.axis, path.grid { stroke: #59636e; stroke-width: 1; } path.grid { stroke-opacity: .25; }
.first { stroke: #0969da; } .second { stroke: #bc4c00; } circle.first { fill: #0969da; } circle.second { fill: #bc4c00; }
.ideal { stroke: #59636e; stroke-dasharray: 6 4; } .bound { stroke: #8250df; stroke-dasharray: 2 3; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; } path.axis, path.grid, .ideal { stroke: #9198a1; } .bound { stroke: #bc8cff; }
.first { stroke: #58a6ff; } .second { stroke: #f0883e; } circle.first { fill: #58a6ff; } circle.second { fill: #f0883e; }
}
"""


@dataclass(frozen=True)
class Line:
    """Points joined by a line. `kind` says how it looks; lines of one kind have one label."""

    kind: Kind
    label: str
    points: Points


@dataclass(frozen=True)
class Panel:
    """One pair of axes, both from 0."""

    title: str
    x_label: str
    y_label: str
    lines: list[Line]
    x_ticks: list[int]


def figure(title: str, panels: list[Panel]) -> str:
    """Return the SVG."""
    width, height = WIDTH * len(panels), HEIGHT + LEGEND
    labels = {line.kind: line.label for panel in panels for line in panel.lines}
    parts = [f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>"]
    parts += [
        f'<g transform="translate({WIDTH * n} 0)">{_panel(panel)}</g>'
        for n, panel in enumerate(panels)
    ]
    parts.append(f'<g transform="translate({LEFT} {HEIGHT + 12})">{_legend(labels)}</g>')
    body = "\n".join(parts)
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>\n{body}\n</svg>\n'


def steps(top: float) -> list[float]:
    """Round numbers from 0 to at least `top`, four to eight of them."""
    unit = 10.0 ** math.floor(math.log10(top))
    step = next(unit * part for part in (0.2, 0.25, 0.5, 1, 2) if top / (unit * part) <= 6)
    return [step * n for n in range(math.ceil(top / step - 1e-9) + 1)]


def _panel(panel: Panel) -> str:
    y_ticks = steps(max(y for line in panel.lines for _, y in line.points))
    x_top, y_top = max(x for line in panel.lines for x, _ in line.points) * 1.04, y_ticks[-1]
    right, low = WIDTH - RIGHT, HEIGHT - BOTTOM

    def x_of(x: float) -> float:
        return round(LEFT + (right - LEFT) * x / x_top, 1)

    def y_of(y: float) -> float:
        return round(low - (low - TOP) * y / y_top, 1)

    parts = [f'<text class="title" x="{LEFT}" y="18">{escape(panel.title)}</text>']
    for y in y_ticks:
        parts.append(f'<path class="grid" d="M{LEFT} {y_of(y)}H{right}"/>')
        parts.append(f'<text class="end" x="{LEFT - 6}" y="{y_of(y) + 4}">{y:,g}</text>')
    for x in panel.x_ticks:
        parts.append(f'<text class="mid" x="{x_of(x)}" y="{low + 16}">{x}</text>')
    parts.append(f'<path class="axis" d="M{LEFT} {TOP}V{low}H{right}"/>')
    parts.append(
        f'<text class="mid" x="{(LEFT + right) / 2}" y="{low + 34}">{escape(panel.x_label)}</text>'
    )
    parts.append(f'<text x="{LEFT}" y="{TOP - 6}">{escape(panel.y_label)}</text>')
    for line in panel.lines:
        way = "L".join(f"{x_of(x)} {y_of(y)}" for x, y in line.points)
        parts.append(f'<path class="{line.kind}" d="M{way}"/>')
        if line.kind in ("first", "second"):
            parts += [
                f'<circle class="{line.kind}" cx="{x_of(x)}" cy="{y_of(y)}" r="3.5"/>'
                for x, y in line.points
            ]
    return "\n".join(parts)


def _legend(labels: dict[Kind, str]) -> str:
    parts, x = [], 0
    for kind, label in labels.items():
        parts.append(
            f'<path class="{kind}" d="M{x} 0h26"/><text x="{x + 32}" y="4">{escape(label)}</text>'
        )
        x += 50 + round(6.4 * len(label))
    return "".join(parts)
