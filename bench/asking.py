"""Every documented filter of the lists, alone and together, for rare, common, retired and absent
values: how long, and by which index."""

import re
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import psycopg
from psycopg.sql import SQL, Literal
from sqlalchemy import event

from bench.volume import Volume
from db.connections import conninfo
from db.filters import Position, encode_cursor, first_id, parse_filters
from db.read.queries import AuditReader

COMMON_MS, BOUND_MS = 50.0, 300.0
"""What the newest page may take that nothing or one common value chooses, and what any other
may."""
ROUNDS = 3
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


def pages(volume: Volume, of: Any) -> Iterator[Given]:
    """The first page, and one behind most of the days."""
    start = datetime(volume.first.year, volume.first.month, volume.first.day, tzinfo=UTC)
    late = first_id(start + timedelta(days=volume.days * 0.12))
    yield from ({}, {"cursor": encode_cursor(Position(of, "desc", late, 0))})


def bound_ms(asked: Given) -> float:
    """Return what a question may take; `asked` is as in the answers of `Asker`."""
    given = [(name, value) for name, value in asked.items() if name != "of"]
    is_common = (
        asked["of"] in LISTS
        and len(given) <= 1
        and all(value in VALUES.get(name, ())[1:2] for name, value in given)
    )
    return COMMON_MS if is_common else BOUND_MS


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


class Asker:
    """Asks a reader, and has PostgreSQL explain what it was asked."""

    def __init__(self, url: str) -> None:
        self.reader = AuditReader.open(url)
        self._explain = psycopg.connect(conninfo(url), autocommit=True)
        self._hearing = ExitStack()
        self._said = self._hearing.enter_context(heard(self.reader))

    async def lists(self, of: Any, given: Given) -> dict[str, Any]:
        """Ask for a page of a list; returns what was asked, the milliseconds and the plan."""
        ask = {
            "calls": self.reader.calls,
            "tool-calls": self.reader.tool_calls,
            "judge-blocks": self.reader.judge_blocks,
        }[of]
        filters = parse_filters(given.items(), of=of)
        return await self._timed({"of": of, **given}, lambda: ask(filters))

    async def one_call(self, call_id: Any) -> Iterator[dict[str, Any]]:
        """Ask for a call and for its chunks."""
        found = [await self._timed({"of": "call"}, lambda: self.reader.call(call_id))]
        for given in ({}, {"verdict": "allow"}, {"verdict": "hold"}, {"limit": "1000"}):
            filters = parse_filters(given.items(), of="chunks")
            found.append(
                await self._timed(
                    {"of": "chunks", **given},
                    lambda filters=filters: self.reader.chunks(call_id, filters),
                )
            )
        return iter(found)

    async def _timed(self, asked: Given, ask: Any) -> dict[str, Any]:
        took, answer = [], None
        for _ in range(ROUNDS):
            self._said.clear()
            began = time.perf_counter()
            answer = await ask()
            took.append((time.perf_counter() - began) * 1000)
        with self._explain.transaction():
            plans = [self._plan(said) for said in self._said]
        items = len(answer["items"]) if answer and "items" in answer else int(answer is not None)
        return {
            "asked": asked,
            "items": items,
            "p50_ms": statistics.median(took),
            "max_ms": max(took),
            "indexes": sorted(next((indexes for indexes, _ in plans if indexes), ())),
            "scans": sorted({scan for plan in plans for scan in plan[1]}),
        }

    def _plan(self, said: Said) -> tuple[set[str], set[str]]:
        """The indexes of a statement, named as those of the whole table, and the partitions of more
        than a page that it reads whole."""
        plan = explain(self._explain, said)
        indexes: set[str] = set()
        scans: set[str] = set()
        nodes = [plan] if plan else []
        while nodes:
            node = nodes.pop()
            nodes += node.get("Plans", ())
            if (name := node.get("Index Name")) and not name.startswith("pg_"):
                indexes.add(re.sub(r"_(\d{8}|default)_", ".", name))
            if node["Node Type"] == "Seq Scan" and node["Plan Rows"] > 50:
                scans.add(re.sub(r"_(\d{8}|default)$", "", node["Relation Name"]))
        return indexes, scans

    async def close(self) -> None:
        """Close all connections."""
        self._hearing.close()
        self._explain.close()
        await self.reader.close()
