"""The command line, run in this process or in one of its own.

A process of its own is forked from one that has imported all commands: there are a thousand of them
in a run of the tests, and each would import for more than a second.
"""

import asyncio
import io
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import cache
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from db.write.insert import AuditInserter
from protocol.records import Record
from sluice.audit import audit_cli

ROOT = Path(__file__).resolve().parents[3]


def audit(*arguments: str) -> Any:
    """Run `sluice audit` in this process."""
    return CliRunner().invoke(audit_cli.app, list(arguments), env={"COLUMNS": "220"})


def own_environment() -> dict[str, str]:
    """This process's, without what Sluice reads."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")}


def run_command(
    *arguments: str,
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
    stdin: str = "",
    terminal: str = "",
    timeout_s: float = 60.0,
) -> subprocess.CompletedProcess[str]:
    """Run what `sluice ARGUMENTS` would be, and wait for it. `terminal` is the path of one to read
    from in place of `stdin`.

    Raises subprocess.TimeoutExpired.
    """
    environment = dict(own_environment() if env is None else env)
    if "LD_PRELOAD" in environment or environment.get("PYTHONPATH", "").strip(":") not in (
        "",
        str(ROOT),
    ):
        # what is for the loader and the interpreter's start does not reach a fork
        whole = [sys.executable, "-m", "sluice.cli", *arguments]
        return subprocess.run(
            whole,
            env=environment,
            cwd=cwd,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "0").write_text(stdin)
        streams = [terminal or f"{name}/0", f"{name}/1", f"{name}/2"]
        process = _forks().Process(target=_be, args=(arguments, environment, str(cwd), streams))
        process.start()
        process.join(timeout_s)
        if process.is_alive():
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(arguments, timeout_s)
        assert process.exitcode is not None
        done = subprocess.CompletedProcess(
            arguments, process.exitcode, *((folder / stream).read_text() for stream in "12")
        )
        process.close()
        return done


@cache
def _forks() -> ForkServerContext:
    forks = multiprocessing.get_context("forkserver")
    modules = [
        f"sluice.{file.stem}" for file in (ROOT / "sluice").glob("*.py") if file.stem != "__init__"
    ]
    forks.set_forkserver_preload(
        [
            __name__,
            *modules,
            "gateway.main",
            "workers.policy.worker",
            "workers.audit.writer",
            "typer.rich_utils",
        ]
    )
    return forks


def _be(arguments: tuple[str, ...], env: dict[str, str], cwd: str, streams: list[str]) -> None:
    """Be the command, in a forked process."""
    for number, path in enumerate(streams):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    os.chdir(cwd)
    sys.path.insert(0, cwd)
    sys.argv = ["sluice", *arguments]
    from sluice.cli import main

    main()


def sluice(
    *arguments: str, url: str = "", redis_url: str = "", stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `sluice` with these stores in a process of its own."""
    given = {
        name: value
        for name, value in (("SLUICE_DATABASE_URL", url), ("SLUICE_REDIS_URL", redis_url))
        if value
    }
    return run_command(
        *arguments, env=own_environment() | {"NO_COLOR": "1", "TERM": "dumb"} | given, stdin=stdin
    )


def insert_all(url: str, *records: Record) -> None:
    """Put records into the database."""

    async def insert() -> None:
        async with AuditInserter(url) as inserter:
            assert not (await inserter.insert(list(records), {})).refused

    asyncio.run(insert())
