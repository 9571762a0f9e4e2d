"""Bounds on CPU time that hold on slower machines, and beside a neighbour that slows the core
down."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# 30 turns of it on the machine where the bounds were set, when it was quiet
QUIET_S = 0.0009
_TEXT = json.dumps([{"role": "user", "content": f"word {number} " * 20} for number in range(20)])


def _reference_s() -> float:
    began = time.thread_time()
    for _ in range(30):
        sum(len(turn["content"].split(" ")) for turn in json.loads(_TEXT))
    return time.thread_time() - began


def slowness() -> float:
    """How many times more CPU time the same work takes here and now than where the bounds were set;
    1 at least.

    A neighbour slows a core down for some 50 ms at a time: the slowest of a few counts, because the
    work that is held against the bound was longer than one of them.
    """
    return max(1.0, *(_reference_s() / QUIET_S for _ in range(10)))


@contextmanager
def cpu_within(seconds: float, what: object = "") -> Iterator[None]:
    """What is done within takes less CPU than so many seconds of the machine where the bounds were
    set."""
    began = time.process_time()
    yield
    took = time.process_time() - began
    assert took < seconds * slowness(), f"{took:.2f} s {what}"


def counted(work: Callable[[], object]) -> int:
    """How many functions, of Python and of C, are called."""
    count = 0

    def note(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count
