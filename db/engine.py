"""Database addresses and engines. One place turns `postgresql://` URLs into what SQLAlchemy and psycopg take.

Must not know: tables.
"""

from sqlalchemy.engine import URL, make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

CONNECT_TIMEOUT_S = 5
KEEPALIVES = {"keepalives_idle": "10", "keepalives_interval": "5", "keepalives_count": "3", "tcp_user_timeout": "25000"}
"""A connection whose other end is gone breaks within 25 s, also with something sent and not acknowledged."""
ENCODING = {"client_encoding": "utf8"}
"""Said by the client, because a database made without a locale is SQL_ASCII, and there text would come as bytes."""


def engine_url(url: str) -> URL:
    """Return the SQLAlchemy form of `url`: `postgresql://user:password@host:port/name`, or with `?host=/socket/dir`."""
    parsed = make_url(url)
    if parsed.get_backend_name() not in {"postgresql", "postgres"}:
        raise ValueError("the database URL must start with postgresql://")
    return parsed.set(drivername="postgresql+psycopg").update_query_dict(
        {"connect_timeout": str(CONNECT_TIMEOUT_S), **KEEPALIVES, **ENCODING}
    )


def conninfo(url: str) -> str:
    """Return `url` in the form psycopg takes."""
    return engine_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def open_engine(url: str, *, read_only: bool, statement_timeout_ms: int = 15_000, pool_size: int = 5) -> AsyncEngine:
    """Return an engine; nothing connects until it is used. A read-only one refuses writes at the server."""
    options = f"-c statement_timeout={statement_timeout_ms} -c timezone=UTC"
    if read_only:
        options += " -c default_transaction_read_only=on"
    return create_async_engine(
        engine_url(url),
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=CONNECT_TIMEOUT_S,
        pool_pre_ping=True,
        connect_args={"options": options},
        hide_parameters=True,
    )
