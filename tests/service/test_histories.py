"""Histories are made of bodies that are on record: once, again, not of what was redacted, and in
nobody's way."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from uuid import UUID

import psycopg
import pytest

from db.connections import conninfo
from db.seals.redact import redact
from db.write.histories import HistoryWriter
from db.write.insert import AuditInserter
from protocol.conversations.histories import history
from protocol.errors import AuditUnavailable
from tests.support.checks.record import call_id, call_record, now_ms, rows, whole_call
from tests.support.clients.commands import sluice
from tests.support.json_values import as_json
from tests.support.waiting import wait_until
from workers.audit import histories

FIRST, LAST = UUID(int=0), UUID(int=2**128 - 1)


def body(*texts: str) -> bytes:
    """A request."""
    return as_json({"messages": [{"role": "user", "content": text} for text in texts]})


async def insert(url: str, bodies: dict[str, bytes], *, ended: bool = False) -> None:
    """Put calls on record."""
    async with AuditInserter(url) as inserter:
        for call in bodies:
            await inserter.insert(whole_call(call) if ended else [call_record(call)], {})
        await inserter.insert([], bodies)


@contextlib.asynccontextmanager
async def writer(url: str) -> AsyncIterator[HistoryWriter]:
    """A writer."""
    made = HistoryWriter(url)
    try:
        yield made
    finally:
        made.close()


async def test_a_history_is_written_once_and_made_again(url: str) -> None:
    one, other = call_id(now_ms()), call_id(now_ms() + 1)
    bodies = {one: body("a\x00b", "c"), other: b"no request"}
    await insert(url, bodies)
    async with writer(url) as writes:
        assert writes.write({one: bodies[one], other: None}) == 2
        assert writes.write({one: bodies[one]}) == 0
        query = (
            "SELECT session, turns, marks, offsets, preview, is_side FROM histories ORDER BY"
            " call_id"
        )
        found = history(bodies[one])
        assert rows(url, query)[0] == ("s-1", 2, found.marks, found.offsets, "a\ufffe0000b", False)
        rows(url, "UPDATE histories SET preview = 'x'")
        assert list(writes.rebuild(FIRST, LAST)) == [2]
        assert [
            preview for (preview,) in rows(url, "SELECT preview FROM histories ORDER BY call_id")
        ] == ["a\ufffe0000b", ""]


async def test_a_rebuild_goes_through_all_calls(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await insert(url, {call_id(now_ms() + n): body(str(n)) for n in range(5)})
    monkeypatch.setattr("db.write.histories._PAGE", 2)
    async with writer(url) as writes:
        assert list(writes.rebuild(FIRST, LAST)) == [2, 4, 5]
    monkeypatch.setattr("db.write.histories.PAGE_BYTES", 1)
    async with writer(url) as writes:
        assert list(writes.rebuild(FIRST, LAST)) == [1, 2, 3, 4, 5]


@pytest.mark.slow
async def test_a_command_makes_them_anew(url: str) -> None:
    await insert(url, {call_id(now_ms() + n): body(str(n)) for n in range(3)})
    told = sluice("audit", "rebuild", "histories", url=url)
    assert (
        told.returncode == 0 and "made the histories of 3 calls" in told.stderr and count(url) == 3
    )
    told = sluice("audit", "rebuild", "histories", "--until", "2001-01-01", "--json", url=url)
    assert json.loads(told.stdout) == {"rebuilt": "histories", "calls": 0}
    told = sluice("audit", "rebuild", "histories", url="postgresql://nobody@127.0.0.1:1/none")
    assert told.returncode == 3


async def test_of_a_redacted_call_there_is_no_history(url: str) -> None:
    call = call_id()
    await insert(url, {call: body("secret")}, ended=True)
    async with writer(url) as writes:
        assert writes.write({call: None}) == 1
        redact(url, UUID(call), "asked for")
        assert rows(url, "SELECT * FROM histories") == []
        # neither by a writer that had it in hand
        assert writes.write({call: body("secret")}) == 0
        assert list(writes.rebuild(FIRST, LAST)) == []


async def test_a_history_that_came_late_is_redacted_too(url: str) -> None:
    call = call_id()
    await insert(url, {call: body("secret")}, ended=True)
    redact(url, UUID(call), "asked for")
    rows(url, "INSERT INTO histories VALUES (%s, 's', 1, '', '', 'secret', false)", UUID(call))
    assert redact(url, UUID(call), "again") == 1
    assert rows(url, "SELECT * FROM histories") == []


async def test_a_history_that_is_on_its_way_while_its_call_is_redacted_goes_too(url: str) -> None:
    call = call_id()
    await insert(url, {call: body("secret")}, ended=True)
    waits = (
        "SELECT count(*)::int FROM pg_locks WHERE relation = 'histories'::regclass AND NOT granted"
    )
    async with await psycopg.AsyncConnection.connect(conninfo(url)) as other:
        # it read the body before that was empty
        await other.execute(
            "INSERT INTO histories VALUES (%s, 's', 1, '', '', 'secret', false)", (UUID(call),)
        )
        redacting = asyncio.create_task(asyncio.to_thread(redact, url, UUID(call), "asked for"))
        await wait_until(lambda: redacting.done() or rows(url, waits) == [(1,)])
        await other.commit()
        assert await redacting > 0
    assert rows(url, "SELECT * FROM histories") == []


async def test_postgres_away_says_so() -> None:
    with pytest.raises(AuditUnavailable):
        HistoryWriter("postgresql://nobody@127.0.0.1:1/none").write({call_id(): b"{}"})


# --- the loop of an audit writer ---


@contextlib.asynccontextmanager
async def looping(url: str, behind: list[bool]) -> AsyncIterator[histories.Histories]:
    """The loop."""

    async def is_behind() -> bool:
        return behind[0]

    made = histories.Histories(url, is_behind)
    running = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        running.cancel()
        await asyncio.wait({running})
        await made.close()


def count(url: str) -> int:
    """How many there are."""
    [(number,)] = rows(url, "SELECT count(*) FROM histories")
    return int(number)


async def test_records_that_wait_go_first(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = {call_id(now_ms() + n): body(str(n)) for n in range(3)}
    await insert(url, bodies)
    monkeypatch.setattr(histories, "PAUSE_S", 0.01)
    monkeypatch.setattr(histories, "KEPT_BYTES", len(body("0")))
    behind, asked = [True], 0
    async with looping(url, behind) as made:
        made.add(bodies)
        made.add(bodies)
        while asked < 5:
            asked += 1
            await asyncio.sleep(0.02)
        assert count(url) == 0
        behind[0] = False
        await wait_until(lambda: count(url) == 3)
        behind[0] = True
        monkeypatch.setattr(histories, "YIELD_S", 0.0)
        more = {call_id(): body("3")}
        await insert(url, more)
        made.add(more)
        await wait_until(lambda: count(url) == 4)


async def test_past_the_bound_the_oldest_are_left_out(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = {call_id(now_ms() + n): body(str(n)) for n in range(4)}
    await insert(url, bodies)
    monkeypatch.setattr(histories, "MAX_WAITING", 2)
    async with looping(url, [False]) as made:
        made.add(bodies)
        await wait_until(lambda: count(url) == 2)
    assert [
        str(call) for (call,) in rows(url, "SELECT call_id FROM histories ORDER BY 1")
    ] == sorted(bodies)[2:]


@pytest.mark.slow
async def test_a_hostile_body_stops_nobody(url: str) -> None:
    """What a thread does in one piece holds the interpreter: the loop of the record waits for less
    than 250 ms."""
    hostile = [
        b'{"messages":' + b"[" * 16_000_000,
        b'{"messages":[' + b"[]," * 5_300_000 + b"[]]}",
        as_json({"messages": [{"role": "user", "content": "x" * 130}] * 100_000}),
        as_json({"messages": [{"role": "user", "content": '\n"é' * 2_000_000}]}),
        as_json({"messages": [{"role": "user", "content": [{"a": {"b" * 60: "c"}}] * 49_000}]}),
        b'{"messages":["' + b",[{" * 5_300_000 + b'"]}',
    ]
    bodies = {call_id(): one for one in hostile} | {call_id(): body("last")}
    await insert(url, bodies)
    worst = 0.0
    async with looping(url, [False]) as made:
        made.add(bodies)
        while made.waits:
            began = time.perf_counter()
            await asyncio.sleep(0.002)
            worst = max(worst, time.perf_counter() - began)
    assert count(url) == len(bodies)
    # a machine that runs other tests beside takes its part
    assert worst < 1.0
    print(f"longest wait of the loop: {worst * 1000:.0f} ms")
