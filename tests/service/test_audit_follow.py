"""`sluice audit ... --follow`: what comes is shown, under its headings, also after the database was
away."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from db.write.insert import AuditInserter
from tests.support.checks.record import (
    call_id,
    call_record,
    now_ms,
    rows,
    tool_call_record,
    whole_call,
)
from tests.support.clients.commands import audit, insert_all
from tests.support.servers.up import DEAF


@pytest.mark.slow
@pytest.mark.parametrize("command", ["calls", "tool-calls"])
def test_follow_shows_what_comes(call: str, url: str, command: str) -> None:
    env = os.environ | {"SLUICE_DATABASE_URL": url, "PYTHONUNBUFFERED": "1"}
    later, ongoing = call_id(), call_id()
    # a command that somebody's script runs in the background ends at SIGINT as any other
    before = DEAF if command == "calls" else ()
    process = subprocess.Popen(
        [*before, sys.executable, "-m", "sluice.cli", "audit", command, "--follow", "--json"],
        env=env,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["call_id"] == call

        async def insert() -> None:
            async with AuditInserter(url) as inserter:
                assert not await inserter.insert([call_record(ongoing), *whole_call(later)], {})

        asyncio.run(insert())
        assert json.loads(process.stdout.readline())["call_id"] == later
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=30)
        assert (rest, process.returncode) == ("", 0)
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def following(url: str) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `sluice audit ... --follow`, and ends it."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **env: str) -> subprocess.Popen[str]:
        environment = os.environ | {"SLUICE_DATABASE_URL": url, "PYTHONUNBUFFERED": "1"} | env
        command = [sys.executable, "-m", "sluice.cli", "audit", *arguments, "--follow"]
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_follow_keeps_what_it_shows_under_its_headings(
    url: str, following: Callable[..., subprocess.Popen[str]]
) -> None:
    process = following(
        "tool-calls", _SLUICE_TERMINAL="1", COLUMNS="100", TERM="xterm", NO_COLOR="1"
    )
    assert process.stdout is not None and process.stderr is not None
    assert "waiting for tool calls" in process.stderr.readline()
    one, other = call_id(), call_id()
    insert_all(url, call_record(one), tool_call_record(one))
    heading, _, line = (process.stdout.readline() for _ in range(3))
    assert line.index("block") == heading.index("verdict") and one[:13] in line
    insert_all(
        url, call_record(other), tool_call_record(other, executor="provider", name="web_search")
    )
    heading, line = (process.stdout.readline() for _ in range(2))
    assert (
        "run by" in heading
        and line.index("block") == heading.index("verdict")
        and line.index("provider") == heading.index("run by")
    )
    # both began in one millisecond
    assert other.startswith(line.split()[1]) and not one.startswith(line.split()[1])


@pytest.mark.slow
def test_follow_takes_a_limit_and_refuses_what_does_not_go_with_it(
    url: str, following: Callable[..., subprocess.Popen[str]]
) -> None:
    old = [call_id(now_ms() - hours * 3_600_000) for hours in (5, 4, 3)]
    insert_all(
        url, *(record for call in old for record in (call_record(call), tool_call_record(call)))
    )
    process = following("tool-calls", "--limit", "2", "--since", "1d", "--json")
    assert process.stdout is not None
    assert [json.loads(process.stdout.readline())["call_id"] for _ in range(2)] == old[1:]
    for option in (("--until", "1h"), ("--cursor", "x"), ("--order", "asc")):
        told = audit("calls", "--follow", *option)
        assert told.exit_code == 2 and f"{option[0]}: does not go with --follow" in told.stderr


@pytest.mark.slow
def test_follow_goes_on_when_the_database_comes_back(
    url: str, following: Callable[..., subprocess.Popen[str]]
) -> None:
    process = following("calls", "--json")
    assert process.stdout is not None and process.stderr is not None
    assert "waiting for calls" in process.stderr.readline()
    rows(url, "ALTER TABLE calls RENAME TO calls_away")
    assert "trying again" in process.stderr.readline()
    rows(url, "ALTER TABLE calls_away RENAME TO calls")
    later = call_id()
    insert_all(url, *whole_call(later))
    assert json.loads(process.stdout.readline())["call_id"] == later
