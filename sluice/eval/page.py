"""A result as one HTML file: plots with the numbers below them. It loads nothing and runs no
script; all text is escaped."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from sluice.eval import table
from sluice.tables import printable

Result = Mapping[str, Any]
_DATA = Path(__file__).with_name("data")
_MOST_CASES = 5_000
"""So many are listed; all are in result.json."""
_MOST_BUDGET = 0.05
_MOST_POINTS = 25


def html(results: Sequence[Result]) -> str:
    """Return the page of one or several series of the same data."""
    style = Markup((_DATA / "report.css").read_text())
    environment = Environment(
        loader=FileSystemLoader(_DATA),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    environment.globals.update(
        table=table, scores_of=_scores, thresholds=_thresholds, most_cases=_MOST_CASES
    )
    hashed = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return environment.get_template("report.html").render(
        results=results, style=style, digest=hashed
    )


def _scores(result: Result) -> dict[str, Any]:
    """Curves and tables of the monitors and judges that gave scores; empty where none did."""
    monitors = {name: of for name, of in result["monitors"].items() if of["auc"] is not None}
    if not monitors:
        return {}
    first = next(iter(monitors.values()))
    rates = [f"recall at {table.percent(p['false_block'])} false" for p in first["recall_at"]]
    return {
        "monitors": monitors,
        "recall": [
            (name, [(0, 0), *((p["false_block"], p["recall"]) for p in of["curve"]), (1, 1)])
            for name, of in monitors.items()
        ],
        "areas": (
            ["score of", "AUC", "interval", *rates],
            [
                [
                    name,
                    f"{of['auc']:.3f}",
                    "{:.3f}-{:.3f}".format(*of["interval"]),
                    *(_from(p["recall"], p["threshold"]) for p in of["recall_at"]),
                ]
                for name, of in monitors.items()
            ],
        ),
        "safety": [
            (name, [(b["budget"] / _MOST_BUDGET, b["safety"]) for b in of["budgets"]])
            for name, of in monitors.items()
        ],
        "budgets": (
            ["score of", *(f"budget {table.percent(b['budget'])}" for b in first["budgets"])],
            [
                [name, *(_from(b["safety"], b["threshold"]) for b in of["budgets"])]
                for name, of in monitors.items()
            ],
        ),
    }


def _from(part: float, threshold: float | None) -> str:
    return f"{table.percent(part)} from {_figure(threshold)}"


def _figure(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


def _thresholds(curve: Sequence[Mapping[str, float]]) -> list[list[str]]:
    """Some of the thresholds of a curve, with what they block."""
    return [
        [_figure(p["threshold"]), table.percent(p["recall"]), table.percent(p["false_block"])]
        for p in curve[:: max(1, len(curve) // _MOST_POINTS)]
    ]
