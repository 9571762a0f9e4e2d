"""What the record of a text chunk takes: bytes of PostgreSQL's WAL, bytes on disk (tables, their
indexes, TOAST), CPU of the writer's insert; with calls of many text chunks, each released by
itself.

    python -m bench.record_bytes [--calls 1000] [--chunks 200] [--together 10] [--at-once 100]

A batch holds so many chunks (`--together`) of each of so many calls (`--at-once`).
"""

import argparse
import asyncio
import random
import tempfile
import time
import uuid
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import psycopg

from db.write.insert import AuditInserter
from protocol.records import ChunksRecord, Record, ReleaseRecord
from tests.support.servers.stores import database, own_postgres

_WORDS = random.Random(7)
_TEXTS = [" " + "".join(_WORDS.choices("aeioulnrst", k=_WORDS.randint(2, 8))) for _ in range(4000)]
_EVENT = (
    'data: {"id":"chatcmpl-%s","object":"chat.completion.chunk","created":1780000000,"model":'
    '"gpt-4o","choices":[{"index":0,"delta":{"content":"%s"}}]%s}\n\n'
)
_SIZE = """
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'sluice_parts' AND c.relkind = 'r'
"""


def _batches(calls: int, chunks: int, together: int, at_once: int) -> Iterator[list[Record]]:
    for first in range(0, calls, at_once):
        ids = [_call_id() for _ in range(first, min(first + at_once, calls))]
        for low in range(1, chunks + 1, together):
            seqs = range(low, min(low + together, chunks + 1))
            yield [record for call_id in ids for seq in seqs for record in _records(call_id, seq)]


def _call_id() -> str:
    ms = time.time_ns() // 1_000_000
    return str(uuid.UUID(int=ms << 80 | 7 << 76 | 2 << 62 | _WORDS.getrandbits(62)))


def _records(call_id: str, seq: int) -> Iterator[Record]:
    digest, now = sha256(call_id.encode()).hexdigest(), time.time_ns() // 1_000_000
    word = _WORDS.choice(_TEXTS)
    raw, sent = (
        (_EVENT % (digest[at : at + 12], word, more)).encode()
        for at, more in ((0, ',"usage":null'), (20, ""))
    )
    yield ChunksRecord(call_id=call_id, seq=seq, at=now, raw=[raw], verdicts=["hold"], blocks=[0])
    yield ReleaseRecord(
        call_id=call_id,
        number=seq - 1,
        number_next=seq,
        at=now,
        seq=seq,
        payload=sent,
        sha256=sha256(sent).digest(),
    )


async def _fill(url: str, batches: Iterator[list[Record]]) -> float:
    """Returns seconds of CPU."""
    inserter, spent = AuditInserter(url), 0.0
    await inserter.ensure_partitions(time.strftime("%Y-%m-%d", time.gmtime()), 2)
    for batch in batches:
        began = time.process_time()
        await inserter.insert(batch, {})
        spent += time.process_time() - began
    await inserter.close()
    return spent


def _said(connection: psycopg.Connection[Any], statement: Any) -> Any:
    row = connection.execute(statement).fetchone()
    return row and row[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("calls", 1000), ("chunks", 200), ("together", 10), ("at-once", 100)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    total = given.calls * given.chunks
    with (
        tempfile.TemporaryDirectory() as folder,
        own_postgres(Path(folder)) as server,
        database(server) as connection,
    ):
        connection.execute("CHECKPOINT")
        before = _said(connection, _SIZE), _said(connection, "SELECT pg_current_wal_lsn()")
        spent = asyncio.run(
            _fill(server.url, _batches(given.calls, given.chunks, given.together, given.at_once))
        )
        disk = _said(connection, _SIZE) - before[0]
        wal = _said(
            connection, f"SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '{before[1]}')::bigint"
        )
    print(
        f"a chunk, of {total:,}: WAL {wal / total:.0f} B, disk {disk / total:.0f} B,"
        f" writer's CPU {spent / total * 1e6:.1f} us"
    )


if __name__ == "__main__":
    main()
