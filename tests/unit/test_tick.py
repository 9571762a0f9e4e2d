"""What comes in one turn of the loop is sent at its end, in batches by place."""

import asyncio
from typing import Any

from streams.tick_batches import Tick

Sent = list[tuple[str, list[str], int]]


async def sent(
    values: list[tuple[str, str]], *, most: int = 60, most_bytes: int = 100
) -> tuple[Sent, int]:
    """Add names with `PLACE:TEXT` in one turn; returns what was sent, and how often the end came.
    What has no place is not sent."""
    found: Sent = []
    ends = list[int]()

    def prepare(value: str, at: int) -> tuple[str, int, str] | None:
        assert at > 1_700_000_000_000
        place, _, text = value.partition(":")
        return (place, len(text), text) if place else None

    tick: Tick[Any, Any, Any] = Tick(
        prepare,
        lambda *batch: found.append(batch),
        lambda: ends.append(1),
        most=most,
        most_bytes=most_bytes,
    )
    for name, value in values:
        tick.add(name, value)
    assert not found, "nothing is sent before the end of the turn"
    await asyncio.sleep(0)
    return found, len(ends)


async def test_a_turn_is_one_batch_for_each_place_in_order() -> None:
    assert await sent([("1", "a:x"), ("2", "b:y"), ("3", "a:zz")]) == (
        [("a", ["x", "zz"], 3), ("b", ["y"], 1)],
        1,
    )


async def test_a_name_that_comes_twice_is_sent_once_with_its_last_value() -> None:
    assert await sent([("1", "a:x"), ("1", "a:y"), ("2", ":none")]) == ([("a", ["y"], 1)], 1)


async def test_a_batch_ends_with_so_many_values_or_past_so_many_bytes() -> None:
    three = [(str(number), "a:xx") for number in range(3)]
    assert await sent(three, most=2) == ([("a", ["xx", "xx"], 4), ("a", ["xx"], 2)], 1)
    assert await sent(three, most_bytes=3) == ([("a", ["xx", "xx"], 4), ("a", ["xx"], 2)], 1)
    assert await sent([("large", "a:" + "x" * 9), *three], most_bytes=8) == (
        [("a", ["x" * 9], 9), ("a", ["xx"] * 3, 6)],
        1,
    )


async def test_what_comes_while_it_is_sent_is_sent_in_the_next_turn() -> None:
    found: Sent = []
    tick: Tick[Any, Any, Any]

    def send(place: str, batch: list[str], size: int) -> None:
        found.append((place, batch, size))
        if len(found) == 1:
            tick.add("1", "again")

    tick = Tick(lambda value, at: ("a", 1, value), send, lambda: None, most=2, most_bytes=9)
    tick.add("1", "first")
    await asyncio.sleep(0)
    assert found == [("a", ["first"], 1)]
    await asyncio.sleep(0)
    assert found[1:] == [("a", ["again"], 1)]
