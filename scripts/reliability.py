"""docs/reliability.md from what the tests measured: `python -m scripts.reliability [FIGURES.jsonl
...]`.

The tests append to the file that SLUICE_FIGURES names (tests/support/checks/figures.py). What they
say of a case replaces what is in docs/data/figures.json, which is committed; without any, the page
is made from what is there. The page's own words are in docs/data/reliability.in.md, where `{{table
W}}` is an area's cases and then its figures, each once, `{{figure W1 longest stall}}` a value with
its unit and `{{chaos}}` the report of the long chaos run (docs/data/chaos.json).
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
TEMPLATE = ROOT / "docs" / "data" / "reliability.in.md"
PAGE = ROOT / "docs" / "reliability.md"

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
    """The cases of an area with what must come of them, and how many tests show it."""
    rows = ["| case | fault | what happens | tests |", "|---|---|---|---|"]
    for case, wanted in CASES.items():
        if _area(case) != area:
            continue
        one = results.get(case, {"tests": 0, "passed": 0})
        passed = (
            f"{one['passed']} passed"
            if one["passed"] == one["tests"]
            else f"{one['passed']} of {one['tests']} passed"
        )
        said = wanted.not_here or (passed if one["tests"] else "none yet")
        rows.append(f"| {case} | {wanted.fault} | {wanted.outcome} | {said} |")
    return "\n".join(rows)


def measured(area: str, results: Result) -> str:
    """What tests measured of an area's cases: each figure once, with the first of the cases that it
    is of and all others."""
    cases: dict[tuple[str, str], list[str]] = {}
    for case in CASES:
        for figure in results.get(case, {"figures": {}})["figures"].items():
            cases.setdefault(figure, []).append(case)
    rows = [
        f"| {', '.join(of)} | {name} | {value} |"
        for (name, value), of in cases.items()
        if _area(of[0]) == area
    ]
    return "\n".join(["| of | measured | |", "|---|---|---|", *rows]) if rows else ""


def _area(case: str) -> str:
    return case.rstrip("0123456789")


def chaos_table(report: Result) -> str:
    """The long run's report, a line a figure."""
    rows = ["| | |", "|---|---|"]
    for name, value in report.items():
        if isinstance(value, dict):
            value = ", ".join(f"{k} {v}" for k, v in value.items())
        rows.append(f"| {name.replace('_', ' ')} | {value} |")
    return "\n".join(rows)


def render(template: str, results: Result, chaos: Result) -> str:
    """Fill the template. Raises KeyError naming a figure that no test measured."""

    def fill(match: re.Match[str]) -> str:
        what, _, rest = match[1].partition(" ")
        if what == "table":
            return "\n\n".join(
                filter(None, (f"### {AREAS[rest]}", table(rest, results), measured(rest, results)))
            )
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
