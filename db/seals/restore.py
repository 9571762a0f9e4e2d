"""An archived day (`db.seals.archive`) put back into tables without what was redacted since, and
which folders hold that still.

Content goes where a later folder or the database holds more of the call as redacted. Must not know:
who writes folders, the configuration.
"""

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import LiteralString
from uuid import UUID

import psycopg
from psycopg import sql

from db.canonical import FORMS, REDACTED, Form
from db.seals.archived_files import PIECE, Damaged, file_of, folders_in, read_seals
from db.seals.folder import UNREADABLE, bounds_of, check_folder, forms_of, read_manifest
from db.seals.proof import time_of_call
from db.seals.redact import RESTORED as SCHEMA
from db.seals.redact import changing, number
from db.seals.shed import find_shed, name_of

_REDACTED: LiteralString = (
    "SELECT call_id, count(*) FROM redactions WHERE call_id >= %s AND call_id < %s GROUP BY call_id"
)


@dataclass(frozen=True, slots=True)
class Copy:
    """A folder that holds content of a call which is redacted in the database."""

    path: Path
    more: tuple[str, ...] = ()
    """The tables of which it holds rows of the whole day that the database has no more."""
    is_readable: bool = True


def restore(database_url: str, source: Path, day: date) -> int:
    """Put the rows of a day into tables of the schema `sluice_restored`, which they may be in
    already; returns how many rows.

    Where there are several folders of the day, what a later one holds of a call in a table takes
    the place of what an earlier one does. Of a table whose rows had gone by then it holds only what
    came late, and that is added. Raises Damaged, OSError, AuditUnavailable.
    """
    folders = _of_day(source, day)
    if not folders:
        raise Damaged(f"{source} has no folder of {day}")
    row_counts = [check_folder(folder).rows for folder in folders]
    low, high = bounds_of(day)
    with changing(database_url) as connection, connection.transaction():
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(SCHEMA)))
        redacted = _redacted_since(connection, folders, low, high)
        total, taken = 0, [0] * len(folders)
        for form in FORMS:
            target = sql.Identifier(SCHEMA, form.table)
            like = sql.SQL("CREATE TABLE IF NOT EXISTS {} (LIKE {} INCLUDING DEFAULTS)")
            connection.execute(like.format(target, sql.Identifier(form.table)))
            connection.execute(
                sql.SQL("DELETE FROM {} WHERE call_id >= %s AND call_id < %s").format(target),
                (low, high),
            )
            for i, folder in enumerate(folders):
                taken[i] += _restore_table(
                    connection, folder, form.table, redacted[i], is_first=i == 0
                )
            counted = connection.execute(
                sql.SQL("SELECT count(*) FROM {} WHERE call_id >= %s AND call_id < %s").format(
                    target
                ),
                (low, high),
            ).fetchone()
            total += counted[0] if counted else 0
        for folder, rows, expected in zip(folders, taken, row_counts, strict=True):
            if rows != expected:
                raise Damaged(
                    f"{folder.name}: PostgreSQL read {rows:,} rows where {expected:,} were verified"
                )
    return total


def copies_of(database_url: str, source: Path, call_id: UUID, *, is_more: bool) -> list[Copy]:
    """Return the folders with content of a call that is redacted in the database. `is_more`: it
    holds some itself that is going to be.

    Raises OSError, AuditUnavailable.
    """
    folders = _of_day(source, time_of_call(call_id).date())
    with changing(database_url) as connection:
        hidden = number(
            connection, "SELECT count(*) FROM redactions WHERE call_id = %s", (call_id,)
        )
        gone = set(find_shed(connection).leaves(call_id))
    copies = []
    for folder in folders:
        try:
            line = next(
                (
                    candidate
                    for candidate in read_seals(folder)
                    if candidate["call_id"] == str(call_id)
                ),
                None,
            )
            more = gone - _gone_from(folder)
        except UNREADABLE:
            copies.append(Copy(folder, is_readable=False))
            continue
        if line is not None and (is_more or len(line["redacted"]) < hidden):
            copies.append(Copy(folder, tuple(map(name_of, sorted(more)))))
    return copies


def _of_day(source: Path, day: date) -> list[Path]:
    return [folder for folder in folders_in(source) if folder.name[:10] == str(day)]


def _gone_from(folder: Path) -> set[int]:
    """The places of the tables whose rows had gone when the folder was written."""
    return {(UUID(leaf["call_id"]).int & 0xFFFF) - 1 for leaf in read_manifest(folder)["gone"]}


def _redacted_since(
    connection: psycopg.Connection, folders: Sequence[Path], low: UUID, high: UUID
) -> list[list[UUID]]:
    """Of each folder the calls of which a later one, or the database, holds more rows as
    redacted."""
    most = {str(call_id): int(rows) for call_id, rows in connection.execute(_REDACTED, (low, high))}
    redacted = []
    for folder in reversed(folders):
        redactions = {
            line["call_id"]: len(line["redacted"])
            for line in read_seals(folder)
            if line["redacted"]
        }
        redacted.append(
            [UUID(call_id) for call_id, rows in most.items() if rows > redactions.get(call_id, 0)]
        )
        most |= {call_id: max(rows, most.get(call_id, 0)) for call_id, rows in redactions.items()}
    return redacted[::-1]


def _restore_table(
    connection: psycopg.Connection,
    folder: Path,
    table: str,
    redacted: Sequence[UUID],
    *,
    is_first: bool,
) -> int:
    """Put the rows of one file in the place of those that are there of the same calls, or are the
    same rows where those of the table had gone by then; returns how many the file has."""
    match = next(
        (
            (place, candidate)
            for place, candidate in enumerate(forms_of(read_manifest(folder)["form"]))
            if candidate.table == table
        ),
        None,
    )
    if match is None:
        return 0
    place, form = match
    target, columns = sql.Identifier(SCHEMA, table), sql.SQL(form.columns)
    # what is left out is in no old version of a row either: it is taken away in a temporary table
    is_direct = is_first and not redacted
    piece = target if is_direct else sql.Identifier(f"piece_{table}")
    if not is_direct:
        connection.execute(
            sql.SQL("CREATE TEMPORARY TABLE {} (LIKE {} INCLUDING DEFAULTS)").format(piece, target)
        )
    into = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(piece, columns)
    with (
        connection.cursor() as cursor,
        cursor.copy(into) as copy,
        gzip.open(file_of(folder, table), "rb") as file,
    ):
        while data := file.read(PIECE):
            copy.write(data)
    low, high = bounds_of(date.fromisoformat(folder.name[:10]))
    count = sql.SQL("SELECT count(*) FROM {} WHERE call_id >= %s AND call_id < %s").format(piece)
    row = connection.execute(count, (low, high)).fetchone()
    if not is_direct:
        if redacted and form.content:
            connection.execute(_emptied(form, piece), (list(redacted),))
        key = [name for name, _ in form.key] if place in _gone_from(folder) else []
        same = sql.SQL(", ").join(map(sql.Identifier, ["call_id", *key]))
        connection.execute(
            sql.SQL("DELETE FROM {0} WHERE ({2}) IN (SELECT {2} FROM {1})").format(
                target, piece, same
            )
        )
        connection.execute(
            sql.SQL("INSERT INTO {0} ({2}) SELECT {2} FROM {1}").format(target, piece, columns)
        )
        connection.execute(sql.SQL("DROP TABLE {}").format(piece))
    return int(row[0]) if row else 0


def _emptied(form: Form, piece: sql.Identifier) -> sql.Composed:
    """What takes the content of calls away, as redaction does: the event that says so stays."""
    emptied = sql.SQL(", ").join(
        sql.SQL("{0} = CASE WHEN {0} IS NOT NULL THEN ''::{1} END").format(
            sql.Identifier(name), sql.SQL(kind)
        )
        for name, kind in form.content
    )
    but = sql.SQL("AND kind <> {}").format(REDACTED) if form.table == "events" else sql.SQL("")
    return sql.SQL("UPDATE {} SET {} WHERE call_id = ANY(%s) {}").format(piece, emptied, but)
