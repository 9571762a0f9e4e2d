"""Calls functions of the database that store what a person said: durable when they return. Must not
know: what is said."""

import asyncio
from collections.abc import Iterable
from typing import Any, LiteralString

import psycopg

from db.connections import TimedConnection, conninfo, statement_timeout_ms
from protocol.errors import AuditUnavailable


async def stored(
    database_url: str,
    statements: Iterable[tuple[LiteralString, tuple[object, ...]]],
    *,
    what: str,
    answer_s: float,
) -> list[Any]:
    """Run statements one after the other, each committed by itself, and return the row of each.
    `what` names what is stored. Raises AuditUnavailable."""
    options = f"-c statement_timeout={statement_timeout_ms(answer_s)} -c synchronous_commit=on"
    try:
        async with asyncio.timeout(2 * answer_s):
            connection = await TimedConnection.connect(
                conninfo(database_url), autocommit=True, options=options
            )
            async with connection:
                connection.answer_s = answer_s
                return [
                    await (await connection.execute(statement, values)).fetchone()
                    for statement, values in statements
                ]
    except psycopg.errors.InsufficientPrivilege as error:
        raise AuditUnavailable(
            f"this database login may not store a {what}: run `sluice migrate`, or let it have the"
            " role sluice_reviewer"
        ) from error
    except (psycopg.Error, OSError, TimeoutError) as error:
        raise AuditUnavailable(
            f"the {what} cannot be stored now; it is safe to send it again"
        ) from error
