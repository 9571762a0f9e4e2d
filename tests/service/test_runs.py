"""Chunks and releases in runs: the views show what was recorded, whoever wrote it how often and in
which batches, and what differs is noticed as ever."""

import asyncio
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec
import psycopg
import pytest

from db.seals.redact import redact
from db.seals.seal import Sealer
from db.seals.verify import verify
from db.write.insert import AuditInserter
from db.write.runs import MOST
from protocol.records import ChunksRecord, Record, ReleaseRecord
from tests.conftest import SEED
from tests.support.checks.record import (
    call_id,
    chunks_record,
    now_ms,
    release_record,
    rows,
    whole_call,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OLD = "INSERT INTO chunks (call_id, seq, at, raw, verdict, block) VALUES (%s, %s, now(), %s, 'allow', 0)"


def recorded(call: str, chance: random.Random) -> list[Record]:
    """Chunks and releases of a call with all that ends a run: gaps, other verdicts and blocks,
    times that go back or far on, large ones, hashes of something else, several outputs at once."""
    records: list[Record] = []
    seq, number, at = 1, 0, now_ms()
    for _ in range(150):
        at += chance.choice((0, 0, 0, 3, 40, -5, 70_000))
        raws = [
            b"data: " + chance.choice((b"", b"a", b"aa", b"{}", b"x" * 40_000)) + b"\n\n"
            for _ in range(chance.choice((1, 1, 1, 2, 5)))
        ]
        verdict, block = chance.choice((("allow", 0), ("allow", 0), ("allow", 0), ("hold", 1)))
        chunks = chunks_record(call, raws, seq=seq, verdict=verdict, block=block)
        records.append(msgspec.structs.replace(chunks, at=at))
        seq += len(raws) + chance.choice((0, 0, 0, 0, 1))
        release = release_record(call, raws[-1], number=number, seq=chance.choice((seq, seq, 1)))
        after = number + chance.choice((1, 1, 1, 1, 3))
        digest = chance.choice((release.sha256, release.sha256, release.sha256, b"another"))
        records.append(msgspec.structs.replace(release, at=at, number_next=after, sha256=digest))
        number = after
    return records


def shown(url: str, call: str) -> tuple[list[Any], list[Any]]:
    """What the views hold of a call."""
    return (
        rows(
            url,
            "SELECT seq, at, raw, verdict, block FROM chunks WHERE call_id = %s ORDER BY seq",
            call,
        ),
        rows(
            url,
            "SELECT number, number_next, at, seq, payload, sha256 FROM releases WHERE call_id = %s"
            " ORDER BY number",
            call,
        ),
    )


def expected(records: Sequence[Record]) -> tuple[list[Any], list[Any]]:
    """What they hold of these records."""
    return (
        [
            (
                one.seq + i,
                EPOCH + timedelta(milliseconds=one.at),
                raw,
                one.verdicts[i],
                one.blocks[i],
            )
            for one in records
            if isinstance(one, ChunksRecord)
            for i, raw in enumerate(one.raw)
        ],
        [
            (
                one.number,
                one.number_next,
                EPOCH + timedelta(milliseconds=one.at),
                one.seq,
                one.payload,
                one.sha256,
            )
            for one in records
            if isinstance(one, ReleaseRecord)
        ],
    )


async def test_the_views_show_what_writers_wrote_in_whatever_batches(url: str) -> None:
    chance = random.Random(SEED)
    calls = {call: recorded(call, chance) for call in (call_id(), call_id())}
    every = [record for pair in zip(*calls.values(), strict=True) for record in pair]

    async def write(chance: random.Random) -> None:
        """As a writer that dies again and again: what it was at is delivered once more, in other
        batches."""
        async with AuditInserter(url) as inserter:
            at = 0
            while at < len(every):
                until = at + chance.randint(1, 40)
                assert not await inserter.insert(every[at:until], {})
                at = max(at + 1, until - chance.choice((0, 0, 0, 7, 30)))

    await asyncio.gather(*(write(random.Random(SEED + i)) for i in range(3)))
    for call, records in calls.items():
        for found, wanted in zip(shown(url, call), expected(records), strict=True):
            assert (
                next((pair for pair in zip(found, wanted, strict=True) if pair[0] != pair[1]), None)
                is None
            )
    [(runs, most)] = rows(url, "SELECT count(*), max(last - seq + 1) FROM chunk_runs")
    assert runs > 0 and 1 < most <= MOST


async def test_a_row_that_differs_from_one_in_a_run_is_a_conflict(
    url: str, inserter: AuditInserter
) -> None:
    call = call_id()
    raws = [b"data: %d\n\n" % i for i in range(9)]
    releases = [release_record(call, raw, number=i, seq=i + 1) for i, raw in enumerate(raws)]
    await inserter.insert([chunks_record(call, raws), *releases], {})
    assert rows(
        url, "SELECT count(*) FROM chunk_runs UNION ALL SELECT count(*) FROM release_runs"
    ) == [
        (1,),
        (1,),
    ]
    other = release_record(call, b"another", number=4, seq=5)
    found = await inserter.insert([other, chunks_record(call, [raws[8], b"new"], seq=9)], {})
    assert ([(c.table, c.key) for c in found.conflicts], found.rows) == (
        [("releases", f"{call}/4")],
        1,
    )
    # what is a row already is in no run
    found = await inserter.insert([chunks_record(call, [b"new", b"newer"], seq=10)], {})
    assert (bool(found), found.rows) == (False, 1)
    chunks, released = shown(url, call)
    assert [raw for _, _, raw, _, _ in chunks] == [*raws, b"new", b"newer"]
    assert [payload for *_, payload, _ in released] == raws


async def test_a_writer_from_before_runs_writes_beside_one_that_knows_them(
    url: str, inserter: AuditInserter
) -> None:
    call = call_id()
    await inserter.insert([chunks_record(call, [b"1", b"2"])], {})
    for how in ("", " ON CONFLICT DO NOTHING"):
        rows(url, OLD + how, call, 2, b"2")
        rows(url, OLD + how, call, 3, b"3")
        with pytest.raises(psycopg.errors.UniqueViolation, match="differs from the one on record"):
            rows(url, OLD + how, call, 2, b"another")
    assert not await inserter.insert([chunks_record(call, [b"2", b"3", b"4"], seq=2)], {})
    assert [raw for _, _, raw, _, _ in shown(url, call)[0]] == [b"1", b"2", b"3", b"4"]


async def test_a_run_is_sealed_as_its_rows_and_redacted_with_them(
    url: str, inserter: AuditInserter
) -> None:
    call = call_id()
    raws = [b"data: %d\n\n" % i for i in range(9)]
    more = [release_record(call, raw, number=i, seq=i) for i, raw in enumerate(raws[4:], 4)]
    await inserter.insert([*whole_call(call), chunks_record(call, raws[4:], seq=4), *more], {})
    with Sealer(url) as sealer:
        assert sealer.seal([UUID(call)]) == 1
    assert verify(url).ok
    tampered = "UPDATE {0} SET data = set_byte(data, 2, get_byte(data, 2) # 1) WHERE last > 5"
    for table, key in (("chunk_runs", "6"), ("release_runs", "6")):
        rows(url, tampered.format(table))
        [finding] = verify(url).findings
        assert (finding.damage, finding.row) == ("altered", key)
        rows(url, tampered.format(table))
    await asyncio.to_thread(redact, url, UUID(call), "asked for")
    assert verify(url).ok
    for table in ("chunk_runs", "release_runs"):
        assert rows(url, f"SELECT DISTINCT ends || head || tail || data FROM {table}") == [(b"",)]
    assert {raw for _, _, raw, _, _ in shown(url, call)[0]} == {b""}
    assert {values[4:] for values in shown(url, call)[1]} == {(b"", b"")}
    assert sha256(b"").digest() not in {values[5] for values in shown(url, call)[1]}
