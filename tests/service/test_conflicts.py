"""A row that differs from one on record is never dropped: it becomes an event of its call, and
verification names the call."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import msgspec
import pytest

from db.columns import TABLES, CallTable, StoredColumn
from db.migrations.rights import OF_FUNCTIONS, OF_PAGES
from db.models import Base
from db.seals.seal import Sealer
from db.state.health import incomplete_calls
from db.state.polling import Watch
from db.write.insert import AuditInserter
from protocol.bounds import MAX_SEARCHED_CHARS
from protocol.records import ChunksRecord, Record
from tests.support.checks.record import (
    call_id,
    chunks_record,
    control_records,
    rows,
    tool_call_record,
    whole_call,
)
from tests.support.checks.sealed import run
from tests.support.clients.commands import audit

NOT_OF_RECORDS = {
    "seals",
    "seal_rows",
    "checkpoints",
    "tree_tiles",  # one writer at a time, under a lock
    "api_keys",  # the owner of the tables alone
    "dead_letters",  # the key is the content
    "histories",
    "debug_logs",  # made of the record, or lines that may be lost
    *OF_FUNCTIONS,
    *OF_PAGES,  # made of the record by functions, or of people, each row with a number of its own
}


def other_value(value: Any, kind: str) -> Any:
    """Another value for a column of that kind."""
    match value:
        case None:
            return {"bytea": b"x", "text": "x", "bool": True, "float8": 0.5}.get(kind, 1)
        case bool():
            return not value
        case bytes():
            return value + b"x"
        case str():
            return f"{value}x"
        case list():
            return [other_value(one, kind) for one in value]
    return value + 1


def changed(record: Any, path: list[str], kind: str) -> Any:
    """The record with another value at `path`."""
    name, *within = path
    value = getattr(record, name)
    return msgspec.structs.replace(
        record, **{name: changed(value, within, kind) if within else other_value(value, kind)}
    )


def contents(table: CallTable) -> Iterator[StoredColumn]:
    """The columns in which a row of the table can differ from another of its key."""
    return (
        column
        for column in table.columns
        if not column.mark.is_key and column.name not in ("at", "search")
    )


def events(url: str, call: str) -> list[Any]:
    return [
        json.loads(row[0])
        for row in rows(
            url, "SELECT detail FROM events WHERE kind = 'conflict' AND call_id = %s", call
        )
    ]


def test_every_table_of_the_record_is_held_to_that() -> None:
    """A new table is one of records, whose conflicts the next test makes, or somebody says here why
    it has none."""
    assert set(Base.metadata.tables) == {table.name for table in TABLES} | NOT_OF_RECORDS


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
async def test_whatever_differs_in_whatever_column_becomes_an_event(
    url: str, inserter: AuditInserter, table: CallTable
) -> None:
    call = call_id()
    batch = [*whole_call(call), *control_records(call)]
    await inserter.insert(batch, {call: b"{}"})
    before = rows(url, f"SELECT * FROM {table.name} WHERE call_id = %s", call)
    others: list[Record] = []
    bodies = {call: b"{other}"} if table.record is None else {}
    if table.record is not None:
        [record, *_] = [one for one in batch if type(one) is table.record]
        record = chunks_record(call, [b"a"]) if isinstance(record, ChunksRecord) else record
        others = [
            changed(record, column.path.split("."), column.kind) for column in contents(table)
        ]
    for _ in range(2):
        found = await inserter.insert(others, bodies)
        assert [one.table for one in found.conflicts] == [table.name] * (len(others) or len(bodies))
    kept = events(url, call)
    assert len(kept) == len(others) + len(bodies), "the same row twice is one event"
    for column in contents(table):
        assert any(column.name in event["values"] for event in kept)
    assert {event["table"] for event in kept} == ({table.name} if kept else set())
    assert set(before) <= set(rows(url, f"SELECT * FROM {table.name} WHERE call_id = %s", call)), (
        "the first row stays"
    )
    marks = rows(url, "SELECT detail FROM events WHERE kind = 'incomplete' AND call_id = %s", call)
    assert [table.name in detail for (detail,) in marks] == ([True] if kept else [])


async def test_a_row_that_comes_after_the_seal_is_covered_and_named_by_every_view(
    url: str, inserter: AuditInserter
) -> None:
    call = call_id()
    await inserter.insert(whole_call(call), {call: b"{}"})
    with Sealer(url) as sealer:
        sealer.seal([UUID(call)])
        found = await inserter.insert(
            [tool_call_record(call, verdict="allow", reason="fine")], {}, look_at=[call]
        )
        assert found.sealed == [UUID(call)]
        assert sealer.seal(found.sealed) == 1
    [kept] = events(url, call)
    assert (kept["key"], kept["values"]["verdict"], kept["values"]["reason"]) == (
        "1",
        "allow",
        "fine",
    )
    verified = run(url, "verify")
    assert (verified.exit_code, "a row of tool_calls came that differs" in verified.output) == (
        4,
        True,
    ), verified.output
    shown = await asyncio.to_thread(audit, "show", call)
    assert "a row of tool_calls came that differs" in shown.output
    assert any(call in sentence for _, sentence in incomplete_calls(url))
    watch = Watch(url)
    assert (await watch.lacking()) == (0, 1)
    await watch.close()


async def test_of_a_large_row_the_event_has_the_beginning_and_a_dead_letter_the_whole(
    url: str, inserter: AuditInserter
) -> None:
    large = b"y" * (MAX_SEARCHED_CHARS + 1)
    calls = [call_id(), call_id()]
    for call in calls:
        await inserter.insert([], {call: b"{}"})
        await inserter.insert([], {call: large})
        [kept] = events(url, call)
        assert len(kept["values"]["body"]) <= 1000
        assert "SHA-256" in kept["values"]["body"]
    letters = rows(url, "SELECT call_id, raw FROM dead_letters WHERE kind = 'conflict'")
    assert {call for call, _ in letters} == set(calls)
    assert all(json.loads(raw)["values"]["body"].encode() == large for _, raw in letters)


async def test_rows_of_a_redacted_call_that_come_again_do_not_bring_its_content_back(
    url: str, inserter: AuditInserter
) -> None:
    """A writer died before it acknowledged them, or a backlog is replayed. What a redaction leaves
    is compared as ever."""
    call = call_id()
    batch = [*whole_call(call), *control_records(call)]
    letter = (call, b"a secret that is no record")
    await inserter.insert(batch, {call: b"{}"})
    await inserter.set_aside([letter], "undecodable entry")
    assert rows(url, "SELECT sluice_redact(%s, 'gone') > 0", UUID(call)) == [(True,)]
    before = rows(url, "SELECT * FROM events WHERE call_id = %s", call)
    assert not await inserter.insert(batch, {call: b"{}"})
    await inserter.set_aside([letter, ("no id", b"another")], "undecodable entry")
    assert rows(url, "SELECT * FROM events WHERE call_id = %s", call) == before
    assert rows(url, "SELECT call_id FROM dead_letters") == [("no id",)]
    found = await inserter.insert(
        [tool_call_record(call, verdict="allow", reason="a secret")], {call: b"{other}"}
    )
    assert [one.table for one in found.conflicts] == ["tool_calls"]
    [kept] = events(url, call)
    assert (kept["values"]["verdict"], kept["values"]["reason"], kept["values"]["arguments"]) == (
        "allow",
        "",
        "",
    )


async def test_the_number_of_an_event_says_nothing_of_its_content(
    url: str, inserter: AuditInserter
) -> None:
    """It outlives a redaction. The same row is one event all the same, whenever it was made, also
    after the redaction."""
    calls = [call_id() for _ in range(2)]
    numbers = "SELECT number FROM events WHERE kind = 'conflict' AND call_id = %s"
    for call in calls:
        await inserter.insert(whole_call(call), {})
        for at in (1, 2):
            await inserter.insert([tool_call_record(call, reason="yes", at=at)], {})
    [[one], [other]] = (rows(url, numbers, call) for call in calls)
    assert one != other, "an event of the same content"
    assert rows(url, "SELECT sluice_redact(%s, 'gone') > 0", UUID(calls[0])) == [(True,)]
    for _ in range(2):
        await inserter.insert([tool_call_record(calls[0], verdict="allow", reason="yes")], {})
    assert len(rows(url, numbers, calls[0])) == 2
