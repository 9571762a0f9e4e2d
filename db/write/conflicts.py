"""Rows that differ from one on record. The first row stays; the other becomes an event `conflict`
of its call, with its content.

The call is also marked as incomplete (`db.missing_records`), so verification, `sluice doctor`,
metrics and pages name it without knowing of conflicts. Must not know: connections."""

import json
import secrets
import time
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple

from db.columns import CALL_ID
from db.missing_records import KIND, Hole
from db.text import from_column, to_short
from db.write.rows import RowKind
from protocol.bounds import MAX_SEARCHED_CHARS
from protocol.records import EventRecord, Record, to_text

CONFLICT = "conflict"
"""The kind of events that hold a row which differs from the one on record; also the kind of the
dead letter of a large one."""
_NUMBERS = 2**32
"""The numbers that the events of one row may have."""
_TIME = ', "at": "'
"""Where the time begins in a detail, as its last value. In a text of the row its quotation marks
are escaped."""
_CONTENT = f"split_part({{}}.detail, '{_TIME}', 1)"
KEEP = f"""
INSERT INTO events (call_id, kind, number, at, detail)
SELECT DISTINCT ON (v.call_id, v.kind, v.number / {_NUMBERS}, {_CONTENT.format("v")}) v.*
FROM unnest($1::uuid[], $2::text[], $3::int8[], $4::timestamptz[], $5::text[]) v (call_id, kind,
    number, at, detail)
WHERE NOT EXISTS (
    SELECT FROM events e WHERE e.call_id = v.call_id AND e.kind = v.kind
        AND {_CONTENT.format("e")} = {_CONTENT.format("v")}
        AND e.number BETWEEN v.number & ~{_NUMBERS - 1}::int8 AND v.number | {_NUMBERS - 1}::int8
) ON CONFLICT DO NOTHING
"""
"""Inserts the events of conflicts, packed, but those of rows that have one. The same row at another
time is the same."""
SHORT = 1000
"""Characters of each text of a row that is too large for an event."""


class RowConflict(NamedTuple):
    """A row that differs from the one on record; `key` is the key's columns joined by a slash."""

    table: str
    key: str
    events: tuple[Record, ...]
    whole: bytes | None
    """The event's detail where it was too large for an event, which then holds its beginning and
    its hash."""


def read_conflict(kind: RowKind, row: Sequence[Any]) -> RowConflict:
    """Make a conflict of what `Kind.compare` returned.

    The event's detail is JSON: `table`, `key` (what names the row within its call) and `values` by
    column. A number outlives a redaction, so it has nothing of the content: half of it is a hash of
    the row's key, and half is random.
    """
    values = {column.name: _value(value) for column, value in zip(kind.compared, row, strict=True)}
    call_id = str(values.pop(CALL_ID))
    key = "/".join(str(values.pop(name)) for name in kind.key[1:])
    if "at" in values:
        values["at"] = values.pop("at")
    identity = {"table": kind.table, "key": key}
    place = int.from_bytes(sha256(json.dumps(identity).encode()).digest()[:4]) >> 1
    number = place * _NUMBERS + secrets.randbelow(_NUMBERS)
    detail, whole = json.dumps({**identity, "values": values}, ensure_ascii=False), None
    if len(detail) > MAX_SEARCHED_CHARS:
        whole = json.dumps({CALL_ID: call_id, **identity, "values": values}).encode()
        short = {
            name: to_short(value, SHORT) if isinstance(value, str) else value
            for name, value in values.items()
        }
        detail = json.dumps({**identity, "values": short}, ensure_ascii=False)
    sentence = (
        f"a row of {kind.table} came that differs from the one on record: it is kept as an event"
        f" `{CONFLICT}`"
    )
    now = time.time_ns() // 1_000_000
    events = (
        EventRecord(call_id=call_id, kind=CONFLICT, number=number, at=now, detail=detail),
        EventRecord(call_id=call_id, kind=KIND, number=Hole.CONFLICT, at=now, detail=sentence),
    )
    return RowConflict(kind.table, "/".join(filter(None, (call_id, key))), events, whole)


def _value(value: object) -> object:
    match value:
        case bytes():
            return to_text(value)
        case str():
            return from_column(value)
        case datetime():
            return value.isoformat()
        case None | bool() | int() | float():
            return value
        case _:
            return str(value)
