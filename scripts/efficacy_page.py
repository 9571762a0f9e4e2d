"""Makes the tables of docs/run/efficacy.md from the measured data, and puts them where
docs/data/efficacy.in names them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.pages import table
from sluice.eval import stats

WORDS = Path(__file__).parents[1] / "docs" / "data" / "efficacy.in"
CORPORA = {
    "nl2bash": "TellinaTool/nl2bash, `data/bash/all.cm` (MIT)",
    "tldr": "tldr-pages/tldr, pages `common` and `linux` (CC-BY-4.0)",
    "dcg": "Dicklesworthstone/destructive_command_guard, test corpus (MIT)",
    "atomic": "redcanaryco/atomic-red-team, `sh` and `bash` tests for Linux (MIT)",
}
"""Files of the corpora's folder, and where the data is to be had."""
CASES, SQL, OFFICE = "developer cases", "statements of SQL", "calls of office tools"
HELD, SEEN = "blind cases, held back", "blind cases, the rest"
"""Of a writer who saw no rule: those that nobody looked at, and those that rules learned from."""
OWN = {
    HELD: "`tests/fixtures/control/blind/held`, without SQL",
    SEEN: "`tests/fixtures/control/blind/seen`, without SQL",
    CASES: "`tests/fixtures/control/toolcalls.json`",
    SQL: "`tests/fixtures/control/sql.jsonl`",
    OFFICE: "`tests/fixtures/control/office.jsonl`",
}
_FOR_AGENTS = ("demo", "coding-agent", "coding-agent-judged", "strict", "cloud")
"""Policies that are meant for the calls of agents."""
_STAGES = {"own": "the corpus's own", "patterns": "+ patterns", "all": "+ labels by hand"}
_SHOWN = {
    CASES: _FOR_AGENTS,
    SQL: ("coding-agent", "database-readonly", "database-write"),
    OFFICE: ("office", "office-judged"),
}
"""Policies whose rates are shown; of corpora all."""
_MEANT = (
    *((CASES, name) for name in _FOR_AGENTS if name not in ("demo", "strict")),
    (SQL, "database-readonly"),
    (OFFICE, "office"),
)
"""Policies whose misses are named: those that are meant for such calls."""
LINES = "commands of several lines (atomic, dcg)"
_FEW = 300
"""Of no more calls a percentile of time says little."""
Data = Mapping[str, Any]


def rate(hits: int, n: int) -> str:
    """A rate with its Wilson interval, as the page writes it."""
    if not n:
        return ""
    low, high = stats.wilson(hits, n)
    return f"{_percent(hits / n, n)} % ({_percent(low, n)} to {_percent(high, n)})"


def _percent(value: float, n: int) -> str:
    digits = 2 if n >= 1_000 else 1 if n >= 100 else 0
    return f"{100 * value:.{digits}f}"


def _one(value: float) -> str:
    return f"{100 * value:.1f}"


def _some(hits: int, n: int) -> str:
    """A rate with its interval, or a dash for none at all: whoever reads a table looks for what is
    there."""
    return rate(hits, n) if hits else "0" if n else ""


def _stopped(of: Mapping[str, int]) -> int:
    return of["blocked"] + of["unsure"]


def _harmful(of: Mapping[str, int]) -> list[str]:
    return [f"{of['n']:,}", rate(_stopped(of), of["n"])]


def _benign(of: Mapping[str, int]) -> list[str]:
    return [f"{of['n']:,}", rate(of["blocked"], of["n"]), _some(of["unsure"], of["n"])]


def page(data: Data) -> str:
    """The page: its words, and tables of the data in the places that they name."""
    text = WORDS.read_text()
    for place, make in _PLACES.items():
        text = text.replace(f"<!-- {place} -->\n", make(data))
    text = text.replace("<!-- RULES -->", _rules(data))
    known = data["labels"]
    for place, number in (
        ("LABELS", known["n"]),
        *((f"BY {by}", n) for by, n in known["by"].items()),
        *((f"OF {of}", n) for of, n in known["of"].items()),
    ):
        text = text.replace(f"<!-- {place} -->", f"{number:,}")
    return text.replace("<!-- MACHINE -->", data["machine"])


def _of(data: Data, dataset: str) -> list[Data]:
    return [one for one in data["results"] if one["dataset"] == dataset]


def _rates(data: Data, names: Sequence[str]) -> str:
    rows = []
    for name in names:
        for one in _of(data, name):
            if one["preset"] not in _SHOWN.get(name, (one["preset"],)):
                continue
            harmful, benign = one["harmful"], one["benign"]
            asks = [_some(of["asked"], of["n"]) for of in (harmful, benign)]
            rows.append(
                [
                    name if name == HELD else f"{name} (seen)",
                    f"`{one['preset']}`",
                    *_harmful(harmful),
                    asks[0],
                    *_benign(benign),
                    asks[1],
                ]
            )
    return table(
        (
            "data",
            "policy",
            "harmful",
            "stopped",
            "asks",
            "harmless",
            "falsely blocked",
            "unsure",
            "asks",
        ),
        rows,
    )


def _labelled(data: Data) -> str:
    rows = []
    for name in CORPORA:
        one = next(one for one in _of(data, name) if one["preset"] == "coding-agent")
        before: Data | None = None
        for stage, what in _STAGES.items():
            of = one["stages"][stage]
            if of == before:
                # no label of this sort is about this corpus
                continue
            before, left = of, of["debatable"]
            rows.append(
                [
                    name,
                    what,
                    *_harmful(of["harmful"]),
                    *_benign(of["benign"]),
                    f"{left['n']:,}",
                    f"{_stopped(left):,}",
                ]
            )
    return table(
        (
            "data",
            "labels",
            "harmful",
            "stopped",
            "harmless",
            "falsely blocked",
            "unsure",
            "debatable",
            "of these stopped",
        ),
        rows,
    )


def _disguise_misses(data: Data) -> str:
    lines = []
    for one in data["disguises"]:
        harmful = one["totals"]["harmful"]
        low, high = harmful["interval"]
        stopped = _one(_stopped(harmful) / harmful["n"])
        lines.append(
            f"- `{one['preset']}`: of {harmful['n']:,} forms of {harmful['parents']} harmful cases"
            f" {stopped} % are stopped ({_one(low)} to {_one(high)} for blocks, drawn over cases;"
            f" unsure {harmful['unsure']:,}).\n"
        )
    misses: dict[str, list[str]] = {}
    for name in data["disguises"][0]["misses"]:
        case, _, disguise = name.partition("~")
        misses.setdefault(case, []).append(f"`{disguise}`")
    for case, of in misses.items():
        lines.append(
            f"- `{data['disguises'][0]['preset']}` lets pass {case} in {len(of)}:"
            f" {', '.join(of)}.\n"
        )
    return "".join(lines)


def _cost(data: Data) -> str:
    rows = []
    for one in data["results"]:
        if one["preset"] not in ("coding-agent", "database-readonly"):
            continue
        n = sum(
            of["n"]
            for of in (
                one["stages"]["all"].values()
                if "stages" in one
                else (one["harmful"], one["benign"])
            )
        )
        if n > _FEW and (took := one["latency_us"]) is not None:
            rows.append(
                [
                    one["dataset"],
                    f"`{one['preset']}`",
                    f"{n:,}",
                    *(f"{took[key] / 1000:.2f}" for key in ("p50", "p95", "p99")),
                ]
            )
    lines = data["lines"]
    took = [f"{lines['latency_us'][key] / 1000:.2f}" for key in ("p50", "p95")]
    rows.insert(0, [LINES, "`coding-agent`", f"{lines['n']:,}", *took, ""])
    return table(("data", "policy", "calls", "p50 ms", "p95 ms", "p99 ms"), rows)


def _mistakes(data: Data) -> str:
    rows = []
    for one in data["results"]:
        if (one["dataset"], one["preset"]) not in _MEANT:
            continue
        found: dict[str, list[str]] = {}
        for case, _, rule in one["mistakes"]:
            found.setdefault(f"stopped by `{rule}`" if rule else "passes", []).append(case)
        rows += [
            [f"`{one['preset']}`", what, f"{len(cases)}", ", ".join(cases)]
            for what, cases in found.items()
        ]
    return table(("policy", "what happens", "cases", "their names"), rows)


def _rules(data: Data) -> str:
    said = []
    for name in CORPORA:
        one = next(one for one in _of(data, name) if one["preset"] == "coding-agent")
        if one["false_by_rule"]:
            rules = ", ".join(f"`{rule}` {n}" for rule, n in one["false_by_rule"].items())
            said.append(f"{name} {rules}")
    return "; ".join(said) or "none"


def _data(data: Data) -> str:
    found = {one["dataset"]: one["sha256"] for one in data["results"]}
    return table(
        ("data", "from", "SHA-256 of the file"),
        [[name, OWN.get(name) or CORPORA[name], f"`{digest}`"] for name, digest in found.items()],
    )


_PLACES: dict[str, Callable[[Data], str]] = {
    "BLIND": lambda data: _rates(data, [HELD, SEEN]),
    "CASES": lambda data: _rates(data, [CASES]),
    "SQL": lambda data: _rates(data, [SQL]),
    "OFFICE": lambda data: _rates(data, [OFFICE]),
    "CORPORA": lambda data: _rates(data, list(CORPORA)),
    "LABELLED": _labelled,
    "DISGUISE MISSES": _disguise_misses,
    "COST": _cost,
    "MISTAKES": _mistakes,
    "DATA": _data,
}
