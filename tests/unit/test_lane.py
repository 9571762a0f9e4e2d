"""The lane for large steps: turns go round the keys, and a step that takes too long ends alone."""

import asyncio
import os
import sys
import threading
import time

import pytest

from protocol.errors import TookTooLong
from tests.support.waiting import wait_until
from workers import cpu_lane as lane_module
from workers.cpu_lane import AT_ONCE, Lane, interrupt

CPU_S = 0.2


@pytest.fixture
def lane() -> Lane:
    return Lane(blocked_s=30.0, cpu_s=CPU_S)


def spin() -> None:
    while True:
        pass


async def test_turns_go_round_the_keys() -> None:
    lane, order, go = Lane(blocked_s=1.0), list[str](), asyncio.Event()

    async def one(name: str) -> None:
        async with lane.turn(name[0]):
            await go.wait()
            order.append(name)

    tasks = [asyncio.create_task(one(f"a{n}")) for n in range(10)]
    await asyncio.sleep(0)
    tasks += [asyncio.create_task(one(name)) for name in ("b0", "b1", "c0")]
    await asyncio.sleep(0)
    # one that waits and goes away keeps nobody's turn
    tasks[5].cancel()
    go.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert sorted(order[:AT_ONCE]) == ["a0", "a1"]
    assert order[AT_ONCE:] == ["a2", "b0", "c0", "a3", "b1", "a4", "a6", "a7", "a8", "a9"]
    async with asyncio.timeout(1):
        for _ in range(AT_ONCE + 1):
            async with lane.turn("d"):
                pass


async def test_a_turn_that_is_cancelled_as_it_comes_is_passed_on() -> None:
    lane = Lane(blocked_s=1.0)

    async def hold() -> None:
        async with lane.turn("a"):
            pass

    held = [lane.turn("a") for _ in range(AT_ONCE)]
    for turn in held:
        await turn.__aenter__()
    task = asyncio.create_task(hold())
    await asyncio.sleep(0)
    await held[0].__aexit__(None, None, None)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    async with asyncio.timeout(1), lane.turn("b"):
        pass


async def test_the_loop_goes_on_beside_a_step_that_is_ended_at_its_time(lane: Lane) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.001)
            turns += 1

    counting = asyncio.create_task(count())
    began = time.monotonic()
    usual = sys.getswitchinterval()
    assert not await lane.run(spin)
    assert turns > 10 and not lane.is_busy and sys.getswitchinterval() == usual
    counting.cancel()
    done = list[int]()
    assert await lane.run(lambda: done.append(threading.get_ident())) and done != [
        threading.get_ident()
    ]
    assert time.monotonic() - began < 20


async def test_steps_come_one_after_the_other_and_raise_what_they_raise(lane: Lane) -> None:
    inside, most = 0, 0

    def step() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.01)
        inside -= 1

    assert await asyncio.gather(*(lane.run(step) for _ in range(5))) == [True] * 5
    assert most == 1

    def divide() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await lane.run(divide)
    assert await lane.run(step)


async def test_a_step_that_catches_its_exception_gets_another(
    lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_module, "AGAIN_S", 0.1)
    caught = 0

    def stubborn() -> None:
        nonlocal caught
        while True:
            try:
                spin()
            except BaseException:
                caught += 1
                if caught == 2:
                    raise

    assert not await lane.run(stubborn)
    assert caught == 2


@pytest.mark.parametrize("cpu_s", [0.0, 0.3])
async def test_the_interpreter_does_not_go_on_looking_for_exceptions(
    lane: Lane, cpu_s: float
) -> None:
    """One that was taken back made it look at each call and loop for ever, and a traced program
    never got further (CPython 3.11)."""

    def step() -> None:
        until = time.thread_time() + cpu_s
        while time.thread_time() < until:
            pass

    assert await lane.run(step) is (cpu_s == 0.0)
    calls = 0

    def note(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(note)
    try:
        (lambda: None)()
    finally:
        sys.setprofile(None)
    assert calls == 1


async def test_nothing_is_raised_behind_a_step(lane: Lane) -> None:
    """An exception that was thrown as the step ended must not reach the next one."""

    def step() -> None:
        # thrown by this very thread, at its last moment: it arrives wherever it does
        lane_module._raise_in(threading.get_ident())

    for _ in range(200):
        await lane.run(step)
        assert await lane.run(lambda: None), "the next step got it"


@pytest.mark.parametrize("stands_still", [True, False])
async def test_a_step_that_does_not_end_ends_the_process(
    stands_still: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, go_on = asyncio.Event(), threading.Event()

    def end(code: int) -> None:
        ended.set()
        go_on.set()

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(lane_module, "AGAIN_S", 0.1)

    def deaf() -> None:
        while not go_on.is_set():
            try:
                if stands_still:
                    go_on.wait(30)
                while not go_on.is_set():
                    pass
            except TookTooLong:
                pass

    lane = Lane(blocked_s=0.3 if stands_still else 30.0, cpu_s=0.1)
    running = asyncio.create_task(lane.run(deaf))
    await wait_until(ended.is_set, what="the end of the process")
    await running


def test_a_thread_is_interrupted_within_the_functions_that_take_it_and_nowhere_else() -> None:
    entered, ended, leave = threading.Event(), list[str](), threading.Event()

    def guarded() -> None:
        try:
            entered.set()
            spin()
        except TookTooLong:
            ended.append("interrupted")

    def work() -> None:
        guarded()
        entered.clear()
        leave.wait(30)

    thread = threading.Thread(target=work)
    thread.start()
    assert entered.wait(10) and thread.ident is not None
    assert not interrupt(thread.ident, [spin.__code__.replace(co_name="other")])
    assert interrupt(thread.ident, {guarded.__code__})
    while not ended:
        assert thread.is_alive()
    assert not interrupt(thread.ident, {guarded.__code__})
    leave.set()
    thread.join(10)
    assert ended == ["interrupted"]
    assert not interrupt(thread.ident, {guarded.__code__})
