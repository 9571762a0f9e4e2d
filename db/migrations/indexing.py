"""Creates and drops indexes on large tables while writers write. For migrations.

`CREATE INDEX` on a partitioned table blocks writers on all partitions until the last one is
indexed. So this module creates an empty index on the table alone, which later partitions inherit;
creates each partition's index CONCURRENTLY; and attaches them one by one. Steps that must block
writers for some milliseconds use a short lock timeout and retry, so nobody queues behind them.
Every step is committed and repeatable: a rerun completes what an interrupted migration left.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from alembic.operations import Operations
from psycopg.errors import LockNotAvailable
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

SHORT_MS = 200
"""How long a step that keeps writers out waits for its lock, and so how long writers may wait
behind it."""
TRY_S = 120.0
_PAUSE_S = 0.5
_PARTS = """
SELECT quote_ident(n.nspname), c.relname, EXISTS (
        SELECT FROM pg_inherits h JOIN pg_index x ON x.indexrelid = h.inhrelid
        WHERE h.inhparent = to_regclass(%(index)s) AND x.indrelid = c.oid)
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_namespace n
    ON n.oid = c.relnamespace
WHERE i.inhparent = to_regclass(%(table)s) ORDER BY c.relname
"""
_IS_VALID = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)"
_log = logging.getLogger(__name__)


def create_index(op: Operations, name: str, table: str, on: str) -> None:
    """Index the partitioned `table`; `on` is what follows its name in CREATE INDEX: `(a, b) WHERE
    ...`."""
    with _alone(op) as connection:
        if not connection.exec_driver_sql("SELECT to_regclass(%s) IS NOT NULL", (name,)).scalar():
            _briefly(connection, f"CREATE INDEX {name} ON ONLY {table} {on}")
        for space, part, is_attached in connection.exec_driver_sql(
            _PARTS, {"index": name, "table": table}
        ).all():
            if is_attached:
                continue
            its = name.replace(table, part, 1)
            # one that is there and not attached may be half made
            connection.exec_driver_sql(f"DROP INDEX CONCURRENTLY IF EXISTS {space}.{its}")
            connection.exec_driver_sql(f"CREATE INDEX CONCURRENTLY {its} ON {space}.{part} {on}")
            _briefly(connection, f"ALTER INDEX {name} ATTACH PARTITION {space}.{its}")


def create_plain_index(op: Operations, name: str, table: str, on: str) -> None:
    """Index a `table` that has no partitions; `on` as there. One that is not valid was half
    made."""
    with _alone(op) as connection:
        if connection.exec_driver_sql(_IS_VALID, (name,)).scalar():
            return
        connection.exec_driver_sql(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
        connection.exec_driver_sql(f"CREATE INDEX CONCURRENTLY {name} ON {table} {on}")


def drop_index(op: Operations, name: str) -> None:
    """Drop the index of a partitioned table and those of its partitions."""
    with _alone(op) as connection:
        _briefly(connection, f"DROP INDEX IF EXISTS {name}")


def change_briefly(op: Operations, statement: str) -> None:
    """Run a statement that locks the table for a moment and may be repeated; it waits for its lock
    only for short moments."""
    with _alone(op) as connection:
        _briefly(connection, statement)


@contextmanager
def _alone(op: Operations) -> Iterator[Connection]:
    """Statements are transactions of their own, without a time limit: CONCURRENTLY waits for
    readers, and keeps nobody out."""
    with op.get_context().autocommit_block():
        connection = op.get_bind()
        limits = {
            name: connection.exec_driver_sql(f"SHOW {name}").scalar()
            for name in ("lock_timeout", "statement_timeout")
        }
        try:
            for name in limits:
                connection.exec_driver_sql(f"SET {name} = 0")
            yield connection
        finally:
            for name, value in limits.items():
                connection.exec_driver_sql(f"SET {name} = '{value}'")


def _briefly(connection: Connection, statement: str) -> None:
    """Run a statement that keeps writers out, at a moment at which nobody is in its way."""
    deadline = time.monotonic() + TRY_S
    connection.exec_driver_sql(f"SET lock_timeout = '{SHORT_MS}ms'")
    while True:
        try:
            connection.exec_driver_sql(statement)
            break
        except OperationalError as error:
            if not isinstance(error.orig, LockNotAvailable) or time.monotonic() > deadline:
                raise
            _log.info(
                "others hold the table: trying again",
                extra={"action": "migrate", "statement": statement},
            )
            time.sleep(_PAUSE_S)
    connection.exec_driver_sql("SET lock_timeout = 0")
