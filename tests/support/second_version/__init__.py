"""Sluice as its next version may be: calls have a colour, ends a weight, and there is a table of
moods, all in a second sealed form.

It is made of the modules of this version, with some lines more, in a process of its own. Who calls
that goes on as the first version beside it, so a test sees both meet on one database.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

MIGRATION = """
from alembic import op
from db.migrations import sealed
from db.migrations.indexing import change_briefly

revision, down_revision = "r0099", "r0007"


def upgrade():
    change_briefly(op, "ALTER TABLE calls ADD COLUMN IF NOT EXISTS colour text")
    change_briefly(op, "ALTER TABLE ends ADD COLUMN IF NOT EXISTS weight int4")
    columns = "call_id uuid NOT NULL, block int4 NOT NULL, at timestamptz NOT NULL, words text NOT NULL, PRIMARY KEY (call_id, block)"
    op.execute(f"CREATE TABLE moods ({columns}) PARTITION BY RANGE (call_id)")
    op.execute("CREATE TABLE sluice_parts.moods_default PARTITION OF moods DEFAULT")
    change_briefly(op, "ALTER TABLE seals ALTER COLUMN made_for SET DEFAULT 4")
    for statement in sealed.functions("public", 4):
        op.execute(statement)
"""
LINES = {
    "protocol.records": (
        (
            '    """`CallStart`."""\n',
            "{}    colour: Annotated[str | None, Column(since=4, is_content=True)] = None\n",
        ),
        (
            '    """Does a budget wait for it?"""\n',
            "{}    weight: Annotated[int | None, Column(since=4)] = None\n",
        ),
        (
            "class EndRecord(",
            (
                "class MoodRecord(msgspec.Struct, frozen=True, array_like=True, tag='mood',"
                " kw_only=True, omit_defaults=False):\n    table: ClassVar[str] = 'moods'\n   "
                " since: ClassVar[int] = 4\n    call_id: str\n    block: Number\n    at: At\n   "
                " words: Words\n\n\n{}"
            ),
        ),
        ("    | AttemptRecord\n", "{}    | MoodRecord\n"),
    ),
    "db.columns": (
        ("    AttemptRecord,\n", "{}    MoodRecord,\n"),
        ("    _table(AttemptRecord),\n", "{}    _table(MoodRecord),\n"),
    ),
}
"""What stands in a module, and what takes its place: `{}` is the former."""


class Second:
    """The process: it takes steps (`tests.support.second_version.steps`), one after the other."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def __call__(self, step: str, *arguments: object) -> Any:
        """Take a step, and return its result."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([step, *map(str, arguments)]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"{step} failed: see what the process wrote to stderr"
        return json.loads(answer)


@contextmanager
def second_version() -> Iterator[Second]:
    """Lend the process."""
    command = [sys.executable, "-m", "tests.support.second_version"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Second(process)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)
