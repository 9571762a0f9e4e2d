"""What reaches the record after its call was redacted is written as the redaction would have left
it."""

import asyncio
import random
from typing import Any
from uuid import UUID

import msgspec
import psycopg
import pytest

from db.canonical import FORMS
from db.connections import conninfo
from db.seals.redact import redact
from db.seals.seal import Sealer
from db.write.insert import AuditInserter
from protocol.records import CallRecord, EndRecord, EventRecord, Record, encode_records
from streams import layout
from streams.connection import Connection
from tests.conftest import SEED
from tests.support.checks.kinds import of_kind
from tests.support.checks.record import (
    call_id,
    call_record,
    now_ms,
    rows,
    tool_call_record,
    whole_call,
)
from tests.support.checks.sealed import many_rows, run, verified
from tests.support.json_values import Json
from tests.support.servers.writers import writing
from tests.support.waiting import wait_until
from workers.audit.request_bodies import LARGE

SECRET = "Xq7SECRETzebra"


def everything(call: str) -> list[Record]:
    """A call with the secret in all that a redaction takes, in a value that fits no column, and in
    a record that fits no row."""
    return [
        *many_rows(call, random.Random(SEED), secret=SECRET),
        EventRecord(call_id=call, kind="withheld", number=7, at=now_ms(), detail=SECRET),
        tool_call_record(call, block=9, index=2, tool_call_id=SECRET * 1000),
        call_record(call, at=2**62, session=SECRET),
    ]


def of_another(records: list[Record], call: str) -> list[Record]:
    return [msgspec.structs.replace(record, call_id=call) for record in records]


def on_record(url: str, call: str) -> Json:
    """The rows of a call, but for the event that says that it was redacted."""
    chosen = (
        "SELECT to_jsonb(t) - 'call_id' FROM {} t WHERE call_id = %s AND to_jsonb(t) ->> 'kind' IS"
        " DISTINCT FROM 'redacted' ORDER BY 1"
    )
    found = {form.table: rows(url, chosen.format(form.table), call) for form in FORMS}
    return {
        **found,
        "dead_letters": rows(url, "SELECT raw FROM dead_letters WHERE call_id = %s", call),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "on_record_before", [(CallRecord, EndRecord), (EndRecord,)], ids=["begun", "ended alone"]
)
async def test_what_comes_late_is_written_as_the_redaction_would_have_left_it(
    url: str, inserter: AuditInserter, on_record_before: tuple[type[Record], ...]
) -> None:
    before, after = call_id(), call_id()
    records, body = everything(before), SECRET.encode()
    await inserter.insert(records, {before: body})
    late = of_another(records, after)
    await inserter.insert(
        [record for record in late[:-1] if isinstance(record, on_record_before)], {}
    )
    assert SECRET in str(on_record(url, before))
    for call in (before, after):
        assert await asyncio.to_thread(redact, url, UUID(call), "x") > 0
    for _ in range(2):
        # in a batch with one that is not redacted, and once more, as a writer that died before it
        # acknowledged
        whole = call_id()
        found = await inserter.insert(
            [*late, *whole_call(whole)], {after: body, whole: body}, look_at=[after]
        )
        await inserter.set_aside([(after, body)], "undecodable entry")
        assert (found.conflicts, found.sealed) == ([], [UUID(after)])
        assert on_record(url, after) == on_record(url, before)
        assert rows(url, "SELECT body FROM request_bodies WHERE call_id = %s", whole) == [(body,)]
    with Sealer(url) as sealer:
        assert sealer.seal([UUID(after)]) == 1
    for rest in (True, False):
        code, said = verified(url)
        assert (code, said["redacted"], said["damages"]) == (0, 2, 0), said
        assert (await asyncio.to_thread(redact, url, UUID(after), "again") > 0) == rest
    assert on_record(url, after) == on_record(url, before)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, LARGE + 1], ids=["at once", "after its records"])
async def test_what_waited_in_redis_comes_without_content(
    url: str, redis: Connection, redis_url: str, inserter: AuditInserter, size: int
) -> None:
    call = layout.new_call_id()
    late = many_rows(call, random.Random(SEED), secret=SECRET)
    await inserter.insert(of_kind(late, EndRecord), {})
    await redis.call("SET", layout.body_key(call), SECRET * size)
    await redis.call(
        "XADD", layout.audit_key(layout.shard_of(call)), "*", layout.BLOB, encode_records(late)
    )
    assert await asyncio.to_thread(redact, url, UUID(call), "x") > 0
    async with writing(redis_url, url):
        await wait_until(lambda: rows(url, "SELECT call_id FROM request_bodies") != [])
        await wait_until(lambda: verified(url)[0] == 0)
    found = on_record(url, call)
    assert [table for table in found if SECRET in str(found[table])] == [] and len(
        found["tool_calls"]
    ) == 2


async def test_a_redaction_takes_what_a_writer_has_written_and_not_committed(
    url: str, call: str
) -> None:
    insert = (
        "INSERT INTO releases (call_id, number, number_next, at, seq, payload, sha256) VALUES (%s,"
        " 99, 99, now(), 1, %s, '')"
    )
    waits = (
        "SELECT count(*)::int FROM pg_locks WHERE relation = 'releases'::regclass AND NOT granted"
    )
    async with await psycopg.AsyncConnection.connect(conninfo(url)) as writer:
        # it looked for a redaction before there was one
        await writer.execute(insert, (call, SECRET.encode()))
        redacting = asyncio.create_task(asyncio.to_thread(redact, url, UUID(call), "x"))
        await wait_until(lambda: redacting.done() or rows(url, waits) == [(1,)])
        await writer.commit()
        assert await redacting > 0
    assert rows(url, "SELECT payload FROM releases WHERE call_id = %s AND number = 99", call) == [
        (b"",)
    ]
    assert run(url, "verify").exit_code == 0


@pytest.mark.slow
async def test_a_row_that_differs_is_no_event_with_content_where_the_redaction_comes_before_it(
    url: str, call: str, inserter: AuditInserter, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = inserter._keep_conflicts

    async def redacted_first(*given: Any) -> Any:
        await asyncio.to_thread(redact, url, UUID(call), "x")
        return await keep(*given)

    monkeypatch.setattr(inserter, "_keep_conflicts", redacted_first)
    found = await inserter.insert([tool_call_record(call, verdict="allow", reason=SECRET)], {})
    assert [one.table for one in found.conflicts] == ["tool_calls"], (
        "what a redaction leaves differs still"
    )
    assert SECRET not in str(on_record(url, call))
