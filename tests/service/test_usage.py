"""The figures of each hour: what the tables say agrees with the record, whenever they were made and
whatever came late."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from db.engine import reading
from db.read import overview
from db.read.counts import UsageGroup
from db.read.queries import AuditReader
from db.read.usage import (
    MS_CLASSES,
    SUMS,
    Judged,
    judged,
    last_days,
    percentile,
    span,
    usage,
)
from db.seals.redact import drop_before
from db.seals.seal import Sealer
from db.write.usage import Roller, hour_of
from protocol.errors import AuditUnavailable, InvalidRequest
from protocol.records import BlockRecord, EndRecord, Record
from settings.config import Config
from settings.runtime import Runtime
from streams.connection import Connection
from tests.support.checks.reading import insert
from tests.support.checks.record import (
    call_id,
    call_record,
    chunks_record,
    judgement_record,
    now_ms,
    release_record,
    rows,
    tool_call_record,
)
from tests.support.json_values import Json
from workers.audit import rollups
from workers.audit.rollups import Rollups

HOUR = timedelta(hours=1)
KEY, DAY, POLICY = UsageGroup.KEY, UsageGroup.DAY, UsageGroup.POLICY


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollups, "NAP_S", 0.0)


@pytest.fixture
def reader(url: str) -> Iterator[AuditReader]:
    found = AuditReader.open(url)
    yield found
    asyncio.run(found.close())


def moment() -> datetime:
    """One for all of a test: these also run while an hour or a day ends."""
    return datetime.fromtimestamp(now_ms() / 1000, UTC)


def begun(hours_ago: int, **changes: Any) -> tuple[str, list[Record]]:
    """A call that began so many hours before this one, with its end."""
    call = call_id(int((hour_of(moment()) - hours_ago * HOUR).timestamp() * 1000) + 1)
    state, cached = changes.pop("state", "ENDED"), changes.pop("cached", None)
    end = EndRecord(
        call_id=call,
        at=now_ms(),
        state=state,
        reason="x",
        status=200,
        input_tokens=10,
        output_tokens=3,
        cache_read_tokens=cached,
    )
    return call, [call_record(call, **changes), end]


def outcomes(hours_ago: int, **changes: Any) -> list[Record]:
    """A call with a tool call of each verdict, one whose later word counts, a text that was blocked
    by a fault, and judgements."""
    call, records = begun(hours_ago, **changes)
    for block, verdict in enumerate(("allow", "block", "replace", "withheld", "allow"), 1):
        records.append(tool_call_record(call, block=block, verdict=verdict, reason=""))
    for block, reason, kind in ((0, "fault", "text"), (5, "audit_unavailable", "tool_use")):
        records.append(
            BlockRecord(
                call_id=call,
                block=block,
                at=1,
                kind=kind,
                verdict="block",
                reason=reason,
                policy="p",
            )
        )
    records.append(judgement_record(call, block=1, latency_ms=100))
    records.append(judgement_record(call, block=2, probability=0.05, latency_ms=900))
    records.append(
        judgement_record(call, block=3, probability=None, error="deadline", latency_ms=30_000)
    )
    return records


def sums(item: Json) -> dict[str, int]:
    return {name: item[name] for name in SUMS if item[name]}


OF_OUTCOMES = {
    "calls": 1,
    "tool_calls": 5,
    "refused": 2,
    "replaced": 1,
    "blocks_refused": 1,
    "faults": 1,
    "input_tokens": 10,
    "output_tokens": 3,
    "judge_n": 3,
    "judge_failed": 1,
    "judge_late": 1,
    "judge_over": 1,
    "judge_ms_sum": 31_000,
}


async def make(url: str, redis_url: str, redis: Connection) -> int:
    """What an audit writer does every few minutes."""
    return await Rollups(
        Runtime(config=Config(), redis_url=redis_url, database_url=url), redis
    ).make(moment())


async def asked(reader: AuditReader, *by: UsageGroup, days: int = 30, **only: str) -> list[Json]:
    found = await usage(
        reader.engine,
        last_days(days, moment()),
        by,
        {UsageGroup(name): value for name, value in only.items()},
    )
    assert found["newest"] == "counted" and not found["truncated"]
    return list(found["items"])


async def test_figures_are_those_of_the_record_before_and_after_they_are_made(
    url: str, reader: AuditReader, redis: Connection, redis_url: str
) -> None:
    failed = begun(2, state="FAILED", key="other", cached=7)[1]
    await insert(url, *outcomes(0), *outcomes(2), *outcomes(30, model="gpt-y"), *failed)
    before = await asked(reader, KEY)
    assert [(item["key"], item["calls"], item["failed"]) for item in before] == [
        ("dev", 3, 0),
        ("other", 1, 1),
    ]
    assert sums(before[0]) == {name: 3 * value for name, value in OF_OUTCOMES.items()}
    assert before[1]["cached_tokens"] == 7
    by_day = await asked(reader, DAY, KEY)
    assert await make(url, redis_url, redis) == 4, (
        "three closed hours, and the one before that has calls"
    )
    assert rows(url, "SELECT DISTINCT hour FROM usage_hours ORDER BY 1") == [
        (hour_of(moment()) - 30 * HOUR,),
        (hour_of(moment()) - 2 * HOUR,),
    ]
    assert await asked(reader, KEY) == before
    assert await asked(reader, DAY, KEY) == by_day
    assert [sums(item) for item in await asked(reader, KEY, key="dev", days=1)] == [
        {n: 2 * v for n, v in OF_OUTCOMES.items()}
    ]
    [of_model] = await asked(reader, UsageGroup.MODEL, model="gpt-y")
    assert sums(of_model) == OF_OUTCOMES
    [(n,)] = rows(url, "SELECT sum(calls) FROM usage_hours")
    assert n == 3, "the hour that is not over is in no table"


async def test_what_comes_late_is_counted_the_next_time(
    url: str, reader: AuditReader, redis: Connection, redis_url: str
) -> None:
    await insert(url, *begun(1)[1], *begun(27)[1])
    await make(url, redis_url, redis)
    await insert(url, *outcomes(1), *outcomes(27), *outcomes(20))
    assert sum(item["calls"] for item in await asked(reader, KEY)) == 2
    await make(url, redis_url, redis)
    [item] = await asked(reader, KEY)
    assert item["calls"] == 4, (
        "of the last hours, and of a day ago; an hour in between is made once more when a day has"
        " passed"
    )


async def test_of_a_day_that_was_dropped_the_figures_stay(url: str, reader: AuditReader) -> None:
    await insert(url, *outcomes(60), *outcomes(1))
    async with await Roller.open(url) as roller:
        assert await roller.roll_up(hour_of(moment()) - 60 * HOUR) == 1
        before = await asked(reader, KEY)
        with Sealer(url) as sealer:
            sealer.seal([call for (call,) in rows(url, "SELECT call_id FROM calls")])
            sealer.checkpoint()
        assert (
            drop_before(url, (moment() - timedelta(days=1)).date(), "old", redis_time=time.time)
            == 1
        )
        await insert(url, *begun(60)[1])
        assert await roller.roll_up(hour_of(moment()) - 60 * HOUR) == 0
        assert await asked(reader, KEY) == before
        assert await roller.roll_up(hour_of(moment()) - HOUR) == 1, "of days after it they are made"


async def test_hours_without_a_writer_are_made_when_one_is_back(
    url: str, reader: AuditReader, redis: Connection, redis_url: str
) -> None:
    await insert(url, *begun(200)[1])
    await make(url, redis_url, redis)
    await insert(url, *outcomes(100), *outcomes(50), *outcomes(0))
    found = await usage(reader.engine, last_days(30, moment()), (KEY,))
    assert (found["newest"], [item["calls"] for item in found["items"]]) == (
        "left out",
        [1],
    ), "more hours than are counted at once"
    await make(url, redis_url, redis)
    hours = [(hour_of(moment()) - n * HOUR, 1) for n in (200, 100, 50)]
    assert [
        tuple(row) for row in rows(url, "SELECT hour, calls FROM usage_hours ORDER BY 1")
    ] == hours
    assert [item["calls"] for item in await asked(reader, KEY)] == [4]


async def test_one_writer_makes_figures_and_others_leave_them_to_it(
    url: str, redis: Connection, redis_url: str
) -> None:
    await insert(url, *begun(1)[1])
    async with await Roller.open(url) as other:
        assert await other.takes_turn()
        assert await make(url, redis_url, redis) == 0
    assert await make(url, redis_url, redis) == 3
    with pytest.raises(AuditUnavailable):
        await Roller.open("postgresql://nobody@127.0.0.1:1/none")


async def test_judges_are_told_by_classes_of_time_and_probability(
    url: str, reader: AuditReader, redis: Connection, redis_url: str
) -> None:
    other = begun(3, policy="other")
    await insert(
        url,
        *outcomes(0),
        *outcomes(2),
        *other[1],
        judgement_record(other[0], probability=1.0, threshold=0.5, latency_ms=0),
    )
    week = last_days(7, moment())
    before = await judged(reader.engine, week)
    await make(url, redis_url, redis)
    assert await judged(reader.engine, week) == before
    mine, others = before
    assert (mine.policy, mine.revision, mine.bins) == (
        "default",
        "r1",
        {0.6: [2, 0, 0, 0, 0, 0, 0, 0, 0, 2]},
    )
    assert mine.p50_ms is not None and mine.p95_ms is not None
    assert abs(mine.p50_ms - 100) <= 12 and abs(mine.p95_ms - 900) <= 108
    assert others == Judged("other", "r1", 1, 1, {0.5: [0] * 9 + [1]})
    assert await judged(reader.engine, week, "other") == [others]


async def test_a_call_of_which_only_the_end_is_known_is_counted_without_names(
    url: str, reader: AuditReader
) -> None:
    await insert(url, *begun(0)[1][1:])
    assert [(item["key"], item["calls"]) for item in await asked(reader, KEY)] == [("", 1)]
    await insert(url, *begun(0)[1])
    found = {item["key"]: item["calls"] for item in await asked(reader, KEY)}
    assert found == {"": 1, "dev": 1}


def test_who_may_make_figures_may_not_write_them(url: str) -> None:
    def may(role: str, what: str) -> bool:
        [(found,)] = rows(url, f"SELECT {what.format(role=role)}")
        return bool(found)

    table, run = (
        "has_table_privilege('{{role}}', 'usage_hours', '{}')",
        "has_function_privilege('{{role}}', '{}', 'EXECUTE')",
    )
    roll_up, read = (
        run.format("sluice_roll_up(timestamptz)"),
        run.format("sluice_usage(uuid, uuid)"),
    )
    assert may("sluice_writer", roll_up) and not may("sluice_reader", roll_up)
    for role in ("sluice_writer", "sluice_reader"):
        assert may(role, read) and may(role, table.format("SELECT"))
        assert not any(may(role, table.format(right)) for right in ("INSERT", "UPDATE", "DELETE"))


def test_spans_are_whole_hours() -> None:
    now = datetime(2026, 11, 22, 14, 30, tzinfo=UTC)
    at = now.replace(minute=0)
    assert span(at - 2 * HOUR, at, now) == (at - 2 * HOUR, at)
    assert span(now - 2 * HOUR, None, now) == (at - 2 * HOUR, at + HOUR)
    assert span(now, now + HOUR, now) == (at, at + HOUR)
    for since, until in ((now, now - HOUR), (now + HOUR, None), (now - timedelta(days=500), None)):
        with pytest.raises(InvalidRequest):
            span(since, until, now)


@pytest.mark.parametrize(
    ("counts", "share", "ms"), [([], 0.5, None), ([4], 0.5, 1), ([0] * 20 + [1], 0.95, 97)]
)
def test_percentiles_are_the_middle_of_a_class(
    counts: Sequence[int], share: float, ms: int | None
) -> None:
    assert percentile([*counts, *[0] * (MS_CLASSES - len(counts))], share) == ms


async def test_what_a_person_sees_first_is_what_the_record_has(
    url: str, reader: AuditReader
) -> None:
    now = datetime.now(UTC)
    call = call_id(int(now.timestamp() * 1000))
    open_call: list[Record] = [
        call_record(call),
        chunks_record(call, [b"a", b"b"]),
        chunks_record(call, [b"c"], seq=3, verdict="hold", block=1),
    ]
    await insert(url, *outcomes(2), *open_call, release_record(call, b"out", seq=2))
    async with reading(reader.engine) as connection:
        by_minute = await overview.calls_by_minute(connection, now - 5 * HOUR)
        assert sorted(by_minute.values()) == [1, 1]
        assert by_minute[int(now.timestamp() // 60)] == 1
        # a tool call, one whose later word blocked it, and a text; not the one that was withheld
        assert await overview.blocked_since(connection, now - 5 * HOUR) == 3
        assert await overview.blocked_since(connection, now - HOUR) == 0
        newest = await overview.newest_not_released(connection, now, 3)
        assert [(one["kind"], one["block"], one["verdict"]) for one in newest] == [
            ("tool_call", 5, "block"),
            ("tool_call", 4, "withheld"),
            ("tool_call", 2, "block"),
        ]
        assert [one["kind"] for one in await overview.newest_not_released(connection, now, 9)][
            3:
        ] == ["text"]
        [of_call, unknown] = await overview.open_calls(
            connection, [call_id(int(now.timestamp() * 1000) + 9), call]
        )
        assert (of_call["call_id"], of_call["key"], of_call["chunks"], of_call["held"]) == (
            call,
            "dev",
            3,
            1,
        )
        assert (unknown["key"], unknown["chunks"]) == (None, 0)
        assert await overview.open_calls(connection, []) == []
        assert await overview.sealed(connection) == (None, None)
