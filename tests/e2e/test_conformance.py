"""Every recording through the running product and the official SDKs, as `make conformance` does it.

Of the first set all directions of its own two dialects; of the others a seeded share, since all of
them take a minute.
"""

import random
from collections.abc import Iterator

import pytest

from protocol.dialects import table as dialects
from protocol.request import DialectName
from tests.support.checks.conformance import CLIENTS, Conformance, differences
from tests.support.checks.dialect_facts import Facts, configuration_of_all, facts_are_enough
from tests.support.checks.outcomes import outcome_of
from tests.support.checks.projection import completion_facts, told_completion
from tests.support.clients.sdk_answers import WAYS, Direct, sent
from tests.support.upstreams.dialect_recordings import dialect_recordings, need_dialect_recordings
from tests.support.upstreams.product import MODEL, replayed
from tests.support.upstreams.recordings import need_recordings, own_recordings, recordings
from tests.support.upstreams.replay import Replay, stream

ALL = {r.name: r for r in [*recordings(), *own_recordings()]}


@pytest.fixture(scope="module")
def place(
    tmp_path_factory: pytest.TempPathFactory, redis_url: str, database_url: str
) -> Iterator[tuple[Conformance, Replay]]:
    folder = tmp_path_factory.mktemp("product")
    with replayed(folder, redis_url, database_url, configuration_of_all) as (product, replay):
        checks = Conformance(product.url, replay, seed=0)
        yield checks, replay
        checks.close()


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("name", list(ALL))
def test_every_client_is_told_what_the_upstream_said(
    place: tuple[Conformance, Replay], seed: int, name: str, client: DialectName
) -> None:
    checks, _ = place
    checks.seed = seed
    results = checks.check(ALL[name], client)
    assert results
    assert {r.way: r.problems for r in results if r.problems} == {}


def test_the_recordings_are_here() -> None:
    need_recordings()
    assert {outcome_of(r) for r in ALL.values()} == {"whole", "fails", "cut call", "error body"}


@pytest.mark.slow
def test_a_recorded_paused_turn_goes_on_with_its_recorded_continuation(
    place: tuple[Conformance, Replay], seed: int
) -> None:
    need_recordings()
    checks, replay = place
    segments = [ALL["anthropic/pause-turn-1"].body, ALL["anthropic/pause-turn-2"].body]
    direct = Direct()
    want = completion_facts(
        [direct.read("anthropic", "beta helper", body, sent) for body in segments]
    )
    direct.close()
    for way in WAYS["openai"][True]:
        replay.answer(*(stream(body, cutting="random", seed=seed) for body in segments))
        got = told_completion(checks.through.tell("openai", way, MODEL["anthropic"], sent))
        assert differences({k: v for k, v in want.items() if k in got}, got) == []
        assert len(replay.asked) == 2


SHARE = 2
"""Recordings of each direction."""


@pytest.mark.slow
@pytest.mark.parametrize("client", dialects.CLIENTS)
@pytest.mark.parametrize("upstream", dialects.DIALECTS)
def test_further_dialects_are_told_what_the_facts_say(
    place: tuple[Conformance, Replay], seed: int, upstream: DialectName, client: DialectName
) -> None:
    need_recordings()
    need_dialect_recordings()
    found = [
        r
        for r in [*recordings(), *dialect_recordings()]
        if r.dialect == upstream and facts_are_enough(r, client)
    ]
    if not found:
        assert (upstream, client) in (("anthropic", "openai"), ("anthropic", "anthropic"))
        return
    checks = Facts(place[0].url, place[1], seed)
    for recording in random.Random(seed).sample(found, SHARE):
        assert {
            (recording.name, r.way): r.problems
            for r in checks.check(recording, client)
            if r.problems
        } == {}
    checks.close()
