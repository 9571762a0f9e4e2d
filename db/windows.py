"""The keys of a page, found from where each filter alone has something.

The nearest calls are asked for that each filter by itself could mean, each by its own index. The filter whose calls reach furthest has
few of them, and up to there all that a page can hold. What the others do not rule out is looked up call by call (`db.lookups`) or, where
many lie in a day, by one statement with all filters for each day: within a day the statistics are right, over all days PostgreSQL plans
by averages, and a tool that nobody called for a month is looked for in a month of other tools.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Select
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.ext.asyncio import AsyncConnection

from db.filters import Filters, ListName, Order, Position
from db.keysets import KEYS, few_of, first_keys, nearest, nearest_of, values
from db.lookups import Key, key_of, keys_among, plan_once

_DAY_MS = 86_400_000
_COUNT = 200
"""So many calls of each filter are asked for at first, four times as many each time that they were not enough."""
_MOST = 1600
_DENSE, _DENSE_JUDGE_BLOCKS = 60, 200
"""With so many calls in a day it is cheaper to plan a statement for that day (1-3 ms) than to look each up (20-50 us, 12 as a judge block).
Where they all lie in a day or two, 60 are enough: the statement goes on behind the last of them, and mostly fills the page."""
_DAYS = 8
"""So many days are asked for in one statement, each by a statement of its own in it."""
_SAID = (8, 32)
"""In so many days words are looked for at once, first and then: planning takes 0.3 ms for each."""
FEW: dict[ListName, int] = {"calls": 1000, "tool-calls": 1000, "judge-blocks": 4000}
"""Words in fewer calls are looked for in all of the record at once, by a plan that is kept: 1-10 ms, by day 10-30."""
_LOWEST, _HIGHEST = UUID(int=0), UUID(int=2**128 - 1)


class _Place(NamedTuple):
    """The nearest calls that one filter could mean, in order; behind `horizon` there may be more."""

    ids: dict[UUID, None]
    horizon: UUID | None


class _Walk:
    """What was found, the bounds of what was not looked at, and how to look."""

    def __init__(self, connection: AsyncConnection, of: ListName, filters: Filters, limit: int) -> None:
        self.connection, self.of, self.filters, self.limit = connection, of, filters, limit
        self.shape = _shape(filters)
        self.is_up = filters.order == "asc"
        self.count = _COUNT
        self.found: list[Key] = []
        low, high = filters.low or _LOWEST, filters.high or _HIGHEST
        if filters.after is not None:
            after = filters.after.call_id
            low, high = (max(low, after), high) if self.is_up else (low, min(high, _next(after)))
        self.given: dict[str, Any] = values(filters) | {"low": low, "high": high}

    async def near(self, *, beside_words: bool) -> list[_Place]:
        """Where each filter alone finds something, but for words."""
        shape = self.shape if beside_words else replace(self.shape, words=None)
        statement = _near(self.of, shape, self.given["low"] > _LOWEST, self.given["high"] < _HIGHEST)
        if not statement:
            return []
        row = (await self.connection.exec_driver_sql(statement, self.given | {"count": self.count})).one()
        return [_Place(dict.fromkeys(ids), ids[-1] if len(ids) == self.count else None) for ids in row]

    async def where_few_said(self) -> _Place | None:
        """All calls in which the words are said, None where that is too many."""
        most = FEW[self.of]
        row = (await self.connection.exec_driver_sql(_few_said(self.of, self.shape.order), self.given | {"most": most})).one()
        return _Place(dict.fromkeys(row.ids), None) if row.number < most else None

    async def where_said(self, places: Sequence[_Place]) -> _Place:
        """The calls in which the words are said, from where the others begin. How common words are decides how they are looked for."""
        begins = [next(iter(place.ids)) for place in places]
        first, count = _day(max(begins) if self.is_up else min(begins)), _SAID[self.count > _COUNT]
        days = range(first, first + count) if self.is_up else range(first, first - count, -1)
        given = self._of_days(days) | {"count": self.count}
        await plan_once(self.connection, once=False)
        ids = (await self.connection.exec_driver_sql(_said(self.of, self.shape, count), given)).scalars().all()
        await plan_once(self.connection)
        return _Place(dict.fromkeys(ids), ids[-1] if len(ids) == self.count else self._end_of(days[-1]))

    async def take(self, ids: list[UUID]) -> None:
        """Take what the list shows of some calls."""
        size = self.limit if self.count == _COUNT else self.limit + _COUNT
        while ids and len(self.found) < self.limit:
            # what all filters name is mostly shown: a page is full with the nearest
            piece, ids, size = ids[:size], ids[size:], size + _COUNT
            self.found += await keys_among(self.connection, self.of, self.filters, piece, self.limit - len(self.found))

    async def take_all(self, ids: list[UUID], last: UUID | None, *, said: bool) -> UUID | None:
        """Take what the list shows of calls up to `last`, by calls or by days. Returns the last that was looked at."""
        if said:
            # of these most are shown, unless other filters rule them out
            nearest, ids = ids[: self.limit + _COUNT], ids[self.limit + _COUNT :]
            await self.take(nearest)
            if not ids or len(self.found) == self.limit:
                return last
            self.leave(nearest[-1])
        days = list(dict.fromkeys(map(_day, ids)))
        dense = _DENSE_JUDGE_BLOCKS if self.of == "judge-blocks" and len(days) > 2 else _DENSE
        if len(ids) <= dense * len(days):
            await self.take(ids)
            return last
        end = await self.take_days(days[:_DAYS])
        return end if len(days) > _DAYS or (last is not None and self.is_behind(end, last)) else last

    async def take_days(self, days: Sequence[int]) -> UUID:
        """Take what the list shows in some days, of the later ones only what is needed. Returns the last id of those days."""
        given = self._of_days(days) | {"limit": self.limit - len(self.found)}
        await plan_once(self.connection, once=False)
        rows = await self.connection.exec_driver_sql(_page(self.of, self.shape_behind, len(days)), given)
        self.found += [key_of(self.of, row) for row in rows]
        await plan_once(self.connection)
        return self._end_of(days[-1])

    @property
    def shape_behind(self) -> Filters:
        """The shape with the cursor, behind which a key is."""
        after = self.filters.after
        return self.shape if after is None else replace(self.shape, after=Position(after.list, after.order, _LOWEST, 0))

    def leave(self, last: UUID) -> None:
        """Go on behind a call."""
        self.given |= {"low": _next(last)} if self.is_up else {"high": last}

    def meet(self, places: Sequence[_Place]) -> tuple[list[UUID], UUID | None]:
        """Return the calls that may be in all places, and the last call up to which there are no others (None: there are none)."""
        rarest = places[0]
        for place in places[1:]:
            if rarest.horizon is not None and (place.horizon is None or self.is_behind(place.horizon, rarest.horizon)):
                rarest = place
        found = [one for one in rarest.ids if all(self._may_hold(place, one) for place in places)]
        return found, rarest.horizon

    def _may_hold(self, place: _Place, one: UUID) -> bool:
        return one in place.ids or (place.horizon is not None and self.is_behind(one, place.horizon))

    def is_behind(self, one: UUID, other: UUID) -> bool:
        return one > other if self.is_up else one < other

    def _end_of(self, day: int) -> UUID:
        return UUID(int=max(_first_of(day + 1).int - 1, 0)) if self.is_up else _first_of(day)

    def _of_days(self, days: Sequence[int]) -> dict[str, Any]:
        given = dict(self.given)
        if self.filters.after is not None:
            given |= {"after_id": self.filters.after.call_id, "after_number": self.filters.after.number}
        for n, day in enumerate(days):
            given[f"low{n}"] = max(_first_of(day), self.given["low"])
            given[f"high{n}"] = min(_first_of(day + 1), self.given["high"])
        return given


async def find_keys(connection: AsyncConnection, of: ListName, filters: Filters, limit: int) -> list[Key]:
    """Return the first `limit` keys after the cursor, in order."""
    walk = _Walk(connection, of, filters, limit)
    await plan_once(connection)
    looks, is_said, may_be_few = 0, filters.words is not None, True
    while len(walk.found) < limit:
        few = None
        if is_said and may_be_few and looks > bool(walk.found):
            few = await walk.where_few_said()
            may_be_few = few is not None
        places = await walk.near(beside_words=few is not None)
        if not all(place.ids for place in places):
            break
        if is_said and looks:
            places.append(await walk.where_said(places) if few is None else few)
        ids, last = walk.meet(places)
        if is_said and not looks and len(ids) > limit:
            # words are said by the nearest, or are rare enough to be looked for
            ids, last = ids[:limit], ids[limit - 1]
            await walk.take(ids)
            # one in ten of what may be a judge block: the nearest by the other filters are as good
            is_said = of != "judge-blocks" or 10 * len(walk.found) < limit
        else:
            last = await walk.take_all(ids, last, said=few is not None)
            if looks or not is_said:
                walk.count = min(4 * walk.count, _MOST)
        if last is None or last == _HIGHEST:
            break
        walk.leave(last)
        looks += 1
    return walk.found


@lru_cache(maxsize=1024)
def _near(of: ListName, shape: Filters, is_above: bool, is_below: bool) -> str:
    """What finds the nearest calls, without bounds that are none: PostgreSQL looks the ends of partitions up for them (4x the time)."""
    shape = replace(shape, low=_LOWEST if is_above else None, high=_HIGHEST if is_below else None)
    places = KEYS[of].places(shape)
    return _text(nearest(places, shape)) if places else ""


@lru_cache(maxsize=1024)
def _page(of: ListName, shape: Filters, days: int) -> str:
    """What finds the keys of some days."""
    shape = replace(shape, low=_LOWEST, high=_HIGHEST)
    return _of_days(_text(first_keys(KEYS[of].choose(shape), shape)), days, "limit")


@lru_cache(maxsize=256)
def _said(of: ListName, shape: Filters, days: int) -> str:
    """What finds calls in which words are said."""
    return _of_days(_text(nearest_of(KEYS[of].said(replace(shape, low=_LOWEST, high=_HIGHEST)), shape)), days, "count")


@lru_cache(maxsize=8)
def _few_said(of: ListName, order: Order) -> str:
    """What finds calls in which words are said, in all of the record."""
    return _text(few_of(KEYS[of].few_said(Filters(words="words")), Filters(order=order, low=_LOWEST, high=_HIGHEST)))


def _of_days(statement: str, count: int, limit: str) -> str:
    """The statement for each of some days; those are run that it takes, as the days come."""
    days = (statement.replace("%(low)s", f"%(low{n})s").replace("%(high)s", f"%(high{n})s") for n in range(count))
    return f"SELECT * FROM ({' UNION ALL '.join(f'({day})' for day in days)}) AS days LIMIT %({limit})s"


def _text(statement: Select[Any]) -> str:
    return str(statement.compile(dialect=PGDialect_psycopg()))  # type: ignore[no-untyped-call]


def _shape(filters: Filters) -> Filters:
    """Filters that differ in their values alone have the same shape."""
    names = ("session", "model", "key", "name", "verdict", "policy", "words")
    same: dict[str, Any] = {name: name for name in names if getattr(filters, name) is not None}
    return Filters(call_id=None if filters.call_id is None else _LOWEST, order=filters.order, **same)


def _day(call_id: UUID) -> int:
    return (call_id.int >> 80) // _DAY_MS


def _next(call_id: UUID) -> UUID:
    return UUID(int=min(call_id.int + 1, 2**128 - 1))


def _first_of(day: int) -> UUID:
    """The smallest id of a day, the largest of all past the last day that an id can name."""
    return UUID(int=min(max(day, 0) * _DAY_MS << 80, 2**128 - 1))
