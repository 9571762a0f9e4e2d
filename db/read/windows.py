"""The keys of a page, found from where each filter alone has something.

The nearest calls are asked for that each filter by itself could mean, each by its own index. The filter whose calls reach furthest has
few of them, and up to there all that a page can hold. What the others do not rule out is looked up call by call (`db.read.lookups`)
or, where many lie in a day, by one statement with all filters for each day: within a day the statistics are right, over all days
PostgreSQL plans by averages, and a tool that nobody called for a month is looked for in a month of other tools.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from math import ceil
from typing import Any, NamedTuple
from uuid import UUID

from db.filters import Filters, ListName, Position
from db.read.keysets import KEYS, first_keys, nearest, said_by_day, values
from db.read.lookups import Key, key_of, keys_among, text_of
from db.read.plans import KeptPlans

_DAY_MS = 86_400_000
_COUNT, _MOST = 200, 1600
"""So many calls of each filter are asked for at first, and each time that they were not enough."""
DENSE, DENSE_DAYS = 60, 200
"""With so many calls in a day it is cheaper to plan a statement for that day (1-3 ms) than to look each up (10 us), where they are of more
days than two or are all there are. Else 60 are enough: the statement goes on behind the last of them, and mostly fills the page."""
_FEW_DAYS = 4
"""Where the last days, taken as a whole, held so much that the page is full with so many more, they are taken without another look."""
_DAYS = 8
"""So many days are asked for in one statement, each by a statement of its own in it."""
SAID_DAYS = 64
"""In so many days words are looked for at once: 0.02 to 0.1 ms for one in which nobody says them, 2 to 10 for the first that is needed."""
_ANY = UUID(int=0)
_LOWEST, _HIGHEST = str(UUID(int=0)), str(UUID(int=2**128 - 1))


class _Place(NamedTuple):
    """The calls among the nearest that one filter could mean, in order; behind `horizon` there may be more."""

    ids: dict[str, None]
    horizon: str | None
    is_refined: bool = False
    """They are what all filters mean, but for a few."""

    @property
    def begin(self) -> str | None:
        """Before this call there is none."""
        return next(iter(self.ids), self.horizon)


def _refined(ids: Iterable[str], last: str | None, horizon: str | None) -> _Place:
    """Of the last call that was looked at not all rows may have been."""
    return _Place(dict.fromkeys((*ids, last) if last else ids), horizon, is_refined=True)


class _Walk:
    """What was found, the bounds of what was not looked at, and how to look."""

    def __init__(self, plans: KeptPlans, of: ListName, filters: Filters, limit: int) -> None:
        self.plans, self.of, self.filters, self.limit = plans, of, filters, limit
        self.shape = _shape(filters)
        self.is_up = filters.order == "asc"
        self.count = _COUNT
        self.are_common = False
        """All filters alone find more than all together: where each finds something need not be asked again."""
        self.found: list[Key] = []
        self.of_a_day = 0.0
        """So many were found in each of the last days, where they were taken as a whole."""
        self.end = _HIGHEST if self.is_up else _LOWEST
        """Behind this call some filter alone has nothing."""
        self.looked = 0
        """In so many calls words were looked for."""
        low, high = str(filters.low or _LOWEST), str(filters.high or _HIGHEST)
        if filters.after is not None:
            after = str(filters.after.call_id)
            low, high = (max(low, after), high) if self.is_up else (low, min(high, _next(after)))
        if filters.call_id is not None:
            low, high = max(low, str(filters.call_id)), min(high, _next(str(filters.call_id)))
        self.given: dict[str, Any] = values(filters) | {"low": low, "high": high}

    async def near(self, *, begins: bool) -> list[_Place]:
        """Where each filter alone finds something, but for words; of what all of them mean only where it begins, if no more is asked."""
        statement = _near(self.of, self.shape, self.given["low"] > _LOWEST, self.given["high"] < _HIGHEST)
        others = 0 if self.are_common else self.count
        enough = {"count": _COUNT, "others": _COUNT, "hits": 1} if begins else self._enough(said=False) | {"others": others}
        [row] = await self.plans.ask(statement, self.given | enough)
        places = [_Place(dict.fromkeys(ids), last) for ids, last in zip(row[::2], row[1::2], strict=True)]
        for place in places:
            if place.horizon is None and place.ids:
                self.end = (min if self.is_up else max)(self.end, next(reversed(place.ids)))
        if self.of == "judge-blocks":
            *places, last = places
            refined = _refined(last.ids, last.horizon, last.horizon)
            if begins:
                return [*places, refined]
            if others == 0:
                # of 1,600 that were refused: fewer, and another filter may have become rare
                self.are_common = len(refined.ids) > 10
                return [refined]
            self.are_common = refined.horizon is not None and not any(self._is_rarer(place, refined.horizon) for place in places)
            return [*places, refined]
        return places

    def _is_rarer(self, place: _Place, horizon: str) -> bool:
        return place.horizon is None or self.is_behind(place.horizon, horizon)

    async def where_said(self, places: Sequence[_Place]) -> _Place:
        """The calls in which the words are said, from where the others begin."""
        begins = [place.begin or _LOWEST for place in places]
        first = _day(max(begins) if self.is_up else min(begins))
        days = range(first, first + SAID_DAYS) if self.is_up else range(first, first - SAID_DAYS, -1)
        bounds = [(low, high) for low, high in map(self._bounds, days) if low < high]
        lows, highs = (f"{{{','.join(each)}}}" for each in zip(*bounds, strict=True)) if bounds else ("{}", "{}")
        given = self.given | self._enough(said=True) | {"lows": lows, "highs": highs}
        [row] = await self.plans.ask(_said(self.of, self.shape), given)
        horizon = row[1] or self._end_of(days[-1])
        return _refined(row[0], row[1], horizon) if self.of == "judge-blocks" else _Place(dict.fromkeys(row[0]), horizon)

    def _enough(self, *, said: bool) -> dict[str, int]:
        """How many to look at, and how many of them are enough where they are refined: a few are not shown, something was said later."""
        hits = self.limit - len(self.found) + 10
        if self.filters.words is not None and not said:
            # as many as hold the rest of the page at the rate so far: whether one of 1,600 was judged takes 5 us
            return {"count": self.count, "hits": min(self.count, hits * self.looked // max(len(self.found), 1) or self.count)}
        return {"count": _MOST if self.of == "judge-blocks" and said else self.count, "others": self.count, "hits": hits}

    def enough(self, looked: int, found: int) -> int:
        """How many of each filter hold the rest of the page, where of so many calls so much was found."""
        if self.of == "judge-blocks" or self.filters.words is not None or not found:
            return _MOST
        return min(max(2 * (self.limit - len(self.found)) * looked // found, _COUNT), _MOST)

    async def take(self, ids: Sequence[str]) -> None:
        """Take what the list shows of some calls."""
        if ids:
            self.found += await keys_among(self.plans, self.of, self.filters, ids, self.limit - len(self.found))

    async def take_all(self, ids: list[str], last: str | None, *, are_meant: bool) -> str | None:
        """Take what the list shows of calls up to `last`, by calls or by days. Returns the last that was looked at."""
        days = self._days(ids)
        dense = DENSE_DAYS if last is None or len(days) > 2 else DENSE
        if are_meant or len(ids) <= dense * len(days):
            await self.take(ids)
            return last
        end = await self.take_days(days[:_DAYS])
        return end if len(days) > _DAYS or (last is not None and self.is_behind(end, last)) else last

    async def go_on(self) -> str | None:
        """Take what the list shows in the days that follow. Returns the last id of those days, None where the list has no more."""
        low, high = _day(self.given["low"]), _day(_before(self.given["high"]))
        if self.is_up:
            days = range(low, min(high, _day(self.end)) + 1)
        else:
            days = range(high, max(low, _day(self.end)) - 1, -1)
        days = days[: ceil(1.2 * (self.limit - len(self.found)) / self.of_a_day)]
        return await self.take_days(days) if days else None

    async def take_days(self, days: Sequence[int]) -> str:
        """Take what the list shows in some days, of the later ones only what is needed. Returns the last id of those days."""
        given = self._of_days(days) | {"limit": self.limit - len(self.found)}
        rows = await self.plans.ask_by_values(_page(self.of, self.shape_behind, len(days)), given)
        self.found += [key_of(self.of, row) for row in rows]
        self.of_a_day = len(rows) / len(days)
        return self._end_of(days[-1])

    @property
    def shape_behind(self) -> Filters:
        """The shape with the cursor, behind which a key is."""
        after = self.filters.after
        return self.shape if after is None else replace(self.shape, after=Position(after.list, after.order, UUID(_LOWEST), 0))

    def leave(self, last: str) -> None:
        """Go on behind a call."""
        self.given |= {"low": _next(last)} if self.is_up else {"high": last}

    def meet(self, places: Sequence[_Place]) -> tuple[list[str], str | None, bool]:
        """Return the calls that may be in all places, the last call up to which there are no others (None: there are none), and whether
        most of them are shown."""
        rarest = places[0]
        for place in places[1:]:
            if rarest.horizon is not None and (place.horizon is None or self.is_behind(place.horizon, rarest.horizon)):
                rarest = place
        for place in places:
            if place.is_refined and (place is rarest or len(place.ids) > self.limit - len(self.found)):
                return list(place.ids), place.horizon, True
        ids = list(rarest.ids)
        for place in places:
            if place is not rarest:
                near = len(ids) if place.horizon is None else self._count_to(ids, place.horizon)
                ids = [one for one in ids[:near] if one in place.ids] + ids[near:]
        return ids, rarest.horizon, False

    def _count_to(self, ids: Sequence[str], last: str, *, start: int = 0) -> int:
        """How many of these calls, which are in order, come before what is behind one."""
        return bisect_left(ids, True, start, key=lambda one: self.is_behind(one, last))

    def _days(self, ids: Sequence[str]) -> list[int]:
        """The days of calls, which are in order: naming the day of each of 1,600 took 1 ms."""
        days: dict[int, None] = {}
        at = 0
        while at < len(ids):
            days[day := _day(ids[at])] = None
            at = max(self._count_to(ids, self._end_of(day), start=at), at + 1)
        return list(days)

    def is_behind(self, one: str, other: str) -> bool:
        return one > other if self.is_up else one < other

    def _end_of(self, day: int) -> str:
        return str(UUID(int=max(UUID(_first_of(day + 1)).int - 1, 0))) if self.is_up else _first_of(day)

    def _bounds(self, day: int) -> tuple[str, str]:
        return max(_first_of(day), self.given["low"]), min(_first_of(day + 1), self.given["high"])

    def _of_days(self, days: Sequence[int]) -> dict[str, Any]:
        given = dict(self.given)
        if self.filters.after is not None:
            given |= {"after_id": self.filters.after.call_id, "after_number": self.filters.after.number}
        for n, day in enumerate(days):
            given[f"low{n}"], given[f"high{n}"] = self._bounds(day)
        return given


async def find_keys(plans: KeptPlans, of: ListName, filters: Filters, limit: int) -> list[Key]:
    """Return the first `limit` keys after the cursor, in order."""
    walk = _Walk(plans, of, filters, limit)
    looks, is_said = 0, filters.words is not None
    while len(walk.found) < limit:
        if _FEW_DAYS * walk.of_a_day > limit - len(walk.found):
            if (end := await walk.go_on()) is None:
                break
            walk.leave(end)
            continue
        places = await walk.near(begins=is_said and looks > 0 and of == "judge-blocks")
        if any(place.begin is None for place in places):
            break
        if is_said and looks:
            said = await walk.where_said(places)
            places = [*(place for place in places if not place.is_refined), said]
        ids, last, are_meant = walk.meet(places)
        before = len(walk.found)
        if is_said and not looks and len(ids) > limit:
            # words are said by the nearest, or are rare enough to be looked for
            ids, last = ids[:limit], ids[limit - 1]
            await walk.take(ids)
            walk.looked += limit
        else:
            last = await walk.take_all(ids, last, are_meant=are_meant)
            walk.looked += len(ids)
            if looks or not is_said:
                walk.count = walk.enough(len(ids), len(walk.found) - before)
        if is_said and not looks:
            # by one in ten of the nearest: what the other filters find is as good, and cheaper than a day full of these words
            is_said = 10 * len(walk.found) < len(ids)
        if last is None or last == _HIGHEST:
            break
        walk.leave(last)
        looks += 1
    return walk.found


@lru_cache(maxsize=1024)
def _near(of: ListName, shape: Filters, is_above: bool, is_below: bool) -> str:
    """What finds the nearest calls, without bounds that are none: PostgreSQL looks the ends of partitions up for them (4x the time)."""
    shape = replace(shape, low=_ANY if is_above else None, high=_ANY if is_below else None)
    return text_of(nearest(KEYS[of].places(shape), shape))


@lru_cache(maxsize=1024)
def _page(of: ListName, shape: Filters, days: int) -> str:
    """What finds the keys of some days."""
    shape = replace(shape, low=_ANY, high=_ANY)
    return _of_days(text_of(first_keys(KEYS[of].choose(shape), shape)), days, "limit")


@lru_cache(maxsize=256)
def _said(of: ListName, shape: Filters) -> str:
    """What finds calls in which words are said."""
    return text_of(said_by_day(KEYS[of].said(shape), shape))


def _of_days(statement: str, count: int, limit: str) -> str:
    """The statement for each of some days; those are run that it takes, as the days come."""
    days = (statement.replace("%(low)s", f"%(low{n})s").replace("%(high)s", f"%(high{n})s") for n in range(count))
    return f"SELECT * FROM ({' UNION ALL '.join(f'({day})' for day in days)}) AS days LIMIT %({limit})s"


def _shape(filters: Filters) -> Filters:
    """Filters that differ in their values alone have the same shape."""
    names = ("session", "model", "key", "key_id", "name", "verdict", "policy", "words")
    same: dict[str, Any] = {name: name for name in names if getattr(filters, name) is not None}
    return Filters(call_id=None if filters.call_id is None else _ANY, order=filters.order, state=filters.state, **same)


def _day(call_id: str) -> int:
    return int(call_id[:8] + call_id[9:13], 16) // _DAY_MS


def _before(call_id: str) -> str:
    return str(UUID(int=max(UUID(call_id).int - 1, 0)))


def _next(call_id: str) -> str:
    return str(UUID(int=min(UUID(call_id).int + 1, 2**128 - 1)))


@lru_cache(maxsize=1024)
def _first_of(day: int) -> str:
    """The smallest id of a day, the largest of all past the last day that an id can name."""
    return str(UUID(int=min(max(day, 0) * _DAY_MS << 80, 2**128 - 1)))
