"""The product's own fork server (sluice/up/forks.py) for tests: hundreds of roles, each of which
would import modules for a second."""

import atexit
import os
import socket
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from sluice.processes import Spec
from sluice.up.forks import Forked, ForkServer

ROOT = Path(__file__).resolve().parents[3]
START_S = 60.0
_SERVE = """
import os, sys
from sluice.cli import main
from sluice.up.forks import SHARED, _exit_after, _serve
_exit_after(_serve, int(sys.argv[1]), os.getppid(), SHARED, main)
"""


@cache
def _server() -> ForkServer:
    """Start it by its command line: this process has threads, and cannot fork it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")} | {
        "PYTHONPATH": str(ROOT)
    }
    theirs.set_inheritable(True)
    # ForkServer waits for it: it is nobody's Popen
    pid = os.posix_spawn(
        sys.executable, [sys.executable, "-c", _SERVE, str(theirs.fileno())], environment
    )
    theirs.close()
    ours.settimeout(START_S)
    assert ours.recv(100) == b"ready"
    server = ForkServer(ours, pid)
    atexit.register(server.close)
    return server


def start(role: Sequence[str], env: dict[str, str], log: Path, *, ready_fd: int) -> Forked | None:
    """Start what the command line `sluice ROLE` would be; None where it has to be started by
    that."""
    argv = (sys.executable, "-m", "sluice.cli", *role)
    return _server().spawn(
        Spec(name=role[-1], argv=argv, role=role, env=env, cwd=ROOT, log=log), ready_fd=ready_fd
    )
