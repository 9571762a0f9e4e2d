"""A run of the tests ends whatever a test does, fails, and says where it stood: with the options of
`make test`."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checks import ending
from tests.support.servers.up import DEAF

pytestmark = pytest.mark.timeout(120)
ROOT = Path(__file__).resolve().parents[2]
HOLDS = """
import asyncio, subprocess, sys, threading, time
import pytest
from tests.support.waiting import wait_for, wait_until

def test_lock(): threading.Event().wait()
async def test_loop(): await asyncio.Event().wait()
async def test_condition(): await wait_until(lambda: "a line" == "no line", timeout_s=90)
def test_condition_not_async(): wait_for(lambda: None, timeout_s=90, what="a sign")
def test_process(): assert subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1, stdout=-1).stdout.readline() == b"x"
def test_passes(): pass
"""
DIES = """
import os, signal
def test_first(): pass
def test_second(): os.kill(os.getpid(), signal.SIGKILL)
def test_third(): pass
"""
STUBBORN = """
import time
import pytest
@pytest.fixture(scope="module")
def slow():
    yield
    while True:
        try: time.sleep(1)
        except BaseException: pass
def test_first(slow): pass
"""
PASSES = "def test_passes(): pass\n"


def run(
    folder: Path, *options: str, minutes: float = 1, before: tuple[str, ...] = (), **files: str
) -> tuple[int, str]:
    """Run these test files as `make test` does, on two processes; returns the exit code and all
    that it said."""
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    make = re.search(r"-m pytest (.*) \$\(ARGS\)", (ROOT / "Makefile").read_text())
    assert make is not None
    given = [one for one in make[1].split() if not one.startswith("tests/") and one != "--ignore"]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "SLUICE_"))} | {
        ending.MINUTES: str(minutes),
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [
            *before,
            sys.executable,
            "-m",
            "pytest",
            "-c",
            ROOT / "pyproject.toml",
            "--rootdir",
            folder,
            "-p",
            "tests.support.checks.ending",
            *given,
            "-n",
            "2",
            *options,
            folder,
        ],
        env=env,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_a_test_that_waits_fails_by_itself_and_says_for_what(tmp_path: Path) -> None:
    code, said = run(tmp_path, "--timeout", "2", holds=HOLDS)
    assert code == pytest.ExitCode.TESTS_FAILED and "5 failed, 1 passed" in said, said
    for what in (
        "threading.Event().wait()",
        "asyncio.Event().wait()",
        '"a line" == "no line"',
        ": a sign",
        "stdout.readline()",
    ):
        assert what in said, said


@pytest.mark.slow
def test_a_process_that_is_lost_ends_the_run_which_has_failed(tmp_path: Path) -> None:
    code, said = run(tmp_path, a=PASSES, b=DIES, c=PASSES)
    assert (
        code == pytest.ExitCode.TESTS_FAILED
        and "crashed while running" in said
        and "test_b.py::test_second" in said
    ), said


@pytest.mark.slow
def test_a_test_that_its_limit_does_not_end_takes_its_process_with_it(tmp_path: Path) -> None:
    (tmp_path / "grace.py").write_text(
        "from tests.support.checks import ending\nending.GRACE_S = 1\n"
    )
    code, said = run(tmp_path, "--timeout", "1", "-p", "grace", a=PASSES, b=STUBBORN)
    assert (
        code == pytest.ExitCode.TESTS_FAILED
        and "test_b.py::test_first" in said
        and "in slow" in said
    ), said


@pytest.mark.parametrize("processes", ["0", "2"])
@pytest.mark.slow
def test_the_run_has_a_bound_and_says_what_ran(tmp_path: Path, processes: str) -> None:
    code, said = run(tmp_path, "-n", processes, minutes=0.25, a=PASSES, b=HOLDS)
    assert code == pytest.ExitCode.INTERRUPTED and "not done after 0.25 minutes" in said, said
    assert re.search(r"^  test_b.py::test_lock, for \d+ s$", said, re.M), said


SIGNALS = """
import signal, subprocess
def test_child_is_interrupted():
    with subprocess.Popen(["sleep", "50"]) as child:
        child.send_signal(signal.SIGINT)
        assert child.wait(5) == -signal.SIGINT
"""


@pytest.mark.slow
def test_a_run_by_a_script_in_the_background_is_as_any_other(tmp_path: Path) -> None:
    code, said = run(tmp_path, before=DEAF, signals=SIGNALS)
    assert code == pytest.ExitCode.OK, said
