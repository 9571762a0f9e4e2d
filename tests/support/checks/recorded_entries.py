"""What waits on the audit stream."""

from protocol.records import EndRecord, Record, decode_records
from streams import layout
from streams.connection import Connection
from tests.support.checks.kinds import of_kind


async def recorded(redis: Connection) -> list[Record]:
    entries = await redis.call("XRANGE", layout.audit_key(0), "-", "+")
    return [r for _, fields in entries for r in decode_records(fields[1])]


async def ends(redis: Connection) -> list[EndRecord]:
    """The ends among them."""
    return of_kind(await recorded(redis), EndRecord)
