"""`sluice run` and `sluice connect` against a running product, with a program that stands in for an
agent."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.clients.commands import run_command
from tests.support.json_values import Json
from tests.support.servers.up import ENVIRONMENT, ROOT, ask, up
from tests.support.waiting import wait_for

AGENT = f"""#!{sys.executable}
import json, os, sys, urllib.request
from tests.support.clients.commands import run_command
env = os.environ
headers = {{"content-type": "application/json", "authorization": "Bearer " + env["ANTHROPIC_AUTH_TOKEN"]}}
headers.update([line.split(": ", 1) for line in env.get("ANTHROPIC_CUSTOM_HEADERS", "").split("\\n") if line])
body = {{"model": env["ANTHROPIC_MODEL"], "max_tokens": 64, "messages": [{{"role": "user", "content": sys.stdin.read()}}]}}
request = urllib.request.Request(env["ANTHROPIC_BASE_URL"] + "/v1/messages", json.dumps(body).encode(), headers)
with urllib.request.urlopen(request, timeout=20) as answer:
    said = json.load(answer)["content"][0]["text"]
print(json.dumps({{"said": said, "argv": sys.argv[1:], "key": env["ANTHROPIC_AUTH_TOKEN"],
                  "left": [name for name in env if name.startswith("SLUICE_") or name == "ANTHROPIC_API_KEY"]}}))
sys.exit(7)
"""


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Json]:
    folder = tmp_path_factory.mktemp("connect")
    with up(folder / "data", folder, "--json", "--port", "0") as running:
        yield running.ready()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "bin" / "claude"
    path.parent.mkdir()
    path.write_text(AGENT)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return tmp_path


def sluice(
    product: Json, home: Path, *arguments: str, stdin: str = "", **more: str
) -> subprocess.CompletedProcess[str]:
    path = f"{home / 'bin'}:{os.environ['PATH']}"
    own = {
        "SLUICE_DATA_DIR": product["data_dir"],
        "HOME": str(home),
        "PATH": path,
        "PYTHONPATH": str(ROOT),
        "USER": "kim",
        "LOGNAME": "kim",
    }
    return run_command(*arguments, cwd=home, env={**ENVIRONMENT, **own, **more}, stdin=stdin)


def listed(product: Json, call_id: str) -> bool:
    return call_id in [call["call_id"] for call in ask(product, "/audit/calls")["items"]]


@pytest.mark.slow
def test_an_agent_runs_with_a_key_and_a_session_of_its_own(product: Json, home: Path) -> None:
    told = sluice(
        product,
        home,
        "run",
        "--",
        "claude",
        "-p",
        "--model",
        "x",
        stdin="hello",
        ANTHROPIC_API_KEY="sk-ant-other",
    )
    assert told.returncode == 7, told.stderr
    got = json.loads(told.stdout)
    assert (
        "demo model" in got["said"] and got["argv"] == ["-p", "--model", "x"] and got["left"] == []
    )
    assert got["key"] != product["key"] and got["key"] not in told.stderr
    kept = Path(product["data_dir"]) / "agents" / "claude-kim.key"
    assert kept.read_text() == got["key"] and kept.stat().st_mode & 0o077 == 0
    session = told.stderr.split("/debug/sessions/claude-kim/")[1].split()[0]
    calls = wait_for(
        lambda: ask(product, f"/audit/calls?key=claude-kim&session={session}")["items"]
    )
    assert len(calls) == 1
    again = sluice(product, home, "connect", "claude")
    assert f"ANTHROPIC_AUTH_TOKEN={got['key']}" in again.stdout, "the key is made once"
    missing = sluice(product, home, "run", "--", "no-such-agent")
    assert missing.returncode == 127 and "no such command" in missing.stderr
    assert [path.name for path in kept.parent.iterdir()] == ["claude-kim.key"], (
        "no key is made for what cannot run"
    )
    printed = sluice(product, home, "connect", "aider")
    assert (
        "made the key aider-kim" in printed.stderr
        and "made the key" not in printed.stdout + again.stderr
    )


@pytest.mark.slow
def test_a_check_says_where_its_call_is(product: Json, home: Path) -> None:
    for agent in ("claude", "aider"):
        told = sluice(product, home, "connect", agent, "--check")
        assert told.returncode == 0, told.stderr
        call_id = told.stdout.strip().removeprefix(f"{product['url']}/debug/calls/")
        wait_for(partial(listed, product, call_id))
    told = sluice(product, home, "connect", "aider", "--check", "--model", "no-such-model")
    assert told.returncode == 1 and "refused it (404)" in told.stderr


@pytest.mark.slow
def test_its_file_is_written_and_put_back(product: Json, home: Path) -> None:
    settings = home / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"theme": "dark"}')
    asked = sluice(product, home, "connect", "claude", "--write")
    assert (
        asked.returncode == 2
        and "--yes" in asked.stderr
        and settings.read_text() == '{"theme": "dark"}'
    )
    assert sluice(product, home, "connect", "claude", "--write", "--yes").returncode == 0
    assert json.loads(settings.read_text())["env"]["ANTHROPIC_BASE_URL"] == product["url"]
    assert sluice(product, home, "connect", "claude", "--undo").returncode == 0
    assert settings.read_text() == '{"theme": "dark"}'
    assert sluice(product, home, "connect", "claude", "--undo").returncode == 1


@pytest.mark.slow
def test_a_key_that_reads_the_record_is_no_key_for_an_agent(product: Json, home: Path) -> None:
    for key, said in (
        (product["key"], "may read the record"),
        ("sk-sluice-wrong", "does not take SLUICE_KEY"),
    ):
        told = sluice(product, home, "connect", "claude", SLUICE_KEY=key)
        assert told.returncode == 2 and said in told.stderr and key not in told.stderr + told.stdout
    away = sluice(
        product, home, "run", "--", "claude", SLUICE_URL="http://127.0.0.1:9", SLUICE_KEY="x"
    )
    assert away.returncode == 3 and "no gateway answers" in away.stderr
    none = sluice(product, home, "run", "--", "claude", SLUICE_DATA_DIR=str(home))
    assert none.returncode == 2 and "no `sluice up` runs" in none.stderr
