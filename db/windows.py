"""The keys of a page, found day by day from its end of the record.

A statement over all days is planned by averages: a tool that nobody called for a month is looked for in a month of other tools. Within
a day the statistics are right. Days in which one of the filters alone finds nothing are left out: the nearest calls are asked for that
each filter by itself could mean, each by its own index, and of the days of the rarest one those that the others do not rule out.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Row, Select
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.ext.asyncio import AsyncConnection

from db.filters import Filters, Position
from db.keysets import Keys, first_keys, nearest, nearest_of, values

_DAY_MS = 86_400_000
_COUNT = 200
"""So many calls of each filter are looked at to find the days."""
_DAYS = 8
"""So many days are asked for in one statement, each by a statement of its own in it."""
_SAID = 32
"""In so many days words are looked for at once."""
_LOWEST, _HIGHEST = UUID(int=0), UUID(int=2**128 - 1)


class _Texts(NamedTuple):
    """The statements for filters of a shape, with the parameters of `values`."""

    page: str
    said: str


class _Place(NamedTuple):
    """The days of the nearest calls that one filter could mean, a day for each call; behind `horizon` there may be more."""

    days: list[int]
    horizon: int | None


class _Walk:
    """What was found, and the bounds of where the rest would be. Days are numbers that grow in the order of the list."""

    def __init__(self, connection: AsyncConnection, keys: Keys, filters: Filters) -> None:
        self.connection, self.words = connection, filters.words is not None
        self.keys, self.shape = keys, _shape(filters)
        self.texts = _texts(keys, self.shape)
        self.given: dict[str, Any] = values(filters) | {"low": filters.low or _LOWEST, "high": filters.high or _HIGHEST, "count": _COUNT}
        self.sign = 1 if filters.order == "asc" else -1
        self.found: list[Row[Any]] = []

    async def places(self) -> list[_Place]:
        """Where each filter alone finds something."""
        places = []
        near = _near(self.keys, self.shape, self.given["low"] > _LOWEST, self.given["high"] < _HIGHEST)
        for ids in (await self.connection.exec_driver_sql(near, self.given)).one():
            days = [self._day(call_id) for call_id in ids]
            places.append(_Place(days, days[-1] if len(days) == _COUNT else None))
        return places

    async def where_said(self, first: int) -> _Place:
        """The days from `first` on in which the words are said."""
        days = range(first, first + _SAID)
        ids = (await self.connection.exec_driver_sql(self.texts.said, self._of_days(days) | {"count": 1})).scalars()
        return _Place([self._day(call_id) for call_id in ids], days[-1])

    async def take(self, limit: int, days: list[int] | None) -> None:
        """Take up to `limit` keys of some days, of the later ones only what is needed, or of the rest of the record."""
        statement = self.texts.page if days is None else _of_days(self.texts.page, len(days))
        given = self._of_days(days or ()) | {"limit": limit - len(self.found)}
        self.found += (await self.connection.exec_driver_sql(statement, given)).all()

    def leave(self, day: int) -> None:
        """Go on behind a day."""
        if self.sign > 0:
            self.given["low"] = max(self.given["low"], _first_of(day + 1))
        else:
            self.given["high"] = min(self.given["high"], _first_of(-day))

    def _day(self, call_id: UUID) -> int:
        return self.sign * ((call_id.int >> 80) // _DAY_MS)

    def _of_days(self, days: Sequence[int]) -> dict[str, Any]:
        given = dict(self.given)
        for n, day in enumerate(days):
            given[f"low{n}"] = max(_first_of(day * self.sign), self.given["low"])
            given[f"high{n}"] = min(_first_of(day * self.sign + 1), self.given["high"])
        return given


async def find_keys(connection: AsyncConnection, keys: Keys, filters: Filters, limit: int) -> list[Row[Any]]:
    """Return the first `limit` keys after the cursor, in order."""
    walk = _Walk(connection, keys, filters)
    wanted, seen = limit, 0
    while len(walk.found) < limit:
        places = await walk.places()
        if any(not place.days for place in places):
            break
        if walk.words and seen:
            places.append(await walk.where_said(max(place.days[0] for place in places)))
        chosen = _choose_days(places, wanted)
        if seen and chosen.is_thin and not walk.words:
            # spread over many days, where averages are right
            await walk.take(limit, None)
            break
        if chosen.days:
            await walk.take(limit, chosen.days)
            seen += chosen.calls
            # as many more as it takes if it goes on like this
            wanted = (limit - len(walk.found)) * seen // max(len(walk.found), 1)
        if chosen.last is None:
            break
        walk.leave(chosen.last)
    return walk.found


class _Chosen(NamedTuple):
    """Days to ask for, and the last day that needs no other look (None: those are all the days there are)."""

    days: list[int]
    last: int | None
    calls: int
    """Calls in them that the rarest filter alone could mean, as far as they were looked at."""
    is_thin: bool
    """There would have to be more days."""


def _choose_days(places: list[_Place], wanted: int) -> _Chosen:
    """Choose days in which something may be, until they have `wanted` calls of the rarest filter."""
    rarest = max(places, key=lambda place: (place.horizon is None, place.horizon or 0))
    days: dict[int, None] = {}
    for at, day in enumerate(rarest.days):
        if day not in days and (len(days) == _DAYS or at >= wanted):
            return _Chosen(list(days), rarest.days[at - 1], at, at < wanted)
        if all(day in place.days or (place.horizon is not None and day > place.horizon) for place in places):
            days[day] = None
    is_thin = rarest.horizon is not None and len(rarest.days) < wanted and len(days) > 2
    return _Chosen(list(days), rarest.horizon, len(rarest.days), is_thin)


@lru_cache(maxsize=1024)
def _texts(keys: Keys, shape: Filters) -> _Texts:
    """Compiled once: that takes longer than running them."""
    page = _text(first_keys(keys.choose(shape), shape))
    return _Texts(page, _of_days(_text(nearest_of(keys.said(shape), shape)), _SAID, "") if shape.words else "")


@lru_cache(maxsize=1024)
def _near(keys: Keys, shape: Filters, is_above: bool, is_below: bool) -> str:
    """What finds the nearest calls, without bounds that are none: PostgreSQL looks the ends of partitions up for them (4x the time)."""
    shape = replace(shape, low=_LOWEST if is_above else None, high=_HIGHEST if is_below else None)
    return _text(nearest(keys.places(shape), shape))


def _text(statement: Select[Any]) -> str:
    return str(statement.compile(dialect=PGDialect_psycopg()))  # type: ignore[no-untyped-call]


def _of_days(statement: str, count: int, limit: str = "LIMIT %(limit)s") -> str:
    """The statement for each of some days; with a limit those are run that it needs, as the days come."""
    days = (statement.replace("%(low)s", f"%(low{n})s").replace("%(high)s", f"%(high{n})s") for n in range(count))
    return f"SELECT * FROM ({' UNION ALL '.join(f'({day})' for day in days)}) AS days {limit}"


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
