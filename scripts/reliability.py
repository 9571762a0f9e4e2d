"""docs/run/reliability.md from what the tests measured: `python -m scripts.reliability
[FIGURES.jsonl ...]`.

The tests append to the file that SLUICE_FIGURES names (tests/support/checks/figures.py). What they
say of a case replaces what is in docs/data/figures.json, which is committed; without any, the page
is made from what is there. The page's own words are in docs/data/reliability.in, where `{{table
U}}` is an area's cases and then its main figures, `{{line W}}` its main figures alone, with the
cases whose tests are missing or fail, `{{figure W1 longest stall}}` a value with its unit and
`{{chaos}}` sums of the long chaos run (docs/data/chaos.json).
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from tests.faults.catalogue import AREAS, CASES

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "docs" / "data" / "figures.json"
CHAOS = ROOT / "docs" / "data" / "chaos.json"
TEMPLATE = ROOT / "docs" / "data" / "reliability.in"
PAGE = ROOT / "docs" / "run" / "reliability.md"

CHAOS_SHOWN = (
    "seconds",
    "calls",
    "faults",
    "takeovers",
    "fenced_publishes",
    "chunks_on_record",
    "tool_calls_on_record",
    "longest_stall_s",
    "stall_p99_s",
    "wrong",
)
"""What the page shows of the long run's report."""
SHOWN = frozenset(
    (
        "longest stall with kill -9 of a policy worker (lease 1 s)",
        "longest wait of a client",
        "a hook that hangs (backtrack): longest stall of other calls",
        "from kill -9 of a gateway to closed upstream sockets",
        "from kill -9 of a gateway to the end of its calls on record",
        "first call served after a restart of Redis",
        "first call served after Redis came back empty",
        "first call served after 5 s of silence ended",
        "first call served by a promoted replica",
        "calls served again after open ones had filled Redis",
        "catch-up under traffic after 60 s without Postgres",
        "longest wait of an insert while the record was migrated down and up twice",
        "from a client that leaves to the end of its upstream request (streamed)",
        "no workers: slowest refusal of 150 calls at once (claim_s 1)",
        "rows verified a second of CPU",
        "longest stall",
    )
)
"""The figures that the page shows; docs/data/figures.json has all of them."""

Result = dict[str, Any]


def gathered(lines: list[Result]) -> Result:
    """What a run says of each case it had: how many tests, how many passed, and what they
    measured."""
    found: Result = {}
    for line in {line["test"]: line for line in lines}.values():
        for case in line["cases"]:
            one = found.setdefault(case, {"tests": 0, "passed": 0, "figures": {}})
            # what a machine lacks the servers for is no test of it
            one["tests"] += line["outcome"] != "skipped"
            one["passed"] += line["outcome"] == "passed"
            one["figures"] |= {
                name: f"{value:g} {unit}".rstrip() for name, value, unit in line["figures"]
            }
    return found


def table(area: str, results: Result) -> str:
    """The cases of an area with what must come of them; where tests are missing or fail, it says
    so."""
    rows = ["| case | fault | what happens |", "|---|---|---|"]
    for case, wanted in CASES.items():
        if _area(case) == area:
            note = _note(case, results)
            said = f"{wanted.outcome} (**{note}**)" if note else wanted.outcome
            rows.append(f"| {case} | {wanted.fault} | {said} |")
    return "\n".join(rows)


def line(area: str, results: Result) -> str:
    """An area in a line of a list: what was measured, and the cases whose tests are missing or
    fail."""
    notes = {case: _note(case, results) for case in CASES if _area(case) == area}
    amiss = (f"{case} ({CASES[case].fault}): **{note}**." for case, note in notes.items() if note)
    figures = measured(area, results).removeprefix("Measured: ")
    return " ".join((f"- **{AREAS[area]}**:", *filter(None, (figures, *amiss))))


def _note(case: str, results: Result) -> str:
    """What a case's tests lack, or an empty text."""
    one = results.get(case, {"tests": 0, "passed": 0})
    if CASES[case].not_here:
        return CASES[case].not_here
    if not one["tests"]:
        return "no test yet"
    if one["passed"] < one["tests"]:
        return f"{one['passed']} of {one['tests']} tests passed"
    return ""


def measured(area: str, results: Result) -> str:
    """What tests measured of an area's cases, as far as the page shows it (`SHOWN`): each figure
    once, with the cases that it is of."""
    cases: dict[tuple[str, str], list[str]] = {}
    for case in CASES:
        for name, value in results.get(case, {"figures": {}})["figures"].items():
            if name in SHOWN:
                cases.setdefault((name, value), []).append(case)
    said = [
        f"{name} {value} ({', '.join(of)})"
        for (name, value), of in cases.items()
        if _area(of[0]) == area
    ]
    return f"Measured: {'; '.join(said)}." if said else ""


def _area(case: str) -> str:
    return case.rstrip("0123456789")


def chaos_table(report: Result) -> str:
    """The sums of the long run's report, a line a figure."""
    rows = ["| | |", "|---|---|"]
    for name in CHAOS_SHOWN:
        rows.append(f"| {name.replace('_', ' ')} | {report[name]} |")
    return "\n".join(rows)


def render(template: str, results: Result, chaos: Result) -> str:
    """Fill the template. Raises KeyError naming a figure that no test measured."""

    def fill(match: re.Match[str]) -> str:
        what, _, rest = match[1].partition(" ")
        if what == "table":
            return "\n\n".join(
                filter(None, (f"### {AREAS[rest]}", table(rest, results), measured(rest, results)))
            )
        if what == "line":
            return line(rest, results)
        if what == "chaos":
            return (
                chaos_table(chaos)
                if chaos
                else "No run of 20,000 calls has passed on this version yet."
            )
        case, _, name = rest.partition(" ")
        return str(results[case]["figures"][name])

    return re.sub(r"\{\{(.+?)\}\}", fill, template)


def page() -> str:
    """The page as it must be."""
    chaos = json.loads(CHAOS.read_text(encoding="utf-8")) if CHAOS.exists() else {}
    return render(
        TEMPLATE.read_text(encoding="utf-8"), json.loads(FIGURES.read_text(encoding="utf-8")), chaos
    )


def main() -> None:
    """Take in the files named on the command line and write the page."""
    known: Result = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else {}
    lines = [
        json.loads(line)
        for name in sys.argv[1:]
        for line in Path(name).read_text(encoding="utf-8").splitlines()
    ]
    known = dict(sorted((known | gathered(lines)).items()))
    FIGURES.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
