"""Which rows are old enough to go, by table and day, and their going: the oldest day of one table
at a time.

How a table's rows go is one line of `KINDS`. The functions in the database do it
(`db.migrations.removal`); who runs this needs the right to call them, and no other. Synchronous,
one connection. Must not know: the configuration, who runs it when.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from subprocess import Popen
from types import TracebackType
from typing import Literal, Self
from uuid import UUID

import psycopg
from psycopg import sql

from db.agreed_time import today
from db.canonical import FORMS
from db.connections import cut
from db.filters import first_id
from db.locks import RETENTION_LOCK
from db.migrations.removal import (
    CAME_MEANWHILE,
    DROP,
    FORGET,
    FORGETTABLE,
    NO_CHECKPOINT,
    NO_SEAL,
    ROWS_DIFFER,
    RUNS,
    SHED,
    SHEDDABLE,
)
from db.seals import archive_child
from db.seals.archive import TABLES
from db.seals.redact import check_day, connect, number, raise_day, says_why
from db.seals.shed import Shed, find_shed
from db.text import to_column
from protocol.errors import AuditUnavailable, Forbidden, InvalidRequest

WHY = "retention"

EVERYTHING = "everything"
Way = Literal["shed", "forget", "drop"]
_DAY, _MONTH = re.compile(r"_(\d{8})$"), re.compile(r"_(\d{6})$")
_REFUSED = {
    NO_SEAL: "some calls of that day have no seal yet",
    NO_CHECKPOINT: "some calls of that day are under no checkpoint yet",
    CAME_MEANWHILE: "a call of that day was sealed meanwhile",
    ROWS_DIFFER: (
        "there are other rows of that day than its seals count (`sluice audit verify` says which)"
    ),
}
_NO_RIGHT = (
    "this database user may not take old rows away: `sluice migrate` with `retention` in its"
    " configuration gives audit writers the right"
)
_PARTS = """
SELECT c.relname, pg_total_relation_size(c.oid) FROM pg_inherits i JOIN pg_class c
    ON c.oid = i.inhrelid
WHERE c.relnamespace = 'sluice_parts'::regnamespace AND c.relname ~ ('^(' || %s || ')_[0-9d]')
ORDER BY c.relname
"""


@dataclass(frozen=True, slots=True)
class RetainedKind:
    """A kind of rows with its own retention: how they go, and the tables whose partitions show its
    days."""

    name: str
    way: Way
    tables: tuple[str, ...]


KINDS = (
    *(RetainedKind(name, "shed", (name,)) for name in SHEDDABLE),
    *(RetainedKind(name, "forget", (name,)) for name in FORGETTABLE),
    RetainedKind(EVERYTHING, "drop", ("calls", "ends")),
)
"""Figures of hours, counts of the door and debug lines are no such kinds: who writes them keeps
them small."""
_CALLS = {
    "shed": "SELECT sluice_shed(%(kind)s, %(until)s, session_user || ': ' || %(why)s)",
    "forget": "SELECT sluice_forget(%(kind)s, %(until)s)",
    "drop": "SELECT sluice_drop_before(%(until)s, session_user || ': ' || %(why)s)",
}
_SEALED_SINCE = (
    "SELECT count(*) FROM seals WHERE call_id >= %(low)s AND call_id < %(high)s AND part >= 0 AND"
    " position > %(seen)s"
)
_RIGHTS = {"shed": SHED, "forget": FORGET, "drop": DROP}


@dataclass(frozen=True, slots=True)
class RetentionStep:
    """The rows of a kind of calls that began before a day (UTC), and how large their files are; 0:
    they lie with those of other days."""

    kind: RetainedKind
    until: date
    size_bytes: int


class RetentionRun:
    """Takes what is too old, over one connection. `days`: how long each kind is kept; what is not
    named is kept for ever.

    `archive`: a directory into which a day of calls is written before any of its rows go
    (`db.seals.archive`); empty: none. `redis_time`: what Redis' clock says, in seconds since 1970;
    it may raise AuditUnavailable.
    """

    def __init__(
        self,
        database_url: str,
        days: Mapping[str, int],
        archive: str = "",
        *,
        redis_time: Callable[[], float],
    ) -> None:
        self._url, self._days, self._archive, self._redis_time = (
            database_url,
            days,
            archive,
            redis_time,
        )
        self._connection: psycopg.Connection | None = None
        self._child: Popen[bytes] | None = None
        self._is_cut = False

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def open(self) -> None:
        """Connect. Raises AuditUnavailable."""
        self._connection = connect(self._url)

    def close(self) -> None:
        """Close the connection, and with it the turn."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def cut(self) -> None:
        """Let what runs on the connection, or archives for it, in another thread fail at once."""
        # the other thread may set either to None meanwhile
        child, connection = self._child, self._connection
        self._is_cut = True
        if child is not None:
            child.kill()
        if connection is not None:
            cut(connection)

    def takes_turn(self) -> bool:
        """Say whether it is this connection that takes rows away, for as long as it lasts. Raises
        AuditUnavailable."""
        with says_why():
            return bool(
                number(self._lent, f"SELECT pg_try_advisory_lock({RETENTION_LOCK})::int", {})
            )

    def due(self) -> list[RetentionStep]:
        """Return what is too old, of each kind the oldest day first. Raises AuditUnavailable,
        InvalidRequest where clocks do not agree."""
        with says_why():
            return find_due(self._lent, self._days, self._today())

    def take(self, step: RetentionStep, why: str = WHY) -> int:
        """Take the rows away; returns how many calls, or rows under no seal, they were. Raises
        InvalidRequest as long as that may not be (`is_held` says where others only have to end),
        Forbidden with the right that is missing, AuditUnavailable.
        """
        with says_why():
            if not number(
                self._lent,
                f"SELECT has_function_privilege('{_RIGHTS[step.kind.way]}', 'EXECUTE')::int",
                {},
            ):
                raise Forbidden(_NO_RIGHT)
            if step.kind.way == "drop":
                step = replace(step, until=check_day(self._lent, step.until, self._redis_time()))
            archived = self._write(step) if self._archive and step.kind.way != "forget" else None
            try:
                taken = self._call(step, why, archived)
            except psycopg.errors.LockNotAvailable as error:
                raise InvalidRequest(
                    f"others hold the tables ({step.kind.name}): try again"
                ) from error
        if taken < 0:
            raise InvalidRequest(f"{_REFUSED[taken]}: let an audit writer run, then try again")
        return taken

    def _call(self, step: RetentionStep, why: str, archived: dict[str, object] | None) -> int:
        with self._lent.transaction() as transaction:
            # within the transaction, whose time the function sees: a clock may have jumped since
            # the step was found, and come back
            limit = self._today() - timedelta(days=self._days.get(step.kind.name, 0))
            if step.kind.way == "drop":
                limit = raise_day(self._lent, limit)
            if step.until > limit:
                raise InvalidRequest(
                    f"rows of {step.kind.name} from before {step.until} may not go yet: only those"
                    f" from before {limit} may"
                )
            taken = number(
                self._lent,
                _CALLS[step.kind.way],
                {"kind": step.kind.name, "until": step.until, "why": to_column(why)},
            )
            # the functions hold the lock of sealing until here. A call of which only the end is on
            # record is not counted
            if (
                archived
                and taken >= 0
                and (
                    (taken and archived["is_empty"]) or number(self._lent, _SEALED_SINCE, archived)
                )
            ):
                taken = CAME_MEANWHILE
                raise psycopg.Rollback(transaction)
        return taken

    def _today(self) -> date:
        return today(self._lent, self._redis_time())

    @property
    def _lent(self) -> psycopg.Connection:
        if self._connection is None:
            raise AuditUnavailable("the connection is closed")
        return self._connection

    def _write(self, step: RetentionStep) -> dict[str, object]:
        """Archive what the step takes; returns of which calls no seal may have come since, and
        whether there were no rows of them."""

        def started(child: Popen[bytes]) -> None:
            self._child = child

        first, tables = date(1970, 1, 1), TABLES
        if step.kind.way == "shed":
            # what came after the rows of its day went stays
            first, tables = day_of(_begins(step.kind.name, find_shed(self._lent))), step.kind.tables
        seen = number(self._lent, "SELECT coalesce(max(position), -1) FROM seals", {})
        try:
            archived = archive_child.run(
                self._url, (first, step.until), Path(self._archive), tables, started
            )
        except InvalidRequest as error:
            if self._is_cut:
                raise AuditUnavailable("the process that archives was ended") from error
            raise
        finally:
            self._child = None
        # where there were no rows, some may have come and been sealed since it looked
        first, seen = archived or (first, seen)
        low, high = (first_id(datetime.combine(day, time(), UTC)) for day in (first, step.until))
        return {"low": low, "high": high, "seen": seen, "is_empty": archived is None}


def is_held(refusal: InvalidRequest) -> bool:
    """Say whether rows stay only because others hold their tables: it may be otherwise in some
    minutes."""
    return isinstance(refusal.__cause__, psycopg.errors.LockNotAvailable)


def find_due(
    connection: psycopg.Connection, days: Mapping[str, int], today: date
) -> list[RetentionStep]:
    """Return what is too old, of each kind the oldest day first."""
    shed = find_shed(connection)
    return [
        step
        for kind in KINDS
        if (retention_days := days.get(kind.name)) is not None
        for step in _steps(connection, kind, today - timedelta(days=retention_days), shed)
    ]


def left_behind(connection: psycopg.Connection) -> list[tuple[str, UUID]]:
    """Return the tables with rows that came after those of their day went, each with the first call
    of which they are. They stay until all rows of that call go: a leaf of the tree says up to where
    the table was emptied, and none says it twice.
    """
    remaining, shed = [], find_shed(connection)
    for table in SHEDDABLE:
        query = sql.SQL(
            "SELECT call_id FROM {} WHERE call_id < %s ORDER BY call_id LIMIT 1"
        ).format(sql.Identifier(table))
        if row := connection.execute(query, (_begins(table, shed),)).fetchone():
            remaining.append((table, row[0]))
    return remaining


def day_of(call_id: UUID) -> date:
    """The day (UTC) on which a call began."""
    return datetime.fromtimestamp((call_id.int >> 80) / 1000, UTC).date()


def _begins(table: str, shed: Shed) -> UUID:
    """Up to here the newest leaf says that the table's rows went."""
    place = next(place for place, form in enumerate(FORMS) if form.table == table)
    return shed.bounds.get(place, [UUID(int=0)])[-1]


def _steps(
    connection: psycopg.Connection, kind: RetainedKind, limit: date, shed: Shed
) -> list[RetentionStep]:
    sizes: dict[date, int] = {}
    for table in kind.tables:
        low = _begins(table, shed) if kind.way == "shed" else UUID(int=0)
        names = set[str]()
        for name, size in connection.execute(
            _PARTS.encode(), ("|".join((table, *RUNS.get(table, ())[1:2])),)
        ):
            names.add(name)
            end = _end_of(name)
            if end is not None and day_of(low) < end <= limit:
                sizes[end] = sizes.get(end, 0) + size
        first = _first_day(connection, table, low)
        # the loop above covers days with a partition; otherwise it is of a month that is not over
        if (
            first is not None
            and first < limit
            and not {f"{table}_{first:%Y%m%d}", f"{table}_{first:%Y%m}"} & names
        ):
            sizes.setdefault(first + timedelta(days=1), 0)
    if kind.way == "drop":
        # what came late of days that went before goes in one step
        gone = raise_day(connection, date.min)
        if late := [sizes.pop(end) for end in sorted(sizes) if end <= gone]:
            sizes[gone] = sum(late)
    return [RetentionStep(kind, until, sizes[until]) for until in sorted(sizes)]


def _first_day(connection: psycopg.Connection, table: str, low: UUID) -> date | None:
    """The day of the oldest row, which may lie in the default partition: what takes that day's rows
    away looks there too."""
    column = FORGETTABLE.get(table, "call_id")
    query = sql.SQL("SELECT {0} FROM {1} {2} ORDER BY {0} LIMIT 1").format(
        sql.Identifier(column),
        # each in the order of its index, which the view has not
        sql.SQL("(SELECT call_id FROM {} UNION ALL SELECT call_id FROM {}) t").format(
            *map(sql.Identifier, RUNS[table][:2])
        )
        if table in RUNS
        else sql.Identifier(table),
        sql.SQL("WHERE call_id >= {}").format(low) if low.int else sql.SQL(""),
    )
    row = connection.execute(query).fetchone()
    if row is None:
        return None
    return row[0].astimezone(UTC).date() if isinstance(row[0], datetime) else day_of(row[0])


def _end_of(partition: str) -> date | None:
    """The day after the last one of a partition, by its name."""
    if (match := _DAY.search(partition)) is not None:
        return datetime.strptime(match[1], "%Y%m%d").replace(tzinfo=UTC).date() + timedelta(days=1)
    if (match := _MONTH.search(partition)) is not None:
        first = datetime.strptime(match[1], "%Y%m").replace(tzinfo=UTC).date()
        return (first + timedelta(days=32)).replace(day=1)
    return None
