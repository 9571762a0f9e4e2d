"""The catalogue and the tests agree."""

import ast
import functools
import json
from pathlib import Path

from scripts import reliability
from tests.faults.catalogue import AREAS, CASES

TESTS = Path(__file__).resolve().parent.parent


@functools.cache
def named() -> dict[str, list[str]]:
    """Cases that tests name, with the tests."""
    found: dict[str, list[str]] = {}
    for path in TESTS.rglob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "mark.case(" in text else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.case":
                for arg in node.args:
                    found.setdefault(ast.literal_eval(arg), []).append(path.name)
    return found


def test_every_case_is_of_an_area() -> None:
    assert {case.rstrip("0123456789") for case in CASES} == set(AREAS)


def test_every_case_of_priority_0_has_a_test_or_a_reason() -> None:
    tested = named()
    assert [
        c
        for c, case in CASES.items()
        if case.priority == 0 and c not in tested and not case.not_here
    ] == []


def test_a_case_that_cannot_be_tried_has_no_test() -> None:
    assert [c for c in named() if CASES[c].not_here] == []


def test_the_page_is_made_of_what_was_measured() -> None:
    assert reliability.PAGE.read_text(encoding="utf-8") == reliability.page(), (
        "run python -m scripts.reliability"
    )


def test_a_figure_of_several_cases_stands_once_on_the_page() -> None:
    one = {"tests": 1, "passed": 1, "figures": {"longest stall": "1 s", "not shown": "3"}}
    results = {"W1": one, "W3": one, "R1": one | {"figures": {"longest stall": "2 s"}}}
    assert reliability.measured("W", results) == "Measured: longest stall 1 s (W1, W3)."
    assert reliability.measured("R", results) == "Measured: longest stall 2 s (R1)."
    assert reliability.measured("C", results) == ""


def test_a_case_says_on_the_page_that_tests_are_missing_or_fail() -> None:
    said = reliability.table("S", {"S1": {"tests": 2, "passed": 1}})
    assert "(**1 of 2 tests passed**)" in said
    assert "(**no test yet**)" in said
    assert "there are no quotas" in reliability.table("C", {})
    passed = {c: {"tests": 1, "passed": 1, "figures": {}} for c in CASES}
    assert "**" not in reliability.table("S", passed)
    amiss = passed | {"S1": {"tests": 2, "passed": 1, "figures": {"longest stall": "2 s"}}}
    assert reliability.line("S", passed) == "- **Everything at once**:"
    assert reliability.line("S", amiss) == (
        "- **Everything at once**: longest stall 2 s (S1). S1 (a random mix of all of it on real"
        " processes): **1 of 2 tests passed**."
    )


def test_every_figure_that_the_page_shows_was_measured() -> None:
    figures = json.loads(reliability.FIGURES.read_text(encoding="utf-8")).values()
    assert {name for one in figures for name in one["figures"]} >= reliability.SHOWN
