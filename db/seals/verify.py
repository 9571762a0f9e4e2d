"""Verifies the audit log: every seal in the tree, every checkpoint, every row of every sealed call.
Read-only.

Somebody who can write to the database and knows this code can rewrite the whole audit log with
seals and checkpoints, unless checkpoints are signed with a key that is not there. Only a checkpoint
kept elsewhere (`against`) reveals that. Synchronous, one connection, one snapshot.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Timer
from uuid import UUID

import psycopg
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from db.connections import conninfo, cut
from db.dead_letters import find_letters
from db.missing_records import read_marks
from db.seals.checkpoints import Checkpoint
from db.seals.findings import Report, SealFinding
from db.seals.shed import find_strange
from db.seals.verify_rows import HIGHEST, LOWEST, check_rows
from db.seals.verify_tree import check_near, check_tree, find_damaged, find_dropped
from protocol.errors import AuditUnavailable, InvalidRequest, NotFound

Progress = Callable[[int], None]
MAX_PART_CALLS = 200
MAX_PART_ROWS = 100_000
"""What one request of the API may ask for: it is computed where calls are relayed."""

__all__ = ["Report", "SealFinding", "count_work", "newest_checkpoint", "verify", "verify_part"]


def verify(
    database_url: str,
    *,
    call_id: UUID | None = None,
    low: UUID = LOWEST,
    against: Sequence[Checkpoint] = (),
    key: Ed25519PublicKey | None = None,
    progress: Progress = lambda count: None,
) -> Report:
    """Verify the whole tree, and the rows of one call, or of the calls from `low` on. Raises
    NotFound, AuditUnavailable."""
    report = Report()
    low, high = (call_id, _after(call_id)) if call_id else (low, HIGHEST)
    with snapshot(database_url, statement_timeout_ms=0) as connection:
        if call_id:
            _check_known(connection, call_id)
        check_tree(connection, report, against=against, key=key, progress=progress)
        # as the tree: all of them, whatever is asked for
        for finding in find_strange(connection, LOWEST):
            report.add(finding)
        check_rows(
            connection, report, find_dropped(connection), low=low, high=high, progress=progress
        )
        report.damaged = find_damaged(connection)
        _read_holes(connection, report, low, high)
        everything = (low, high) == (LOWEST, HIGHEST)
        report.dead_letters, _, report.dead_calls = find_letters(
            connection, *(() if everything else (low, high))
        )
    return report


def verify_part(
    database_url: str, *, call_id: UUID | None, low: UUID | None, high: UUID | None, within_s: float
) -> Report:
    """Verify some calls, and the checkpoints around their seals; what takes longer than `within_s`
    is cut off.

    Raises InvalidRequest when that is too much, NotFound, AuditUnavailable.
    """
    report = Report()
    low, high = (call_id, _after(call_id)) if call_id else (low or LOWEST, high or HIGHEST)
    with snapshot(
        database_url, statement_timeout_ms=int(within_s * 1000), within_s=within_s
    ) as connection:
        if call_id:
            _check_known(connection, call_id)
        totals = connection.execute(
            "SELECT count(*), coalesce(sum(n), 0) FROM (SELECT (SELECT sum(c) FROM unnest(counts)"
            " c) AS n FROM seals WHERE part >= 0 AND call_id >= %s AND call_id < %s LIMIT %s) s",
            (low, high, MAX_PART_CALLS + 1),
        ).fetchone()
        assert totals is not None
        if totals[0] > MAX_PART_CALLS or (totals[1] > MAX_PART_ROWS and not call_id):
            raise InvalidRequest(
                f"more than {MAX_PART_CALLS} calls or {MAX_PART_ROWS:,} rows; narrow it with since"
                " and until, or use `sluice audit verify`",
                param="since",
            )
        report.dead_letters, _, report.dead_calls = find_letters(connection, low, high)
        _read_holes(connection, report, low, high)
        for finding in find_strange(connection, low):
            report.add(finding)
        check_near(
            connection,
            report,
            check_rows(connection, report, find_dropped(connection), low=low, high=high),
        )
    return report


def count_work(database_url: str, *, call_id: UUID | None = None, low: UUID = LOWEST) -> int:
    """Return about how many seals and rows `verify` looks at: what a progress bar needs. Raises
    AuditUnavailable."""
    low, high = (call_id, _after(call_id)) if call_id else (low, HIGHEST)
    with snapshot(database_url, statement_timeout_ms=0) as connection:
        row = connection.execute(
            "SELECT (SELECT count(*) FROM seals) + (SELECT coalesce(sum((SELECT sum(c) FROM"
            " unnest(counts) c)), 0) FROM seals WHERE part = 0 AND call_id >= %s AND call_id < %s)",
            (low, high),
        ).fetchone()
    return int(row[0]) if row else 0


def newest_checkpoint(database_url: str) -> str | None:
    """Return the newest checkpoint's text, None when there is none yet. Raises AuditUnavailable."""
    with snapshot(database_url, statement_timeout_ms=15_000) as connection:
        row = connection.execute(
            "SELECT text FROM checkpoints ORDER BY size DESC LIMIT 1"
        ).fetchone()
    return None if row is None else str(row[0])


def _read_holes(connection: psycopg.Connection, report: Report, low: UUID, high: UUID) -> None:
    for hole in read_marks(connection, low, high):
        report.add_hole(*hole)


def _after(call_id: UUID) -> UUID:
    return UUID(int=min(call_id.int + 1, HIGHEST.int))


def _check_known(connection: psycopg.Connection, call_id: UUID) -> None:
    known = (
        "SELECT EXISTS (SELECT FROM calls WHERE call_id = %(id)s) OR EXISTS (SELECT FROM seals"
        " WHERE call_id = %(id)s AND part >= 0)"
    )
    row = connection.execute(known, {"id": call_id}).fetchone()
    if not row or not row[0]:
        raise NotFound(f"no call {call_id} in the record")


@contextmanager
def snapshot(
    database_url: str, *, statement_timeout_ms: int, within_s: float | None = None
) -> Iterator[psycopg.Connection]:
    """Lend a connection that reads the record as it is now; what the driver raises becomes
    AuditUnavailable."""
    options = (
        f"-c statement_timeout={statement_timeout_ms} -c timezone=UTC -c"
        " default_transaction_read_only=on"
    )
    try:
        with psycopg.connect(conninfo(database_url), options=options) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            with _cut_after(connection, within_s):
                yield connection
    except (psycopg.Error, OSError) as error:
        raise AuditUnavailable("the audit log cannot be verified now") from error


@contextmanager
def _cut_after(connection: psycopg.Connection, within_s: float | None) -> Iterator[None]:
    """No thread can be cancelled, and a server that stopped says nothing: without its connection
    the work fails."""
    if within_s is None:
        yield
        return
    clock = Timer(within_s, cut, [connection])
    clock.start()
    try:
        yield
    finally:
        clock.cancel()
