"""Records as rows: which table and columns a record becomes, packed by the column for one INSERT per table.

Must not know: connections, transactions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any
from uuid import UUID

from db.text import INDEXED, SEARCH_LIMIT, search_text, to_column
from db.write.packing import array, column, int4s, item, sized, timestamp
from protocol.records import (
    BlockRecord,
    CallRecord,
    ChunksRecord,
    EndRecord,
    EventRecord,
    JudgementRecord,
    Record,
    ReleaseRecord,
    ToolCallRecord,
    ToolReleaseRecord,
    to_text,
)


@dataclass(frozen=True, slots=True)
class Kind:
    """A table, its key and its columns with their types, in the order of the statement's parameters."""

    table: str
    key: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]

    @property
    def insert(self) -> str:
        """The statement that inserts packed columns, and fails where a row of theirs is there already.

        0.6x of the server's CPU of one that leaves such rows alone: that writes each row as a guess and then confirms it, for which
        PostgreSQL logs two changes, and looks into the index twice. Arrays in FROM would be copied once more, 0.95x.
        """
        names = ", ".join(f'"{name}"' for name, _ in self.columns)
        given = [f"unnest(${i}::{kind}[])" for i, (_, kind) in enumerate(self.columns, 1)]
        values = ", ".join(
            f"to_tsvector('simple', {value})" if name == "search" else value for (name, _), value in zip(self.columns, given, strict=True)
        )
        return f"INSERT INTO {self.table} ({names}) SELECT {values}"

    @property
    def insert_new(self) -> str:
        """The same, but rows that are there already are left alone."""
        return f"{self.insert} ON CONFLICT DO NOTHING"

    @property
    def compare(self) -> str:
        """The statement that finds, after an insert, the keys that hold other content than the packed columns say.

        Times are left out: the same content seen at another moment is the same record.
        """
        names = ", ".join(f'"{name}"' for name, _ in self.columns)
        given = ", ".join(f"%b::{kind}[]" for _, kind in self.columns)
        content = [f'"{name}"' for name, _ in self.columns if name not in {*self.key, "at", "search"}]
        ours, theirs = (", ".join(f"{side}.{name}" for name in content) for side in ("v", "t"))
        differs = f"({theirs}) IS DISTINCT FROM ({ours})" if len(content) > 1 else f"{theirs} IS DISTINCT FROM {ours}"
        same_key = " AND ".join(f't."{name}" = v."{name}"' for name in self.key)
        key = "concat_ws('/', " + ", ".join(f'v."{name}"' for name in self.key) + ")"
        return f"SELECT {key} FROM unnest({given}) AS v ({names}) JOIN {self.table} t ON {same_key} WHERE {differs if content else 'false'}"


CHUNKS = Kind(
    "chunks",
    ("call_id", "seq"),
    (("call_id", "uuid"), ("seq", "int4"), ("at", "timestamptz"), ("raw", "bytea"), ("verdict", "text"), ("block", "int4")),
)
BODIES = Kind("request_bodies", ("call_id",), (("call_id", "uuid"), ("body", "bytea")))
_TEXT, _BYTES, _INT, _AT = "text", "bytea", "int4", "timestamptz"


def _kind(table: str, key: tuple[str, ...], /, **columns: str) -> Kind:
    return Kind(table, key, (("call_id", "uuid"), *columns.items()))


KINDS: Mapping[type[Any], Kind] = {
    CallRecord: _kind(
        "calls", ("call_id",), at=_AT, dialect=_TEXT, endpoint=_TEXT, key=_TEXT, session=_TEXT, model=_TEXT, upstream=_TEXT,
        policy=_TEXT, policy_revision=_TEXT, stream="bool", gateway=_TEXT, key_id=_TEXT, policy_set=_TEXT, body_sha256=_BYTES,
    ),
    ReleaseRecord: _kind(
        "releases", ("call_id", "number"), number=_INT, number_next=_INT, at=_AT, seq=_INT, payload=_BYTES, sha256=_BYTES
    ),
    BlockRecord: _kind(
        "blocks", ("call_id", "block"), block=_INT, at=_AT, kind=_TEXT, verdict=_TEXT, reason=_TEXT, policy=_TEXT, rule=_TEXT
    ),
    ToolCallRecord: _kind(
        "tool_calls", ("call_id", "block"), block=_INT, index=_INT, choice=_INT, at=_AT, tool_call_id=_TEXT, name=_TEXT,
        arguments=_BYTES, released_arguments=_BYTES, executor=_TEXT, form=_TEXT, verdict=_TEXT, reason=_TEXT, policy=_TEXT,
        schema_valid="bool", search=_TEXT, rule=_TEXT,
    ),
    ToolReleaseRecord: _kind("tool_releases", ("call_id", "block"), block=_INT, at=_AT),
    JudgementRecord: _kind(
        "judgements", ("call_id", "block", "step"), block=_INT, step=_INT, at=_AT, model=_TEXT, policy=_TEXT, probability="float8",
        threshold="float8", explanation=_TEXT, prompt=_BYTES, reply=_BYTES, latency_ms=_INT, attempts=_INT, error=_TEXT,
    ),
    EndRecord: _kind(
        "ends", ("call_id",), at=_AT, state=_TEXT, reason=_TEXT, status=_INT, stop_reason=_TEXT, relayed=_INT, input_tokens="int8",
        output_tokens="int8", cache_read_tokens="int8", cache_write_tokens="int8", thinking_tokens="int8", chunks=_INT, releases=_INT,
        decisions=_INT, relayed_sha256=_BYTES,
    ),
    EventRecord: _kind("events", ("call_id", "kind", "number"), kind=_TEXT, number="int8", at=_AT, detail=_TEXT),
}  # fmt: skip
"""Every kind of record that is one row. Chunks have a packing of their own."""
MAX_CHARS: Mapping[tuple[str, str], int] = {
    ("blocks", "reason"): SEARCH_LIMIT,
    **dict.fromkeys(
        [
            ("calls", "key"), ("calls", "key_id"), ("calls", "session"), ("calls", "model"), ("calls", "policy"), ("calls", "policy_set"),
            ("tool_calls", "tool_call_id"), ("tool_calls", "name"), ("tool_calls", "policy"), ("blocks", "policy"),
            ("judgements", "policy"), ("events", "kind"),
        ],
        INDEXED,
    ),
}  # fmt: skip
"""Table and column of what an index holds, and how long it may be (`db.write.fit`)."""
PARTITIONED = (*(kind.table for kind in KINDS.values()), CHUNKS.table, BODIES.table, "seal_rows", "redactions")
"""The tables of calls, each in daily partitions."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one table, packed."""

    kind: Kind
    count: int
    columns: tuple[bytes, ...]


def pack(records: Sequence[Record], bodies: Mapping[str, bytes]) -> list[Rows]:
    """Pack records and request bodies (by call id). Tables are in one order: two writers may hold the same rows, and must not deadlock.

    Raises ValueError, TypeError, AttributeError or struct.error on one that fits no row.
    """
    chunks = [record for record in records if type(record) is ChunksRecord]
    by_kind: dict[type[Any], list[Any]] = {}
    for record in records:
        if type(record) is not ChunksRecord:
            by_kind.setdefault(type(record), []).append(record)
    packed = [_pack_kind(KINDS[kind], found) for kind, found in sorted(by_kind.items(), key=lambda item: KINDS[item[0]].table)]
    if chunks:
        packed.append(_pack_chunks(chunks))
    if bodies:
        columns = (column("uuid", [_uuid(call_id) for call_id in bodies]), column("bytea", list(bodies.values())))
        packed.append(Rows(BODIES, len(bodies), columns))
    return packed


@lru_cache(4096)
def _uuid(call_id: str) -> bytes:
    # a batch names a call a hundred times; making a UUID is 2 us
    return UUID(call_id).bytes


def _values(table: str, name: str, kind: str, records: Sequence[Any]) -> Sequence[Any]:
    if name == "search":
        return [search_text(r.name, to_text(r.arguments), r.reason) for r in records]
    if name == "call_id":
        return [_uuid(r.call_id) for r in records]
    values = list(map(attrgetter(name), records))
    if name == "rule":
        return [None if value is None else to_column(value) for value in values]
    if (most := MAX_CHARS.get((table, name))) and max(map(len, values)) > most:
        raise ValueError(f"{name} is longer than its index takes")
    return list(map(to_column, values)) if kind == "text" else values


def _pack_kind(kind: Kind, records: Sequence[Any]) -> Rows:
    columns = tuple(column(of, _values(kind.table, name, of, records)) for name, of in kind.columns)
    return Rows(kind, len(records), columns)


def _pack_chunks(records: Sequence[ChunksRecord]) -> Rows:
    """One record holds many chunks of one call and moment, so call id and time are packed once and repeated."""
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
        ids.append(item(_uuid(record.call_id)) * count)
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
