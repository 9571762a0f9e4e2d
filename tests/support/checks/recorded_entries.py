"""What waits on the audit stream."""

from protocol.records import EndRecord, Record, decode_records
from streams import layout
from streams.connection import Connection


async def recorded(redis: Connection) -> list[Record]:
    entries = await redis.call("XRANGE", layout.audit_key(0), "-", "+")
    return [r for _, fields in entries for r in decode_records(fields[1])]


async def ends(redis: Connection) -> list[EndRecord]:
    """The ends among them."""
    return [record for record in await recorded(redis) if isinstance(record, EndRecord)]
