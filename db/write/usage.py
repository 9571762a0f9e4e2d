"""Recomputes the figures of an hour, by functions of the database.

One audit writer at a time does this: the one whose connection holds the advisory lock. Must not
know: Redis.
"""

from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Final, LiteralString, Self
from uuid import UUID

import psycopg

from db.agreed_time import TELL, clocks
from db.connections import TimedConnection, conninfo, statement_timeout_ms
from db.filters import created_at, first_id
from db.locks import USAGE_TURN_LOCK
from protocol.errors import AuditUnavailable

ANSWER_S: Final = 60.0
"""What an hour may take. 13,000 calls take 40 ms, a million some seconds."""
HOUR: Final = timedelta(hours=1)
_TURN: LiteralString = "SELECT pg_try_advisory_lock(%s)"
_ROLL_UP: LiteralString = "SELECT sluice_roll_up(%s)"
_KNOWN: LiteralString = "SELECT min(hour), max(hour) FROM usage_hours"
_BEFORE: LiteralString = """
SELECT greatest((SELECT call_id FROM calls WHERE call_id < %(id)s ORDER BY 1 DESC LIMIT 1),
    (SELECT call_id FROM ends WHERE call_id < %(id)s ORDER BY 1 DESC LIMIT 1))
"""
_FROM: LiteralString = """
SELECT least((SELECT call_id FROM calls WHERE call_id >= %(id)s ORDER BY 1 LIMIT 1),
    (SELECT call_id FROM ends WHERE call_id >= %(id)s ORDER BY 1 LIMIT 1))
"""


def hour_of(at: datetime) -> datetime:
    """Return the beginning of the hour, in UTC."""
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


class Roller:
    """A connection that computes figures. Every method raises AuditUnavailable when PostgreSQL is
    away or too slow."""

    def __init__(self, connection: TimedConnection) -> None:
        self._connection = connection

    @classmethod
    async def open(cls, database_url: str) -> Self:
        """Connect. Close it at the end, by `async with`."""
        options = f"-c statement_timeout={statement_timeout_ms(ANSWER_S)} -c timezone=UTC"
        try:
            connection = await TimedConnection.connect(
                conninfo(database_url), autocommit=True, options=options
            )
        except (psycopg.Error, OSError) as error:
            raise AuditUnavailable("figures cannot be written now") from error
        connection.answer_s = ANSWER_S
        return cls(connection)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._connection.close()

    async def takes_turn(self) -> bool:
        """Is it this connection's turn? Then it stays so until it is closed."""
        return bool((await self._ask(_TURN, (USAGE_TURN_LOCK,)))[0])

    async def tell_clocks(self, redis_s: float) -> None:
        """Let the session know what this process' clock says and what Redis' says: figures that are
        too old go where they agree."""
        await self._ask(TELL, (clocks(redis_s),))

    async def roll_up(self, hour: datetime) -> int:
        """Make the figures of an hour anew; returns how many rows they are."""
        return int((await self._ask(_ROLL_UP, (hour,)))[0])

    async def known(self) -> tuple[datetime | None, datetime | None]:
        """Return the first and the last hour that there are figures of."""
        first, last = await self._ask(_KNOWN, ())
        return first, last

    async def hour_before(self, hour: datetime) -> datetime | None:
        """Return the last hour before this one in which a call began."""
        return await self._hour(_BEFORE, hour)

    async def hour_from(self, hour: datetime) -> datetime | None:
        """Return the first hour in which a call began, of this one and those after it."""
        return await self._hour(_FROM, hour)

    async def _hour(self, statement: LiteralString, hour: datetime) -> datetime | None:
        (call_id,) = await self._ask(statement, {"id": first_id(hour)})
        at = created_at(call_id) if isinstance(call_id, UUID) else None
        return None if at is None else hour_of(at)

    async def _ask(self, statement: LiteralString, values: Any) -> tuple[Any, ...]:
        try:
            row = await (await self._connection.execute(statement, values)).fetchone()
        except (psycopg.Error, OSError) as error:
            raise AuditUnavailable("figures cannot be written now") from error
        return row or (None, None)
