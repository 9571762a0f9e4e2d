"""Tiny processes for tests of the launcher: they say that they are ready, and live, crash or refuse
as told."""

import sys
from pathlib import Path

from sluice.processes import Spec

_READY = "import os, sys, time; fd = int(sys.argv[-1]); os.write(fd, b'ready\\n'); os.close(fd); "
_DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "


def child(folder: Path, name: str, code: str) -> Spec:
    """A Python process that runs `code`; the descriptor to say ready on is its last argument."""
    return Spec(name, [sys.executable, "-I", "-S", "-c", code], folder / f"{name}.log")


def living(folder: Path, name: str, *, deaf: bool = False) -> Spec:
    """One that becomes ready and stays; `deaf` ones do not listen to SIGTERM."""
    return child(folder, name, (_DEAF if deaf else "") + _READY + "time.sleep(600)")


def refusing(folder: Path, name: str, line: str) -> Spec:
    """One that says on its descriptor why it cannot start."""
    return child(
        folder, name, f"import os, sys; os.write(int(sys.argv[-1]), {line!r}.encode()); sys.exit(1)"
    )


def crashing(folder: Path, name: str) -> Spec:
    """One that dies with a last line in its log."""
    return child(folder, name, "import sys; sys.exit('no such planet')")


def silent(folder: Path, name: str) -> Spec:
    """One that never becomes ready."""
    return child(folder, name, "import time; time.sleep(600)")
