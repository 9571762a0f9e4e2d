"""Bounds the work of checking one value against one schema, before the validator runs: it works in
one step, on the event loop.

Theory. A schema alone bounds the work for each value (`schema_graph`). Usually that bound times the
number of values is small, and nothing more is counted. Otherwise (a long text beside an address
that has a pattern) the value is walked with the schemas that apply at each place, as the validator
would, but with counts instead of checks.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from protocol.bounds import MAX_ARGUMENT_VALUES, MAX_SCHEMA_WORK
from protocol.bytes.json_schema_bounds import UNIQUE, bounds_of
from protocol.bytes.json_schema_graph import Graph, Node

_MAX_STEPS = 50_000
_LITTLE = 500_000
"""Units that are not counted more closely."""
_STEP = 100
"""Units that a step of the walk takes."""
_LOOK = 10
"""Units that it takes to look at a value once."""
_Times = dict[Node, float]
"""Schemas, and how often each applies."""


class TooMuchWork(ValueError):
    """Checking would take too long."""


def size_of(value: Any, limit: int) -> tuple[int, int]:
    """Return the number of values, and of characters in strings and keys. Raises TooMuchWork past
    `limit` values."""
    values, characters, level = 0, 0, [value]
    while level:
        values += len(level)
        if values > limit:
            raise TooMuchWork("it has too many values")
        inner: list[Any] = []
        for v in level:
            if type(v) is str:
                characters += len(v)
            elif type(v) is dict:
                characters += sum(map(len, v))
                inner += v.values()
            elif type(v) is list:
                inner += v
        level = inner
    return values, characters


class SchemaBudget:
    """What one call may spend on schemas, in units of about 10 ns: all of its checks, for many can
    come in one step."""

    def __init__(self, units: float = MAX_SCHEMA_WORK) -> None:
        self.left = units

    def take(self, units: float) -> None:
        """Raise TooMuchWork where so much is not left."""
        if units > self.left:
            raise TooMuchWork("it takes too much work")
        self.left -= units


class Estimate:
    """The work of one schema. Raises `schema_graph.Unclear`, and TooMuchWork where compiling it
    takes too much."""

    def __init__(self, schema: dict[str, Any], budget: SchemaBudget) -> None:
        self._root = Graph(schema).root
        bounds = bounds_of(self._root)
        budget.take(bounds.compiling)
        self._work, self._again = bounds.work, frozenset(bounds.again)

    def check(self, value: Any, budget: SchemaBudget) -> None:
        """Raise TooMuchWork where a validator could be busy for too long with `value`."""
        values, characters = size_of(value, MAX_ARGUMENT_VALUES)
        budget.take(_LOOK * values)
        work = self._work.value * values + self._work.text * characters
        if work > min(_LITTLE, budget.left):
            walk = _Walk(self._again, budget.left)
            try:
                work = walk.work(self._root, value)
            finally:
                # the walk itself is paid for, above all one that led nowhere
                budget.take(min(budget.left, _STEP * walk.steps))
        budget.take(work)


class _Walk:
    """One value, with the schemas that apply at each place in it."""

    def __init__(self, again: frozenset[Node], limit: float) -> None:
        self._again, self._limit = again, limit
        self._closures: dict[Node, tuple[_Times, _Times]] = {}
        self.steps = 0
        self._work = 0.0

    def work(self, root: Node, value: Any) -> float:
        """Return the units that checking `value` takes. Raises TooMuchWork, for them or for the
        steps of this walk."""
        waiting: list[tuple[Any, _Times]] = [(value, {root: 1})]
        while waiting:
            value, applied = waiting.pop()
            here = self._here(applied)
            self._add(value, here)
            if type(value) is dict:
                self._step(len(value) * len(here))
                names = _sum((child, times) for node, times in here.items() for child in node.names)
                for key, member in value.items():
                    waiting.append((member, _sum(_at_name(here, key))))
                    if names:
                        waiting.append((key, names))
            elif type(value) is list:
                self._step(len(value) * len(here))
                waiting += [
                    (item, _sum(_at_place(here, place))) for place, item in enumerate(value)
                ]
        return self._work

    def _step(self, count: int) -> None:
        self.steps += count
        if self.steps > _MAX_STEPS:
            raise TooMuchWork("it takes too many steps")

    def _add(self, value: Any, here: _Times) -> None:
        length = (
            len(value) if type(value) is str else sum(map(len, value)) if type(value) is dict else 0
        )
        for node, times in here.items():
            self._work += times * (node.work.value + node.work.text * length)
            if node.is_unique and type(value) is list:
                values, _ = size_of(value, MAX_ARGUMENT_VALUES)
                self._work += times * UNIQUE * values
                self._step(values // 10)
        if self._work > self._limit:
            raise TooMuchWork("it takes too much work")

    def _here(self, applied: _Times) -> _Times:
        """All that apply to a value to which `applied` do. What references lead back to applies
        once: the validator remembers."""
        here: _Times = {}
        for node, times in applied.items():
            times = min(times, 1) if node in self._again else times
            for other, each in self._closure(node).items():
                here[other] = here.get(other, 0) + times * each
        waiting = [node for node in here if node in self._again]
        seen = set(waiting)
        while waiting:
            for other, each in self._closure(waiting.pop()).items():
                here[other] = here.get(other, 0) + each
                if other in self._again and other not in seen:
                    seen.add(other)
                    waiting.append(other)
        self._step(1 + len(here))
        return here

    def _closure(self, start: Node) -> _Times:
        if start not in self._closures:
            path: list[tuple[Node, Iterator[Node]]] = [(start, iter(start.same))]
            begun = {start}
            while path:
                node, following = path[-1]
                if (child := next(following, None)) is None:
                    path.pop()
                    self._close(node)
                elif child not in begun and child not in self._closures:
                    begun.add(child)
                    path.append((child, iter(child.same)))
        return self._closures[start][0]

    def _close(self, node: Node) -> None:
        """Add up what `node` applies to its own value, and what it asks again."""
        times: _Times = {node: 1}
        again: _Times = {}
        for child in node.same:
            # one that is not closed yet leads back
            applied, its = self._closures.get(child, ({child: 1}, {}))
            self._step(2 * len(applied) + len(its))
            for other, each in applied.items():
                times[other] = times.get(other, 0) + each
                again[other] = again.get(other, 0) + each
            for other, each in its.items():
                again[other] = again.get(other, 0) + each
        if node.asks_again:
            for other, each in again.items():
                times[other] = times.get(other, 0) + each
        self._closures[node] = times, again


def _sum(applied: Iterable[tuple[Node, float]]) -> _Times:
    result: _Times = {}
    for node, times in applied:
        result[node] = result.get(node, 0) + times
    return result


def _at_name(here: _Times, name: str) -> Iterator[tuple[Node, float]]:
    """What applies to a member, if every pattern matches."""
    for node, times in here.items():
        named = node.by_name.get(name)
        for child in (*((named,) if named is not None else node.other), *node.by_pattern):
            yield child, times


def _at_place(here: _Times, place: int) -> Iterator[tuple[Node, float]]:
    for node, times in here.items():
        listed = node.by_place[place : place + 1] or node.items
        for child in (*listed, *node.each):
            yield child, times
