"""Packages of clients that are no dependencies of the tests: installed once for each content of the
file that names them."""

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from tests.support.upstreams.recordings import ROOT

CLIENTS = ROOT / "tests" / "clients"
CACHE = ROOT / ".cache"
INSTALL_S = 120


def missing(reason: str) -> NoReturn:
    """Skip, or fail where nothing may be missing."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def installed(kind: str, wanted: Path, commands: Callable[[Path], list[list[str]]]) -> Path:
    """A folder with what the file `wanted` names, and that file; made by `commands`, given the
    folder, unless an earlier run did.

    Skips where that cannot be.
    """
    content = wanted.read_bytes()
    folder = CACHE / f"{kind}-{hashlib.sha256(content).hexdigest()[:12]}"
    if folder.exists():
        return folder
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        part = Path(name) / "clients"
        part.mkdir()
        (part / wanted.name).write_bytes(content)
        for command in commands(part):
            try:
                done = subprocess.run(
                    command,
                    cwd=part,
                    capture_output=True,
                    text=True,
                    timeout=INSTALL_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                missing("the packages could not be installed in time")
            if done.returncode:
                missing(f"the packages could not be installed: {done.stderr[-500:]}")
        try:
            part.rename(folder)
        except OSError:
            # another process was first
            assert folder.exists()
    return folder
