"""The fork server: what it makes is a child like any other, and without it everything still
starts."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sluice.processes import ON_LINUX, Spec, started_at
from sluice.up.forks import Forked, ForkServer
from tests.support.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(not ON_LINUX, reason="elsewhere nothing is forked")

# In a process of its own: this one has threads, so that it could not fork a server.
PARENT = """
import asyncio, json, os, sys
from pathlib import Path
from sluice.cli import main
from sluice.up.forks import ForkServer
from sluice.processes import Spec
mode, log = sys.argv[1], Path(sys.argv[2])
forks = ForkServer.start(main, ["no.such.module"] if mode == "broken" else [])
asyncio.run(forks.ready())
reading, writing = os.pipe()
role = ["worker", "policy"]
spec = Spec("one", [sys.executable, "-m", "sluice.cli", *role], log, env={"SLUICE_REDIS_URL": ""}, nice=5, role=role)
process = forks.spawn(spec, ready_fd=writing)
os.close(writing)
if process is None:
    print(json.dumps(None), flush=True)
    sys.exit()
group = os.getpgid(process.pid)
said = os.read(reading, 4096).decode()
code = process.wait(20)
print(json.dumps({"group": group == process.pid, "said": said, "code": code, "polled": process.poll()}), flush=True)
forks.close()
try:
    os.waitpid(-1, os.WNOHANG)
    sys.exit("a child is left")
except ChildProcessError:
    pass
"""


def run(mode: str, folder: Path) -> tuple[dict[str, object] | None, str]:
    """What the parent printed, and the log of what it forked."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
    done = subprocess.run(
        [sys.executable, "-c", PARENT, mode, str(folder / "log")],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=40,
    )
    assert done.returncode == 0, done.stderr
    log = folder / "log"
    return json.loads(done.stdout), log.read_text() if log.exists() else ""


def test_what_is_forked_is_a_child_that_says_why_it_cannot_start(tmp_path: Path) -> None:
    found, log = run("refused", tmp_path)
    assert found is not None
    assert found == {"group": True, "said": found["said"], "code": 2, "polled": 2}
    assert str(found["said"]).startswith("2 SLUICE_REDIS_URL is not set")
    assert "sluice: SLUICE_REDIS_URL is not set" in log, "its output goes to its own log"
    assert (tmp_path / "log").stat().st_mode & 0o077 == 0


def test_a_server_that_cannot_import_is_given_up(tmp_path: Path) -> None:
    assert run("broken", tmp_path) == (None, "")


def test_with_threads_nothing_is_forked(tmp_path: Path) -> None:
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    forks = ForkServer.start(lambda: None, [])
    reading, writing = os.pipe()
    spec = Spec("one", [sys.executable], tmp_path / "log", role=("gateway",))
    try:
        assert forks.spawn(spec, ready_fd=writing) is None
    finally:
        os.close(reading)
        os.close(writing)
        forks.close()
        over.set()
        other.join()


def test_a_forked_process_is_waited_for_with_patience() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    forked = Forked(process.pid)
    assert forked.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        forked.wait(0.05)
    forked.send_signal(signal.SIGKILL)
    assert forked.wait() == forked.poll() == -signal.SIGKILL
    forked.send_signal(signal.SIGKILL)  # nobody else's pid
    process.returncode = -signal.SIGKILL
    wait_for(lambda: started_at(process.pid) is None)
