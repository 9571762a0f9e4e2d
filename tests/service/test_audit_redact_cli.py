"""`sluice audit redact` and `drop` ask before they delete."""

import json
import os
import pty
import re

import pytest

from tests.support.checks.record import rows
from tests.support.clients.commands import run_command, sluice


@pytest.mark.slow
def test_redaction_is_done_only_where_somebody_said_yes(call: str, url: str) -> None:
    told = sluice("audit", "redact", call[:13], "--reason", "x", url=url)
    assert (
        told.returncode == 2
        and "--yes" in told.stderr
        and "--dry-run" in told.stderr
        and call in told.stderr
    )
    told = sluice("audit", "redact", call, "--reason", "x", "--dry-run", "--json", url=url)
    would = json.loads(told.stdout)
    assert (told.returncode, would["call_id"], would["dry_run"]) == (0, call, True) and would[
        "rows"
    ] > 1
    assert "rm -rf" in sluice("audit", "show", call, "--json", url=url).stdout
    told = sluice("audit", "redact", call[:13], "--reason", "x", "--yes", "--json", url=url)
    assert json.loads(told.stdout) == would | {"dry_run": False}
    assert "rm -rf" not in sluice("audit", "show", call, "--json", url=url).stdout
    shown = sluice("audit", "show", call, url=url).stdout
    assert (
        "it was redacted, or lost" in shown
        and "(redacted)" in shown
        and re.search(r"^redacted .* by \w+: x$", shown, re.MULTILINE)
    )
    seals = rows(url, "SELECT count(*) FROM seals")
    again = sluice("audit", "redact", call, "--reason", "again", "--yes", url=url)
    assert again.returncode == 0 and "nothing to do" in again.stderr
    assert (
        rows(url, "SELECT count(*) FROM seals") == seals
        and "again" not in sluice("audit", "show", call, url=url).stdout
    )


@pytest.mark.slow
def test_on_a_terminal_redaction_and_dropping_ask(call: str, url: str, redis_url: str) -> None:
    answered = ask(url, b"n\n", "audit", "redact", call, "--reason", "x")
    assert "Go on?" in answered and "nothing was done" in answered and call in answered
    assert "with the key dev, tools: bash" in answered
    interrupted = ask(url, b"\x04", "audit", "redact", call, "--reason", "x")
    assert "nothing was done" in interrupted and "Aborted" not in interrupted
    assert "rm -rf" in sluice("audit", "show", call, "--json", url=url).stdout
    assert "redacted" in ask(url, b"y\n", "audit", "redact", call, "--reason", "x")
    assert "rm -rf" not in sluice("audit", "show", call, "--json", url=url).stdout
    for before in ("2020-01-01", "1960-01-01", "30d", "yesterday"):
        told = sluice(
            "audit",
            "drop",
            "--before",
            before,
            "--reason",
            "x",
            "--yes",
            url=url,
            redis_url=redis_url,
        )
        assert (
            told.returncode == 0 and "nothing to do: no call on record began before" in told.stderr
        )
    assert (
        "--before" in sluice("audit", "drop", "--before", "never", "--reason", "x", url=url).stderr
    )
    dry = sluice(
        "audit",
        "drop",
        "--before",
        "2020-01-01",
        "--reason",
        "x",
        "--dry-run",
        "--json",
        url=url,
        redis_url=redis_url,
    )
    assert json.loads(dry.stdout)["calls"] == 0


def ask(url: str, answer: bytes, *arguments: str) -> str:
    """Run a command with a terminal as its standard input, and give it an answer; returns what it
    says."""
    here, there = pty.openpty()
    try:
        os.write(here, answer)
        env = os.environ | {"SLUICE_DATABASE_URL": url, "NO_COLOR": "1", "TERM": "dumb"}
        done = run_command(*arguments, env=env, terminal=os.ttyname(there))
        return done.stdout + done.stderr
    finally:
        os.close(here)
        os.close(there)
