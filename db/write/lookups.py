"""What audit writers ask of the record and have it do, apart from inserting: which calls are
open or without an end, partitions, marks. Must not know: Redis, how records become rows.
"""

from collections.abc import Sequence
from typing import LiteralString, NamedTuple
from uuid import UUID

import psycopg

from db.canonical import uncovered_sql
from db.migrations.primaries import COUNTED
from db.missing_records import MARK, CallHole, mark_values
from db.write.connection import AuditConnection
from db.write.rows import PARTITIONED
from protocol.errors import AuditUnavailable
from protocol.records import ApprovalUseRecord

_UNCOUNTED = (psycopg.errors.UndefinedTable, psycopg.errors.InsufficientPrivilege)
"""What a database answers that was not migrated yet, or did not give the right to count."""
_OPEN_CALLS: LiteralString = """
SELECT c.call_id::text FROM calls c LEFT JOIN ends e ON e.call_id = c.call_id
WHERE c.call_id >= %s::uuid AND e.call_id IS NULL ORDER BY c.call_id LIMIT %s
"""
_WITHOUT_BODY: LiteralString = """
SELECT c.call_id::text FROM unnest(%s::text[]) c (call_id) LEFT JOIN request_bodies b
    ON b.call_id = c.call_id::uuid WHERE b.call_id IS NULL
"""
_WITHOUT_END: LiteralString = """
SELECT c.call_id::text FROM unnest(%s::uuid[]) c (call_id)
LEFT JOIN ends e ON e.call_id = c.call_id AND e.call_id BETWEEN %s AND %s WHERE e.call_id IS NULL
"""
_DROPPED: LiteralString = (
    "SELECT call_id::text FROM seals WHERE part = -1 ORDER BY call_id DESC LIMIT 1"
)
_RELAYED: LiteralString = f"""
SELECT count(*), sha256(coalesce(string_agg(sha256, ''::bytea ORDER BY number), ''::bytea)),
    EXISTS (SELECT FROM redactions WHERE call_id = %(call)s::uuid),
    (SELECT (extract(epoch FROM e.at) * 1000)::bigint FROM ends e WHERE e.call_id = %(call)s::uuid
        AND e.relayed < 0),
    EXISTS (SELECT FROM events v WHERE v.call_id = %(call)s::uuid
        AND v.kind = 'relayed'), {uncovered_sql("%(call)s::uuid")}
FROM releases WHERE call_id = %(call)s::uuid AND number_next <= %(upto)s
"""
_USED: LiteralString = """
SELECT v.call_id::text, v.block FROM unnest(%s::text[], %s::uuid[], %s::int[])
    v (approval_id, call_id, block)
LEFT JOIN approvals a USING (approval_id)
WHERE (a.used_by_call, a.used_by_block) IS DISTINCT FROM (v.call_id, v.block)
"""
_PARTITIONS: LiteralString = "SELECT sluice_ensure_partitions(%s::date, %s, %s)"
_READS: LiteralString = "SELECT sluice_ensure_reads(%s::date, %s)"


class RelayedReleases(NamedTuple):
    """What the record says of the releases of a call that its gateway relayed."""

    releases: int
    chain: bytes
    """The SHA-256 over their hashes."""
    is_redacted: bool
    """Then neither says anything."""
    given_up_at: int | None
    """When its worker gave it up (Unix ms), if it did: its end does not say what was relayed."""
    is_said: bool
    """Does an event say it?"""
    is_uncovered: bool
    """Has it a seal that covers not all of its events?"""


class AuditLookups(AuditConnection):
    """Short statements, each in a transaction of its own."""

    async def without_body(self, call_ids: Sequence[str]) -> list[str]:
        """Return those of the calls whose request body is not on record. Raises
        AuditUnavailable."""
        try:
            return [row[0] for row in await self._rows(_WITHOUT_BODY, (list(call_ids),))]
        except psycopg.DataError:
            # one is no id: it is set aside when it is inserted, and the others are not lost over it
            return list(call_ids)

    async def ensure_partitions(self, first: str, days: int) -> int:
        """Make the daily partitions from `first` (YYYY-MM-DD, UTC) on; returns how many were new.
        Raises AuditUnavailable.

        A transaction for each table: one that held a table and waited for another would deadlock
        with readers and writers.
        """
        return sum([await self._number(_PARTITIONS, (first, days, table)) for table in PARTITIONED])

    async def ensure_reads(self, first: str, months: int) -> int:
        """Make the monthly partitions of `reads` from that of `first` on; returns how many were
        new. Raises AuditUnavailable."""
        return await self._number(_READS, (first, months))

    async def used_elsewhere(self, uses: Sequence[ApprovalUseRecord]) -> set[tuple[str, int]]:
        """Return those of these calls, each an id and a block, that another one was before in using
        the approval. Raises AuditUnavailable."""
        columns = zip(*((use.approval_id, use.call_id, use.block) for use in uses), strict=True)
        return {(row[0], row[1]) for row in await self._rows(_USED, tuple(map(list, columns)))}

    async def default_rows(self) -> int:
        """Return how many calls lie in the default partition: any means that a day's partition was
        missing. Raises AuditUnavailable."""
        return await self._number("SELECT count(*) FROM sluice_parts.calls_default", ())

    async def open_calls(self, since: str, most: int = 1000) -> list[str]:
        """Return calls from the id `since` on that have no end on record, the oldest first. Raises
        AuditUnavailable."""
        rows = await self._rows(_OPEN_CALLS, (since, most))
        return [row[0] for row in rows]

    async def hold(self, known: int | None, run_id: str) -> tuple[str, int | None]:
        """Return the database's id, empty where it has none yet, and which primary of Redis this is
        (`db.migrations.primaries`).

        Raises AuditUnavailable.
        """
        try:
            rows = await self._rows(COUNTED, (known, run_id))
        except AuditUnavailable as error:
            if isinstance(error.__cause__, _UNCOUNTED):
                return "", 0
            raise
        return rows[0] if rows else ("", 0)

    async def without_end(self, call_ids: Sequence[str]) -> list[str]:
        """Return those of the calls, which are ids, that have no end on record. Raises
        AuditUnavailable."""
        ids = sorted(map(UUID, call_ids))
        return (
            [row[0] for row in await self._rows(_WITHOUT_END, (ids, ids[0], ids[-1]))]
            if ids
            else []
        )

    async def dropped_before(self) -> str:
        """Return the call before which all rows were dropped in order, or nothing. It takes long.
        Raises AuditUnavailable."""
        rows = await self._rows(_DROPPED, ())
        return str(rows[0][0]) if rows else ""

    async def relayed(self, call_id: str, upto: int) -> RelayedReleases:
        """Look up a call's releases up to a session output. Raises AuditUnavailable."""
        [row] = await self._rows(_RELAYED, {"call": call_id, "upto": upto})
        return RelayedReleases(*row)

    async def mark(self, holes: Sequence[CallHole]) -> list[UUID]:
        """Record holes of calls; returns the calls of which that was not on record yet. Raises
        AuditUnavailable."""
        return sorted({row[0] for row in await self._rows(MARK, mark_values(holes))})
