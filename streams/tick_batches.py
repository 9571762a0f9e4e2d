"""Collects values of one turn of the event loop and sends them to Redis at its end, in small
batches. A script call or an entry for each value costs many times what a value in a batch costs.
Must not know: what the values are."""

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

P = TypeVar("P", bound=Hashable)
T = TypeVar("T")
V = TypeVar("V")


class Tick(Generic[P, T, V]):
    """Collects values by name in one turn of the loop; a name that comes twice has its last value.

    At the end of the turn `prepare` gets each with the time (Unix ms), and returns where it goes,
    how many bytes it has and what is sent of it, or None. `send` gets the batches of a place with
    their bytes: each of `most`, or of fewer that pass `most_bytes`. Then `end` is called.
    """

    __slots__ = ("_end", "_most", "_most_bytes", "_prepare", "_send", "_values")

    def __init__(
        self,
        prepare: Callable[[T, int], tuple[P, int, V] | None],
        send: Callable[[P, list[V], int], None],
        end: Callable[[], None],
        *,
        most: int,
        most_bytes: int,
    ) -> None:
        self._prepare, self._send, self._end, self._most, self._most_bytes = (
            prepare,
            send,
            end,
            most,
            most_bytes,
        )
        self._values: dict[str, T] = {}

    def add(self, name: str, value: T) -> None:
        """Send `value` at the end of this turn."""
        if not self._values:
            asyncio.get_running_loop().call_soon(self._flush)
        self._values[name] = value

    def _flush(self) -> None:
        values, self._values = self._values, {}
        if len(values) == 1:
            # nearly always where few calls run
            [alone] = values.values()
            if (prepared := self._prepare(alone, time.time_ns() // 1_000_000)) is not None:
                place, size, sent = prepared
                self._send(place, [sent], size)
            self._end()
            return
        batches: dict[P, list[V]] = {}
        sizes: dict[P, int] = {}
        prepare, most, most_bytes, at = (
            self._prepare,
            self._most,
            self._most_bytes,
            time.time_ns() // 1_000_000,
        )
        for value in values.values():
            if (prepared := prepare(value, at)) is None:
                continue
            place, size, sent = prepared
            batch = batches.get(place)
            if batch is None:
                batch = batches[place] = [sent]
            else:
                batch.append(sent)
                size += sizes[place]
            sizes[place] = size
            if size > most_bytes or len(batch) == most:
                self._send(place, batches.pop(place), size)
        for place, batch in batches.items():
            self._send(place, batch, sizes[place])
        self._end()
