"""Links to PostgreSQL by psycopg alone: what `postgresql://` URLs become for it, and how a link is
cut.

Must not know: tables, nor SQLAlchemy, whose import takes as long as the rest of an audit writer's
start.
"""

import asyncio
import contextlib
import os
import socket
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo

T = TypeVar("T")

CONNECT_TIMEOUT_S = 5
KEEPALIVES = {
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "25000",
}
"""A connection whose other end is gone breaks within 25 s, also with something sent and not
acknowledged."""
ENCODING = {"client_encoding": "utf8"}
"""Said by the client, because a database made without a locale is SQL_ASCII, and there text would
come as bytes."""
PING_S = 3.0
"""How long a pooled connection may take to answer a probe."""
_SERVER_SHARE = 0.9
"""The server gives a statement up in this share of the time after which its silence is taken for
its end."""


class TimedConnection(psycopg.AsyncConnection[Any]):
    """A connection that is cut when it waits for its server for `answer_s`: a server that stopped,
    or a network, says nothing."""

    answer_s = PING_S

    async def wait(self, gen: PQGen[T], *args: Any, **kwargs: Any) -> T:
        """Every wait of the driver for an answer comes through here."""
        clock = asyncio.get_running_loop().call_later(self.answer_s, cut, self)
        try:
            return await super().wait(gen, *args, **kwargs)
        finally:
            clock.cancel()


def statement_timeout_ms(answer_s: float) -> int:
    """Return what to tell the server where its silence is taken for its end after `answer_s`."""
    return int(answer_s * _SERVER_SHARE * 1000)


def conninfo(url: str) -> str:
    """Return `url` in the form psycopg takes. Raises ValueError on the address of another kind of
    database.

    A caller without `options` of its own gets those of the address; without any, a commit is on
    disk before it is confirmed.
    """
    scheme, _, place = url.partition("://")
    if scheme.partition("+")[0] not in {"postgresql", "postgres"}:
        raise ValueError("the database URL must start with postgresql://")
    options = conninfo_to_dict(f"postgresql://{place}").get("options") or "-c synchronous_commit=on"
    return make_conninfo(
        f"postgresql://{place}",
        connect_timeout=CONNECT_TIMEOUT_S,
        options=str(options),
        **KEEPALIVES,
        **ENCODING,
    )


def cut(connection: "psycopg.AsyncConnection[Any] | psycopg.Connection[Any]") -> None:
    """Cut a connection under whoever waits on it, who then fails at once. A query that is cancelled
    instead waits for the server's word."""
    with (
        contextlib.suppress(psycopg.Error, OSError),
        socket.socket(fileno=os.dup(connection.pgconn.socket)) as link,
    ):
        link.shutdown(socket.SHUT_RDWR)
