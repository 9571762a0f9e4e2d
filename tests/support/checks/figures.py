"""Which catalogue cases a test proves, and what it measured: a pytest plugin that feeds
docs/run/reliability.md.

`@pytest.mark.case("W1")` names cases of tests/faults/catalogue.py; an unknown id is an error. The
fixture `figure` takes a name, a value and a unit. With SLUICE_FIGURES set to a file, each marked
test appends one JSON line to it: its id, cases, outcome, seconds and figures; `scripts/reliability`
makes the page from such files. Every worker of pytest-xdist may write to the same file.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.catalogue import CASES

Figure = Callable[[str, float, str], None]
FILE = "SLUICE_FIGURES"
_figures = pytest.StashKey[list[tuple[str, float, str]]]()


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers", "long: process-level cases for which CI has no time; `make chaos` runs them"
    )
    config.addinivalue_line(
        "markers", "case(*ids): the cases of tests/faults/catalogue.py that this test proves"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse ids that are in no catalogue."""
    for item in items:
        if unknown := [c for c in cases_of(item) if c not in CASES]:
            raise pytest.UsageError(f"{item.nodeid}: no such case: {', '.join(unknown)}")


def cases_of(item: pytest.Item) -> list[str]:
    """The cases a test names, in order."""
    return list(dict.fromkeys(str(c) for mark in item.iter_markers("case") for c in mark.args))


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Figure:
    """A function that notes a measured value of this test: name, value, unit."""
    noted = request.node.stash.setdefault(_figures, [])
    return lambda name, value, unit: noted.append((name, round(value, 3), unit))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Write down a marked test once its body has run, was skipped, or failed before that."""
    report: pytest.TestReport = yield
    cases, path = cases_of(item), os.environ.get(FILE)
    if (
        cases
        and path
        and (report.when == "call" or (report.when == "setup" and report.outcome != "passed"))
    ):
        line = {
            "test": item.nodeid,
            "cases": cases,
            "outcome": report.outcome,
            "seconds": round(report.duration, 2),
            "figures": item.stash.get(_figures, []),
        }
        # one write of one line: lines of several processes do not mix
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    return report
