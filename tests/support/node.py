"""Clients in JavaScript: installed once for each content of package.json, run as their users run them."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.recordings import ROOT

CLIENTS = ROOT / "tests" / "clients"
CACHE = ROOT / ".cache"
OLDEST_NODE = 20
INSTALL_S = 120
RUN_S = 45
INSTALL = ["install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]


def _missing(reason: str) -> None:
    """Skip, or fail where nothing may be missing."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def installed() -> Path:
    """A folder with the packages of tests/clients/package.json, installed unless an earlier run did; skips where that cannot be."""
    if not shutil.which("node") or not shutil.which("npm"):
        _missing("node or npm is missing")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    found = re.match(r"v(\d+)\.", version)
    if not found or int(found[1]) < OLDEST_NODE:
        _missing(f"node {OLDEST_NODE} or newer is needed; this is {version.strip()}")
    wanted = (CLIENTS / "package.json").read_bytes()
    folder = CACHE / f"clients-{hashlib.sha256(wanted).hexdigest()[:12]}"
    if not folder.exists():
        CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as name:
            part = Path(name) / "clients"
            part.mkdir()
            (part / "package.json").write_bytes(wanted)
            try:
                done = subprocess.run(["npm", *INSTALL], cwd=part, capture_output=True, text=True, timeout=INSTALL_S, check=False)
            except subprocess.TimeoutExpired:
                _missing("the packages could not be installed in time")
            else:
                if done.returncode:
                    _missing(f"the packages could not be installed: {done.stderr[-500:]}")
            try:
                part.rename(folder)
            except OSError:
                # another process was first
                assert folder.exists()
    return folder


def run_script(folder: Path, name: str, place: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Run one of the scripts of tests/clients with its packages; returns its answers by the name of the case."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        # node looks for packages in the folders above the script's
        for script in CLIENTS.glob("*.mjs"):
            shutil.copy(script, own)
        command = ["node", str(Path(own) / name), json.dumps(place)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}
