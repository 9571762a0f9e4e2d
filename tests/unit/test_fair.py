"""A worker's time is shared by API keys: what one has waiting costs another one turn, and not the
whole of it."""

import asyncio

import pytest

from tests.support.waiting import wait_until
from workers.policy import fair
from workers.policy.fair import SLICE_S, TURN_S, FairQueue

STEP_S = 0.0001


class Steps:
    """Steps that each take `STEP_S` on a clock of their own, and note whose they are."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.queue, self.done, self.now = FairQueue(), list[str](), 0.0
        monkeypatch.setattr(fair, "monotonic", lambda: self.now)

    def put(self, key: str, count: int = 1, step_s: float = STEP_S) -> None:
        def step() -> None:
            self.now += step_s
            self.done.append(key)

        for _ in range(count):
            self.queue.put(key, step)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


async def test_a_step_waits_for_a_turn_of_another_key_and_not_for_all_that_it_has_waiting(
    steps: Steps,
) -> None:
    steps.put("a", 20_000)
    await asyncio.sleep(0)
    before = len(steps.done)
    assert 0 < before <= SLICE_S / STEP_S + 10, "others on the loop have their turn"
    steps.put("b")
    await wait_until(lambda: "b" in steps.done)
    assert steps.done.index("b") - before <= TURN_S / STEP_S + 1


async def test_keys_have_the_same_time_however_much_they_have_waiting(steps: Steps) -> None:
    for key, count in (("a", 20_000), ("b", 500), ("c", 500)):
        steps.put(key, count)
    await wait_until(lambda: steps.done.count("c") == 500)
    until = len(steps.done) - steps.done[::-1].index("c")
    assert steps.done.index("c") < 30 and steps.done[:until].count("a") <= 520


async def test_keys_have_the_same_time_however_long_their_steps_are(steps: Steps) -> None:
    steps.put("slow", 100, 20 * TURN_S)
    steps.put("quick", 500, TURN_S)
    await wait_until(lambda: steps.done.count("quick") == 500)
    until = len(steps.done) - steps.done[::-1].index("quick")
    assert steps.done[:until].count("slow") <= 500 / 20 + 1


@pytest.mark.parametrize(
    "error", [ValueError("wrong"), asyncio.CancelledError(), MemoryError(), GeneratorExit()]
)
async def test_a_step_that_fails_in_whatever_way_stops_nobody(
    steps: Steps, error: BaseException
) -> None:
    reported = list[BaseException]()
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: reported.append(context["exception"])
    )

    def fails() -> None:
        raise error

    steps.queue.put("a", fails)
    steps.put("a")
    steps.put("b")
    await wait_until(lambda: sorted(steps.done) == ["a", "b"])
    assert reported == [error]


async def test_a_key_that_is_held_has_no_turns_and_goes_on_in_order_when_it_is_free(
    steps: Steps,
) -> None:
    steps.queue.hold(["a"])
    steps.put("a", 3)
    steps.put("b", 3)
    await wait_until(lambda: "b" not in steps.queue.queues)
    assert steps.done == ["b"] * 3 and "a" in steps.queue.queues
    steps.queue.hold(["b"])
    await wait_until(lambda: steps.done == [*"bbbaaa"])
    assert "a" not in steps.queue.queues and "b" in steps.queue.queues
    steps.queue.hold([])
    await wait_until(lambda: not steps.queue.queues)


async def test_a_step_that_fails_is_whose_it_is(steps: Steps) -> None:
    def fails() -> None:
        raise ValueError("wrong")

    steps.queue.put("a", fails)
    with pytest.raises(ValueError, match="wrong"):
        await steps.queue.run("a", fails)
    assert await steps.queue.run("b", lambda: 3) == 3
