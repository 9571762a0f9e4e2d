"""When an upstream is left alone, for whom, and how it is tried again."""

import pytest

from providers.breaker import (
    FIRST_S,
    JITTER,
    LEAST,
    LONGEST_S,
    MOST_KEYS,
    MOST_NAMES,
    PROBE_S,
    WINDOW_S,
    Breakers,
    Permit,
)


class World:
    """An upstream `u` and a clock."""

    def __init__(self) -> None:
        self.breakers, self.now = Breakers("g"), 1000.0

    def ask(self, key: str = "a") -> Permit | None:
        asked = self.breakers.ask("u", key, self.now)
        return asked if isinstance(asked, Permit) else None

    def rest(self, key: str = "a") -> float:
        asked = self.breakers.ask("u", key, self.now)
        assert isinstance(asked, float)
        return asked

    def come_to(self, outcome: str, key: str = "a", times: int = 1) -> None:
        for _ in range(times):
            permit = self.ask(key)
            assert permit is not None
            permit.done(outcome, self.now)

    @property
    def state(self) -> int:
        return self.breakers.states(self.now)["u"]

    def wait(self, key: str = "a") -> float:
        """Until one may try."""
        rest = self.rest(key)
        self.now += rest
        return rest


def test_half_of_ten_requests_stop_the_key_and_two_probes_end_it() -> None:
    world = World()
    world.come_to("503")
    world.come_to("200", times=LEAST)
    world.come_to("503", times=LEAST - 2)
    assert world.state == 0
    world.come_to("503")
    assert world.state == 2 and world.ask() is None
    assert FIRST_S * (1 - JITTER) <= world.wait() <= FIRST_S * (1 + JITTER)
    assert world.state == 1
    probe = world.ask()
    assert probe is not None and world.ask() is None
    probe.done("200", world.now)
    assert world.state == 1
    world.come_to("200")
    assert world.state == 0
    # it has forgotten what was before
    world.come_to("503", times=LEAST - 1)
    assert world.state == 0


@pytest.mark.parametrize(
    ("outcome", "times"), [("503", LEAST), ("upstream_cut", LEAST), ("upstream_refused", 5)]
)
def test_it_rests_longer_each_time_and_never_longer_than_the_longest(
    outcome: str, times: int
) -> None:
    world = World()
    world.come_to(outcome, times=times)
    rests = []
    for _ in range(8):
        rests.append(world.wait())
        world.come_to(outcome)
    expected = [min(FIRST_S * 2**number, LONGEST_S) for number in range(8)]
    assert all(abs(r - e) <= JITTER * e + 1e-6 for r, e in zip(rests, expected, strict=True))


@pytest.mark.parametrize("outcome", ["429", "401", "400", "402", "upstream_token", "cancelled"])
def test_what_says_nothing_of_an_upstream_counts_for_nothing(outcome: str) -> None:
    world = World()
    world.come_to(outcome, times=100)
    world.come_to("503", times=LEAST)
    assert world.state == 2
    world.wait()
    # and gives the place of a probe back
    world.come_to(outcome, times=3)
    assert world.state == 1 and world.ask() is not None


def test_one_key_stops_itself_alone() -> None:
    world = World()
    world.come_to("200", "innocent")
    world.come_to("500", "hostile", times=LEAST)
    assert world.rest("hostile") > 0
    world.come_to("200", "innocent", times=20)
    assert world.state == 0
    # nor does it by holding the place of its probes
    world.wait("hostile")
    assert world.ask("hostile") is not None
    world.come_to("200", "innocent", times=20)
    # nor by one failure of another key
    world = World()
    world.come_to("500", "hostile", times=LEAST)
    world.come_to("200", "innocent", times=LEAST - 1)
    world.come_to("503", "innocent")
    assert world.state == 0 and world.ask("innocent") is not None


@pytest.mark.parametrize("outcome", ["500", "cancelled", ""])
def test_one_key_cannot_have_every_probe(outcome: str) -> None:
    """It asks ten times as often as the other, and its probes fail, are cancelled or have no
    end."""
    world = World()
    for number in range(5):
        world.come_to("upstream_refused", f"k{number}")
    took, ends_at, begun = 0, 0.0, world.now
    hostile: Permit | None = None
    while world.state and world.now < begun + 300:
        for _ in range(10):
            world.now += 0.1
            if hostile is not None and outcome and world.now >= ends_at:
                hostile.done(outcome, world.now)
            if (asked := world.ask("hostile")) is not None:
                hostile, ends_at, took = asked, world.now + PROBE_S - 0.5, took + 1
        if (permit := world.ask("innocent")) is not None:
            permit.done("200", world.now)
    assert took == 1 and world.state == 0 and world.now < begun + 45


def test_failures_of_several_keys_and_no_connection_stop_all() -> None:
    world = World()
    for key in ("a", "b"):
        world.come_to("502", key, times=LEAST // 2)
    assert world.ask("c") is None
    world = World()
    for number in range(5):
        world.come_to("upstream_refused", f"k{number}")
    assert world.ask("c") is None
    world.wait("c")
    probe = world.ask("c")
    assert probe is not None and world.ask("d") is None
    # a probe that never ends holds nobody up
    world.now += PROBE_S
    assert world.ask("d") is not None


def test_a_success_of_before_changes_nothing_and_old_failures_are_forgotten() -> None:
    world = World()
    slow = world.ask()
    assert slow is not None
    world.now += 1
    world.come_to("503", times=LEAST)
    world.wait()
    slow.done("200", world.now)
    slow.done("200", world.now)
    assert world.state == 1
    world = World()
    world.come_to("503", times=LEAST - 1)
    world.now += WINDOW_S + WINDOW_S / 10
    world.come_to("503")
    assert world.state == 0


def test_keys_and_names_are_bounded() -> None:
    world = World()
    for number in range(3 * MOST_KEYS):
        world.come_to("200", str(number))
    assert len(world.breakers._pairs["u"]) == MOST_KEYS
    for number in range(3 * MOST_NAMES):
        world.breakers.ask(str(number), "a", world.now)
    assert len(world.breakers._pairs) == len(world.breakers.states(world.now)) == MOST_NAMES
