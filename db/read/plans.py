"""A connection that keeps plans: how pages ask PostgreSQL, without transactions and without SQLAlchemy in between.

A page is three to nine statements, and half of its time was Python's: a transaction, its settings and SQLAlchemy's results, 11 and 15 ms
of CPU for a page of calls and of judge blocks, where this takes 6.5 and 9. The settings hold for the session, so whoever else borrows the
connection has them set back (`plan_by_values`). Must not know: tables.
"""

from collections.abc import Mapping
from typing import Any

from psycopg import AsyncClientCursor

from db.link import TimedConnection

SETTINGS = "SELECT set_config('plan_cache_mode', '{mode}', {is_local}), " + ", ".join(
    f"set_config('enable_{way}', '{{others}}', {{is_local}})" for way in ("seqscan", "hashjoin", "mergejoin")
)
_KEPT = SETTINGS.format(mode="force_generic_plan", others="off", is_local="false")
"""Off is what is cheaper only for partitions that are empty still: a kept plan sees them grow."""
_BY_VALUES = SETTINGS.format(mode="force_custom_plan", others="on", is_local="false")


class KeptPlans:
    """Asks over one connection, which nobody else uses meanwhile. Raises psycopg's errors."""

    def __init__(self, link: TimedConnection) -> None:
        self._link = link

    async def ask(self, statement: str, given: Mapping[str, Any]) -> list[Any]:
        """Return the rows of a statement that is planned once a connection, whatever its values."""
        return await (await self._link.execute(statement, given)).fetchall()

    async def ask_by_values(self, statement: str, given: Mapping[str, Any]) -> list[Any]:
        """Return the rows of a statement that is planned for these values: they stand in its text, so there is no plan to keep."""
        async with AsyncClientCursor(self._link) as cursor:
            return await (await cursor.execute(statement, given)).fetchall()


async def keep_plans(link: TimedConnection) -> None:
    """Have a connection outside a transaction keep its plans, each statement for itself."""
    await link.set_autocommit(True)
    if not link.keeps_plans:
        await _set(link, _KEPT, keeps_plans=True)


async def plan_by_values(link: TimedConnection) -> None:
    """Undo `keep_plans`, for a connection outside a transaction."""
    if link.keeps_plans:
        await link.set_autocommit(True)
        await _set(link, _BY_VALUES, keeps_plans=False)
        await link.set_autocommit(False)


async def _set(link: TimedConnection, settings: str, *, keeps_plans: bool) -> None:
    try:
        await link.execute(settings)
    except BaseException:
        # nobody knows which settings it has now: it is not lent again
        await link.close()
        raise
    link.keeps_plans = keeps_plans
