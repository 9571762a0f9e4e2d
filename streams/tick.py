"""What comes in one turn of the event loop goes to Redis together, at the end of the turn, in batches that stay small.

A script call or an entry of its own for each value costs many times what a value in a batch costs. Must not know: what the values are.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

P = TypeVar("P")
T = TypeVar("T")


class Tick(Generic[T]):
    """Collects values by name in one turn of the loop; `flush` gets them at its end. A name that comes twice has its last value."""

    __slots__ = ("_flush", "_values")

    def __init__(self, flush: Callable[[Iterable[T]], None]) -> None:
        self._flush = flush
        self._values: dict[str, T] = {}

    def add(self, name: str, value: T) -> None:
        """Hand `value` to `flush` at the end of this turn."""
        if not self._values:
            asyncio.get_running_loop().call_soon(self._end)
        self._values[name] = value

    def _end(self) -> None:
        values, self._values = self._values, {}
        self._flush(values.values())


def batches(values: Iterable[tuple[P, int, T]], *, most: int, most_bytes: int) -> Iterator[tuple[P, list[T], int]]:
    """Group `(place, bytes, value)` by place; yields place, values, bytes. A batch ends with `most` values or past `most_bytes`."""
    of_places: dict[P, list[T]] = {}
    sizes: dict[P, int] = {}
    for place, size, value in values:
        batch = of_places.setdefault(place, [])
        batch.append(value)
        size = sizes[place] = sizes.get(place, 0) + size
        if len(batch) == most or size > most_bytes:
            yield place, of_places.pop(place), sizes.pop(place)
    for place, batch in of_places.items():
        yield place, batch, sizes[place]
