"""Makes records fit their columns, so that whatever a session holds is inserted and listed.

A number out of its column's range, or a text too long for its index (a btree refuses a row of 2,704
bytes, a text search one of 1 MB of words), is replaced by a value that fits. The whole values are
kept in an event `unfit` of the call, which is sealed, listed and redacted like all events. Times
are ours and are not changed: a record with a time that no column holds is a dead letter. Must not
know: connections.
"""

import json
from collections.abc import Sequence
from hashlib import sha256
from operator import attrgetter
from typing import Any

import msgspec

from db.columns import BY_NAME
from db.text import to_short
from db.write.rows import KINDS, RowKind
from protocol.records import ChunksRecord, EventRecord, Record

UNFIT = "unfit"
"""The kind of events that hold a value which did not fit its column."""
_BITS = {"int4": 31, "int8": 63}


def fit(record: Record) -> list[Record]:
    """Return the record as its table can hold it, and an event with each value that it could not
    hold whole.

    The event's detail is JSON: `table`, `key` (what names the row within its call) and `values` by
    column.
    """
    if isinstance(record, ChunksRecord):
        return [
            msgspec.structs.replace(record, blocks=[_place(block, 31) for block in record.blocks])
        ]
    kind = KINDS[type(record)]
    changes: dict[str, object] = {}
    whole: dict[str, str] = {}
    for column in kind.columns:
        name, value = column.name, attrgetter(column.path)(record) if column.path else None
        if column.kind in _BITS and isinstance(value, int):
            most = 1 << _BITS[column.kind]
            if not -most <= value < most:
                lost = None if name.endswith("_tokens") else max(-most, min(most - 1, value))
                changes[column.path], whole[name] = (
                    (_place(value, _BITS[column.kind]) if name in kind.key else lost),
                    _digits(value),
                )
        elif isinstance(value, str) and len(value) > (column.most_chars or len(value)):
            changes[column.path], whole[name] = to_short(value, column.most_chars or 0), value
    fitted = record
    for path, value in changes.items():
        fitted = _changed(fitted, path.split("."), value)
    return [fitted, _event(record, kind, whole)] if changes else [record]


def emptied(record: Record) -> Record:
    """Return the record as a redaction leaves its row: without content."""
    for column in BY_NAME[record.table].content:
        if column.path and (value := attrgetter(column.path)(record)):
            record = _changed(
                record,
                column.path.split("."),
                [b""] * len(value) if isinstance(value, list) else type(value)(),
            )
    return record


def _changed(value: Any, path: Sequence[str], to: object) -> Any:
    """A record in which the field at `path` has another value."""
    name, *within = path
    return msgspec.structs.replace(
        value, **{name: _changed(getattr(value, name), within, to) if within else to}
    )


def _digits(value: int) -> str:
    # Python refuses to write more than 4,300 digits, which take it long
    return str(value) if value.bit_length() < 10_000 else hex(value)


def _place(number: int, bits: int) -> int:
    """A block's number is the upstream's, and others are made of it; one that no column holds has
    the same other in every table, which is below -1 (no block)."""
    most = 1 << bits
    return (
        number
        if -most <= number < most
        else -2 - int.from_bytes(sha256(b"%x" % number).digest()[:8]) % (most - 2)
    )


def _event(record: Record, kind: RowKind, whole: dict[str, str]) -> Record:
    key = "/".join(str(getattr(record, name)) for name in kind.key[1:])
    # the same row has the same number, so that a record which comes twice is one event
    number = (
        int.from_bytes(sha256(f"{kind.table} {key}".encode(errors="surrogatepass")).digest()[:8])
        >> 1
    )
    detail = json.dumps({"table": kind.table, "key": key, "values": whole}, ensure_ascii=False)
    return EventRecord(
        call_id=record.call_id,
        kind=UNFIT,
        number=number,
        at=getattr(record, "at", 0),
        detail=detail,
    )
