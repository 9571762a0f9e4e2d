"""Python clients with dependencies of their own: in an environment for each content of
tests/clients/requirements.txt."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.clients import packages
from tests.support.clients.packages import CLIENTS
from tests.support.json_values import Json

RUN_S = 300
# all versions stand in the file: nothing is looked for, which takes minutes, and nothing is built
INSTALL = [
    "install",
    "--quiet",
    "--require-hashes",
    "--no-deps",
    "--no-compile",
    "--only-binary=:all:",
    "--disable-pip-version-check",
]


def _commands(folder: Path) -> list[list[str]]:
    own = str(folder / "env")
    return [
        [sys.executable, "-m", "venv", own],
        [f"{own}/bin/python", "-m", "pip", *INSTALL, "-r", "requirements.txt"],
    ]


def run_script(name: str, place: Json) -> dict[str, Json]:
    """Run one of the scripts of tests/clients; returns its answers by the name of the case. Skips
    where it cannot be installed."""
    folder = packages.installed("frameworks", CLIENTS / "requirements.txt", _commands)
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("PYTHON", "LANGCHAIN_", "LANGSMITH_", "OPENAI_", "ANTHROPIC_"))
    }
    command = [
        str(folder / "env" / "bin" / "python"),
        "-I",
        "-W",
        "ignore",
        str(CLIENTS / name),
        json.dumps(place),
    ]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=RUN_S, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}
