"""Places of a gateway: no key takes all, whoever waits to begin is served key by key, and what was
taken comes back."""

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admission import OTHERS_S, Admission, AdmittedCall, Shares
from protocol.bounds import BEGINNING_BYTES, BEGINNING_CALLS
from protocol.errors import Overloaded, RateLimited
from settings.config import Key
from settings.limits import Limits
from streams.round_robin import RoundRobin

KEYS = {name: Key(name=name, sha256=name * 64) for name in "abc"}


def places(admission: Admission, key: str) -> list[AdmittedCall]:
    """As many as it gets."""
    found = []
    try:
        while True:
            found.append(admission.take(KEYS[key]))
    except (RateLimited, Overloaded):
        return found


def test_one_key_alone_takes_half_and_the_next_half_of_the_rest() -> None:
    admission = Admission(Limits(open_calls=64, key_calls=1000))
    assert [len(places(admission, key)) for key in "abc"] == [32, 16, 8]
    with pytest.raises(
        RateLimited, match="this key has 32 open calls here, its share of 64"
    ) as refused:
        admission.take(KEYS["a"])
    assert (refused.value.http_status, refused.value.error_code, refused.value.retry_after_s) == (
        429,
        "key_calls",
        1,
    )


def test_a_want_of_descriptors_is_not_the_keys_fault() -> None:
    admission = Admission(Limits(open_calls=64, key_calls=1000), most_calls=8)
    assert [len(places(admission, key)) for key in "abc"] == [4, 2, 1]
    for key in "ab":
        with pytest.raises(
            Overloaded, match="this gateway has file descriptors for only 8 open calls"
        ) as refused:
            admission.take(KEYS[key])
        assert (
            refused.value.http_status,
            refused.value.error_code,
            refused.value.retry_after_s,
        ) == (503, "gateway_descriptors", 1)
    # its own bound is its own, whatever there are descriptors for
    own = KEYS["a"].model_copy(update={"calls": 4})
    with pytest.raises(RateLimited, match="its limit"):
        admission.take(own)


def test_a_key_has_a_bound_of_its_own() -> None:
    admission = Admission(Limits(key_calls=3))
    admission.take(KEYS["b"]).close()
    first, *_ = found = places(admission, "a")
    assert len(found) == 3
    with pytest.raises(RateLimited, match="this key has 3 open calls here, its limit"):
        admission.take(KEYS["a"])
    first.close()
    admission.take(KEYS["a"])
    more = KEYS["b"].model_copy(update={"calls": 5})
    for _ in range(5):
        admission.take(more)
    with pytest.raises(RateLimited):
        admission.take(more)


def test_a_key_alone_is_not_bounded_for_the_sake_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    admission = Admission(Limits(key_calls=3))
    for _ in range(20):
        admission.take(KEYS["a"])
    admission.take(KEYS["b"]).close()
    with pytest.raises(RateLimited, match="this key has 20 open calls here, its limit"):
        admission.take(KEYS["a"])
    later = time.monotonic() + OTHERS_S
    monkeypatch.setattr(time, "monotonic", lambda: later)
    admission.take(KEYS["a"])


def test_bodies_have_a_budget() -> None:
    admission = Admission(Limits(body_bytes=100, upload_bytes=1000))
    a, b = admission.take(KEYS["a"]), admission.take(KEYS["b"])
    a.take_body(500)
    with pytest.raises(RateLimited, match="500 of the 1000 bytes") as refused:
        a.take_body(1)
    assert refused.value.error_code == "key_uploads"
    b.take_body(250)
    with pytest.raises(Overloaded):
        b.take_body(251)
    a.begun()
    b.take_body(125)
    assert admission.uploads.used == 375
    a.close()
    b.close()
    assert admission.uploads.used == admission.calls.used == 0


@given(
    st.integers(1, 40),
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 9), st.booleans()), max_size=80),
)
def test_shares_add_up_and_leave_room_for_a_newcomer(
    total: int, steps: list[tuple[str, int, bool]]
) -> None:
    shares, held = Shares(total), list[tuple[str, int]]()
    for key, amount, gives in steps:
        if gives and held:
            shares.give_back(*held.pop())
        before, own = shares.used, shares.of(key)
        match shares.take(key, amount):
            case "full":
                assert amount > total - before
            case "share":
                assert own + amount > total - before
            case None:
                held.append((key, amount))
                assert shares.of(key) <= total - before
        assert shares.used == sum(a for _, a in held) <= total
        assert all(shares.of(k) == sum(a for kk, a in held if kk == k) for k in "abcd")
    for one in held:
        shares.give_back(*one)
    assert shares.used == 0


async def waiting(line: RoundRobin, key: str, order: list[str]) -> None:
    await line.enter(key)
    order.append(key)


async def test_who_waits_is_served_key_by_key() -> None:
    line, order = RoundRobin(1), list[str]()
    await line.enter("x")
    tasks = [asyncio.create_task(waiting(line, key, order)) for key in "aaaaabbc"]
    await asyncio.sleep(0)
    line.leave("x")
    for number in range(len(tasks)):
        await asyncio.sleep(0)
        line.leave(order[number])
    assert "".join(order) == "abcabaaa"
    await line.enter("x")  # nobody waits: at once


async def test_one_key_has_half_of_the_slots() -> None:
    """However long its calls take to begin, another key's have where to."""
    line, order = RoundRobin(4), list[str]()
    slow = [asyncio.create_task(waiting(line, "a", order)) for _ in range(6)]
    await asyncio.sleep(0)
    assert order == ["a", "a"]
    quick = [asyncio.create_task(waiting(line, "b", order)) for _ in range(3)]
    await asyncio.sleep(0)
    assert order == ["a", "a", "b", "b"]
    line.leave("b")
    await asyncio.sleep(0)
    assert order[4:] == ["b"]
    line.leave("b")
    await asyncio.sleep(0)
    assert order[5:] == [], "a has its half, and nobody else waits"
    line.leave("a")
    await asyncio.sleep(0)
    assert order[5:] == ["a"]
    for task in (*slow, *quick):
        task.cancel()
    await asyncio.gather(*slow, *quick, return_exceptions=True)


async def test_who_gives_up_waiting_keeps_no_slot() -> None:
    line, order = RoundRobin(1), list[str]()
    await line.enter("x")
    first, second, third = (asyncio.create_task(waiting(line, key, order)) for key in "aab")
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait({first})
    # the slot is given and given up in the same turn of the loop
    line.leave("x")
    second.cancel()
    await asyncio.wait({second, third})
    assert order == ["b"]
    line.leave("b")
    await line.enter("y")


async def test_who_gave_up_waiting_is_not_served_before_it_has_heard_so() -> None:
    """As when a call's wait has its end in the turn of the loop in which another call leaves."""
    line, order = RoundRobin(1), list[str]()
    await line.enter("x")
    tasks = [asyncio.create_task(waiting(line, key, order)) for key in "aab"]
    await asyncio.sleep(0)
    for task in tasks[:2]:
        task.cancel()
    line.leave("x")
    await asyncio.wait(tasks)
    assert order == ["b"] and all(task.cancelled() for task in tasks[:2])
    line.leave("b")
    assert line.free == 1 and line.enters("a")


async def test_a_call_that_never_has_its_turn_is_refused() -> None:
    admission = Admission(Limits(claim_s=0.05))
    found = [admission.take(KEYS["a"]) for _ in range(BEGINNING_CALLS // 2 + 1)]
    for place in found[:-1]:
        await place.begin()
    with pytest.raises(Overloaded) as refused:
        await found[-1].begin()
    assert refused.value.error_code == "no_worker"
    for place in found:
        place.close()
    assert admission.calls.used == 0
    await asyncio.wait_for(admission.take(KEYS["b"]).begin(), 1)


async def test_a_key_begins_calls_with_large_bodies_one_at_a_time() -> None:
    admission = Admission(Limits())
    first, second, small, others = places = [admission.take(KEYS[key]) for key in "aaab"]
    for place in (first, second, others):
        place.take_body(BEGINNING_BYTES + 1)
    await first.begin()
    waiting = asyncio.create_task(second.begin())
    await asyncio.wait_for(asyncio.gather(small.begin(), others.begin()), 1)
    assert not waiting.done()
    first.begun()
    await asyncio.wait_for(waiting, 1)
    for place in places:
        place.close()
    assert admission.large.free == admission.beginnings.free == BEGINNING_CALLS
