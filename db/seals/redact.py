"""Removes content from the record, visibly: redaction of a call, and the end of retention. For the
owner of the tables.

The work is done by two functions in the database that writers and readers may not call
(`db.migrations.sealed`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time
from typing import LiteralString
from uuid import UUID

import psycopg
from psycopg import sql

from db.agreed_time import today
from db.canonical import FORMS
from db.connections import conninfo
from db.filters import created_at, first_id
from db.migrations.dropping import compared
from db.migrations.removal import (
    CAME_MEANWHILE,
    LET_GO,
    NO_CHECKPOINT,
    NO_SEAL,
    ROWS_DIFFER,
    RUNS,
)
from db.seals.seal import Sealer
from db.seals.verify_tree import find_dropped
from db.text import to_column
from protocol.errors import AuditUnavailable, Forbidden, InvalidRequest, NotFound

WAIT_S = 5
"""How long to wait for who writes to a table; others that write wait meanwhile."""
RESTORED = "sluice_restored"
"""The schema of days that were put back from an archive (`db.seals.restore`), beside the record."""
_NOT_OWNER = "this database user may not do that; it needs the owner of the tables"
_NOT_DROPPED = {
    NO_SEAL: "some of these calls have no seal yet",
    NO_CHECKPOINT: "some of these calls are under no checkpoint yet",
    CAME_MEANWHILE: "one of these calls was sealed meanwhile",
    ROWS_DIFFER: (
        "of some of these calls there are other rows than their seals count (`sluice audit verify`"
        " says which)"
    ),
}
_MAY_DROP = "has_function_privilege('sluice_drop_before(date, text)', 'EXECUTE')"
_WOULD_DROP = f"""
WITH gone AS MATERIALIZED (SELECT call_id FROM calls WHERE call_id < %(bound)s UNION SELECT call_id
    FROM ends WHERE call_id < %(bound)s)
SELECT CASE
    WHEN EXISTS (SELECT FROM gone g WHERE NOT EXISTS (SELECT FROM seals s
        WHERE s.call_id = g.call_id)) THEN {NO_SEAL}
    WHEN EXISTS (SELECT FROM seals WHERE call_id < %(bound)s AND part >= 0
        AND position >= coalesce((SELECT max(size) FROM checkpoints), 0))
        THEN {NO_CHECKPOINT}
    ELSE (SELECT count(*) FROM gone) END
"""
"""Return the result that `sluice_drop_before` would have; it also counts calls of which only the
end is stored."""
_LETTERS: LiteralString = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = to_regclass('dead_letters')
"""
_PUT_BACK: LiteralString = (
    "SELECT schemaname, tablename FROM pg_tables WHERE schemaname = %s AND tablename = ANY(%s)"
)
_IN_USE: LiteralString = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid IN (to_regclass('audit_reviews'), to_regclass('labels'))
UNION SELECT n.nspname, c.relname FROM reads r JOIN pg_class c ON c.oid = r.tableoid
    JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE r.call_ids @> ARRAY[%s]
"""
"""What people read and write all the time, of all days: writing it anew would stop the pages."""


def redact(
    database_url: str, call_id: UUID, reason: str, *, rewrite: bool = False, dry_run: bool = False
) -> int:
    """Delete the content of a call and keep its salted hashes; returns how many rows had content.

    An event `redacted` says who did it and why, and a new seal covers it. Then the tables are
    cleaned of old row versions. `rewrite` writes the day's files anew, so that their free space
    holds nothing either; nobody can write to that day meanwhile. A second call redacts only what
    arrived since (rows, debug lines, words of searches that found it), and writes an event only
    where there was any. `dry_run` does it and rolls back. Raises NotFound, InvalidRequest for an
    open call, Forbidden, AuditUnavailable.
    """
    with changing(database_url) as connection:
        rows = _redact(connection, call_id, reason, dry_run=dry_run)
        if not dry_run:
            _seal(database_url, call_id)
            _wait_for_writers(connection)
            rows += _redact(connection, call_id, reason, dry_run=False)
            _seal(database_url, call_id)
            if rows or rewrite:
                _vacuum(connection, call_id, "(FULL) " if rewrite else "")
    return rows


def _seal(database_url: str, call_id: UUID) -> None:
    with Sealer(database_url) as sealer:
        sealer.seal([call_id])


def _redact(connection: psycopg.Connection, call_id: UUID, reason: str, *, dry_run: bool) -> int:
    """Rows and dead letters that had content; where there were none, or dry, all is taken back."""
    with connection.transaction() as transaction:
        letters = number(
            connection, "SELECT count(*) FROM dead_letters WHERE call_id = %s", (str(call_id),)
        )
        rows = number(
            connection,
            "SELECT sluice_redact(%s, session_user || ': ' || %s)",
            (call_id, to_column(reason)),
        )
        if rows == -1:
            raise NotFound(f"no call {call_id} in the record")
        if rows == -2:
            raise InvalidRequest(
                "the call is still open: more would come; redact it when it has ended", param="call"
            )
        rows += letters + _delete_restored(connection, call_id)
        if dry_run or not rows:
            raise psycopg.Rollback(transaction)
    return rows


def _wait_for_writers(connection: psycopg.Connection) -> None:
    """Wait for transactions that looked for the redaction before it was there. Later ones see it,
    and write no content."""
    for table in ("dead_letters", "debug_logs", "histories", *(form.table for form in FORMS)):
        with connection.transaction():
            connection.execute(f"SET LOCAL lock_timeout = '{WAIT_S}s'".encode())
            connection.execute(
                sql.SQL("LOCK TABLE ONLY {} IN SHARE ROW EXCLUSIVE MODE").format(
                    sql.Identifier(table)
                )
            )


def _delete_restored(connection: psycopg.Connection, call_id: UUID) -> int:
    """Delete what was put back of the call, with what no seal here would cover: returns how many
    rows."""
    return sum(
        connection.execute(
            sql.SQL("DELETE FROM {} WHERE call_id = %s").format(sql.Identifier(*table)), (call_id,)
        ).rowcount
        for table in connection.execute(
            _PUT_BACK, (RESTORED, [form.table for form in FORMS])
        ).fetchall()
    )


def drop_before(
    database_url: str,
    day: date,
    reason: str,
    *,
    redis_time: Callable[[], float],
    dry_run: bool = False,
    damaged: bool = False,
) -> int:
    """Drop the rows of all calls that began before `day` (UTC, from 1970 on), and leave their
    seals; returns how many calls they were.

    A seal of its own says who did it and why; where there are none nothing is done. With `dry_run`
    it is only read, and nobody waits: dropping takes the tables for itself. Where rows of a later
    day went already, those that came late go up to that day. Raises InvalidRequest as long as one
    of them is under no checkpoint or has other rows than its seals count, and for a day that is not
    over; Forbidden, AuditUnavailable. `damaged`: for the owner those go too, and the leaf says of
    how many calls that was. `redis_time`: what Redis' clock says (`db.agreed_time`).
    """
    if day.year < 1970:
        # there are no such calls, and the function would take that day for one after all others
        return 0
    with changing(database_url) as connection:
        if not number(connection, f"SELECT {_MAY_DROP}::int", {}):
            raise Forbidden(_NOT_OWNER)
        day = check_day(connection, day, redis_time())
        bound: dict[str, object] = {"bound": first_id(datetime.combine(day, time(), UTC))}
        calls = number(connection, _WOULD_DROP, bound)
        if (
            calls > 0
            and dry_run
            and not damaged
            and any(
                number(connection, compared(spot + 1, "%(bound)s"), bound)
                for spot in range(len(FORMS))
            )
        ):
            calls = ROWS_DIFFER
        if calls > 0 and not dry_run:
            connection.execute(
                "SELECT set_config(%s, %s, false)", (LET_GO, "yes" if damaged else "no")
            )
            calls = number(
                connection,
                "SELECT sluice_drop_before(%s, session_user || ': ' || %s)",
                (day, to_column(reason)),
            )
    if calls < 0:
        raise InvalidRequest(
            f"{_NOT_DROPPED[calls]}: let an audit writer run, then try again", param="before"
        )
    return calls


def raise_day(connection: psycopg.Connection, day: date) -> date:
    """Return the day up to which rows went already where the given one is earlier: no leaf that
    says what went goes behind one before."""
    at = created_at(find_dropped(connection).before)
    return max(day, date.max if at is None else at.date())


def check_day(connection: psycopg.Connection, day: date, redis_s: float) -> date:
    """Return the day before which all rows go where those before the given one should. Raises
    InvalidRequest where it is not over, or the clocks do not agree."""
    day = raise_day(connection, day)
    if day > today(connection, redis_s):
        problem = (
            f"{day} is not over yet: that rows of all days before it go was asked for, or a leaf of"
            " the tree says that they went"
        )
        raise InvalidRequest(problem, param="before")
    return day


def connect(database_url: str) -> psycopg.Connection:
    """Return a connection to change the record with. Raises AuditUnavailable."""
    try:
        connection = psycopg.connect(conninfo(database_url), autocommit=True)
        # whatever the database's default is: what is counted under a lock has to be seen as it is
        # then
        connection.execute("SET default_transaction_isolation = 'read committed'")
        return connection
    except (psycopg.Error, OSError) as error:
        raise AuditUnavailable("the audit log cannot be changed now") from error


@contextmanager
def says_why() -> Iterator[None]:
    """What the driver raises becomes an error of ours."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        raise Forbidden(_NOT_OWNER) from error
    except psycopg.errors.LockNotAvailable as error:
        raise AuditUnavailable("the tables are in use; try again") from error
    except (psycopg.Error, OSError) as error:
        raise AuditUnavailable("the audit log cannot be changed now") from error


@contextmanager
def changing(database_url: str) -> Iterator[psycopg.Connection]:
    """Lend a connection; what the driver raises becomes an error of ours."""
    connection = connect(database_url)
    try:
        with says_why():
            yield connection
    finally:
        connection.close()


def number(
    connection: psycopg.Connection, statement: str, values: tuple[object, ...] | dict[str, object]
) -> int:
    """Return the number that a statement asks for."""
    row = connection.execute(statement.encode(), values).fetchone()
    assert row is not None
    return int(row[0])


def _vacuum(connection: psycopg.Connection, call_id: UUID, how: LiteralString) -> None:
    """Clean the tables and indexes that held the rows as they were: until then the old versions are
    there to be read by a tool."""
    places = [(form.table, form.table) for form in FORMS if form.content and form.table not in RUNS]
    # their rows are gone, or behind a view: of the day of the call
    others = ("histories", "debug_logs", *RUNS, *(runs for _, runs, _ in RUNS.values()))
    places += [(table, of) for table in others for of in ("calls", "ends")]
    tables = {
        *connection.execute(_LETTERS),
        *connection.execute(_PUT_BACK, (RESTORED, [form.table for form in FORMS])),
    }
    for table, of in places:
        tables |= set(
            connection.execute(
                sql.SQL(
                    "SELECT DISTINCT n.nspname, h.relname FROM {} t JOIN pg_class c ON c.oid ="
                    " t.tableoid JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_class h ON"
                    " h.relnamespace = n.oid AND h.relname = %s || substr(c.relname, %s) WHERE"
                    " t.call_id = %s"
                ).format(sql.Identifier(of)),
                (table, len(of) + 1, call_id),
            )
        )
    for options, chosen in ((how, tables), ("", set(connection.execute(_IN_USE, (call_id,))))):
        for schema, name in sorted(chosen):
            connection.execute(
                sql.SQL("VACUUM {}{}").format(sql.SQL(options), sql.Identifier(schema, name))
            )
