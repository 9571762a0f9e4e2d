"""The keys of a page, found day by day from its end of the record.

A statement over all days is planned by averages: a tool that nobody called for a month is looked for in a month of other tools. Within
a day the statistics are right. Days in which one of the filters alone finds nothing are left out: before each day the nearest call is
asked for that each filter by itself could mean, each by its own index. What a few days do not fill is rare, and is asked for in the rest
of the record at once.
"""

from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Row, Select
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.ext.asyncio import AsyncConnection

from db.filters import Filters, Position
from db.keysets import Keys, first_keys, nearest, values

_DAY_MS = 86_400_000
_SINGLE = 2
"""So many days are asked for one after the other."""
_SAID = 32
"""In so many days words are looked for at once."""
_LOWEST, _HIGHEST = UUID(int=0), UUID(int=2**128 - 1)


class _Texts(NamedTuple):
    """The statements for filters of a shape, with the parameters of `values`."""

    near: str
    page: str
    said: str


class _Walk:
    """What was found, and the bounds of where the rest would be."""

    def __init__(self, connection: AsyncConnection, keys: Keys, filters: Filters) -> None:
        self.connection, self.filters = connection, filters
        self.texts = _texts(keys, _shape(filters))
        self.given: dict[str, Any] = values(filters) | {"low": filters.low or _LOWEST, "high": filters.high or _HIGHEST}
        self.step = 1 if filters.order == "asc" else -1
        self.found: list[Row[Any]] = []

    async def nearest_day(self) -> int | None:
        """The nearest day that every filter alone could mean, None when one of them can mean none."""
        ids = (await self.connection.exec_driver_sql(self.texts.near, self.given)).one()
        if any(call_id is None for call_id in ids):
            return None
        # nothing is nearer than the farthest of what each filter alone could mean
        return int((max(ids) if self.step > 0 else min(ids)).int >> 80) // _DAY_MS

    async def day_of_words(self, day: int) -> int | None:
        """The nearest day from `day` on in which the words are said."""
        found: int | None = day
        while found is not None:
            days = [found + self.step * further for further in range(_SAID)]
            given = self.given | {name: value for n, one in enumerate(days) for name, value in self._bounds(one, n).items()}
            said = (await self.connection.exec_driver_sql(self.texts.said, given)).scalar()
            if said is not None:
                return int(said.int >> 80) // _DAY_MS
            self.leave(days[-1])
            found = await self.nearest_day()
        return None

    async def take(self, limit: int, day: int | None) -> None:
        """Take up to `limit` keys of a day, or of the rest of the record."""
        given = self.given | {"limit": limit - len(self.found)} | (self._bounds(day) if day is not None else {})
        self.found += (await self.connection.exec_driver_sql(self.texts.page, given)).all()

    def leave(self, day: int) -> None:
        """Go on behind a day."""
        if self.step > 0:
            self.given["low"] = max(self.given["low"], _first_of(day + 1))
        else:
            self.given["high"] = min(self.given["high"], _first_of(day))

    def _bounds(self, day: int, suffix: int | str = "") -> dict[str, UUID]:
        return {
            f"low{suffix}": max(_first_of(day), self.given["low"]),
            f"high{suffix}": min(_first_of(day + 1), self.given["high"]),
        }


async def find_keys(connection: AsyncConnection, keys: Keys, filters: Filters, limit: int) -> list[Row[Any]]:
    """Return the first `limit` keys after the cursor, in order."""
    walk = _Walk(connection, keys, filters)
    for step in range(_SINGLE + 1):
        day = await walk.nearest_day()
        if day is not None and filters.words is not None and step > 0:
            day = await walk.day_of_words(day)
        if day is None:
            break
        await walk.take(limit, day if step < _SINGLE else None)
        if len(walk.found) >= limit:
            break
        walk.leave(day)
    return walk.found


@lru_cache(maxsize=1024)
def _texts(keys: Keys, shape: Filters) -> _Texts:
    """Compiled once: that takes longer than running them."""
    near, page = _text(nearest(keys.places(shape), shape)), _text(first_keys(keys.choose(shape), shape))
    said = _text(nearest([keys.said(shape)], shape)) if shape.words else ""
    # each of the days is read only where those before had nothing
    days = " UNION ALL ".join(said.replace("%(low)s", f"%(low{n})s").replace("%(high)s", f"%(high{n})s") for n in range(_SAID))
    return _Texts(near, page, f"SELECT * FROM ({days}) AS days (call_id) WHERE call_id IS NOT NULL LIMIT 1")


def _text(statement: Select[Any]) -> str:
    return str(statement.compile(dialect=PGDialect_psycopg()))  # type: ignore[no-untyped-call]


def _shape(filters: Filters) -> Filters:
    """Filters that differ in their values alone have the same shape."""
    names = ("session", "model", "key", "name", "verdict", "policy", "words")
    same: dict[str, Any] = {name: name for name in names if getattr(filters, name) is not None}
    if filters.call_id is not None:
        same["call_id"] = _LOWEST
    if filters.after is not None:
        same["after"] = Position(filters.after.list, filters.order, _LOWEST, 0)
    return Filters(low=_LOWEST, high=_HIGHEST, order=filters.order, **same)


def _first_of(day: int) -> UUID:
    """The smallest id of a day, the largest of all past the last day that an id can name."""
    return UUID(int=min(max(day, 0) * _DAY_MS << 80, 2**128 - 1))
