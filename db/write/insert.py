"""Writes records into PostgreSQL: one transaction for a batch, repeatable, fast; a record that does
not fit is never dropped silently.

The same record twice is a no-op. The same key with other content is a conflict: the first row
stays, the other becomes an event of the call (`db.write.conflicts`). Rows are inserted plainly,
which fails if one exists. Only then are existing rows skipped, and conflicts found by comparing
columns: exact, and free in the ordinary case. If a record of the batch fits no row, the batch is
made to fit (`db.write.fit`). Records that cannot be made to fit are known before PostgreSQL is
asked: one statement sets them aside as dead letters, with bytes and reason, and the others are
stored. If PostgreSQL itself refuses a record, of which no case is known, it is found by halving the
batch, up to `MAX_TRIED` records of a call; past that, the rest of the call's records in the batch
are set aside too. Must not know: Redis.
"""

import asyncio
import contextlib
import hashlib
import logging
import struct
from collections import Counter
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, LiteralString, NamedTuple, Self, TypeVar
from uuid import UUID

import psycopg
from psycopg import AsyncConnection
from psycopg.pq.abc import PGresult

from db.canonical import uncovered_sql
from db.connections import conninfo, cut
from db.holes import MARK, CallHole, mark_values
from db.migrations.primaries import COUNTED
from db.text import to_column
from db.write.conflicts import CONFLICT, KEEP, RowConflict, read_conflict
from db.write.fit import emptied, fit
from db.write.packing import Packed, PackedDumper, column
from db.write.pipeline import Pipeline, Statement
from db.write.rows import IS_REDACTED, PARTITIONED, Rows, pack, uuid_of
from protocol.bounds import MAX_TRIED_RECORDS
from protocol.errors import AuditUnavailable
from protocol.records import Record, ToolCallRecord, call_ids, encode_records

STATEMENT_TIMEOUT_MS = 30_000
SILENT_S, LONGEST_SILENT_S = 10.0, 40.0
"""A batch without an answer for so long is given up with its connection: a network or a server that
is gone says nothing. Each time the next batch gets twice the time, past the server's own statement
timeout, so that a slow server is not taken for a silent one for ever."""
MAX_REASON = 1000
MAX_TRIED = MAX_TRIED_RECORDS
"""Records of one batch that PostgreSQL refused, found one by one: each costs some 12 transactions
of 1 ms, for which all others wait."""
T = TypeVar("T")
_log = logging.getLogger(__name__)
_DATA_ERRORS = (
    psycopg.DataError,
    psycopg.IntegrityError,
    psycopg.errors.ProgramLimitExceeded,
)
_UNCOUNTED = (psycopg.errors.UndefinedTable, psycopg.errors.InsufficientPrivilege)
"""What a database answers that was not migrated yet, or did not give the right to count."""
_PACK_ERRORS = (ValueError, TypeError, AttributeError, OverflowError, struct.error)
_DEAD_LETTER: LiteralString = f"""
INSERT INTO dead_letters (sha256, call_id, kind, raw, reason)
SELECT * FROM unnest(%s::bytea[], %s::text[], %s::text[], %s::bytea[], %s::text[]) v (sha256,
    call_id, kind, raw, reason)
WHERE CASE WHEN call_id ~ '^[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}$' THEN NOT
    {IS_REDACTED} ELSE true END
ON CONFLICT DO NOTHING
"""
"""Those of a redacted call were deleted with its content, and must not come back."""
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
_PARTITIONS: LiteralString = "SELECT sluice_ensure_partitions(%s::date, %s, %s)"
_READS: LiteralString = "SELECT sluice_ensure_reads(%s::date, %s)"
_SEALED: LiteralString = "SELECT DISTINCT call_id FROM seals WHERE call_id = ANY($1::uuid[])"
_REDACTED: LiteralString = (
    f"SELECT v.call_id FROM unnest(%s::text[]) v (call_id) WHERE {IS_REDACTED}"
)
_NONE_REDACTED: LiteralString = (
    "SELECT (SELECT 1 UNION ALL SELECT 1 FROM redacted_calls WHERE call_id = ANY($1::uuid[]))"
)
"""Fails, as a subquery with two rows, if one of the calls is redacted. It is the last statement of
each transaction that inserts: a redaction that it does not see waits for the transaction, and then
redacts what that wrote (`db.seals.redact`)."""


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


@dataclass(slots=True)
class Conflicts:
    """What did not go in as it came. All lists are empty for an ordinary batch; the caller counts
    and logs them."""

    conflicts: list[RowConflict] = field(default_factory=list)
    refused: list[Record] = field(default_factory=list)
    """Records set aside as dead letters."""
    refused_bodies: list[str] = field(default_factory=list)
    """Call ids whose request body was set aside."""
    rows: int = 0
    """Rows that were new."""
    sealed: list[UUID] = field(default_factory=list)
    """Calls that had a seal already once the batch was committed: what was inserted for them came
    late."""

    def __bool__(self) -> bool:
        return bool(self.conflicts or self.refused or self.refused_bodies)

    def held(self, records: Iterable[Record]) -> list[ToolCallRecord]:
        """Return the tool calls among these records that the record now holds as they are: only
        those may be announced as committed."""
        lost = {c.key for c in self.conflicts if c.table == "tool_calls"}
        lost |= {_key(r) for r in self.refused if isinstance(r, ToolCallRecord)}
        return [r for r in records if isinstance(r, ToolCallRecord) and _key(r) not in lost]


@dataclass(slots=True)
class _Letter:
    """A dead letter to be written."""

    raw: bytes
    reason: str
    call_id: str
    kind: str


class AuditInserter:
    """Inserts batches over one connection of its own, opened when needed and again after a failure;
    it never gives up.

    Not for concurrent use: one inserter per writer loop.
    """

    def __init__(self, database_url: str) -> None:
        self._conninfo = conninfo(database_url)
        self._connection: AsyncConnection | None = None
        self._pipeline: Pipeline | None = None
        self._silent_s = SILENT_S
        self._redacted: set[str] = set()
        """Calls of the batch that are known to be redacted: what comes of them is inserted without
        content."""
        self._guard = Statement(_NONE_REDACTED, ())
        """Of the others, behind each insert."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def insert(
        self,
        records: Sequence[Record],
        bodies: Mapping[str, bytes],
        *,
        look_at: Collection[str] = (),
    ) -> Conflicts:
        """Commit records and request bodies (by call id); when it returns they are durable.

        look_at: calls of which to say whether they were sealed before.

        Raises AuditUnavailable when PostgreSQL is away, full or too slow: nothing of the batch that
        failed was committed, and inserting it again is safe.
        """
        calls = _ids({*call_ids(records), *bodies, *look_at})
        self._redacted = set()
        look = (
            [
                Statement(
                    _SEALED,
                    (column("uuid", [calls[call_id] for call_id in look_at if call_id in calls]),),
                )
            ]
            if look_at
            else []
        )
        try:
            while True:
                outcome = Conflicts()
                others = [raw for call_id, raw in calls.items() if call_id not in self._redacted]
                self._guard = Statement(_NONE_REDACTED, (column("uuid", others),))
                try:
                    await self._insert_all(records, bodies, outcome, look)
                    return outcome
                except psycopg.errors.CardinalityViolation:
                    before, self._redacted = (
                        self._redacted,
                        {row[0] for row in await self._rows(_REDACTED, (list(calls),))},
                    )
                    if self._redacted == before:
                        # it was another statement's
                        raise
        except (psycopg.Error, OSError) as error:
            await self.close()
            raise AuditUnavailable("the audit log cannot be written now") from error
        except BaseException:
            await self.close()
            raise

    async def without_body(self, call_ids: Sequence[str]) -> list[str]:
        """Return those of the calls whose request body is not on record. Raises
        AuditUnavailable."""
        try:
            return [row[0] for row in await self._rows(_WITHOUT_BODY, (list(call_ids),))]
        except psycopg.DataError:
            # one is no id: it is set aside when it is inserted, and the others are not lost over it
            return list(call_ids)

    async def sealed_among(self, call_ids: Collection[str]) -> list[UUID]:
        """Return those of these calls that have a seal already: what was inserted for them came
        late. Raises AuditUnavailable."""
        return (await self.insert((), {}, look_at=call_ids)).sealed

    async def set_aside(self, raws: Sequence[tuple[str, bytes]], reason: str) -> None:
        """Keep bytes that are no records as dead letters, each with its call's id or nothing; twice
        is a no-op.

        Raises AuditUnavailable.
        """
        try:
            await self._set_aside([_Letter(raw, reason, call_id, "entry") for call_id, raw in raws])
        except (psycopg.Error, OSError) as error:
            await self.close()
            raise AuditUnavailable("the audit log cannot be written now") from error

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

    async def close(self) -> None:
        """Close the connection; the next use opens another."""
        connection, self._connection, self._pipeline = self._connection, None, None
        if connection is not None:
            await connection.close()

    async def _number(self, statement: LiteralString, values: tuple[object, ...]) -> int:
        rows = await self._rows(statement, values)
        return int(rows[0][0]) if rows else 0

    async def _rows(
        self, statement: LiteralString, values: tuple[object, ...] | Mapping[str, object]
    ) -> list[Any]:
        try:
            return await self._answered(self._fetched(statement, values))
        except psycopg.DataError:
            raise
        except (psycopg.Error, OSError) as error:
            await self.close()
            raise AuditUnavailable("the audit log cannot be maintained now") from error

    async def _fetched(
        self, statement: str, values: Sequence[object] | Mapping[str, object]
    ) -> list[Any]:
        connection = await self._connected()
        return await (await connection.execute(statement, values)).fetchall()

    async def _run(self, transactions: list[list[Statement]]) -> list[list[PGresult]]:
        """The same as `_answered` for the pipeline, which may be cancelled and closed at any time:
        without a task, 30 us less a batch."""
        assert self._connection is not None and self._pipeline is not None
        connection, is_silent = self._connection, False

        def give_up() -> None:
            nonlocal is_silent
            is_silent = True
            cut(connection)

        clock = asyncio.get_running_loop().call_later(self._silent_s, give_up)
        try:
            results = await self._pipeline.run(transactions)
        except BaseException:
            if is_silent:
                self._silent_s = min(2 * self._silent_s, LONGEST_SILENT_S)
            raise
        finally:
            clock.cancel()
        # not after an error: what a slow server refuses at once says nothing of how long it takes
        # for the rest
        self._silent_s = SILENT_S
        return results

    async def _answered(self, work: Coroutine[Any, Any, T]) -> T:
        """Do some work on the connection; without an answer in time the connection is cut, and the
        work fails with it."""
        task = asyncio.ensure_future(work)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            done, _ = await asyncio.wait({task}, timeout=self._silent_s)
            self._silent_s = SILENT_S if done else min(2 * self._silent_s, LONGEST_SILENT_S)
        finally:
            if not task.done():
                # not cancelled: the driver would then ask the server to cancel, and wait for its
                # answer
                if self._connection is not None:
                    cut(self._connection)
                # whoever is cancelled closes the connection next, and under a pipeline that still
                # reads the driver crashes the process
                await asyncio.wait({task})
        return await task

    async def _connected(self) -> AsyncConnection:
        if self._connection is None or self._connection.closed:
            # a commit that is announced is on disk, and a redaction is seen, whatever the defaults
            # of server, database and login
            level = "-c default_transaction_isolation=read\\ committed"
            options = (
                f"-c statement_timeout={STATEMENT_TIMEOUT_MS} -c timezone=UTC -c"
                f" synchronous_commit=on {level}"
            )
            self._connection = await AsyncConnection.connect(
                self._conninfo, autocommit=True, options=options
            )
            self._connection.adapters.register_dumper(Packed, PackedDumper)
            self._pipeline = Pipeline(self._connection)
        return self._connection

    async def _insert_all(
        self,
        records: Sequence[Record],
        bodies: Mapping[str, bytes],
        outcome: Conflicts,
        look: list[Statement],
    ) -> None:
        letters: list[_Letter] = []
        try:
            tables = self._pack(records, bodies)
        except _PACK_ERRORS:
            records, bodies = _fitting(records, bodies, outcome, letters)
            tables = self._pack(records, bodies)
        try:
            await self._insert_packed(tables, outcome, look)
        except _DATA_ERRORS:
            await self._insert_halving(records, outcome, letters)
            for call_id, body in bodies.items():
                await self._insert_halving([], outcome, letters, {call_id: body})
            if look:
                await self._insert_packed([], outcome, look)
        if letters:
            await self._set_aside(letters)

    def _pack(self, records: Sequence[Record], bodies: Mapping[str, bytes]) -> list[Rows]:
        """As `db.write.rows.pack`, but calls that are known to be redacted as their redaction would
        leave them."""
        if self._redacted:
            records = [
                emptied(record) if record.call_id in self._redacted else record
                for record in records
            ]
            bodies = {
                call_id: b"" if call_id in self._redacted else body
                for call_id, body in bodies.items()
            }
        return pack(records, bodies)

    async def _insert_halving(
        self,
        records: Sequence[Record],
        outcome: Conflicts,
        letters: list[_Letter],
        body: Mapping[str, bytes] | None = None,
    ) -> None:
        """Insert records, or one body; those that PostgreSQL refuses become letters."""
        try:
            await self._insert_packed(self._pack(records, body or {}), outcome, [])
        except _DATA_ERRORS as error:
            is_one_call = len({record.call_id for record in records}) <= 1
            if len(records) <= 1 or (is_one_call and len(letters) >= MAX_TRIED):
                _refuse(records, body or {}, error, outcome, letters)
                return
            middle = len(records) // 2
            await self._insert_halving(records[:middle], outcome, letters)
            await self._insert_halving(records[middle:], outcome, letters)

    async def _insert_packed(
        self, tables: list[Rows], outcome: Conflicts, look: list[Statement]
    ) -> None:
        """All tables in one transaction, then the look, in one round trip; the comparison only when
        rows were there already."""
        await self._connected()
        try:
            inserted = await self._run_all(
                [Statement(rows.kind.insert, rows.columns) for rows in tables], look, outcome
            )
        except psycopg.errors.UniqueViolation:
            # nothing of it went in: a writer or a worker that died had written some of it
            inserted = await self._run_all(_new_rows(tables), [], outcome)
            outcome.conflicts += await self._keep_conflicts(
                [rows for rows, new in zip(tables, inserted, strict=True) if new < rows.count]
            )
            # last: a seal that is not there yet will cover what went in
            await self._run_all([], look, outcome)
        outcome.rows += sum(inserted)

    async def _keep_conflicts(self, tables: list[Rows]) -> list[RowConflict]:
        """Find the rows that differ from those on record and keep them as events. Repeated if this
        process dies: they are not done yet."""
        conflicts = [
            read_conflict(rows.kind, row)
            for rows in tables
            for row in await self._answered(
                self._fetched(rows.kind.compare, list(map(Packed, rows.columns)))
            )
        ]
        if conflicts:
            [events] = pack([event for conflict in conflicts for event in conflict.events], {})
            await self._run_all([Statement(KEEP, events.columns)], [], Conflicts())
        letters = [
            _Letter(
                conflict.whole,
                f"differs from the row of {conflict.table} on record",
                conflict.events[0].call_id,
                CONFLICT,
            )
            for conflict in conflicts
            if conflict.whole is not None
        ]
        if letters:
            await self._set_aside(letters)
        return conflicts

    async def _run_all(
        self, inserts: list[Statement], look: list[Statement], outcome: Conflicts
    ) -> list[int]:
        """Returns how many rows each insert made."""
        guarded = [*inserts, self._guard] if inserts else []
        results = await self._run([statements for statements in (guarded, look) if statements])
        if look:
            (seals,) = results[-1]
            outcome.sealed += [UUID(bytes=seals.get_value(row, 0)) for row in range(seals.ntuples)]
        return [result.command_tuples or 0 for result in results[0][:-1]] if inserts else []

    async def _set_aside(self, letters: Sequence[_Letter]) -> None:
        await self._answered(self._write_letters(letters))
        for call_id, count in Counter(letter.call_id for letter in letters).items():
            _log.error(
                "records set aside",
                extra={"call_id": call_id, "action": "dead_letter", "count": count},
            )

    async def _write_letters(self, letters: Sequence[_Letter]) -> None:
        connection = await self._connected()
        reasons = [
            to_column(letter.reason.encode(errors="backslashreplace").decode()[:MAX_REASON])
            for letter in letters
        ]
        digests, raws = (
            [hashlib.sha256(letter.raw).digest() for letter in letters],
            [letter.raw for letter in letters],
        )
        texts = (
            [to_column(letter.call_id) for letter in letters],
            [letter.kind for letter in letters],
        )
        await connection.execute(_DEAD_LETTER, (digests, *texts, raws, reasons))


def _new_rows(tables: Sequence[Rows]) -> list[Statement]:
    return [Statement(rows.kind.insert_new, rows.columns) for rows in tables]


def _fitting(
    records: Sequence[Record],
    bodies: Mapping[str, bytes],
    outcome: Conflicts,
    letters: list[_Letter],
) -> tuple[list[Record], dict[str, bytes]]:
    """Return what fits a row, or was made to; the rest becomes letters."""
    groups = [(record, fit(record)) for record in records]
    try:
        pack([fitted for _, group in groups for fitted in group], {})
    except _PACK_ERRORS:
        groups = [
            (record, group) for record, group in groups if _packs(record, group, outcome, letters)
        ]
    fitting_bodies = {}
    for call_id, body in bodies.items():
        try:
            pack((), {call_id: body})
            fitting_bodies[call_id] = body
        except _PACK_ERRORS as error:
            _refuse((), {call_id: body}, error, outcome, letters)
    return [fitted for _, group in groups for fitted in group], fitting_bodies


def _packs(
    record: Record, fitted: Sequence[Record], outcome: Conflicts, letters: list[_Letter]
) -> bool:
    try:
        pack(fitted, {})
    except _PACK_ERRORS as error:
        _refuse([record], {}, error, outcome, letters)
        return False
    return True


def _refuse(
    records: Sequence[Record],
    bodies: Mapping[str, bytes],
    error: Exception,
    outcome: Conflicts,
    letters: list[_Letter],
) -> None:
    reason = f"{type(error).__name__}: {error}"
    letters += [
        _Letter(encode_records([record]), reason, record.call_id, type(record).__name__)
        for record in records
    ]
    letters += [_Letter(body, reason, call_id, "body") for call_id, body in bodies.items()]
    outcome.refused += records
    outcome.refused_bodies += bodies


def _key(record: ToolCallRecord) -> str:
    """As a conflict names it."""
    return f"{record.call_id.lower()}/{record.block}"


def _ids(call_ids: Iterable[str]) -> dict[str, bytes]:
    """Call ids with their bytes, without what is none: such a record is a dead letter."""
    ids = {}
    for call_id in call_ids:
        with contextlib.suppress(ValueError):
            ids[call_id] = uuid_of(call_id)
    return ids
