"""Migrations: up, down, where a database stands, and whether it equals the models.

Two at once are safe: the second waits for an advisory lock and finds the work done. Statements that
change tables give up after `LOCK_TIMEOUT_S` rather than queue in front of traffic.
"""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import psycopg
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.pool import NullPool

from db.engine import engine_url
from db.locks import MIGRATION_LOCK
from db.migrations import rights
from db.migrations.place import FIRST_DAYS, FIRST_MONTHS, IDENTITY, SCRIPTS, is_before_release
from db.migrations.primaries import SEEN
from db.migrations.rights import BESIDES, LOGINS, READER, ROLES, WRITER
from db.models import Base

WAIT_S = 120
_PAUSE_S = 0.1
LOCK_TIMEOUT_S = 5
STATEMENT_TIMEOUT_S = 600

_WIDE = f"""
    SELECT l.rolname AS login, g.rolname AS role, l.rolsuper,
        coalesce(array_agg(t.oid::regclass::text ORDER BY 1)
            FILTER (WHERE has_table_privilege(l.oid, t.oid, 'UPDATE, DELETE, TRUNCATE')
            OR (g.rolname = '{READER}' AND t.relname NOT IN {rights.OF_PAGES}
                AND has_table_privilege(l.oid, t.oid, 'INSERT'))
            OR pg_has_role(l.oid, t.relowner, 'MEMBER')),
            '{{}}') AS tables
    FROM pg_roles l JOIN pg_auth_members m ON m.member = l.oid JOIN pg_roles g ON g.oid = m.roleid
        AND g.rolname IN ('{WRITER}', '{READER}')
    CROSS JOIN pg_class t
    WHERE l.rolcanlogin AND t.relkind IN ('r', 'p') AND t.relnamespace::regnamespace::text IN
        ('public', 'sluice_parts')
        AND t.relowner = (SELECT relowner FROM pg_class WHERE oid = 'calls'::regclass)
    GROUP BY 1, 2, 3 ORDER BY 1"""
_FIRST_PARTITIONS = "SELECT sluice_ensure_partitions((now() AT TIME ZONE 'UTC')::date, :days)"
_FIRST_READS = "SELECT sluice_ensure_reads((now() AT TIME ZONE 'UTC')::date, :months)"
_log = logging.getLogger(__name__)


@contextmanager
def locked_connection(url: str) -> Iterator[Connection]:
    """Open a connection that alone may migrate, with lock and statement timeouts."""
    engine = create_engine(engine_url(url), poolclass=NullPool)
    try:
        with engine.connect() as connection:
            _wait_for_lock(connection)
            connection.execute(text(f"SET lock_timeout = '{LOCK_TIMEOUT_S}s'"))
            connection.execute(text(f"SET statement_timeout = '{STATEMENT_TIMEOUT_S}s'"))
            connection.commit()
            yield connection
    finally:
        engine.dispose()


def _wait_for_lock(connection: Connection) -> None:
    # asked again and again: whoever waits inside a statement holds a snapshot, for which CREATE
    # INDEX CONCURRENTLY waits in turn
    deadline = time.monotonic() + WAIT_S
    while not connection.execute(
        text("SELECT pg_try_advisory_lock(:lock)"), {"lock": MIGRATION_LOCK}
    ).scalar():
        connection.commit()
        if time.monotonic() > deadline:
            raise TimeoutError("another migration is running")
        time.sleep(_PAUSE_S)


def upgrade(
    url: str,
    revision: str = "head",
    *,
    passwords: Mapping[str, str] | None = None,
    first_days: int = FIRST_DAYS,
    retains: bool | None = None,
) -> None:
    """Bring the database to `revision`; at the newest, give the roles their rights and make the
    first days' partitions.

    Audit writers make the later ones; a first call that came before its partition would keep that
    day in the default. `passwords`: for each of LOGINS that is to be made, or to get this password.
    `retains`: whether audit writers may take old rows away; None: as it is.
    """
    with locked_connection(url) as connection:
        command.upgrade(_config(connection), revision)
        if MigrationContext.configure(connection).get_current_revision() == head():
            _grant(connection)
            for name, password in (passwords or {}).items():
                _make_login(connection, f"sluice_{name}", LOGINS[name], password)
                for role in BESIDES.get(name, ()):
                    connection.exec_driver_sql(f"GRANT {role} TO sluice_{name}")
            if (
                retains is not None
                and connection.execute(
                    text("SELECT to_regrole(:role) IS NOT NULL"), {"role": WRITER}
                ).scalar()
            ):
                right = f"EXECUTE ON FUNCTION {rights.RETENTION}"
                connection.exec_driver_sql(
                    f"GRANT {right} TO {WRITER}" if retains else f"REVOKE {right} FROM {WRITER}"
                )
            connection.execute(text(_FIRST_PARTITIONS), {"days": first_days})
            connection.execute(text(_FIRST_READS), {"months": min(first_days, FIRST_MONTHS)})
        connection.commit()


def downgrade(url: str, revision: str = "base") -> None:
    """Take the database back to `revision`; `base` drops the whole record."""
    with locked_connection(url) as connection:
        command.downgrade(_config(connection), revision)
        connection.commit()


def current(url: str) -> str | None:
    """Return the revision the database stands at, None when it was never migrated. Raises
    sqlalchemy.exc.OperationalError when away."""
    with _plain_connection(url) as connection:
        return MigrationContext.configure(connection).get_current_revision()


def head() -> str:
    """Return the newest revision there is."""
    revision = ScriptDirectory.from_config(_config(None)).get_current_head()
    assert revision is not None
    return revision


class Rights(NamedTuple):
    """A login that Sluice's processes may use, and the tables in which it may do more than its role
    should."""

    login: str
    role: str
    tables: tuple[str, ...]
    is_superuser: bool


def wide_rights(url: str) -> list[Rights]:
    """Return the logins of the roles with what each may do too much; none: there are no such
    logins."""
    with _plain_connection(url) as connection:
        return [
            Rights(row.login, row.role, tuple(row.tables), row.rolsuper)
            for row in connection.execute(text(_WIDE))
        ]


def identity(url: str) -> str:
    """Return the database's own id, empty where it has none yet."""
    with _plain_connection(url) as connection:
        if connection.execute(text("SELECT to_regclass('identity')")).scalar_one() is None:
            return ""
        return str(connection.execute(text(IDENTITY)).scalar_one())


def primary_seen(url: str, number: int | None, run_id: str) -> int | None:
    """Return None where the database holds a later primary of Redis than the one of that number and
    run id, `SECOND` where that one is of a second Sluice, and 0 otherwise. One that was never
    migrated, or before 0.2.0, does not know: 0.
    """
    with _plain_connection(url) as connection:
        if is_before_release(current(url) or "0"):
            return 0
        last_seen: int | None = connection.exec_driver_sql(SEEN, (number, run_id)).one().number
        return last_seen


def schema_diff(url: str) -> list[Any]:
    """Return what differs between the models and a migrated database; empty when nothing does."""
    with _plain_connection(url) as connection:
        return list(
            compare_metadata(
                MigrationContext.configure(connection, opts={"compare_type": True}), Base.metadata
            )
        )


@contextmanager
def _plain_connection(url: str) -> Iterator[Connection]:
    engine = create_engine(engine_url(url), poolclass=NullPool)
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


def _config(connection: Connection | None) -> Config:
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    return config


def _grant(connection: Connection) -> None:
    """Make the group roles where we may, and give rights to those that exist."""
    for role in ROLES:
        known = connection.execute(
            text("SELECT 1 FROM pg_roles WHERE rolname = :role"), {"role": role}
        ).scalar()
        if not known:
            may = connection.execute(
                text("SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user")
            ).scalar()
            if not may:
                _log.info(
                    "role not made: the migrating user may not create roles",
                    extra={"action": "grant", "role": role},
                )
                continue
            _make_role(connection, role)
        for statement in rights.statements(role):
            connection.execute(text(statement))


def _make_role(connection: Connection, role: str) -> None:
    # Roles belong to the whole server: two databases migrated at once may both try.
    connection.execute(
        text(
            f"DO $$ BEGIN CREATE ROLE {role}; EXCEPTION WHEN duplicate_object OR unique_violation"
            " THEN NULL; END $$"
        )
    )


def _make_login(connection: Connection, login: str, role: str, password: str) -> None:
    """Make a login that may do what `role` may, or give it this password. The server gets a digest:
    statements end up in its log."""
    _make_role(connection, login)
    raw = connection.connection.driver_connection
    assert isinstance(raw, psycopg.Connection)
    digest = raw.pgconn.encrypt_password(
        password.encode(), login.encode(), b"scram-sha-256"
    ).decode()
    connection.exec_driver_sql(f"ALTER ROLE {login} LOGIN PASSWORD '{digest}'")
    connection.exec_driver_sql(f"GRANT {role} TO {login}")
