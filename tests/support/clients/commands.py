"""`sluice audit` and `sluice keys`, run in this process."""

import asyncio
import os
import subprocess
import sys
from typing import Any

from typer.testing import CliRunner

from db.write.insert import AuditInserter
from protocol.records import Record
from sluice import audit_cli


def audit(*arguments: str) -> Any:
    """Run `sluice audit` in this process."""
    return CliRunner().invoke(audit_cli.app, list(arguments), env={"COLUMNS": "220"})


def sluice(*arguments: str, url: str = "", redis_url: str = "", stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run `sluice` in a process of its own."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")} | {"NO_COLOR": "1", "TERM": "dumb"}
    given = {name: value for name, value in (("SLUICE_DATABASE_URL", url), ("SLUICE_REDIS_URL", redis_url)) if value}
    command = [sys.executable, "-m", "sluice.cli", *arguments]
    return subprocess.run(command, env=env | given, input=stdin or "", capture_output=True, text=True, timeout=60)


def insert_all(url: str, *records: Record) -> None:
    """Put records into the database."""

    async def insert() -> None:
        async with AuditInserter(url) as inserter:
            assert not (await inserter.insert(list(records), {})).refused

    asyncio.run(insert())
