"""Rows that differ from one on record. The first row stays; the other becomes an event `conflict` of its call, with its content.

The call is also marked as incomplete (`db.holes`), so verification, `sluice doctor`, metrics and pages name it without knowing of
conflicts. Must not know: connections.
"""

import json
import time
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple

from db.columns import CALL_ID
from db.holes import KIND, Hole
from db.text import from_column, to_short
from db.write.rows import Kind
from protocol.bounds import MAX_SEARCHED_CHARS
from protocol.records import EventRecord, Record, to_text

CONFLICT = "conflict"
"""The kind of events that hold a row which differs from the one on record; also the kind of the dead letter of a large one."""
SHORT = 1000
"""Characters of each text of a row that is too large for an event."""


class Conflict(NamedTuple):
    """A row that differs from the one on record; `key` is the key's columns joined by a slash."""

    table: str
    key: str
    events: tuple[Record, ...]
    whole: bytes | None
    """The event's detail where it was too large for an event, which then holds its beginning and its hash."""


def read_conflict(kind: Kind, row: Sequence[Any]) -> Conflict:
    """Make a conflict of what `Kind.compare` returned.

    The event's detail is JSON: `table`, `key` (what names the row within its call) and `values` by column. The same row has the same
    number, so a row that comes twice is one event.
    """
    found = {column.name: _value(value) for column, value in zip(kind.compared, row, strict=True)}
    call_id = str(found.pop(CALL_ID))
    key = "/".join(str(found.pop(name)) for name in kind.key[1:])
    said = {"table": kind.table, "key": key}
    content = json.dumps([said, {name: value for name, value in found.items() if name != "at"}])
    number = int.from_bytes(sha256(content.encode()).digest()[:8]) >> 1
    detail, whole = json.dumps({**said, "values": found}, ensure_ascii=False), None
    if len(detail) > MAX_SEARCHED_CHARS:
        whole = json.dumps({CALL_ID: call_id, **said, "values": found}).encode()
        short = {name: to_short(value, SHORT) if isinstance(value, str) else value for name, value in found.items()}
        detail = json.dumps({**said, "values": short}, ensure_ascii=False)
    sentence = f"a row of {kind.table} came that differs from the one on record: it is kept as an event `{CONFLICT}`"
    now = time.time_ns() // 1_000_000
    events = (
        EventRecord(call_id=call_id, kind=CONFLICT, number=number, at=now, detail=detail),
        EventRecord(call_id=call_id, kind=KIND, number=Hole.CONFLICT, at=now, detail=sentence),
    )
    return Conflict(kind.table, "/".join(filter(None, (call_id, key))), events, whole)


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
