"""The catalogue and the tests agree."""

import ast
import functools
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
    one = {"tests": 1, "passed": 1, "figures": {"longest wait": "1 s"}}
    results = {"W1": one, "W3": one, "R1": one | {"figures": {"longest wait": "2 s"}}}
    assert reliability.measured("W", results).splitlines()[2:] == [
        "| W1, W3 | longest wait | 1 s |"
    ]
    assert reliability.measured("R", results).splitlines()[2:] == ["| R1 | longest wait | 2 s |"]
    assert reliability.measured("C", results) == ""
