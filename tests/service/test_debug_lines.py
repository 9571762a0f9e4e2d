"""Debug lines on their way: from a process over Redis into the table, what is lost on it, and who
may write there."""

import asyncio
import json
import random
import time
from uuid import UUID

import psycopg
import pytest

from db.connections import conninfo
from db.read.queries import AuditReader
from db.seals.redact import redact
from db.write.debug_logs import DebugLogWriter
from gateway.refusal_counts import Refusals
from protocol.debug import (
    ANY,
    BYTES_PER_S,
    FULL,
    FULL_BYTES,
    LINES_PER_CALL,
    LINES_PER_S,
    PREVIEW,
    DebugLine,
    DoorCount,
)
from protocol.errors import Forbidden, InvalidRequest, Unauthenticated
from sluice.audit import debug_cli
from sluice.audit.audit_run import read_filters
from streams import debug_lines, layout
from streams.connection import Connection
from streams.debug_lines import DebugLines
from streams.metrics import ProcessFigures
from tests.support.checks.record import call_id, rows
from tests.support.servers.asked import pages_of
from tests.support.waiting import wait_until
from workers.audit import debugging
from workers.audit.debugging import DebugDrain

SAID = "SELECT n, type, event, seq, policy, bytes, detail FROM debug_logs ORDER BY process, n"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debugging, "IDLE_S", 0.01)
    monkeypatch.setattr(debugging, "REFUSED_S", 0.05)


async def drained(
    redis: Connection, url: str, done: str, expected: int, *, shards: int = 1
) -> None:
    """Drain until a count has this value."""

    async def is_empty() -> bool:
        return not [
            shard for shard in range(shards) if await redis.call("XLEN", layout.debug_key(shard))
        ]

    task = asyncio.create_task(DebugDrain(redis, url, name="w", shards=shards).run())
    await wait_until(lambda: rows(url, done) == [(expected,)])
    # and is trimmed: what is left in the stream is stored already
    is_trimmed: bool = await wait_until(is_empty)
    assert is_trimmed
    task.cancel()
    await asyncio.wait([task])


async def test_lines_of_a_process_come_to_the_table_and_missing_ones_are_counted(
    redis: Connection, url: str
) -> None:
    lines, call = DebugLines(redis, "policy p", memory_share=0.7), layout.new_call_id()
    own = lines.of(call, ANY | PREVIEW)
    own.write("endpoint", "claim", b"first")
    own.write("policy", "called", own.cut(b"x" * 2000), seq=5, policy="rules", size=7)
    lines.flush()
    await drained(redis, url, "SELECT count(*) FROM debug_logs", 2)
    first, second = rows(url, SAID)
    assert first == (1, "endpoint", "claim", None, None, None, b"first")
    assert (
        second[:6] == (2, "policy", "called", 5, "rules", 7)
        and second[6] == b"x" * 1024 + b"... (2000 bytes)"
    )


async def test_what_is_trimmed_while_nobody_drains_is_counted_as_the_page_counts_it(
    redis: Connection, url: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debug_lines, "ENTRIES", 100)
    monkeypatch.setattr(debug_lines, "LINES_PER_S", 10_000)
    lines = DebugLines(redis, "policy p", memory_share=0.7, shards=2)
    own, written, stored = lines.of(call, ANY), 0, 0
    own.shard = 0
    for count in (1, 1_000, 3, 1_000):
        # no writer is there meanwhile
        for _ in range(count):
            own.write("endpoint", "chunks")
            lines.flush()
        written += count
        stored += int(await redis.call("XLEN", layout.debug_key(0)))
        await drained(redis, url, "SELECT count(*)::int FROM debug_logs", stored)
    assert written - stored > 1_500
    # what the process did not send is counted once, whichever shard says it
    lines.lost = 9
    for shard in (1, 0, 1):
        lines._send_lines(
            shard, [DebugLine(layout.new_call_id(), 1, time.time_ns() // 1000, "endpoint", "claim")]
        )
    await drained(redis, url, "SELECT count(*)::int FROM debug_logs", stored + 3, shards=2)
    assert await redis.call("GET", layout.debug_lost_key()) == b"%d" % (written - stored + 9)
    # a Redis that lost what it knew of the process: what it sent in all is not lost
    await redis.call("DEL", layout.debug_seen_key())
    own.write("endpoint", "chunks")
    lines.flush()
    await drained(redis, url, "SELECT count(*)::int FROM debug_logs", stored + 4)
    assert await redis.call("GET", layout.debug_lost_key()) == b"%d" % (written - stored + 9)
    async with pages_of(url, {}) as pages:
        assert (await pages.page(f"/debug/calls/{call}/hooks")).values["lost"] == written - stored


@pytest.mark.parametrize("memory_mb", [64, 0])
async def test_nobody_drains_and_lines_are_large_yet_they_take_a_small_share_of_memory(
    redis: Connection, memory_mb: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debug_lines, "BYTES_PER_S", 2**40)
    await redis.call("CONFIG", "SET", "maxmemory", f"{memory_mb}mb")
    room = memory_mb * 2**20 * debug_lines.SHARE if memory_mb else debug_lines.WITHOUT_BOUND
    processes = [DebugLines(redis, f"policy {n}", memory_share=0.7) for n in range(4)]
    for lines in processes:
        await lines._look()
    for n in range(100):
        # from 64 KiB to nothing and back, so that small entries follow the large ones that they do
        # not trim
        for lines in processes:
            own = lines.of(layout.new_call_id(), ANY | FULL)
            for _ in range(10):
                own.write("endpoint", "chunks", own.cut(b"x" * (2 * FULL_BYTES >> n % 18)))
            lines.flush()
        used = await redis.call("MEMORY", "USAGE", layout.debug_key(0), "SAMPLES", 0)
        assert used < 2 * room, n
    await redis.call("CONFIG", "SET", "maxmemory", "0")


async def test_a_process_sends_no_more_than_its_bounds_and_says_so(
    redis: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = DebugLines(redis, "policy p", memory_share=0.7)
    own = lines.of(layout.new_call_id(), ANY)
    monkeypatch.setattr(debug_lines, "LINES_PER_S", LINES_PER_CALL * 2)
    own.n = LINES_PER_CALL - 1
    for _ in range(5):
        own.write("endpoint", "chunks")
    assert [line.event for line in lines._waiting[own.shard]] == ["chunks", "bound"]
    monkeypatch.setattr(debug_lines, "LINES_PER_S", LINES_PER_S)
    lines.add(0, DebugLine(own.call_id, 1, 5_000_000, "endpoint", "x"))
    for n in range(LINES_PER_S + 9):
        lines.add(0, DebugLine(own.call_id, n, 6_000_000, "endpoint", "x"))
    assert lines.lost == 9
    for n in range(LINES_PER_S // 2):
        lines.add(
            0, DebugLine(own.call_id, n, 7_000_000, "endpoint", "x", detail=b"x" * FULL_BYTES)
        )
    assert lines.lost == 9 + LINES_PER_S // 2 - BYTES_PER_S // (FULL_BYTES + 120)


async def test_while_records_wait_no_line_is_read(
    redis: Connection, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debugging, "BEHIND", 0)
    await redis.call("XADD", layout.audit_key(0), "*", "b", "x")
    lines = DebugLines(redis, "policy p", memory_share=0.7)
    lines.of(layout.new_call_id(), ANY).write("endpoint", "claim")
    lines.flush()
    drain = DebugDrain(redis, url, name="w", shards=1)
    assert (
        await drain._look() == debugging.REFUSED_S
        and await redis.call("XLEN", layout.debug_key(0)) == 1
    )
    await redis.call("DEL", layout.audit_key(0))
    assert (
        await drain._look() == debugging.BUSY_S
        and await redis.call("XLEN", layout.debug_key(0)) == 0
    )
    await drain._writer.close()


async def test_only_one_writer_stores_lines_and_what_nobody_of_ours_wrote_is_left_out(
    redis: Connection, url: str
) -> None:
    one, other = DebugLogWriter(url), DebugLogWriter(url)
    assert await one.open() and not await other.open()
    await one.close()
    assert await other.open()
    await other.close()
    await redis.call("XADD", layout.debug_key(0), "*", "b", b"\xc1")
    lines = DebugLines(redis, "policy p", memory_share=0.7)
    lines.of(layout.new_call_id(), ANY).write(
        "endpoint", "nul \0", policy="\ud800".encode("utf-16", "surrogatepass").decode("latin-1")
    )
    lines.flush()
    await drained(redis, url, "SELECT count(*) FROM debug_logs", 1)


async def test_a_full_redis_gets_no_lines(redis: Connection) -> None:
    used = dict(
        line.split(":", 1)
        for line in (await redis.call("INFO", "memory")).decode().split("\r\n")
        if ":" in line
    )["used_memory"]
    # 40 %: calls go on, lines do not
    await redis.call("CONFIG", "SET", "maxmemory", int(used) * 5 // 2)
    lines = DebugLines(redis, "policy p", memory_share=0.7)
    own = lines.of(layout.new_call_id(), ANY)
    own.write("endpoint", "one")
    lines.flush()
    await wait_until(lambda: lines._is_full)
    own.write("endpoint", "two")
    assert lines.lost == 1
    await redis.call("CONFIG", "SET", "maxmemory", "1gb")
    await wait_until(lambda: not lines._is_full)
    await redis.call("CONFIG", "SET", "maxmemory", "0")


async def test_what_a_gateway_refuses_is_counted_by_key_and_code_and_only_grows(
    redis: Connection, url: str
) -> None:
    lines, door = DebugLines(redis, "gateway g", memory_share=0.7), Refusals(ProcessFigures())
    for _ in range(3):
        door.refused("", Unauthenticated("no"))
    door.refused("dev", Forbidden("no", code="wrong_role"))
    await door._send_changed(lines)
    await door._send_changed(lines)
    assert await redis.call("XLEN", layout.debug_key(0)) == 1, "nothing changed in between"
    await drained(redis, url, "SELECT count(*) FROM door_counts", 2)
    door.refused("", Unauthenticated("no"))
    await door._send_changed(lines)
    # the minute may be another by now, and its row has the sums of the one before too
    await drained(
        redis,
        url,
        "SELECT sum(most)::int FROM (SELECT max(n) AS most FROM door_counts GROUP BY key, code) AS"
        " sums",
        5,
    )
    writer = DebugLogWriter(url)
    await writer.open()
    await writer.count_door(
        "late", int(time.time() * 1000), [DoorCount("dev", "403 wrong_role", 4)]
    )
    await writer.count_door(
        "late", int(time.time() * 1000), [DoorCount("dev", "403 wrong_role", 2)]
    )
    assert rows(url, "SELECT n FROM door_counts WHERE gateway = 'late'") == [(4,)]
    rows(
        url,
        "UPDATE door_counts SET minute = minute - interval '91 days' WHERE gateway = 'late'"
        " RETURNING 1",
    )
    await writer.count_door("late", int(time.time() * 1000), [DoorCount("", "0 other", 1)])
    await writer.trim(time.time() + 7200)
    assert len(rows(url, "SELECT key FROM door_counts WHERE gateway = 'late'")) == 2, (
        "Redis' clock is two hours ahead"
    )
    await writer.trim(time.time())
    assert rows(url, "SELECT key, n FROM door_counts WHERE gateway = 'late'") == [("", 1)]
    await writer.close()
    others = Refusals(ProcessFigures())
    others._sums.update({(f"k{n}", "401 x"): 1 for n in range(1_000)})
    others.refused("more", Unauthenticated("no"))
    assert ("", "0 other") in others._sums and len(others._sums) == 1_001


async def test_lines_go_with_their_call_with_time_and_with_what_they_take(
    url: str, call: str
) -> None:
    writer = DebugLogWriter(url)
    await writer.open()
    await writer.store(
        [("policy p", DebugLine(call, 1, time.time_ns() // 1000, "endpoint", "claim"))]
    )
    await writer.store(
        [("policy p", DebugLine(call, 1, time.time_ns() // 1000, "endpoint", "again"))]
    )
    assert rows(url, "SELECT event FROM debug_logs") == [("claim",)]
    await asyncio.to_thread(redact, url, UUID(call), "secret")
    other = layout.new_call_id()
    late = [
        ("policy p", DebugLine(one, 2, time.time_ns() // 1000, "endpoint", "late"))
        for one in (call, other)
    ]
    await writer.store(late)
    assert rows(url, "DELETE FROM debug_logs RETURNING call_id") == [(UUID(other),)]
    new = layout.new_call_id()
    rows(url, "SELECT sluice_ensure_partitions(current_date - 9, 12, 'debug_logs')")
    await writer.store(
        [
            (
                "policy p",
                DebugLine(new, 1, time.time_ns() // 1000, "endpoint", "claim", detail=b"x" * 1000),
            )
        ]
    )
    days = "SELECT count(*)::int FROM pg_inherits WHERE inhparent = 'debug_logs'::regclass"
    before = rows(url, days)[0][0]
    assert await writer.trim(time.time()) == 6 and rows(url, days)[0][0] == before - 6
    assert rows(url, "SELECT count(*) FROM debug_logs") == [(1,)]
    assert await writer.trim(time.time(), 3, 0) == 4 and rows(
        url, "SELECT count(*) FROM debug_logs"
    ) == [(0,)]
    await writer.close()


async def test_lines_of_days_without_a_partition_go_and_take_the_room_of_no_others(
    url: str,
) -> None:
    days_ms = 86_400_000
    old, new = (call_id(int(time.time() * 1000) - age * days_ms) for age in (40, 0))
    writer = DebugLogWriter(url)
    await writer.open()
    await writer.store(
        [
            ("policy p", DebugLine(one, 1, time.time_ns() // 1000, "endpoint", "claim"))
            for one in (old, new)
        ]
    )
    assert await writer.trim(time.time()) == 0 and rows(url, "SELECT call_id FROM debug_logs") == [
        (UUID(new),)
    ]
    rows(url, "DELETE FROM debug_logs")
    rows(url, "SELECT sluice_ensure_partitions(current_date, 1, 'debug_logs')")
    await writer.store(
        [("policy p", DebugLine(new, 1, time.time_ns() // 1000, "endpoint", "claim"))]
    )
    ahead = call_id(int(time.time() * 1000) + 40 * days_ms)
    await writer.store(
        [
            (
                "policy p",
                DebugLine(
                    ahead,
                    n,
                    time.time_ns() // 1000,
                    "endpoint",
                    "late",
                    detail=random.randbytes(900),
                ),
            )
            for n in range(1_000)
        ]
    )
    [(taken,)] = rows(url, "SELECT pg_total_relation_size('sluice_parts.debug_logs_default')::int")
    assert await writer.trim(time.time(), 3, taken) == 1
    assert rows(url, "SELECT call_id FROM debug_logs") == [(UUID(new),)], "today's lines stay"
    await writer.close()


async def test_a_line_that_is_on_its_way_while_its_call_is_redacted_goes_too(
    url: str, call: str
) -> None:
    insert = (
        "INSERT INTO debug_logs (call_id, process, n, at, type, event, detail) VALUES (%s, 'p', 1,"
        " now(), 'endpoint', 'claim', 'secret')"
    )
    waits = (
        "SELECT count(*)::int FROM pg_locks WHERE relation = 'debug_logs'::regclass AND NOT granted"
    )
    async with await psycopg.AsyncConnection.connect(conninfo(url)) as writer:
        # it looked for a redaction before there was one
        await writer.execute(insert, (call,))
        redacting = asyncio.create_task(asyncio.to_thread(redact, url, UUID(call), "secret"))
        await wait_until(lambda: redacting.done() or rows(url, waits) == [(1,)])
        await writer.commit()
        assert await redacting > 0
    assert rows(url, "SELECT count(*)::int FROM debug_logs") == [(0,)]


@pytest.mark.parametrize("as_json", [True, False])
async def test_lines_are_followed_as_they_come(
    url: str, call: str, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    reader, writer = AuditReader.open(url), DebugLogWriter(url)
    following = asyncio.create_task(debug_cli._follow(reader, [("call_id", call)], as_json))
    said = ""

    def told() -> str:
        nonlocal said
        found = capsys.readouterr()
        said += found.out + found.err
        return said

    await wait_until(lambda: "waiting for lines" in told())
    await writer.open()
    await writer.store(
        [
            (
                "policy p 1a2b",
                DebugLine(call, n, time.time_ns() // 1000 + n, "endpoint", f"step-{n}"),
            )
            for n in (1, 2)
        ]
    )
    await wait_until(lambda: "step-2" in told())
    await writer.store(
        [("policy p 1a2b", DebugLine(call, 3, time.time_ns() // 1000 + 3, "endpoint", "step-3"))]
    )
    await wait_until(lambda: "step-3" in told())
    assert (
        said.index("step-1") < said.index("step-2") < said.index("step-3")
        and said.count("step-1") == 1
    )
    following.cancel()
    await asyncio.wait([following])
    with pytest.raises(InvalidRequest, match="does not go with --follow"):
        await debug_cli._follow(reader, [("until", "2030-01-01")], as_json)
    await writer.close()
    await reader.close()


async def test_a_call_that_has_many_lines_is_followed_from_its_first(
    url: str, call: str, capsys: pytest.CaptureFixture[str]
) -> None:
    reader, writer = AuditReader.open(url), DebugLogWriter(url)
    await writer.open()
    await writer.store(
        [
            (
                "policy p 1a2b",
                DebugLine(
                    call, n, time.time_ns() // 1000 + n, "endpoint", f"step-{n}.", detail=b"said"
                ),
            )
            for n in range(1, 301)
        ]
    )
    await writer.close()
    # what is read again and again is without what it says
    looked = await debug_cli._newest(
        reader, await reader.named(read_filters([("call_id", call)], "debug-logs"))
    )
    assert len(looked) == 300 and not any(line["detail"] for line in looked)
    following, said = (
        asyncio.create_task(debug_cli._follow(reader, [("call_id", call[:13])], True)),
        "",
    )

    def told() -> str:
        nonlocal said
        said += capsys.readouterr().out
        return said

    await wait_until(lambda: "step-300." in told())
    following.cancel()
    await asyncio.wait([following])
    assert [(line["n"], line["detail"]) for line in map(json.loads, told().splitlines())] == [
        (n, "said") for n in range(1, 301)
    ]
    await reader.close()
