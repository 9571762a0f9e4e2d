"""Chunks and releases as they are stored at first: in runs, a row for consecutive ones of a call.

What all values of a run begin and end with is kept once, which is most of an event of text; so
opening one needs no more than SQL (the views `chunks` and `releases`). A run is written only where
nothing is on record of what it holds: whoever writes holds the locks of its calls, and a run that
overlaps another one or a row is refused, as a row is whose key is taken. Then plain rows are
written. Must not know: connections.
"""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import accumulate
from struct import pack
from typing import cast

from db.columns import CALL_ID
from db.migrations.removal import RUNS
from db.write.packing import column
from db.write.pipeline import Statement
from db.write.rows import uuid_of
from protocol.records import ChunksRecord, Record, ReleaseRecord, call_ids

MOST, MOST_BYTES = 64, 65_535
"""Values and bytes of a run: the views open no more, and a number in it has two bytes. What is
larger is alone."""
_ZERO = b"\0\0"
IN_RUNS = (ChunksRecord, ReleaseRecord)
_LOCK = "SELECT count(pg_advisory_xact_lock(x)) FROM unnest($1::int8[]) x"
_KEPT = {"ats": "bytea", "ends": "bytea", "head": "bytea", "tail": "bytea", "data": "bytea"}
_COLUMNS: dict[str, dict[str, str]] = {
    "chunks": {
        CALL_ID: "uuid",
        "seq": "int4",
        "last": "int4",
        "at": "timestamptz",
        **_KEPT,
        "verdict": "text",
        "block": "int4",
    },
    "releases": {
        CALL_ID: "uuid",
        "number": "int4",
        "last": "int4",
        "at": "timestamptz",
        **_KEPT,
        "seq": "int4",
        "seqs": "bytea",
        "number_next": "int4",
        "sha256": "bytea",
    },
}


def _insert(view: str) -> str:
    """The statement that inserts packed runs. One whose place is taken gets no key, with which it
    fails. The last two parameters bound the calls, for one partition to be looked into."""
    rows, runs, key = RUNS[view]
    columns = _COLUMNS[view]
    within = f"BETWEEN ${len(columns) + 1}::uuid AND ${len(columns) + 2}::uuid"
    overlaps = (
        f"(SELECT r.last >= v.{key} FROM {runs} r WHERE r.call_id = v.call_id AND r.call_id"
        f" {within} AND r.{key} <= v.last ORDER BY r.{key} DESC LIMIT 1)"
    )
    taken = (
        f"EXISTS (SELECT FROM {rows} k WHERE k.call_id = v.call_id AND k.call_id {within}"
        f" AND k.{key} BETWEEN v.{key} AND v.last)"
    )
    values = ", ".join(
        f"CASE WHEN coalesce({overlaps}, false) OR {taken} THEN NULL ELSE v.{key} END"
        if name == key
        else f"v.{name}"
        for name in columns
    )
    arrays = ", ".join(f"${i}::{kind}[]" for i, kind in enumerate(columns.values(), 1))
    names = ", ".join(columns)
    return f"INSERT INTO {runs} ({names}) SELECT {values} FROM unnest({arrays}) v ({names})"


_INSERT = {view: _insert(view) for view in RUNS}


class Twice(Exception):
    """Two of a batch have the same key, or come in another order."""


class _Run:
    """Consecutive values of a call, `key` to `after` - 1. `alone` says that it is one release, what
    that ends with, and its hash where it is another's."""

    __slots__ = "after", "alone", "ats", "call_id", "key", "same", "seqs", "size", "values"

    def __init__(
        self,
        call_id: bytes,
        key: int,
        at: int,
        seq: int,
        value: bytes,
        same: tuple[str, int] = ("", 0),
        alone: tuple[int, bytes | None] | None = None,
    ) -> None:
        self.call_id, self.key, self.after = call_id, key, key + 1
        self.same, self.alone, self.size = same, alone, len(value)
        self.values, self.ats, self.seqs = [value], [at], [seq]

    def takes(self, other: "_Run") -> bool:
        """Take one value more, if it can stand behind those that there are. Raises Twice."""
        if other.key < self.after:
            raise Twice
        size = self.size + other.size
        if (
            other.key > self.after
            or self.same != other.same
            or not self.alone is other.alone is None
            or size > MOST_BYTES
            or len(self.values) == MOST
            or not 0 <= other.ats[0] - self.ats[0] <= MOST_BYTES
            or not 0 <= other.seqs[0] - self.seqs[0] <= MOST_BYTES
        ):
            return False
        self.after, self.size = other.after, size
        self.values += other.values
        self.ats += other.ats
        self.seqs += other.seqs
        return True

    def packed(self) -> tuple[bytes, bytes, bytes, bytes, bytes]:
        """Return what is kept: times, where each value ends in what is left of them, what all begin
        with, what all end with, and that rest."""
        one = self.values[0]
        if len(self.values) == 1:
            return _ZERO, _ZERO, one, b"", b""
        head = _common(self.values)
        rests = [value[head:] for value in self.values]
        if tail := _common([rest[::-1] for rest in rests]):
            rests = [rest[:-tail] for rest in rests]
        ends = pack(f"!{len(rests)}H", *accumulate(map(len, rests)))
        return _two_bytes(self.ats), ends, one[:head], one[len(one) - tail :], b"".join(rests)


def _common(values: Sequence[bytes]) -> int:
    """With how many bytes all of them begin: the first and the last in their order do."""
    low, high = min(values), max(values)
    size = min(len(low), len(high))
    bits = int.from_bytes(low[:size]) ^ int.from_bytes(high[:size])
    return size - (bits.bit_length() + 7) // 8


def _two_bytes(numbers: Sequence[int]) -> bytes:
    """What each is more than the first."""
    first = numbers[0]
    return pack(f"!{len(numbers)}H", *[number - first for number in numbers])


def run_statements(records: Sequence[Record]) -> list[Statement]:
    """Return the statements that write these chunks and releases: the first takes the locks of
    their calls. None where there are none.

    Raises Twice, and what `db.write.rows.pack` does.
    """
    chunks: list[_Run] = []
    releases: list[_Run] = []
    last: dict[tuple[type[Record], bytes], _Run] = {}
    for record in records:
        call_id = uuid_of(record.call_id)
        ones, runs = (
            ([_release(call_id, record)], releases)
            if isinstance(record, ReleaseRecord)
            else (_chunks(call_id, cast(ChunksRecord, record)), chunks)
        )
        place = type(record), call_id
        for one in ones:
            run = last.get(place)
            if run is None or not run.takes(one):
                last[place] = one
                runs.append(one)
    statements = locks(records)
    if chunks:
        verdicts = column("text", [run.same[0] for run in chunks])
        blocks = column("int4", [run.same[1] for run in chunks])
        statements.append(_statement("chunks", chunks, verdicts, blocks))
    if releases:
        alone = [run.alone or (run.after, None) for run in releases]
        more = (
            column("int4", [run.seqs[0] for run in releases]),
            column("bytea", [_two_bytes(run.seqs) for run in releases]),
            column("int4", [after for after, _ in alone]),
            column("bytea", [digest for _, digest in alone]),
        )
        statements.append(_statement("releases", releases, *more))
    return statements


def locks(records: Sequence[Record]) -> list[Statement]:
    """Return the statement that takes the locks of the calls of these chunks and releases, in one
    order: two writers must not deadlock."""
    calls = {uuid_of(call_id) for call_id in call_ids(records)}
    keys = sorted([int.from_bytes(call_id[8:], signed=True) for call_id in calls])
    return [Statement(_LOCK, (column("int8", keys),))] if keys else []


def _statement(view: str, runs: Sequence[_Run], *more: bytes) -> Statement:
    ids = [run.call_id for run in runs]
    values = (
        column("uuid", ids),
        column("int4", [run.key for run in runs]),
        column("int4", [run.after - 1 for run in runs]),
        column("timestamptz", [run.ats[0] for run in runs]),
        *(column("bytea", kept) for kept in zip(*(run.packed() for run in runs), strict=True)),
    )
    return Statement(_INSERT[view], (*values, *more, min(ids), max(ids)))


def _chunks(call_id: bytes, record: ChunksRecord) -> Iterator[_Run]:
    if not len(record.raw) == len(record.verdicts) == len(record.blocks):
        raise ValueError("raw, verdicts and blocks of a chunks record differ in length")
    for i, raw in enumerate(record.raw):
        same = record.verdicts[i], record.blocks[i]
        yield _Run(call_id, record.seq + i, record.at, 0, raw, same)


def _release(call_id: bytes, record: ReleaseRecord) -> _Run:
    number, after, payload = record.number, record.number_next, record.payload
    alone: tuple[int, bytes | None] | None = None
    if sha256(payload).digest() != record.sha256:
        alone = after, record.sha256
    elif after != number + 1:
        alone = after, None
    return _Run(call_id, number, record.at, record.seq, payload, alone=alone)
