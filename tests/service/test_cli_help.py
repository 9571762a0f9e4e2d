"""Help of the command line, what it answers to what is misspelt, and the page of screens."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts import screens
from settings.defaults import VERSION
from tests.support.checks.record import (
    fresh_database,
)
from tests.support.clients.commands import ROOT, run_command, sluice


@pytest.fixture
def url(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with fresh_database(database_url) as fresh:
        monkeypatch.setenv("SLUICE_DATABASE_URL", fresh)
        yield fresh


@pytest.mark.slow
def test_the_command_line_helps() -> None:
    for asked in ("--version", "-V", "version"):
        told = sluice(asked)
        assert (told.returncode, told.stdout) == (0, f"sluice {VERSION}\n")
    for arguments in (
        ("-h",),
        ("audit", "-h"),
        ("audit", "calls", "-h"),
        ("keys", "-h"),
        ("worker", "-h"),
        ("worker", "policy", "-h"),
    ):
        told = sluice(*arguments)
        assert told.returncode == 0 and "Usage" in told.stdout, told.stderr
    assert "8080" in (up := sluice("up", "-h").stdout) and ".sluice" in up
    assert "local time" in " ".join(sluice("audit", "calls", "-h").stdout.replace("│", " ").split())


LOADED = """
import contextlib, sys
from sluice.cli import main
with contextlib.suppress(SystemExit): main()
print(*sys.modules.keys() & {"sqlalchemy", "alembic", "fastapi", "jinja2", "redis", "numpy"}, file=sys.stderr)
"""


@pytest.mark.parametrize(
    "command",
    [
        "",
        "keys",
        "keys create",
        "audit",
        "audit calls",
        "audit verify",
        "tail",
        "eval",
        "doctor",
        "connect",
    ],
)
def test_help_loads_no_library_that_only_work_needs(command: str) -> None:
    asked = [sys.executable, "-c", LOADED, *command.split(), "--help"]
    told = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert "Usage" in told.stdout and told.stderr.split() == []


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("audti",), "audit"),
        (("keyz",), "keys"),
        (("migrat",), "migrate"),
        (("audit", "tool-call"), "tool-calls"),
        (("keys", "creat"), "create"),
        (("versoin",), "version"),
        (("worker", "polic"), "policy"),
        (("audit", "calls", "--stat", "x"), "--state"),
        (("--versio",), "--version"),
        (("audit", "redakt"), "redact"),
    ],
)
def test_what_is_misspelt_is_answered_with_what_may_be_meant(
    arguments: tuple[str, ...], meant: str
) -> None:
    told = sluice(*arguments)
    assert told.returncode == 2 and re.search(
        rf"(Did you mean|Possible options).*{meant}", " ".join(told.stderr.split())
    ), told.stderr


@pytest.mark.slow
def test_the_page_of_screens_is_what_the_commands_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        made = screens.make_page(tmp_path)
    time.tzset()
    assert made == screens.PAGE.read_text(), "make it anew: python -m scripts.screens"
    width = 0
    for line in made.splitlines():
        width = int(line.split()[0]) if line.endswith(" columns:") else width
        assert not width or len(line) <= width or line.startswith(("$", "#")), line


def test_shells_can_complete() -> None:
    for words, completed in (
        ("audit to", ["tool-calls"]),
        ("audit calls --state E", ["ENDED"]),
        ("audit tool-calls --verdict b", ["block"]),
    ):
        env = os.environ | {
            "_SLUICE_COMPLETE": "complete_bash",
            "COMP_WORDS": f"sluice {words}",
            "COMP_CWORD": str(len(words.split())),
        }
        told = run_command(env=env)
        assert told.stdout.split() == completed, told.stderr
