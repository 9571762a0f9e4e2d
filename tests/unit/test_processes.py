"""Processes: known again by pid and start time, ended with their group, and never mistaken for a
later one."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.processes import Spec, end, recall, remember, spawn, started_at, sweep
from tests.support.waiting import wait_for

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True);"
    " time.sleep(60)"
)
IDLE = "print('up', flush=True); import time; time.sleep(60)"


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Put what a test started here: it is ended whatever happens."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()


def start(
    code: str, folder: Path, started: list[subprocess.Popen[bytes]]
) -> subprocess.Popen[bytes]:
    """Start Python code and wait for its first line."""
    log = folder / "log"
    process = spawn(Spec("idle", [sys.executable, "-c", code], log))
    started.append(process)
    wait_for(lambda: log.read_text().startswith("up"))
    return process


def test_process_is_known_again(tmp_path: Path, started: list[subprocess.Popen[bytes]]) -> None:
    process = start(IDLE, tmp_path, started)
    path = tmp_path / "idle.json"
    remember(path, process.pid)
    assert recall(path) == process.pid
    assert path.stat().st_mode & 0o777 == 0o600
    process.kill()
    wait_for(lambda: started_at(process.pid) is None)
    assert recall(path) is None


@pytest.mark.parametrize("kept", ["", "{}", "[]", '{"pid": "x", "started_at": 1}', "no json"])
def test_broken_pid_file_names_nobody(tmp_path: Path, kept: str) -> None:
    (tmp_path / "a.json").write_text(kept)
    assert recall(tmp_path / "a.json") is None


def test_other_process_with_the_same_pid_is_left_alone(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    process = start(IDLE, tmp_path, started)
    (tmp_path / "old.json").write_text(
        json.dumps({"pid": process.pid, "started_at": "an earlier one"})
    )
    assert sweep(tmp_path, grace_s=1) == []
    assert process.poll() is None
    assert not (tmp_path / "old.json").exists()


def test_sweep_ends_what_ignores_it(tmp_path: Path, started: list[subprocess.Popen[bytes]]) -> None:
    process = start(STUBBORN, tmp_path, started)
    remember(tmp_path / "idle.json", process.pid)
    assert sweep(tmp_path, grace_s=0.1) == ["idle"]
    assert process.wait() == -signal.SIGKILL


def test_end_asks_first_and_then_kills_the_group(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    polite = start(IDLE, tmp_path, started)
    end(polite, signal.SIGTERM, grace_s=5)
    assert polite.returncode == -signal.SIGTERM
    (tmp_path / "log").unlink()
    stubborn = start(STUBBORN, tmp_path, started)
    end(stubborn, signal.SIGTERM, grace_s=0.1)
    assert stubborn.returncode == -signal.SIGKILL


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells children of their parent's death"
)
def test_child_dies_with_its_parent(tmp_path: Path) -> None:
    code = f"""
import os, signal, sys
from pathlib import Path
from sluice.processes import Spec, spawn
child = spawn(Spec("idle", [sys.executable, "-c", {IDLE!r}], Path({str(tmp_path / "log")!r})))
print(child.pid, flush=True)
signal.pause()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        wait_for(lambda: (tmp_path / "log").read_text().startswith("up"))
        assert os.getpgid(pid) == pid
        parent.kill()
    wait_for(lambda: started_at(pid) is None)
