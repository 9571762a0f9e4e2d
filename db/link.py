"""Links to PostgreSQL by psycopg alone: what `postgresql://` URLs become for it, and how a link is cut.

Must not know: tables, nor SQLAlchemy, whose import takes as long as the rest of an audit writer's start.
"""

import contextlib
import os
import socket
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

CONNECT_TIMEOUT_S = 5
KEEPALIVES = {"keepalives_idle": "10", "keepalives_interval": "5", "keepalives_count": "3", "tcp_user_timeout": "25000"}
"""A connection whose other end is gone breaks within 25 s, also with something sent and not acknowledged."""
ENCODING = {"client_encoding": "utf8"}
"""Said by the client, because a database made without a locale is SQL_ASCII, and there text would come as bytes."""


def conninfo(url: str) -> str:
    """Return `url` in the form psycopg takes. Raises ValueError on the address of another kind of database."""
    scheme, _, place = url.partition("://")
    if scheme.partition("+")[0] not in {"postgresql", "postgres"}:
        raise ValueError("the database URL must start with postgresql://")
    return make_conninfo(f"postgresql://{place}", connect_timeout=CONNECT_TIMEOUT_S, **KEEPALIVES, **ENCODING)


def cut(connection: "psycopg.AsyncConnection[Any] | psycopg.Connection[Any]") -> None:
    """Cut a connection under whoever waits on it, who then fails at once. A query that is cancelled instead waits for the server's word."""
    with contextlib.suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(connection.pgconn.socket)) as link:
        link.shutdown(socket.SHUT_RDWR)
