"""Chunks and releases as they are stored at first: in runs, a row for consecutive ones of a call.

What all values of a run begin and end with is kept once, which is most of an event of text; so
opening one needs no more than SQL (the views `chunks` and `releases`). A run is written only where
nothing is on record of what it holds: whoever writes holds the locks of its calls, and a run that
overlaps another one or a row is refused, as a row is whose key is taken. Then plain rows are
written. Must not know: connections.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import accumulate
from struct import pack
from typing import Any, NamedTuple

from db.columns import CALL_ID
from db.migrations.removal import RUNS
from db.write.packing import column
from db.write.pipeline import Statement
from db.write.rows import uuid_of
from protocol.records import ChunksRecord, Record, ReleaseRecord

MOST, MOST_BYTES = 64, 65_535
"""Values and bytes of a run: the views open no more, and a number in it has two bytes. What is
larger is alone."""
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


class _Value(NamedTuple):
    """A chunk or release; `same` has to be that of all of a run. With `alone` it is one of its own:
    what a release ends with, and its hash where that is another."""

    call_id: bytes
    key: int
    at: int
    seq: int
    value: bytes
    same: tuple[Any, ...] = ()
    alone: tuple[int, bytes | None] | None = None


@dataclass(slots=True)
class _Run:
    """Consecutive values of a call, from `first.key` up to `after` - 1."""

    first: _Value
    after: int
    size: int
    values: list[bytes]
    ats: list[int] = field(default_factory=lambda: [0])
    seqs: list[int] = field(default_factory=lambda: [0])

    def packed(self) -> tuple[bytes, bytes, bytes, bytes, bytes]:
        """Return what is kept: times, where each value ends in what is left of them, what all begin
        with, what all end with, and that rest."""
        values, ats = self.values, _two_bytes(self.ats)
        if len(values) == 1:
            return ats, b"\0\0", values[0], b"", b""
        size = min(map(len, values))
        head = size - (_differing(values, slice(size)).bit_length() + 7) // 8
        room, tail = size - head, 0
        if room:
            bits = _differing(values, slice(-room, None))
            tail = ((bits & -bits).bit_length() - 1) // 8 if bits else room
        one = values[0]
        rests = [value[head : len(value) - tail] for value in values]
        ends = _two_bytes(list(accumulate(map(len, rests))))
        return ats, ends, one[:head], one[len(one) - tail :], b"".join(rests)


def _differing(values: Sequence[bytes], part: slice) -> int:
    """The bits in which this part of some value is not that of the first."""
    first, bits = int.from_bytes(values[0][part]), 0
    for value in values:
        bits |= int.from_bytes(value[part]) ^ first
    return bits


def _two_bytes(numbers: Sequence[int]) -> bytes:
    return pack(f"!{len(numbers)}H", *numbers)


def run_statements(records: Sequence[Record]) -> list[Statement]:
    """Return the statements that write what these records have for runs: the first takes the locks
    of their calls. None where there are none.

    Raises Twice, and what `db.write.rows.pack` does.
    """
    chunks = _runs(_chunks(record for record in records if type(record) is ChunksRecord))
    releases = _runs(_releases(record for record in records if type(record) is ReleaseRecord))
    statements = []
    if chunks:
        same = [run.first.same for run in chunks]
        verdicts = column("text", [verdict for verdict, _ in same])
        statements.append(
            _statement("chunks", chunks, verdicts, column("int4", [block for _, block in same]))
        )
    if releases:
        alone = [run.first.alone for run in releases]
        nexts = [
            run.after if odd is None else odd[0] for run, odd in zip(releases, alone, strict=True)
        ]
        more = (
            column("int4", [run.first.seq for run in releases]),
            column("bytea", [_two_bytes(run.seqs) for run in releases]),
            column("int4", nexts),
            column("bytea", [None if odd is None else odd[1] for odd in alone]),
        )
        statements.append(_statement("releases", releases, *more))
    return [*locks(records), *statements]


def locks(records: Sequence[Record]) -> list[Statement]:
    """Return the statement that takes the locks of the calls of which there are chunks or releases,
    in one order; none where there are none."""
    calls = {uuid_of(record.call_id) for record in records if type(record) in IN_RUNS}
    keys = sorted(int.from_bytes(call_id[8:], signed=True) for call_id in calls)
    return [Statement(_LOCK, (column("int8", keys),))] if keys else []


def _statement(view: str, runs: Sequence[_Run], *more: bytes) -> Statement:
    ids = [run.first.call_id for run in runs]
    values = (
        column("uuid", ids),
        column("int4", [run.first.key for run in runs]),
        column("int4", [run.after - 1 for run in runs]),
        column("timestamptz", [run.first.at for run in runs]),
        *(column("bytea", kept) for kept in zip(*(run.packed() for run in runs), strict=True)),
    )
    return Statement(_INSERT[view], (*values, *more, min(ids), max(ids)))


def _chunks(records: Iterable[ChunksRecord]) -> Iterator[_Value]:
    for record in records:
        if not len(record.raw) == len(record.verdicts) == len(record.blocks):
            raise ValueError("raw, verdicts and blocks of a chunks record differ in length")
        call_id = uuid_of(record.call_id)
        for i, raw in enumerate(record.raw):
            same = record.verdicts[i], record.blocks[i]
            yield _Value(call_id, record.seq + i, record.at, 0, raw, same)


def _releases(records: Iterable[ReleaseRecord]) -> Iterator[_Value]:
    for record in records:
        number, after, payload = record.number, record.number_next, record.payload
        alone: tuple[int, bytes | None] | None = None
        if sha256(payload).digest() != record.sha256:
            alone = after, record.sha256
        elif after != number + 1:
            alone = after, None
        yield _Value(uuid_of(record.call_id), number, record.at, record.seq, payload, (), alone)


def _runs(values: Iterable[_Value]) -> list[_Run]:
    runs: list[_Run] = []
    last: dict[bytes, _Run] = {}
    for one in values:
        call_id, key, at, seq, value, same, alone = one
        run = last.get(call_id)
        if run is not None:
            if key < run.after:
                raise Twice
            first, size = run.first, run.size + len(value)
            if (
                key == run.after
                and size <= MOST_BYTES
                and len(run.values) < MOST
                and same == first.same
                and alone is first.alone is None
                and 0 <= at - first.at <= MOST_BYTES
                and 0 <= seq - first.seq <= MOST_BYTES
            ):
                run.after, run.size = key + 1, size
                run.values.append(value)
                run.ats.append(at - first.at)
                run.seqs.append(seq - first.seq)
                continue
        run = last[call_id] = _Run(one, key + 1, len(value), [value])
        runs.append(run)
    return runs
