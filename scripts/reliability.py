"""docs/reliability.md from what the tests measured: `python -m scripts.reliability [FIGURES.jsonl ...]`.

The tests append to the file that SLUICE_FIGURES names (tests/support/figures.py). The newest line of each test goes into
docs/data/figures.json, which is committed; without any, the page is made from what is there. The page's own words are in
docs/data/reliability.in.md, where `{{table W}}` is an area's table, `{{figure W1 longest stall}}` a value with its unit and `{{chaos}}`
the report of the long chaos run (docs/data/chaos.json).
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


def merge(known: list[Result], lines: list[Result]) -> list[Result]:
    """The newest result of each test, ordered by test."""
    return [r for _, r in sorted(({r["test"]: r for r in known} | {r["test"]: r for r in lines}).items())]


def figures_of(case: str, results: list[Result]) -> dict[str, str]:
    """Every value measured for a case, by name."""
    return {name: f"{value:g} {unit}".rstrip() for r in results if case in r["cases"] for name, value, unit in r["figures"]}


def table(area: str, results: list[Result]) -> str:
    """The cases of an area with what must come of them, what was measured, and how many tests show it."""
    rows = ["| case | fault | what happens | measured | tests |", "|---|---|---|---|---|"]
    for case, wanted in CASES.items():
        if case.rstrip("0123456789") != area:
            continue
        tests = [r for r in results if case in r["cases"]]
        passed = sum(r["outcome"] == "passed" for r in tests)
        shown = "; ".join(f"{name} {value}" for name, value in figures_of(case, tests).items())
        said = wanted.not_here or (f"{passed} passed" if passed == len(tests) else f"{passed} of {len(tests)} passed")
        rows.append(f"| {case} | {wanted.fault} | {wanted.outcome} | {shown} | {said if tests or wanted.not_here else 'none yet'} |")
    return "\n".join(rows)


def chaos_table(report: Result) -> str:
    """The long run's report, a line a figure."""
    rows = ["| | |", "|---|---|"]
    for name, value in report.items():
        if isinstance(value, dict):
            value = ", ".join(f"{k} {v}" for k, v in value.items())
        rows.append(f"| {name.replace('_', ' ')} | {value} |")
    return "\n".join(rows)


def render(template: str, results: list[Result], chaos: Result) -> str:
    """Fill the template. Raises KeyError naming a figure that no test measured."""

    def fill(match: re.Match[str]) -> str:
        what, _, rest = match[1].partition(" ")
        if what == "table":
            return f"### {AREAS[rest]}\n\n{table(rest, results)}"
        if what == "chaos":
            return chaos_table(chaos)
        case, _, name = rest.partition(" ")
        return figures_of(case, results)[name]

    return re.sub(r"\{\{(.+?)\}\}", fill, template)


def page() -> str:
    """The page as it must be."""
    chaos = json.loads(CHAOS.read_text(encoding="utf-8")) if CHAOS.exists() else {}
    return render(TEMPLATE.read_text(encoding="utf-8"), json.loads(FIGURES.read_text(encoding="utf-8")), chaos)


def main() -> None:
    """Take in the files named on the command line and write the page."""
    known = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else []
    for name in sys.argv[1:]:
        known = merge(known, [json.loads(line) for line in Path(name).read_text(encoding="utf-8").splitlines()])
    FIGURES.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
