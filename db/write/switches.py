"""Debug logs that an admin switches on for a key, into PostgreSQL. Must not know: HTTP, what a logger writes."""

import asyncio
from collections.abc import Sequence
from typing import Final, LiteralString

import psycopg

from db.link import TimedConnection, conninfo, statement_timeout_ms
from db.text import to_column
from protocol.errors import AuditUnavailable, Conflict

MAX_MINUTES: Final = 60
MAX_AT_ONCE: Final = 10
LOCK: Final = 7_310_581_209
"""Advisory lock of who adds one, so that two at once are not one too many."""
_LOCK: LiteralString = "SELECT pg_advisory_xact_lock(%s)"
_ADD: LiteralString = """
INSERT INTO debug_switches (key, loggers, content, by, until)
SELECT %s, %s, %s, %s, now() + make_interval(mins => %s) WHERE (SELECT count(*) FROM debug_switches WHERE until > now()) < %s
"""


async def switch_on(
    database_url: str, key: str, loggers: Sequence[str], *, content: bool, by: str, minutes: int, answer_s: float = 15.0
) -> None:
    """Switch debug logs of a key on for some minutes. Raises Conflict where as many as may be are on, AuditUnavailable."""
    options = f"-c statement_timeout={statement_timeout_ms(answer_s)} -c synchronous_commit=on"
    values = (to_column(key), list(loggers), content, to_column(by), minutes, MAX_AT_ONCE)
    try:
        async with asyncio.timeout(2 * answer_s):
            connection = await TimedConnection.connect(conninfo(database_url), options=options)
            async with connection:
                connection.answer_s = answer_s
                await connection.execute(_LOCK, (LOCK,))
                added = (await connection.execute(_ADD, values)).rowcount
    except (psycopg.Error, OSError, TimeoutError) as error:
        raise AuditUnavailable("the switch cannot be kept now; it is safe to send it again") from error
    if not added:
        raise Conflict(f"{MAX_AT_ONCE} switches are on already; wait until one ends", code="too_many_switches")
