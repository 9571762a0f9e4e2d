"""Stores that lose what they had said was safe, or that somebody alters: every call that lacks
something afterwards is named."""

import signal
import time
from collections.abc import Iterator

import pytest

from protocol.records import EventRecord
from tests.support.checks.damage import CUTS, cut, forget_since, written
from tests.support.checks.figures import Figure
from tests.support.checks.holes import (
    Place,
    assert_holes_are_named,
    damageable,
    set_back_under_load,
)
from tests.support.clients.readers import joined
from tests.support.waiting import wait_for

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A product on stores of its own, damaged again and again."""
    with damageable(tmp_path_factory.mktemp("place"), behind=("gateway", "audit")) as made:
        yield made


@pytest.mark.case("A11")
@pytest.mark.parametrize("how", CUTS)
@pytest.mark.slow
def test_a11_calls_whose_records_somebody_took_off_the_stream_are_named(
    place: Place, how: str
) -> None:
    readers = place.whole(2)
    running = place.open(4, 150)
    [writer] = place.product.of("audit")
    writer.kill(signal.SIGSTOP)
    try:
        ended = place.ask(2, 10)
        joined(ended)
        lost = cut(place.valkey, how)
    finally:
        writer.kill(signal.SIGCONT)
    joined(running)
    readers += [*running, *ended, *place.whole(2)]
    damaged = {record.call_id for record in lost if not isinstance(record, EventRecord)}
    assert (
        assert_holes_are_named(place, readers, also=damaged)
        >= damaged
        >= {r.call_id for r in running}
    )


@pytest.mark.case("R11")
@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.slow
def test_r11_calls_of_the_last_second_that_redis_lost_are_named(
    place: Place, recorded: bool
) -> None:
    """What had come onto record by then is not missing; what had not is, also of calls that were
    over."""
    readers = place.whole(2)
    running = place.open(4, 500)
    [writer] = place.product.of("audit")
    then = written(place.valkey)
    began = time.monotonic()
    if not recorded:
        writer.kill(signal.SIGSTOP)
    try:
        ended = place.ask(2, 10)
        joined(ended)
        wait_for(lambda: time.monotonic() > began + 1.0, what="a second")
        assert forget_since(place.valkey, then) > 100_000
    finally:
        writer.kill(signal.SIGCONT)
    joined(running)
    assert [(r.whole, r.received[-200:]) for r in running if not r.whole or r.has_all(500)] == [], (
        "a client is told that its call is over"
    )
    readers += [*running, *ended, *place.whole(2)]
    named = assert_holes_are_named(place, readers)
    # of those under way the last releases, unless the writer had been that quick
    assert recorded or named >= {r.call_id for r in running}
    assert {r.call_id for r in ended} & named == (set() if recorded else {r.call_id for r in ended})


@pytest.mark.slow
def test_a_call_whose_release_was_altered_on_its_way_onto_record_is_named(place: Place) -> None:
    readers = place.whole(2)
    place.proxies["audit"].alter_reply(rb"release.{1,300}?word(\d)", b"x")
    [altered] = place.ask(1, 10)
    joined([altered])
    assert altered.has_all(10) and place.proxies["audit"].has_altered
    assert assert_holes_are_named(place, [*readers, altered, *place.whole(2)]) == {altered.call_id}


@pytest.mark.case("D11")
@pytest.mark.slow
def test_d11_calls_that_a_postgres_set_back_lost_in_part_or_whole_are_named(
    place: Place, figure: Figure
) -> None:
    figure(
        "calls named of those that lost something by a second",
        set_back_under_load(place, seconds=1.0),
        "",
    )
