"""Writes records into PostgreSQL: one transaction for a batch, repeatable, fast; a record that does
not fit is never dropped silently.

The same record twice is a no-op. The same key with other content is a conflict: the first row
stays, the other becomes an event of the call (`db.write.conflicts`). Rows are inserted plainly,
which fails if one exists; chunks and releases in runs (`db.write.runs`), likewise. Only then are existing rows skipped, and conflicts found by comparing
columns: exact, and free in the ordinary case. If a record of the batch fits no row, the batch is
made to fit (`db.write.fit_columns`). Records that cannot be made to fit are known before PostgreSQL
is asked: one statement sets them aside as dead letters, with bytes and reason, and the others are
stored. If PostgreSQL itself refuses a record, of which no case is known, it is found by halving the
batch, up to `MAX_TRIED` records of a call; past that, the rest of the call's records in the batch
are set aside too. Must not know: Redis."""

import contextlib
import hashlib
import logging
import struct
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import LiteralString, NamedTuple
from uuid import UUID

import psycopg

from db.text import to_column
from db.write.conflicts import CONFLICT, KEEP, RowConflict, read_conflict
from db.write.fit_columns import emptied, fit
from db.write.lookups import AuditLookups
from db.write.packing import Packed, column
from db.write.pipeline import Statement
from db.write.rows import IS_REDACTED, Rows, pack, uuid_of
from db.write.runs import IN_RUNS, Twice, locks, run_statements
from protocol.bounds import MAX_TRIED_RECORDS
from protocol.errors import AuditUnavailable
from protocol.records import ChunksRecord, Record, ToolCallRecord, call_ids, encode_records

MAX_REASON = 1000
MAX_TRIED = MAX_TRIED_RECORDS
"""Records of one batch that PostgreSQL refused, found one by one: each costs some 12 transactions
of 1 ms, for which all others wait."""
_log = logging.getLogger(__name__)
_DATA_ERRORS = (
    psycopg.DataError,
    psycopg.IntegrityError,
    psycopg.errors.ProgramLimitExceeded,
)
_TAKEN = (psycopg.errors.UniqueViolation, psycopg.errors.NotNullViolation)
"""What a row says whose key is taken, and a run that has none because its place is."""
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


class _Batch(NamedTuple):
    """Packed records."""

    tables: list[Rows]
    stored: list[Record]
    """Those that are stored in runs where they are new."""
    runs: list[Statement] | None
    """What does that; None where they cannot all be new."""


@dataclass(slots=True)
class _Letter:
    """A dead letter to be written."""

    raw: bytes
    reason: str
    call_id: str
    kind: str


class AuditInserter(AuditLookups):
    """Inserts batches; it never gives up. Not for concurrent use: one inserter per writer loop."""

    def __init__(self, database_url: str) -> None:
        super().__init__(database_url)
        self._redacted: set[str] = set()
        """Calls of the batch that are known to be redacted: what comes of them is inserted without
        content."""
        self._guard = Statement(_NONE_REDACTED, ())
        """Of the others, behind each insert."""

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
                await self._insert_packed(self._pack([], {}), outcome, look)
        if letters:
            await self._set_aside(letters)

    def _pack(self, records: Sequence[Record], bodies: Mapping[str, bytes]) -> _Batch:
        """As `db.write.rows.pack`, but calls that are known to be redacted as their redaction would
        leave them. Raises the same."""
        if self._redacted:
            records = [
                emptied(record) if record.call_id in self._redacted else record
                for record in records
            ]
            bodies = {
                call_id: b"" if call_id in self._redacted else body
                for call_id, body in bodies.items()
            }
        stored = [record for record in records if type(record) in IN_RUNS]
        tables = pack([record for record in records if type(record) not in IN_RUNS], bodies)
        try:
            return _Batch(tables, stored, run_statements(stored))
        except Twice:
            return _Batch(tables, stored, None)

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
        self, batch: _Batch, outcome: Conflicts, look: list[Statement]
    ) -> None:
        """All tables in one transaction, then the look, in one round trip; the comparison only when
        rows were there already."""
        await self._connected()
        is_new = False
        if batch.runs is not None:
            inserts = [Statement(rows.kind.insert, rows.columns) for rows in batch.tables]
            with contextlib.suppress(*_TAKEN):
                await self._run_all([*batch.runs, *inserts], look, outcome)
                is_new = True
        tables = batch.tables
        if is_new:
            inserted = [*(rows.count for rows in tables), *map(_count, batch.stored)]
        else:
            # nothing of it went in: a writer or a worker that died had written some of it
            tables, locked = [*tables, *pack(batch.stored, {})], locks(batch.stored)
            inserted = await self._run_all([*locked, *_new_rows(tables)], [], outcome)
            inserted = inserted[len(locked) :]
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
                self._fetched(
                    rows.kind.compare, list(map(Packed, rows.kind.compare_values(rows.columns)))
                )
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


def _count(record: Record) -> int:
    return len(record.raw) if isinstance(record, ChunksRecord) else 1


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
