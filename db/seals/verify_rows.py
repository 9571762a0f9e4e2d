"""Verification of rows: what each sealed call holds now against its seals, and against what its end
says, in constant memory.

Calls are taken in the order of their ids, some thousand rows at a time; each table's rows come as
COPY BINARY and are hashed as they come. Only what does not fit is read again, to say which row it
is and what was done to it (`db.seals.changed_rows`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import LiteralString
from uuid import UUID

import psycopg

from db.canonical import (
    FORMS,
    HASH,
    IS_BESIDE,
    MARK,
    VERSION,
    CopiedRow,
    Form,
    digests_hash,
    digests_of,
    holds_later,
    marks,
    row_hash,
    tables_in,
)
from db.filters import first_id
from db.missing_records import SUMS, find_holes, values_of
from db.seals import checkpoints
from db.seals.changed_rows import Bad, copy_rows, find_damage, find_exchanged
from db.seals.findings import Damage, Report
from db.seals.sealed_calls import Sealed, SealPart, older_fits
from db.seals.shed import find_shed, kept_digests, name_of, with_kept
from db.seals.verify_tree import Dropped

RANGE_ROWS = 20_000
RANGE_CALLS = 500
MAX_UNSEALED = 10_000
SEALED_WITHIN = timedelta(days=1)
"""Sealers seal every call some hours after its beginning at the latest, and write no checkpoint
before they did."""
LOWEST, HIGHEST = UUID(int=0), UUID(int=2**128 - 1)
_SEALS = f"""
SELECT s.call_id, s.position, s.part, s.form, s.made_for, {IS_BESIDE}, s.counts, s.sha256,
    r.part IS NOT NULL, r.salt, r.marks
FROM seals s LEFT JOIN seal_rows r ON r.call_id = s.call_id AND r.part = s.part
WHERE s.part >= 0 AND s.call_id >= %s AND s.call_id < %s ORDER BY s.call_id, s.part
""".encode()
_REDACTIONS: LiteralString = (
    "SELECT call_id, table_name, row_key, hashes FROM redactions WHERE call_id >= %s AND call_id"
    " <= %s"
)


def check_rows(
    connection: psycopg.Connection,
    report: Report,
    dropped: Dropped,
    *,
    low: UUID = LOWEST,
    high: UUID = HIGHEST,
    progress: Callable[[int], None] = lambda rows: None,
) -> list[int]:
    """Verify the calls from `low` to before `high`; returns the positions of the seals that were
    looked at, the first and the last."""
    checker = _Checker(connection, report, dropped)
    start = low
    for calls in _ranges(connection, low, high):
        end = calls[-1].call_id
        checker.check(calls, start, end, progress)
        start = UUID(int=end.int + 1)
    checker.check([], start, UUID(int=high.int - 1) if high != HIGHEST else HIGHEST, progress)
    report.unsealed = len(checker.unsealed)
    for finding in find_exchanged(checker.bad):
        report.replace(finding)
    return checker.positions


def _ranges(connection: psycopg.Connection, low: UUID, high: UUID) -> Iterator[list[Sealed]]:
    """Sealed calls in order, as many at a time as fit in memory."""
    calls: list[Sealed] = []
    rows = 0
    with connection.cursor("row_seals", binary=True) as cursor:
        cursor.itersize = RANGE_CALLS
        cursor.execute(_SEALS, (low, high))
        for (
            call_id,
            position,
            part,
            form,
            made_for,
            is_beside,
            counts,
            digest,
            is_kept,
            salt,
            stored_marks,
        ) in cursor:
            if not calls or calls[-1].call_id != call_id:
                rows += calls[-1].expected if calls else 0
                if rows >= RANGE_ROWS or len(calls) >= RANGE_CALLS:
                    yield calls
                    calls, rows = [], 0
                calls.append(Sealed(call_id))
            counts = [count or 0 for count in counts]
            calls[-1].parts.append(
                SealPart(
                    position,
                    part,
                    form,
                    made_for,
                    is_beside,
                    counts,
                    digest,
                    is_kept,
                    stored_marks or b"",
                )
            )
            if 1 <= form <= VERSION:
                calls[-1].hashes.setdefault(form, [bytearray() for _ in FORMS])
            calls[-1].salt = salt or calls[-1].salt
    if calls:
        yield calls


class _Checker:
    """Checks ranges of calls one after the other."""

    def __init__(self, connection: psycopg.Connection, report: Report, dropped: Dropped) -> None:
        self._connection, self._report, self._dropped = connection, report, dropped
        self.unsealed: set[bytes] = set()
        self.positions: list[int] = []
        self.bad: list[Bad] = []
        self._strange: set[bytes] = set()
        self._due = _due(connection)
        self._shed = find_shed(connection)

    def check(
        self, calls: Sequence[Sealed], low: UUID, high: UUID, progress: Callable[[int], None]
    ) -> None:
        """Check the calls from `low` up to and with `high`, of which `calls` are those with
        seals."""
        by_id = {call.call_id.bytes: call for call in calls}
        redacted = self._redactions(low, high)
        if self._shed.bounds:
            kept_of = kept_digests(self._connection, low, high)
            for sealed in calls:
                sealed.leaves, sealed.retained = (
                    self._shed.leaves(sealed.call_id),
                    kept_of.get(sealed.call_id.bytes, {}),
                )
        for place, form in enumerate(FORMS):
            rows = 0
            current, call = b"", None
            hashes: list[tuple[int, bytearray]] = []
            for data in copy_rows(self._connection, form, low, high):
                rows += 1
                if (at := data[6:22]) != current:
                    current, call = at, by_id.get(at)
                    if call is None:
                        self._see_unsealed(form, data)
                    else:
                        hashes = [(version, of[place]) for version, of in call.hashes.items()]
                if call is None:
                    continue
                redactions = redacted.get(current)
                for version, so_far in hashes:
                    if redactions is None:
                        so_far += row_hash(form, data, call.salt, version)
                    else:
                        row = CopiedRow.read(form, data)
                        call.tells_redaction = call.tells_redaction or row.tells_redaction
                        so_far += row.hash(
                            call.salt, redactions.get((form.table, row.key)), version=version
                        )
                if (
                    (newest := call.parts[-1].form) < VERSION
                    and call.is_known
                    and holds_later(form, data, newest)
                ):
                    self._see_uncovered(call, form, data)
                if rows % RANGE_ROWS == 0:
                    progress(RANGE_ROWS)
            self._report.rows += rows
            progress(rows % RANGE_ROWS)
        for sealed in calls:
            self._check_call(sealed, redacted.get(sealed.call_id.bytes, {}))
        self._find_holes(
            {
                call.call_id: call
                for call in calls
                if call.is_known
                and not call.is_empty
                and not call.leaves
                and call.call_id.bytes not in redacted
            }
        )

    def _find_holes(self, calls: Mapping[UUID, Sealed]) -> None:
        """Compare what whoever sealed these calls compared, or did not know to compare."""
        if not calls:
            return
        for row in self._connection.execute(SUMS, values_of(list(calls)), binary=True):
            hashes = next(iter(calls[row[0]].hashes.values()))
            for hole in find_holes(row, [len(of_table) // HASH for of_table in hashes]):
                self._report.add_hole(*hole)

    def _redactions(self, low: UUID, high: UUID) -> dict[bytes, dict[tuple[str, bytes], bytes]]:
        redactions: dict[bytes, dict[tuple[str, bytes], bytes]] = {}
        for call, table, key, hashes in self._connection.execute(
            _REDACTIONS, (low, high), binary=True
        ):
            redactions.setdefault(call.bytes, {})[table, key] = hashes
        return redactions

    def _see_unsealed(self, form: Form, data: bytes) -> None:
        call_id = UUID(bytes=data[6:22])
        problem = ""
        if call_id < self._dropped.before:
            problem = "rows of calls before this one were dropped"
        elif call_id < self._due:
            problem = "the call has no seal, and all others of its time have"
        if problem:
            if data[6:22] not in self._strange and len(self._strange) < MAX_UNSEALED:
                self._strange.add(data[6:22])
                self._report.found(
                    Damage.INSERTED, problem, call_id, form.table, CopiedRow.read(form, data).name
                )
        elif len(self.unsealed) < MAX_UNSEALED:
            self.unsealed.add(data[6:22])

    def _see_uncovered(self, call: Sealed, form: Form, data: bytes) -> None:
        """Beside newer tables a process of before may have sealed what it did not know; the next
        sweep covers it. Else nobody could."""
        if call.parts[-1].is_beside:
            self.unsealed.add(data[6:22])
        else:
            problem = (
                f"it holds a value that its seal, of version {call.parts[-1].form}, does not cover"
            )
            self._report.found(
                Damage.ALTERED, problem, call.call_id, form.table, CopiedRow.read(form, data).name
            )

    def _check_call(self, call: Sealed, redacted: dict[tuple[str, bytes], bytes]) -> None:
        report = self._report
        places = [part.position for part in call.parts]
        self.positions = [min([*self.positions[:1], *places]), max([*self.positions[-1:], *places])]
        if call.call_id < self._dropped.before:
            call.parts = [part for part in call.parts if part.position > self._dropped.position]
            if not call.parts:
                report.dropped += 1
                if not call.is_empty:
                    report.found(
                        Damage.INSERTED, "rows of calls before this one were dropped", call.call_id
                    )
                return
        report.calls += 1
        report.redacted += bool(redacted)
        newest = call.parts[-1]
        # a newer version counts tables that an older one does not know
        report.extended += any(
            a != b for a, b in zip(call.parts[0].counts, newest.counts, strict=False)
        )
        if not call.is_known:
            problem = (
                f"a seal is of a version that this one does not know (it knows up to {VERSION}):"
                " verify with the Sluice that made it"
            )
            report.found(
                Damage.ALTERED,
                problem,
                call.call_id,
                "seals",
                str(max(call.parts, key=lambda part: part.form).position),
            )
            return
        report.shed += bool(call.leaves)
        report.shed_tables.update(map(name_of, call.leaves))
        hashes, gone = call.hashes[newest.form][: tables_in(newest.form)], call.gone(newest)
        if inserted := [place for place in gone if hashes[place]]:
            problem = (
                f"rows of {name_of(inserted[0])} of calls of that day went: the leaf at position"
                f" {call.leaves[inserted[0]]}"
            )
            report.found(Damage.INSERTED, problem, call.call_id, name_of(inserted[0]))
            return
        digests = with_kept(digests_of(hashes, newest.form), gone, call.retained)
        fits = digests_hash(call.call_id, digests, newest.form) == newest.digest
        marks_fit = newest.is_kept and newest.marks == _marks(hashes, newest, gone)
        if fits and marks_fit:
            self._check_fitting(call, [count for count, _ in digests], is_redacted=bool(redacted))
        else:
            self._find_changed(call, redacted, gone, fits=fits, marks_fit=marks_fit)

    def _check_fitting(self, call: Sealed, counts: list[int], *, is_redacted: bool) -> None:
        """What else must hold of a call whose rows, `counts` of each table, are those of its newest
        seal."""
        newest = call.parts[-1]
        if counts != newest.counts:
            problem = "its seal counts other rows than it hashes"
            self._report.found(Damage.ALTERED, problem, call.call_id, "seals", str(newest.position))
        if is_redacted and not call.tells_redaction:
            # what is kept of content is made of it by anybody: only the event makes it a redaction
            self._report.found(
                Damage.ALTERED,
                "content was deleted, and no event of it says so",
                call.call_id,
                "redactions",
            )
        for part in call.parts[:-1]:
            if not older_fits(call, part):
                problem = (
                    f"the rows that part {part.part} of its seal covers are not all there as they"
                    " were"
                )
                self._report.found(
                    Damage.ALTERED, problem, call.call_id, "seals", str(part.position)
                )

    def _find_changed(
        self,
        call: Sealed,
        redacted: dict[tuple[str, bytes], bytes],
        gone: list[int],
        *,
        fits: bool,
        marks_fit: bool,
    ) -> None:
        """Say what was changed of a call that its newest seal does not fit: the rows, what is kept
        of them, or the seal."""
        report, newest = self._report, call.parts[-1]
        table, row = "seal_rows", str(newest.part)
        if call.is_empty:
            report.found(Damage.MISSING, "all rows of a sealed call are gone", call.call_id)
        elif not newest.is_kept:
            report.found(
                Damage.MISSING, "what the seal keeps of the rows is gone", call.call_id, table, row
            )
        elif fits or sum(newest.counts) * MARK != len(newest.marks):
            report.found(
                Damage.ALTERED,
                "what the seal keeps of the rows was changed",
                call.call_id,
                table,
                row,
            )
        elif marks_fit and gone:
            problem = "what was kept of rows that went, or the seal's hash, was changed"
            report.found(Damage.ALTERED, problem, call.call_id, "kept_digests")
        elif marks_fit:
            report.found(
                Damage.ALTERED,
                "the seal's hash was changed",
                call.call_id,
                "seals",
                str(newest.position),
            )
        else:
            finding, bad = find_damage(
                self._connection,
                call.call_id,
                call.salt,
                newest.counts,
                newest.marks,
                redacted,
                version=newest.form,
                gone=gone,
            )
            report.add(finding)
            if bad is not None and len(self.bad) < 50:
                self.bad.append(bad)


def _marks(hashes: Sequence[bytes | bytearray], part: SealPart, gone: Sequence[int]) -> bytes:
    """The marks of these rows; of rows that went, those that the seal has."""
    packed, at = b"", 0
    for place, (of_table, count) in enumerate(zip(hashes, part.counts, strict=False)):
        packed += part.marks[at : at + count * MARK] if place in gone else marks(of_table)
        at += count * MARK
    return packed


def _due(connection: psycopg.Connection) -> UUID:
    """Calls before this one have a seal, or their rows were put there by somebody else."""
    newest = connection.execute(
        "SELECT text FROM checkpoints ORDER BY size DESC LIMIT 1"
    ).fetchone()
    try:
        at = checkpoints.time_of(newest[0]) if newest else None
        return first_id(at - SEALED_WITHIN) if at else LOWEST
    except (ValueError, OverflowError):
        return LOWEST
