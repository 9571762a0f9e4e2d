"""Starting, restarting, ending and sweeping processes, with tiny ones instead of ours."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from sluice import processes
from sluice.errors import NotFit, StartError
from sluice.processes import recall, remember, spawn, started_at, sweep
from sluice.up import supervisor
from sluice.up.supervisor import Supervisor
from tests.support.servers.children import crashing, living, refusing, silent
from tests.support.waiting import wait_for, wait_until

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
async def kept(tmp_path: Path, said: list[str]) -> AsyncIterator[Supervisor]:
    with Supervisor(tmp_path / "run", said.append) as opened:
        yield opened
        await opened.stop(opened.names, grace_s=2)


def has_said(said: list[str], lines: int) -> bool:
    return len(said) == lines


def is_running(pid: int) -> bool:
    return started_at(pid) is not None


async def test_start_waits_until_all_are_ready(kept: Supervisor, tmp_path: Path) -> None:
    await kept.start([living(tmp_path, "a"), living(tmp_path, "b")], timeout_s=10)
    assert set(kept.pids) == {"a", "b"}
    assert all(os.getpgid(pid) == pid for pid in kept.pids.values())
    assert all(recall(tmp_path / "run" / f"{name}.json") == pid for name, pid in kept.pids.items())


async def test_a_crashed_process_is_restarted_with_growing_pauses_and_said_so(
    kept: Supervisor, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_S", 0.01)
    await kept.start([living(tmp_path, "a")], timeout_s=10)
    for times in (1, 2, 3):
        os.kill(kept.pids["a"], signal.SIGKILL)
        await wait_until(partial(has_said, said, 2 * times))
    assert said[0].startswith("a was killed by SIGKILL: it is started again in 0.01 s")
    assert said[1] == f"a is back (pid {said[1].split()[-1]}"
    assert [line.split(" in ")[1].split()[0] for line in said[::2]] == ["0.01", "0.02", "0.04"]


async def test_a_process_that_refuses_ends_the_start_with_its_own_sentence(
    kept: Supervisor, tmp_path: Path
) -> None:
    with pytest.raises(NotFit, match=r"^run `sluice migrate`$"):
        await kept.start(
            [living(tmp_path, "a"), refusing(tmp_path, "b", "4 run `sluice migrate`\n")],
            timeout_s=10,
        )


async def test_a_process_that_dies_before_it_is_ready_ends_the_start_with_its_last_line(
    kept: Supervisor, tmp_path: Path
) -> None:
    with pytest.raises(
        StartError, match="b ended with exit code 1 before it was ready: no such planet"
    ):
        await kept.start([crashing(tmp_path, "b")], timeout_s=10)


async def test_a_process_that_never_gets_ready_is_named(kept: Supervisor, tmp_path: Path) -> None:
    with pytest.raises(StartError, match="b was not ready after 0 s"):
        await kept.start([silent(tmp_path, "b")], timeout_s=0.2)


async def test_a_probe_is_asked_where_a_process_cannot_say_it(
    kept: Supervisor, tmp_path: Path
) -> None:
    answers = iter([False, False, True])
    await kept.start(
        [replace(silent(tmp_path, "server"), is_ready=lambda: next(answers))], timeout_s=10
    )
    assert next(answers, None) is None


async def test_stop_ends_and_kills_those_that_do_not_listen(
    kept: Supervisor, tmp_path: Path, said: list[str]
) -> None:
    await kept.start([living(tmp_path, "a"), living(tmp_path, "deaf", deaf=True)], timeout_s=10)
    pids = kept.pids
    await kept.stop(["a", "deaf"], grace_s=0.3)
    assert not any(is_running(pid) for pid in pids.values())
    assert said == ["deaf did not end within 0 s and is killed"]
    assert list((tmp_path / "run").glob("*.json")) == []
    assert kept.names == []


async def test_a_disk_that_takes_nothing_more_ends_no_process(
    kept: Supervisor, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_S", 0.01)
    await kept.start([living(tmp_path, "a")], timeout_s=10)
    # a pid file can neither be written nor removed, a log not be opened
    (tmp_path / "run" / "a.part").mkdir()
    (tmp_path / "run" / "a.json").unlink()
    (tmp_path / "run" / "a.json").mkdir()
    (tmp_path / "a.log").unlink()
    (tmp_path / "a.log").mkdir()
    os.kill(kept.pids["a"], signal.SIGKILL)
    await wait_until(partial(has_said, said, 3))
    assert said[1].endswith(
        "a.json cannot be written (Is a directory): make room on its disk. a runs on"
    )
    assert said[2].startswith("a is back")
    pids = kept.pids
    await kept.stop(["a"], grace_s=2)
    assert "a.json cannot be removed" in said[3] and len(said) == 4
    assert not is_running(pids["a"]) and kept.names == []


async def test_a_server_that_somebody_else_told_to_end_is_ended_and_started_again(
    kept: Supervisor, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_S", 0.01)
    told = tmp_path / "told"
    server = replace(silent(tmp_path, "server"), is_ready=lambda: True, is_stopping=told.exists)
    await kept.start([server], timeout_s=10)
    first = kept.pids["server"]
    told.touch()
    await wait_until(partial(has_said, said, 2))
    told.unlink()
    await wait_until(partial(has_said, said, 3))
    assert (
        "told to stop by somebody else" in said[0]
        and "was killed by SIGTERM" in said[1]
        and "is back" in said[2]
    )
    assert kept.pids["server"] != first


async def test_impatience_restarts_nothing(
    kept: Supervisor, tmp_path: Path, said: list[str]
) -> None:
    await kept.start([living(tmp_path, "deaf", deaf=True), living(tmp_path, "b")], timeout_s=10)
    pids = kept.pids
    stopping = asyncio.create_task(kept.stop(["deaf"], grace_s=30))
    await asyncio.sleep(0)
    kept.kill_now()
    await stopping
    await wait_until(lambda: not any(is_running(pid) for pid in pids.values()))
    assert said == []


async def test_watch_ends_when_a_process_cannot_be_started_again(
    kept: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_S", 0.01)
    await kept.start([living(tmp_path, "a")], timeout_s=10)

    def fail(*_: object, **__: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(supervisor, "spawn", fail)
    os.kill(kept.pids["a"], signal.SIGKILL)
    with pytest.raises(OSError, match="no more processes"):
        await asyncio.wait_for(kept.watch(), 10)


def test_sweep_ends_what_is_written_down_and_kills_the_deaf(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    left = []
    for spec in (living(tmp_path, "a"), living(tmp_path, "deaf", deaf=True)):
        reading, writing = os.pipe()
        process = spawn(spec, ready_fd=writing)
        os.close(writing)
        assert os.read(reading, 6) == b"ready\n"
        os.close(reading)
        remember(run_dir / f"{spec.name}.json", process.pid)
        left.append(process)
    assert sweep(run_dir, grace_s=0.3) == ["a", "deaf"]
    assert [process.wait(5) for process in left] == [-signal.SIGTERM, -signal.SIGKILL]
    assert sweep(run_dir, grace_s=0.3) == []


def test_a_reused_pid_is_never_ended(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "a.json").write_text(json.dumps({"pid": os.getpid(), "started_at": "earlier"}))
    (run_dir / "b.json").write_text("{")
    assert sweep(run_dir, grace_s=0.3) == []
    assert not list(run_dir.iterdir())


@pytest.mark.skipif(
    not processes.ON_LINUX, reason="only Linux tells a process that its parent died"
)
def test_a_killed_parent_takes_its_processes_along(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib, time; from tests.support.servers.children import silent; from"
        " sluice.processes import spawn; print(spawn(silent(pathlib.Path(sys.argv[1]), 'a')).pid,"
        " flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert is_running(pid)
    parent.kill()
    parent.communicate()
    wait_for(lambda: not is_running(pid))


def test_a_zombie_is_not_running(tmp_path: Path) -> None:
    process = spawn(crashing(tmp_path, "a"))
    deadline = time.monotonic() + 10
    while started_at(process.pid) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.wait()
