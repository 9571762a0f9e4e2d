"""Every documented filter of the lists, alone and together, for rare, common, retired and absent
values; and what a reader asks of PostgreSQL for them, with its plans."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import psycopg
from psycopg.sql import SQL, Literal
from sqlalchemy import event

from bench.volume import Volume
from db.read.queries import AuditReader

LISTS = ("calls", "tool-calls", "judge-blocks")
VALUES = {
    "session": ("session-rare", "agent", "session-old", "s-7", "absent"),
    "model": ("model-rare", "model-0", "model-old", "absent"),
    "key": ("key-rare", "key-0", "key-old", "absent"),
    "name": ("toolrare", "bash", "toolold", "tool_40", "absent"),
    "verdict": ("withheld", "allow", "block", "replace", "hold"),
    "policy": (
        "policy-rare",
        "default",
        "policy-old",
        "tool_judge",
        "tool_judge_rare",
        "tool_rules",
        "text_judge",
        "absent",
    ),
    "q": (
        "wordrare",
        "srv",
        "wordold",
        "wordmid",
        "grep bash",
        "w7",
        "reasonrare",
        "said too much",
        "absent",
    ),
}
TOGETHER = (
    ("name", "verdict"),
    ("key", "verdict"),
    ("session", "verdict"),
    ("model", "verdict"),
    ("policy", "verdict"),
    ("q", "verdict"),
    ("key", "name"),
    ("session", "name"),
    ("model", "name"),
    ("policy", "name"),
    ("q", "name"),
    ("key", "model"),
    ("key", "policy"),
    ("session", "key"),
    ("q", "key"),
    ("q", "session"),
    ("q", "policy"),
    ("name", "key", "verdict"),
)
PICKED = {
    "session": ("session-rare", "agent"),
    "model": ("model-rare", "model-0", "model-old"),
    "key": ("key-rare", "key-0", "absent"),
    "name": ("toolrare", "bash", "toolold"),
    "verdict": ("withheld", "allow", "block"),
    "policy": ("default", "policy-rare", "tool_judge"),
    "q": ("wordrare", "srv", "wordold"),
}
Given = dict[str, str]


def alone() -> Iterator[Given]:
    """Each filter by itself."""
    yield {}
    for name, values in VALUES.items():
        yield from ({name: value} for value in values)


def together(volume: Volume) -> Iterator[Given]:
    """Filters with others, and with times."""
    start = datetime(volume.first.year, volume.first.month, volume.first.day, tzinfo=UTC)
    last_day, old = (
        (start + timedelta(days=volume.days - 1)).isoformat(),
        (start + timedelta(days=volume.days / 10)).isoformat(),
    )
    windows: list[Given] = [{"since": last_day}, {"until": old}]
    yield from (*windows, {"since": old, "until": last_day}, {"until": "2000-01-01"})
    for name, values in VALUES.items():
        yield from ({name: value, **window} for value in values[:3] for window in windows)
    for names in TOGETHER:
        found: list[Given] = [{}]
        for name in names:
            found = [{**given, name: value} for given in found for value in PICKED[name]]
        yield from found


class Said(NamedTuple):
    """A statement of a reader."""

    statement: str
    parameters: Any


@contextmanager
def heard(reader: AuditReader) -> Iterator[list[Said]]:
    """Hear what a reader asks of PostgreSQL."""
    said: list[Said] = []

    def hear(*given: Any) -> None:
        said.append(Said(given[2], given[3]))

    event.listen(reader.engine.sync_engine, "before_cursor_execute", hear)
    try:
        yield said
    finally:
        event.remove(reader.engine.sync_engine, "before_cursor_execute", hear)


def explain(
    connection: psycopg.Connection[Any], said: Said, how: str = "FORMAT JSON"
) -> dict[str, Any] | None:
    """Return the plan of a statement for its values."""
    statement, parameters = said
    names: dict[str, int] = {}
    asked = re.sub(
        r"%\((\w+)\)s", lambda found: f"${names.setdefault(found[1], len(names) + 1)}", statement
    ).replace("%%", "%")
    connection.execute(f"PREPARE asked AS {asked}".encode())
    given = SQL(", ").join(Literal(parameters[name]) for name in names)
    execute = SQL("EXPLAIN ({}) EXECUTE asked{}").format(
        SQL(how), SQL("({})").format(given) if names else SQL("")
    )
    row = connection.execute(execute).fetchone()
    connection.execute("DEALLOCATE asked")
    return row[0][0]["Plan"] if row else None
