"""Records as rows: the columns that a record declares (`db.columns`), packed by the column for one
INSERT per table.

Must not know: connections, transactions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import repeat
from operator import attrgetter, contains
from typing import Any
from uuid import UUID

from db.columns import BY_NAME, CALL_ID, TABLES, CallTable, StoredColumn, columns_of
from db.migrations.removal import RUNS
from db.text import search_text, to_column
from db.write.packing import array, int4s, item, sized, timestamp
from db.write.packing import column as pack_column
from protocol.columns import Column
from protocol.records import ApprovalRecord, ApprovalUseRecord, ChunksRecord, Record, to_text

IS_REDACTED = "EXISTS (SELECT FROM redacted_calls r WHERE r.call_id = v.call_id::uuid)"
"""SQL: was the call of a row `v` redacted?"""


@dataclass(frozen=True)
class RowKind:
    """A table, its key and its columns, in the order of the statement's parameters."""

    table: str
    key: tuple[str, ...]
    columns: tuple[StoredColumn, ...]

    @cached_property
    def insert(self) -> str:
        """The statement that inserts packed columns, and fails if one of the rows exists. It takes
        0.6x of the server's CPU of a statement that skips existing rows: that one writes each row
        as a guess and then confirms it, for which PostgreSQL logs two changes, and looks into the
        index twice. Arrays in FROM would be copied once more, 0.95x."""
        values = ", ".join(
            (
                f"to_tsvector('simple', unnest(${i}::text[]))"
                if column.kind == "tsvector"
                else f"unnest(${i}::{column.kind}[])"
            )
            for i, column in enumerate(self.columns, 1)
        )
        return f"INSERT INTO {self.table} ({self._names}) SELECT {values}"

    @property
    def _names(self) -> str:
        return ", ".join(f'"{column.name}"' for column in self.columns)

    @cached_property
    def insert_new(self) -> str:
        """The same, but rows that are there already are left alone, and those that are in a run."""
        if self.table not in RUNS:
            return f"{self.insert} ON CONFLICT DO NOTHING"
        rows, runs, key = RUNS[self.table]
        arrays = ", ".join(f"${i}::{column.kind}[]" for i, column in enumerate(self.columns, 1))
        return (
            f"INSERT INTO {rows} ({self._names}) SELECT v.* FROM unnest({arrays}) v ({self._names})"
            f" WHERE (SELECT r.last >= v.{key} FROM {runs} r WHERE r.call_id = v.call_id AND"
            f" r.{key} <= v.{key} ORDER BY r.{key} DESC LIMIT 1) IS NOT TRUE ON CONFLICT DO NOTHING"
        )

    @property
    def compared(self) -> tuple[StoredColumn, ...]:
        """The columns that `compare` returns: the words of a search are made of the others."""
        return tuple(column for column in self.columns if column.kind != "tsvector")

    @cached_property
    def compare(self) -> str:
        """The statement that finds, after an insert, the rows of the packed columns that differ
        from those on record with their keys.

        Times are left out: the same content seen at another moment is the same record. So is the
        content of a redacted call.
        """
        arrays = ", ".join(
            f"%b::{'text' if column.kind == 'tsvector' else column.kind}[]"
            for column in self.columns
        )
        content = [column for column in self.compared if column.name not in {*self.key, "at"}]
        ours, theirs = (
            ", ".join(map(_as_kept, content)),
            ", ".join(f't."{column.name}"' for column in content),
        )
        differs = (
            f"({theirs}) IS DISTINCT FROM ({ours})"
            if len(content) > 1
            else f"{theirs} IS DISTINCT FROM {ours}"
        )
        same_key = " AND ".join(f't."{name}" = v."{name}"' for name in self.key)
        if self.table in RUNS:
            # a view opens all of which it is not told that they are not asked for
            same_key += f" AND t.{CALL_ID} = ANY(%b::uuid[])"
        where = differs if content else "false"
        row = ", ".join(f'v."{column.name}"' for column in self.compared)
        return (
            f"SELECT {row} FROM unnest({arrays}) AS v ({self._names}) JOIN {self.table} t ON"
            f" {same_key} WHERE {where}"
        )

    def compare_values(self, columns: Sequence[bytes]) -> list[bytes]:
        """Return the parameters of `compare` for packed columns."""
        return [*columns, *columns[:1]] if self.table in RUNS else list(columns)


@dataclass(frozen=True)
class FunctionKind(RowKind):
    """Records that a function of the database takes, a field a parameter: it decides what becomes
    of each, and takes one that it knows for no new one."""

    @cached_property
    def insert(self) -> str:
        """The statement that gives it packed records."""
        values = ", ".join(
            f"unnest(${i}::{column.kind}[])" for i, column in enumerate(self.columns, 1)
        )
        return f"SELECT {self.table}({values})"

    @property
    def insert_new(self) -> str:
        """The same."""
        return self.insert


def _function(name: str, record: type[Any]) -> FunctionKind:
    first, *others = columns_of(record)
    return FunctionKind(name, (CALL_ID, "block"), (first, _CALL_ID, *others))


def _as_kept(column: StoredColumn) -> str:
    """SQL: what a column of the row `t` on record should hold for the row `v` that came. A
    redaction may be about to empty it."""
    sent, stored = f'v."{column.name}"', f't."{column.name}"'
    return (
        f"CASE WHEN {IS_REDACTED} THEN {stored} ELSE {sent} END" if column.mark.is_content else sent
    )


def _kind(table: CallTable) -> RowKind:
    key = (CALL_ID, *(column.name for column in table.key))
    return RowKind(table.name, key, (_CALL_ID, *table.columns))


_CALL_ID = StoredColumn(CALL_ID, "uuid", False, CALL_ID, Column(is_key=True))
KINDS: Mapping[type[Any], RowKind] = {
    table.record: _kind(table) for table in TABLES if table.record is not None
} | {
    ApprovalRecord: _function("sluice_ask_people", ApprovalRecord),
    ApprovalUseRecord: _function("sluice_use_approval", ApprovalUseRecord),
}
"""Every kind of record. Chunks have a packing of their own: a record of theirs is many rows."""
CHUNKS = KINDS[ChunksRecord]
BODIES = _kind(BY_NAME["request_bodies"])
PARTITIONED = (
    *BY_NAME,
    *(runs for _, runs, _ in RUNS.values()),
    "seal_rows",
    "redactions",
    "histories",
    "debug_logs",
)
"""The tables of calls, each in daily partitions."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one table, packed."""

    kind: RowKind
    count: int
    columns: tuple[bytes, ...]


def pack(records: Sequence[Record], bodies: Mapping[str, bytes]) -> list[Rows]:
    """Pack records and request bodies (by call id). Tables are in one order: two writers may hold
    the same rows, and must not deadlock.

    Raises ValueError, TypeError, AttributeError or struct.error on one that fits no row.
    """
    chunks = [record for record in records if type(record) is ChunksRecord]
    by_kind: dict[type[Any], list[Any]] = {}
    for record in records:
        if type(record) is not ChunksRecord:
            by_kind.setdefault(type(record), []).append(record)
    # the function waits for other questions of a key: two writers must come to keys in one order
    by_kind.get(ApprovalRecord, []).sort(key=attrgetter("key_id"))
    packed = [
        _pack_kind(KINDS[kind], group)
        for kind, group in sorted(by_kind.items(), key=lambda item: KINDS[item[0]].table)
    ]
    if chunks:
        packed.append(_pack_chunks(chunks))
    if bodies:
        columns = (
            pack_column("uuid", [uuid_of(call_id) for call_id in bodies]),
            pack_column("bytea", list(bodies.values())),
        )
        packed.append(Rows(BODIES, len(bodies), columns))
    return packed


@lru_cache(4096)
def uuid_of(call_id: str) -> bytes:
    """Return the bytes of a call's id: a batch names a call a hundred times, and making a UUID is 2
    us. Raises ValueError."""
    return UUID(call_id).bytes


def _values(column: StoredColumn, records: Sequence[Any]) -> Sequence[Any]:
    if column.kind == "tsvector":
        return [search_text(r.name, to_text(r.arguments), r.reason, r.rule or "") for r in records]
    if column.name == CALL_ID:
        return [uuid_of(r.call_id) for r in records]
    values = list(map(attrgetter(column.path), records))
    if column.kind != "text":
        return values
    texts = [value for value in values if value is not None] if column.is_nullable else values
    if (
        not column.is_nullable
        and (most := column.most_chars) is not None
        and max(map(len, values)) > most
    ):
        raise ValueError(f"{column.name} is longer than its index takes")
    if all(map(str.isascii, texts)) and not any(map(contains, texts, repeat("\x00"))):
        return values
    return [None if value is None else to_column(value) for value in values]


def _pack_kind(kind: RowKind, records: Sequence[Any]) -> Rows:
    columns = tuple(
        pack_column("text" if of.kind == "tsvector" else of.kind, _values(of, records))
        for of in kind.columns
    )
    return Rows(kind, len(records), columns)


def _pack_chunks(records: Sequence[ChunksRecord]) -> Rows:
    """One record holds many chunks of one call and moment, so call id and time are packed once and
    repeated."""
    ids: list[bytes] = []
    seqs: list[int] = []
    times: list[bytes] = []
    raws: list[bytes] = []
    verdicts: list[bytes] = []
    blocks: list[int] = []
    known: dict[str, bytes] = {}
    for record in records:
        count = len(record.raw)
        if not count == len(record.verdicts) == len(record.blocks):
            raise ValueError("raw, verdicts and blocks of a chunks record differ in length")
        ids.append(item(uuid_of(record.call_id)) * count)
        seqs.extend(range(record.seq, record.seq + count))
        times.append(timestamp(record.at) * count)
        raws.extend(record.raw)
        for verdict in record.verdicts:
            if (packed := known.get(verdict)) is None:
                packed = known[verdict] = item(verdict.encode())
            verdicts.append(packed)
        blocks.extend(record.blocks)
    total = len(seqs)
    columns = (
        array("uuid", total, ids),
        array("int4", total, [int4s(seqs)]),
        array("timestamptz", total, times),
        array("bytea", total, sized(raws)),
        array("text", total, verdicts),
        array("int4", total, [int4s(blocks)]),
    )
    return Rows(CHUNKS, total, columns)
