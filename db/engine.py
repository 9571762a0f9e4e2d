"""Engines for SQLAlchemy, the form of a database URL that it takes, and connections lent.

Must not know: tables.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from psycopg import Error as PsycopgError
from sqlalchemy import event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from db.connections import (
    CONNECT_TIMEOUT_S,
    ENCODING,
    KEEPALIVES,
    PING_S,
    TimedConnection,
    statement_timeout_ms,
)
from protocol.errors import AuditUnavailable


def engine_url(url: str) -> URL:
    """Return the SQLAlchemy form of `url`: `postgresql://user:password@host:port/name`, or with
    `?host=/socket/dir`."""
    parsed = make_url(url)
    if parsed.get_backend_name() not in {"postgresql", "postgres"}:
        raise ValueError("the database URL must start with postgresql://")
    return parsed.set(drivername="postgresql+psycopg").update_query_dict(
        {"connect_timeout": str(CONNECT_TIMEOUT_S), **KEEPALIVES, **ENCODING}
    )


def open_engine(
    url: str, *, read_only: bool, answer_s: float = 15.0, pool_size: int = 5
) -> AsyncEngine:
    """Return an engine; nothing connects until it is used. A read-only one refuses writes at the
    server.

    A statement past `answer_s` fails, and where the server does not even say that, its connection
    is cut and is not used again.
    """
    patience_s = min(CONNECT_TIMEOUT_S, max(2, round(answer_s)))
    # what is read through a cursor is read to its end: by default PostgreSQL plans for a tenth of
    # it, and walks whole tables in their order
    options = (
        f"-c statement_timeout={statement_timeout_ms(answer_s)} -c timezone=UTC -c"
        " cursor_tuple_fraction=1"
    )
    # rare and common values need plans of their own; `db.read.lists` relies on days being read one
    # after the other
    options += " -c plan_cache_mode=force_custom_plan -c max_parallel_workers_per_gather=0"
    # a key revocation or a redaction is on disk before it is confirmed, whatever the server's
    # default
    options += " -c default_transaction_read_only=on" if read_only else " -c synchronous_commit=on"
    engine = create_async_engine(
        engine_url(url),
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=patience_s,
        pool_pre_ping=True,
        connect_args={
            "options": options,
            "connect_timeout": patience_s,
            "async_creator_fn": TimedConnection.connect,
        },
        hide_parameters=True,
    )

    def lend(adapted: Any, *_: object) -> None:
        adapted.driver_connection.answer_s = answer_s

    def take_back(adapted: Any, *_: object) -> None:
        if adapted is not None:
            adapted.driver_connection.answer_s = min(PING_S, answer_s)

    # between the two lies the pool, whose ping must not take as long as a query
    event.listen(engine.sync_engine, "checkout", lend)
    event.listen(engine.sync_engine, "checkin", take_back)
    return engine


@asynccontextmanager
async def reading(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Lend a connection; what the driver raises becomes AuditUnavailable."""
    try:
        async with engine.connect() as connection:
            yield connection
    except (DBAPIError, PsycopgError, PoolTimeout, OSError) as error:
        if getattr(getattr(error, "orig", error), "sqlstate", None) == "57014":
            raise AuditUnavailable(
                "the query took too long; narrow it with since, until or call_id"
            ) from error
        raise AuditUnavailable("the audit log cannot be read now") from error


async def wait_longer(connection: AsyncConnection, answer_s: float) -> None:
    """Let each statement of this transaction take `answer_s`."""
    await connection.execute(
        text(f"SET LOCAL statement_timeout = {statement_timeout_ms(answer_s)}")
    )
    raw = await connection.get_raw_connection()
    raw.driver_connection.answer_s = answer_s  # type: ignore[union-attr]
