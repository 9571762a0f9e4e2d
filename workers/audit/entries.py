"""What entries of the audit stream hold: records, what is no record, and releases whose bytes are
others than their sender hashed. Must not know: Redis, Postgres.
"""

from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec

from db.missing_records import CallHole, Hole
from protocol.errors import StreamProtocolError
from protocol.records import Record, ReleaseRecord, read_records
from streams import layout


def take_records(entries: list[Any]) -> tuple[list[Record], list[tuple[bytes, bytes]]]:
    """Take the records out of entries, which let go of their bytes; also returns what in them
    cannot be read, with its entry's id."""
    records: list[Record] = []
    unreadable: list[tuple[bytes, bytes]] = []
    for entry, fields in entries:
        for blob in layout.blobs(fields):
            try:
                read, others = read_records(blob)
            except StreamProtocolError:
                read, others = [], [blob]
            records += read
            if others:
                unreadable += [(entry, other) for other in others]
        fields.clear()
    return records, unreadable


def altered(records: list[Record]) -> list[CallHole]:
    """Releases that came with other bytes than their policy worker hashed: altered on the way, or
    in Redis."""
    return [
        CallHole(
            UUID(r.call_id),
            Hole.PAYLOAD,
            f"the bytes of release {r.number:,} came to the record as others than were released",
        )
        for r in records
        if isinstance(r, ReleaseRecord)
        and sha256(r.payload).digest() != r.sha256
        and layout.is_call_id(r.call_id)
    ]


def call_of(blob: bytes) -> str:
    """The call of what is no record as it should be, or nothing: whoever verifies the call is to
    hear of it."""
    try:
        item = msgspec.msgpack.decode(blob)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""
    return (
        next((value for value in item if isinstance(value, str) and layout.is_call_id(value)), "")
        if isinstance(item, list)
        else ""
    )


def count_blobs(entries: list[Any]) -> int:
    """How many blobs entries hold."""
    return sum(len(fields) // 2 for _, fields in entries)
