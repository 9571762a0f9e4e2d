"""Debug logs that admins switched on for a key, for an hour at most. Append-only: the newest switch
of a key counts, and one without loggers switches off. Gateways read them with the keys
(`db.state.polling`)."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from db.engine import reading
from db.read.json_rows import JsonObject, time
from db.state.polling import ACTIVE_SWITCHES
from db.text import from_column, to_column
from protocol.debug import BITS, LONGEST_MIN, MOST_SWITCHES
from protocol.errors import InvalidRequest

_ADD = text("""
INSERT INTO debug_switches (key, loggers, content, by, until)
VALUES (:key, CAST(:loggers AS text[]), :content, :by, now() + CAST(:minutes AS integer) * interval
    '1 minute')
""")


class DebugSwitches:
    """Adds switches and lists them."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def add(
        self, key: str, loggers: Sequence[str], minutes: int, *, content: bool, by: str
    ) -> None:
        """Switch these logs on for a key, or off where none are named. Raises InvalidRequest,
        AuditUnavailable."""
        if not key or len(key) > 64:
            raise InvalidRequest("name an API key", param="key")
        if unknown := [entry for entry in loggers if entry not in BITS]:
            raise InvalidRequest(
                f"there is no debug log {unknown[0][:32]!r}; there are {', '.join(BITS)}",
                param="loggers",
            )
        if not 0 <= minutes <= LONGEST_MIN:
            raise InvalidRequest(f"must be 1 to {LONGEST_MIN} minutes", param="minutes")
        on = {entry["key"] for entry in await self.active()}
        if loggers and key not in on and len(on) >= MOST_SWITCHES:
            raise InvalidRequest(
                f"{MOST_SWITCHES} keys have debug logs switched on already: switch one off first",
                param="key",
            )
        values: dict[str, Any] = {
            "key": to_column(key),
            "loggers": list(loggers),
            "content": content,
            "by": to_column(by),
            "minutes": minutes,
        }
        async with reading(self._engine) as connection:
            await connection.execute(_ADD, values)
            await connection.commit()

    async def active(self) -> list[JsonObject]:
        """Return what is switched on now. Raises AuditUnavailable."""
        async with reading(self._engine) as connection:
            rows = list(await connection.execute(text(ACTIVE_SWITCHES)))
        return [
            {
                "key": from_column(row.key),
                "loggers": list(row.loggers),
                "content": row.content,
                "by": from_column(row.by),
                "at": time(row.at),
                "until": time(row.until),
            }
            for row in rows
        ]
