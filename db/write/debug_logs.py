"""Writes debug lines, and what gateways refused, into PostgreSQL. One process at a time does this
and holds a lock while it is connected, so it sees which lines are missing. What cannot be written
is lost. Must not know: Redis.
"""

from collections.abc import Sequence
from typing import Any, LiteralString
from uuid import UUID

import psycopg

from db.agreed_time import TELL, clocks
from db.connections import TimedConnection, conninfo
from db.locks import DEBUG_LINES_LOCK
from db.text import to_column
from db.write.packing import Packed, PackedDumper, array, column
from protocol.debug import KEPT_BYTES, KEPT_DAYS, DebugLine, DoorCount
from protocol.errors import AuditUnavailable

ANSWER_S = 10.0
_EPOCH_US = 946_684_800_000_000
# not COPY, which a line that is there already would end
_INSERT: LiteralString = """
INSERT INTO debug_logs (call_id, process, n, at, type, event, seq, number, block, policy, hook,
    duration_us, bytes, detail)
SELECT c, p, n, a, t, e, nullif(s, -1), nullif(u, -1), nullif(b, -1), nullif(o, ''), nullif(h, ''),
    nullif(d, -1), nullif(z, -1), x
FROM unnest(%b::uuid[], %b::text[], %b::int4[], %b::timestamptz[], %b::text[], %b::text[],
    %b::int4[], %b::int4[], %b::int4[], %b::text[],
    %b::text[], %b::int4[], %b::int4[], %b::bytea[]) AS v (c, p, n, a, t, e, s, u, b, o, h, d, z, x)
WHERE NOT EXISTS (SELECT FROM redacted_calls r WHERE r.call_id = v.c)
ON CONFLICT DO NOTHING
"""
"""A line of a call that is redacted by now is not kept: it would say again what was deleted."""
_COUNT: LiteralString = "SELECT sluice_count_door(%s, to_timestamp(%s), %s, %s, %s)"
_TRIM: LiteralString = "SELECT sluice_trim_debug_logs(%s, %s)"
_LOCK: LiteralString = "SELECT pg_try_advisory_lock(%s)"
_INT4 = 2**31 - 1


class DebugLogWriter:
    """One connection, opened when there is something to write. Every method raises AuditUnavailable
    when PostgreSQL is away or refuses, and is then not connected any more."""

    def __init__(self, database_url: str) -> None:
        self._conninfo = conninfo(database_url)
        self._connection: TimedConnection | None = None

    @property
    def is_connected(self) -> bool:
        """Does this process write now?"""
        return self._connection is not None

    async def open(self) -> bool:
        """Connect; False where another process writes."""
        if self._connection is not None:
            return True
        try:
            connection = await TimedConnection.connect(self._conninfo, autocommit=True)
        except (psycopg.Error, OSError) as error:
            raise AuditUnavailable("debug lines cannot be written now") from error
        connection.answer_s = ANSWER_S
        connection.adapters.register_dumper(Packed, PackedDumper)
        self._connection = connection
        if not (await self._run(_LOCK, DEBUG_LINES_LOCK)):
            await self.close()
            return False
        # lines are lost with a server that crashes, which costs them nothing
        await self._run("SELECT set_config('synchronous_commit', 'off', false)")
        return True

    async def close(self) -> None:
        """Let another process write."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def store(self, lines: Sequence[tuple[str, DebugLine]]) -> None:
        """Insert lines, each with its process."""
        if lines:
            await self._run(_INSERT, *_columns(lines))

    async def count_door(self, gateway: str, at_ms: int, counts: Sequence[DoorCount]) -> None:
        """Raise what a gateway refused to these sums."""
        keys, codes = (
            [to_column(count.key) for count in counts],
            [to_column(count.code) for count in counts],
        )
        await self._run(
            _COUNT, to_column(gateway), at_ms / 1000, keys, codes, [count.n for count in counts]
        )

    async def trim(self, redis_s: float, days: int = KEPT_DAYS, most: int = KEPT_BYTES) -> int:
        """Drop the days that are kept no longer, the oldest first, and such lines of no partition
        of theirs; returns how many went. None go for their age where Redis' clock, which says
        `redis_s`, and the two others do not agree."""
        await self._run(TELL, clocks(redis_s))
        return int(await self._run(_TRIM, days, most))

    async def _run(self, statement: LiteralString, *values: object) -> Any:
        if self._connection is None:
            # an earlier statement of the same look failed
            raise AuditUnavailable("debug lines cannot be written now")
        try:
            cursor = await self._connection.execute(statement, values)
            if cursor.description is None:
                return None
            row = await cursor.fetchone()
            return row[0] if row else None
        except (psycopg.Error, OSError) as error:
            await self.close()
            raise AuditUnavailable("debug lines cannot be written now") from error


def _columns(lines: Sequence[tuple[str, DebugLine]]) -> tuple[Packed, ...]:
    ids: dict[str, bytes] = {}
    calls, texts, numbers = [], [list[str]() for _ in range(5)], [list[int]() for _ in range(6)]
    times, details = [], []
    for process, line in lines:
        if (packed := ids.get(line.call_id)) is None:
            packed = ids[line.call_id] = UUID(line.call_id).bytes
        calls.append(packed)
        for into, text in zip(
            texts, (process, line.type, line.event, line.policy, line.hook), strict=True
        ):
            into.append(to_column(text))
        for to, number in zip(
            numbers,
            (line.n, line.seq, line.number, line.block, line.duration_us, line.size),
            strict=True,
        ):
            to.append(number if -_INT4 <= number <= _INT4 else _INT4)
        times.append(b"\x00\x00\x00\x08" + (line.at - _EPOCH_US).to_bytes(8, "big", signed=True))
        details.append(line.detail)
    processes, types, events, policies, hooks = (column("text", values) for values in texts)
    ns, seqs, releases, blocks, durations, sizes = (column("int4", values) for values in numbers)
    at = array("timestamptz", len(times), times)
    packed_columns = (
        column("uuid", calls),
        processes,
        ns,
        at,
        types,
        events,
        seqs,
        releases,
        blocks,
        policies,
        hooks,
        durations,
        sizes,
        column("bytea", details),
    )
    return tuple(map(Packed, packed_columns))
