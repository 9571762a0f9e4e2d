"""Clients in JavaScript: installed once for each content of package.json, run as their users run
them."""

import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.support.clients import packages
from tests.support.clients.packages import CLIENTS, missing
from tests.support.json_values import Json

OLDEST_NODE = 20
RUN_S = 300
INSTALL = [
    "npm",
    "install",
    "--no-package-lock",
    "--no-audit",
    "--no-fund",
    "--ignore-scripts",
    "--loglevel=error",
]


def installed() -> Path:
    """A folder with the packages of tests/clients/package.json; skips where that cannot be."""
    check_node()
    return packages.installed("clients", CLIENTS / "package.json", lambda _: [INSTALL])


def check_node() -> None:
    """Skip, or fail where nothing may be missing, without a node that is new enough."""
    if not shutil.which("node") or not shutil.which("npm"):
        missing("node or npm is missing")
    version = subprocess.run(
        ["node", "--version"], capture_output=True, text=True, check=True
    ).stdout
    found = re.match(r"v(\d+)\.", version)
    if not found or int(found[1]) < OLDEST_NODE:
        missing(f"node {OLDEST_NODE} or newer is needed; this is {version.strip()}")


def run_script(folder: Path, name: str, place: Json) -> dict[str, Json]:
    """Run one of the scripts of tests/clients with its packages; returns its answers by the name of
    the case."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        # node looks for packages in the folders above the script's
        for script in CLIENTS.glob("*.mjs"):
            shutil.copy(script, own)
        command = ["node", str(Path(own) / name), json.dumps(place)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}
