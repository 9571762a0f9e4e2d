"""A result as text: a table for people, and the same as Markdown. Several series are shown side by
side."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sluice.tables import printable

Result = Mapping[str, Any]
_LABELS = (("harmful", "harmful blocked"), ("benign", "benign blocked"))
_MOST_NAME = 60
_MOST_LINES, _MOST_SHOWN = 20, 100
"""Mistakes, and characters of a cell, that a terminal shows."""


def rate(of: Mapping[str, Any], name: str = "blocked") -> str:
    """A rate with its interval in words: `18/30 60 % (42-75)`; of none `0/300 < 1.0 %`, as 3 in n
    is the bound then."""
    n, hits = of["n"], of[name]
    if not n:
        return "-"
    if hits == 0:
        # forms of one case say no more than the case
        return f"0/{n} < {percent(min(1.0, 3 / of['parents']))}"
    low, high = of["interval" if name == "blocked" else "unsure_interval"]
    return f"{hits}/{n} {percent(hits / n)} ({_figure(low)}-{_figure(high)})"


def percent(value: float) -> str:
    """A part in per cent, with a digit behind the point where it says something."""
    return f"{_figure(value)} %"


def _figure(value: float) -> str:
    in_percent = value * 100
    return (
        f"{in_percent:.1f}" if 0 < in_percent < 10 or 99 < in_percent < 100 else f"{in_percent:.0f}"
    )


Table = tuple[list[str], list[list[str]]]
_ALL, _PLAIN = "all", "as they are"


def _names(results: Sequence[Result], part: str) -> list[str]:
    return list(dict.fromkeys(name for result in results for name in result[part]))


def rates(results: Sequence[Result], part: str) -> Table:
    """Rows of rates: `totals`, `categories` or `disguises`; of several series a row for each, one
    below the other."""
    several = len(results) > 1
    heading = {"totals": "", "categories": "category", "disguises": "disguise"}[part]
    columns = [
        heading,
        *(["policy"] if several else []),
        *(column for _, column in _LABELS),
        "unsure",
        "judge faults",
    ]
    rows = []
    for name in (
        [_ALL]
        if part == "totals"
        else [*([_PLAIN] if part == "disguises" else []), *_names(results, part)]
    ):
        for result in results:
            group = {_ALL: result["totals"], _PLAIN: result.get("plain")}.get(name) or result[
                part
            ].get(name)
            if group is not None:
                policy_cell = [printable(result["policy"])] if several else []
                counts = [
                    *(rate(group[label]) for label, _ in _LABELS),
                    _unsure(group),
                    _faults(group),
                ]
                rows.append([printable(name or "(none)")[:_MOST_NAME], *policy_cell, *counts])
    return columns, rows


def _unsure(group: Mapping[str, Any]) -> str:
    hits, n = (sum(group[label][key] for label, _ in _LABELS) for key in ("unsure", "n"))
    deferred, errors = (
        sum(group[label][key] for label, _ in _LABELS) for key in ("deferred", "errors")
    )
    unread, held = (
        sum(group[label].get(key, 0) for label, _ in _LABELS) for key in ("unread", "held")
    )
    return (
        f"{hits}/{n}"
        + (f", {unread} unread" if unread else "")
        + (f", {held} held for a person" if held else "")
        + (f", {deferred} deferred" if deferred else "")
        + (f", {errors} without a result" if errors else "")
    )


def _faults(group: Mapping[str, Any]) -> str:
    """Cases that a judge's answer decided which was no judgement, of those that were judged."""
    faults, judged = (
        sum(group[label].get(key, 0) for label, _ in _LABELS) for key in ("faults", "judged")
    )
    return f"{faults}/{faults + judged}" if faults else "-"


def head(result: Result) -> list[str]:
    """What a result is of, in lines."""
    data = result["dataset"]
    files = ", ".join(printable(file["path"]) for file in data["files"])
    asked = {
        "live": "judges asked",
        "recorded": "recorded judgements",
        "off": "no judge asked: what would be is counted as unsure",
    }
    lines = [
        (
            f"policy {result['policy']} (revision {result['revision']}), Sluice {result['sluice']},"
            f" {result['mode']}, {asked[result['judge']]}"
        ),
        (
            f"data {files}: {len(result['cases'])} calls, sha256 {data['sha256'][:16]}, seed"
            f" {result['seed']}"
        ),
    ]
    return (
        lines
        if result["complete"]
        else [*lines, "INCOMPLETE: no judge answered for some cases, which are in no rate"]
    )


def costs(result: Result) -> list[str]:
    """Time, judges and money, in lines."""
    lines, speed, took, cost = [], result["speed"], result["latency_us"], result["cost"]
    if took:
        what = "deciding took" if result["mode"] == "pure" else "answers took"
        sentence = (
            f"{what} {took['p50'] / 1000:.2f} ms (p50), {took['p95'] / 1000:.2f} (p95),"
            f" {took['p99'] / 1000:.2f} (p99)"
        )
        lines.append(f"{sentence}; {speed['calls_per_s']:,} calls/s in all")
    if cost["judge_calls"]:
        sentence = f"for 100 calls judges were asked {cost['judge_calls_per_100']:g} times"
        if cost["input_tokens_per_100"] or cost["output_tokens_per_100"]:
            sentence += (
                f", {cost['input_tokens_per_100']:,.0f} tokens in and"
                f" {cost['output_tokens_per_100']:,.0f} out"
            )
        if cost["money_per_100"] is not None:
            sentence += f", {cost['money_per_100']:.4f} in money"
        lines.append(sentence)
    lines += _areas(result)
    for label, of in result["trajectories"].items():
        lines.append(
            f"{label} transcripts in which something was stopped: {of['stopped']} of {of['n']}"
        )
    return lines


def _areas(result: Result) -> list[str]:
    """What the scores are worth; names whose scores are the same share a line."""
    named: dict[str, list[str]] = {}
    for name, of in result["monitors"].items():
        if of["auc"] is not None:
            low, high = of["interval"]
            at = "; ".join(
                f"{percent(p['recall'])} at {percent(p['false_block'])} false"
                for p in of["recall_at"]
            )
            named.setdefault(f"AUC {of['auc']:.3f} ({low:.3f}-{high:.3f}); recall {at}", []).append(
                printable(name)
            )
    return [f"scores of {', '.join(names)}: {area}" for area, names in named.items()]


def mistakes(result: Result) -> Table:
    """All mistakes, the worst first: which call, and why."""
    rows = [
        [case["id"][:_MOST_NAME], case.get("call", ""), case.get("why", ""), scores(case)]
        for case in result["mistakes"]
    ]
    return ["case", "call", "why", "score"], [[printable(cell) for cell in row] for row in rows]


def scores(case: Mapping[str, Any]) -> str:
    """Scores of monitors and judges for a case."""
    return ", ".join(f"{name} {value:.2f}" for name, value in case.get("scores", {}).items())


def outcome_lines(result: Result) -> list[str]:
    """What `--fail-on` and `--baseline` came to, in lines."""
    lines = []
    for bound in result.get("bounds", ()):
        value = "nothing was measured" if bound["value"] is None else f"it is {bound['value']:.4g}"
        lines.append(
            f"{'FAILED' if bound['failed'] else 'ok'}: --fail-on {bound['expr']!r}: {value}"
        )
    if (base := result.get("baseline")) is not None:
        blocked = "; ".join(
            f"{label} blocked {of['before']} before, {of['now']} now"
            for label, of in base["blocked"].items()
        )
        other = "" if base["same_dataset"] else " (of other data)"
        lines.append(
            f"{'ok' if base['met'] else 'FAILED'}: baseline {base['file']}{other}, {base['cases']}"
            f" cases in both: {blocked}"
        )
        for kind, ids in base["flips"].items():
            if ids:
                lines.append(
                    f"  now {kind.replace('_', ', ')}:"
                    f" {', '.join(map(printable, ids[:20]))}{' ...' if len(ids) > 20 else ''}"
                )
    return lines


def _sections(results: Sequence[Result]) -> Iterator[tuple[str, list[str], Table]]:
    """The parts of a report: a heading, lines, a table."""
    for result in results:
        yield "", [*head(result), *costs(result)], ([], [])
    for part in ("totals", "disguises", "categories"):
        columns, rows = rates(results, part)
        if part == "totals" or len(rows) > len(results):
            yield "", [], (columns, rows)
    for result in results:
        if wrong := result["mistakes"]:
            heading = f"mistakes of {result['policy']} ({len(wrong)}), the worst first:"
            yield heading, [], mistakes(result)
        if lines := outcome_lines(result):
            yield "", lines, ([], [])


def text(results: Sequence[Result]) -> str:
    """Everything, for a terminal."""
    parts: list[str] = []
    for heading, lines, (columns, rows) in _sections(results):
        parts += [heading, *lines] if heading else lines
        if columns:
            most = _MOST_LINES if heading else len(rows)
            parts += _aligned(
                columns, [[cell[:_MOST_SHOWN] for cell in row] for row in rows[:most]]
            )
            parts += ["more are in the report (--out) and in --json"] if len(rows) > most else []
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def _aligned(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(columns, *rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [columns, *rows]
    ]


def markdown(results: Sequence[Result]) -> str:
    """Everything, as Markdown."""
    parts: list[str] = []
    for heading, lines, (columns, rows) in _sections(results):
        parts += [f"## {_cell(heading)}", ""] if heading else []
        parts += [f"{_cell(line)}  " for line in lines]
        parts += [*(_piped(columns, rows) if columns else []), ""]
    return "\n".join(parts).rstrip() + "\n"


def _piped(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [columns, ["---"] * len(columns), *rows]
    return [f"| {' | '.join(map(_cell, line))} |" for line in lines]


_MARKED = str.maketrans({c: f"\\{c}" for c in "\\|`*_[]<>#"})


def _cell(text: str) -> str:
    return text.translate(_MARKED) if text != "---" else text
