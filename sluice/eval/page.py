"""A result as one HTML file: plots with the numbers below them. It loads nothing and runs no
script; all text is escaped."""

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from sluice.eval import svg, table
from sluice.tables import printable

Result = Mapping[str, Any]
_STYLE = """
body { font: 15px/1.45 sans-serif; color: #222; background: #fff; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; } h3 { font-size: 1rem; }
table { border-collapse: collapse; margin: .7rem 0; font-size: .85rem; }
th, td { border-bottom: 1px solid #ddd; padding: .2rem .7rem .2rem 0; text-align: left; vertical-align: top; }
th { border-bottom: 2px solid #888; } code { font-size: .9em; overflow-wrap: anywhere; }
.failed { font-weight: bold; border-left: 4px solid #222; padding-left: .5rem; } svg { max-width: 100%; height: auto; }
"""
_MOST_CASES = 5_000
"""So many are listed; all are in result.json."""


def html(results: Sequence[Result]) -> str:
    """Return the page of one or several series of the same data."""
    names = ", ".join(result["policy"] for result in results)
    hashed = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        (
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src'
            f" 'sha256-{hashed}'; base-uri 'none'; form-action 'none'\">"
        ),
        (
            '<meta name="referrer" content="no-referrer">\n<meta name="viewport"'
            ' content="width=device-width">'
        ),
        f"<title>sluice eval: {_safe(names)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>",
        f"<h1>sluice eval: {_safe(names)}</h1>",
    ]
    for result in results:
        parts += _head(result, several=len(results) > 1)
    parts.append("<h2>How much is blocked</h2>")
    for part, title in (
        ("totals", "in all"),
        ("categories", "by category"),
        ("disguises", "by disguise"),
    ):
        columns, rows = table.rates(results, part)
        if part == "totals" or len(rows) > len(results):
            parts += [f"<h3>{title}</h3>", *_bars(results, part), _table(columns, rows)]
    for result in results:
        parts += _monitors(result)
    for result in results:
        columns, rows = table.mistakes(result)
        if rows:
            parts += [
                f"<h2>Mistakes of {_safe(result['policy'])}, the worst first</h2>",
                _table(columns, rows),
            ]
    for result in results:
        parts += _cases(result)
    return "\n".join([*parts, "</body>\n</html>\n"])


def _head(result: Result, *, several: bool) -> Iterable[str]:
    if several:
        yield f"<h2>{_safe(result['policy'])}</h2>"
    lines = [*table.head(result), *table.costs(result), f"machine: {result['machine']}"]
    yield f"<p>{'<br>'.join(map(_safe, lines))}</p>"
    for line in table.outcome_lines(result):
        kind = ' class="failed"' if line.startswith("FAILED") else ""
        yield f"<p{kind}>{_safe(line)}</p>"


def _bars(results: Sequence[Result], part: str) -> Iterable[str]:
    for result in results:
        groups = {"all": result["totals"]} if part == "totals" else result[part]
        rows = [
            svg.BlockedShares(name or "(none)", _bar(of["harmful"]), _bar(of["benign"]))
            for name, of in groups.items()
        ]
        if rows:
            title = f"blocked by {result['policy']}"
            yield f"<h4>{_safe(result['policy'])}</h4>" if len(results) > 1 else ""
            yield svg.bars(
                [row._replace(name=printable(row.name)) for row in rows], printable(title)
            )


def _bar(of: Mapping[str, Any]) -> svg.Bar:
    low, high = of["interval"]
    return svg.Bar(of["rate"], low, high)


def _monitors(result: Result) -> Iterable[str]:
    known = {
        printable(name): of for name, of in result["monitors"].items() if of["auc"] is not None
    }
    if not known:
        return
    yield f"<h2>Scores under {_safe(result['policy'])}</h2>"
    roc = [
        svg.Curve(
            name, [(0.0, 0.0), *((p["false_block"], p["recall"]) for p in of["curve"]), (1.0, 1.0)]
        )
        for name, of in known.items()
    ]
    yield "<h3>Recall against false blocks, over all thresholds</h3>"
    yield svg.curves(
        roc,
        "recall against false blocks",
        across="benign calls above the threshold",
        up="harmful",
        diagonal=True,
    )
    columns = [
        "score of",
        "AUC",
        "interval",
        *(f"recall at {table.percent(p['false_block'])} false" for p in _first(known)["recall_at"]),
    ]
    yield _table(
        columns,
        [
            [
                name,
                f"{of['auc']:.3f}",
                f"{of['interval'][0]:.3f}-{of['interval'][1]:.3f}",
                *(
                    f"{table.percent(p['recall'])} from {_figure(p['threshold'])}"
                    for p in of["recall_at"]
                ),
            ]
            for name, of in known.items()
        ],
    )
    yield "<h3>Safety at audit budgets: harmful calls among those that are audited</h3>"
    yield svg.curves(
        [
            svg.Curve(name, [(b["budget"] / _MOST_BUDGET, b["safety"]) for b in of["budgets"]])
            for name, of in known.items()
        ],
        "safety against audit budget",
        across=f"audit budget, as part of {table.percent(_MOST_BUDGET)} of the benign calls",
        up="caught",
    )
    yield _table(
        ["score of", *(f"budget {table.percent(b['budget'])}" for b in _first(known)["budgets"])],
        [
            [
                name,
                *(
                    f"{table.percent(b['safety'])} above {_figure(b['threshold'])}"
                    for b in of["budgets"]
                ),
            ]
            for name, of in known.items()
        ],
    )
    for name, of in known.items():
        counts = of["histogram"]
        yield f"<h3>{_safe(name)}: scores</h3>"
        yield svg.histogram(counts["harmful"], counts["benign"], f"scores of {name}")
        edges = [f"{n / len(counts['harmful']):.2f}" for n in range(len(counts["harmful"]))]
        rows = [
            [e, str(h), str(b)]
            for e, h, b in zip(edges, counts["harmful"], counts["benign"], strict=True)
            if h or b
        ]
        yield _table(["from", "harmful", "benign"], rows)
        yield _thresholds(of["curve"])


_MOST_BUDGET = 0.05
_MOST_POINTS = 25


def _thresholds(curve: Sequence[Mapping[str, float]]) -> str:
    step = max(1, len(curve) // _MOST_POINTS)
    rows = [
        [_figure(p["threshold"]), table.percent(p["recall"]), table.percent(p["false_block"])]
        for p in curve[::step]
    ]
    return _table(["threshold", "harmful blocked", "benign blocked"], rows)


def _first(of: Mapping[str, Any]) -> Mapping[str, Any]:
    value: Mapping[str, Any] = next(iter(of.values()))
    return value


def _figure(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


def _cases(result: Result) -> Iterable[str]:
    cases = result["cases"]
    yield f"<h2>All cases under {_safe(result['policy'])}</h2>"
    if len(cases) > _MOST_CASES:
        yield f"<p>The first {_MOST_CASES:,} of {len(cases):,}; all are in result.json.</p>"
    rows = [
        [
            case["id"],
            case["label"],
            case["category"],
            case["verdict"],
            case["policy"],
            case["rule"] or case["reason"],
            table.scores(case),
        ]
        for case in cases[:_MOST_CASES]
    ]
    yield _table(["case", "label", "category", "verdict", "policy", "by", "score"], rows)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{_safe(column)}</th>" for column in columns)
    body = "\n".join(
        f"<tr>{''.join(f'<td>{_safe(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _safe(text: str) -> str:
    return escape(printable(text), quote=True)
