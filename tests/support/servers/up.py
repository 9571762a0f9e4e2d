"""`sluice up` as a user runs it: started, asked, stopped."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sluice.processes import heed_hangup
from tests.support.json_values import Json, as_json
from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[3]
START_S = 45.0
DEAF = ("sh", "-c", "trap '' INT HUP QUIT TERM; exec \"$@\"", "sh")
"""Starts a command with the signals ignored that would stop it, as `nohup` and a script's
background jobs have some of them."""
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("SLUICE_", "MAKE"))}


@dataclass
class Up:
    """A running launcher."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path

    def said(self) -> str:
        """What it wrote to standard error."""
        return self.err.read_text()

    def ready(self) -> Json:
        """Wait for the object that `--json` prints, and return it."""
        found: Json = json.loads(self.printed())
        return found

    def printed(self) -> str:
        """Wait for standard output and return it."""

        def there() -> bool:
            assert self.process.poll() is None, self.said()
            return self.out.read_text().endswith("\n")

        wait_for(there, timeout_s=START_S, what="ready")
        return self.out.read_text()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send the signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(START_S)


@contextmanager
def up(
    data_dir: Path, folder: Path, *arguments: str, before: tuple[str, ...] = (), **environment: str
) -> Iterator[Up]:
    """Start a launcher, by `before` if that is given; whatever the test did, nothing of it is left
    afterwards."""
    command = [
        *before,
        sys.executable,
        "-m",
        "sluice.cli",
        "up",
        "--data-dir",
        str(data_dir),
        *arguments,
    ]
    out, err = folder / "out", folder / "err"
    with open(out, "wb") as stdout, open(err, "wb") as stderr:
        env = {**ENVIRONMENT, **environment}
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=env,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            preexec_fn=heed_hangup,
        )
    try:
        yield Up(process, out, err)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(START_S)


def ask(ready: Json, path: str, body: Any = None) -> Json:
    """Send one request with the launcher's key and return the decoded answer."""
    data = None if body is None else as_json(body)
    headers = {"authorization": f"Bearer {ready['key']}", "content-type": "application/json"}
    with urllib.request.urlopen(
        urllib.request.Request(ready["url"] + path, data, headers), timeout=20
    ) as answer:
        found: Json = json.load(answer)
        return found
