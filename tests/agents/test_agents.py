"""Real coding agents on a task of two tool calls through the product, with a scripted provider of
each dialect behind it.

The agent runs the allowed commands and goes on to the end; the denied one never reaches it; the
record has all three calls and holds.
"""

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from protocol.dialects.table import CLIENTS
from tests.agents.conftest import MODELS, UPSTREAMS, Place
from tests.support.checks.sealed import verified
from tests.support.clients.coding_agents import CODING_AGENTS, Ran, run
from tests.support.servers.product import KEY
from tests.support.vendors.server import Door, Told, door
from tests.support.vendors.story import (
    COMMANDS,
    DENIED,
    FIRST,
    LAST,
    RAN,
    SECOND,
    WITNESS,
    Part,
    Scene,
    Seen,
    denied_alone,
    three_at_once,
    two_turns,
)
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.agents, pytest.mark.timeout(600)]

Way = tuple[str, str]
WAYS: list[Way] = [
    (agent.name, client)
    for agent in CODING_AGENTS.values()
    for client in agent.clients
    if client in CLIENTS
]
CALLING = [(agent, client) for agent, client in WAYS if not CODING_AGENTS[agent].edits]
RESULTS: dict[Callable[[Seen], list[Part]], list[list[str]]] = {
    two_turns: [[], [FIRST], [FIRST, SECOND]],
    three_at_once: [[], [FIRST, SECOND]],
    denied_alone: [[], [FIRST], [FIRST], [FIRST, SECOND]],
}
"""The results that each request of the task brings back."""
OWN_MISTAKES = {
    (
        "opencode",
        "openai",
        "strict",
    ): "strict: Conversation roles must alternate user/assistant/user/assistant/..."
}
"""What agents send wrong beside the task (opencode asks for a title with two user messages in a
row): to a provider of the client's own dialect it goes on as it is, so it is refused as it would be
without Sluice, and the agent does without."""
SILENT_S = 40


def rotated(ways: list[Way], first: int) -> pytest.MarkDecorator:
    """Each way of an agent with one upstream, so that together they cover all."""
    names = list(UPSTREAMS)
    return pytest.mark.parametrize(
        ("agent", "client", "upstream"),
        [(*way, names[(first + number) % len(names)]) for number, way in enumerate(ways)],
    )


@dataclass(frozen=True)
class Played:
    """A run of an agent: what it printed, every byte that it got, and its calls on record, oldest
    first."""

    ran: Ran
    way: Door
    calls: list[dict[str, str]]


def play(
    place: Place,
    folder: Path,
    agent: str,
    client: str,
    upstream: str,
    scene: Scene,
    until: Callable[[], object] | None = None,
) -> Played:
    """Run an agent once, interrupted when `until` returns, if that is given."""
    place.vendors.begin(scene)
    before = {c["call_id"] for c in place.product.audit("calls", limit=100)["items"]}
    # an agent that leaves is missed by the door, but not by the product
    with nullcontext(Door(place.product.url)) if until else door(place.product.url) as way:
        ran = run(CODING_AGENTS[agent], folder, way.url, KEY, MODELS[upstream], client, until)

    def ended() -> list[dict[str, str]] | None:
        items = [
            c
            for c in place.product.audit("calls", limit=100)["items"]
            if c["call_id"] not in before
        ]
        # a call that went on behind a blocked one asked its model twice
        asked = [t for t in place.vendors.told if t.seen is None or "[Sluice" not in results(t)]
        is_over = len(items) >= len(asked) and all(c["ended_at"] for c in items)
        return sorted(items, key=lambda c: c["call_id"]) if is_over else None

    return Played(ran, way, wait_for(ended, timeout_s=15, what=f"all calls on record\n{ran}"))


def results(told: Told) -> str:
    """All results of tool calls in a request."""
    assert told.seen is not None
    return "\n".join(result.text for result in told.seen.results)


def verdicts(place: Place, calls: list[dict[str, str]]) -> list[tuple[bool, str]]:
    """Of each tool call on record, in their order, whether it is the denied one, and its
    verdict."""
    found = []
    for call in calls:
        items = place.product.audit("tool-calls", call_id=call["call_id"])["items"]
        found += [
            (DENIED in json.dumps(i["arguments"]), i["verdict"])
            for i in sorted(items, key=lambda i: i["block"])
        ]
    return found


def check_done(place: Place, played: Played, agent: str, client: str, upstream: str) -> None:
    """That the task was done, seen from the agent, from its provider, on the way between and on
    record."""
    ran, vendors, edits = played.ran, place.vendors, CODING_AGENTS[agent].edits
    wrong = [
        (path, status, body[-600:])
        for path, status, body in played.way.answers
        if status >= 400 and path.startswith("/v1/")
    ]
    refusals = vendors.refusals()
    assert set(refusals) <= {OWN_MISTAKES.get((agent, client, upstream))}, f"{refusals}\n{ran}"
    assert len(wrong) == len(refusals) + vendors.scene.overloaded, f"{wrong}\n{ran}"
    assert {t.vendor for t in vendors.told} == {upstream}
    assert ran.code == 0 and ("Applied edit" if edits else LAST) in ran.out, str(ran)
    # each command once, whatever was repeated
    assert sorted((ran.folder / RAN).read_text().split()) == ([FIRST] if edits else [FIRST, SECOND])
    assert not (ran.folder / WITNESS).exists()
    task = vendors.task()
    assert [[r for r in (FIRST, SECOND) if r in results(t)] for t in task] == (
        [[]] if edits else RESULTS[vendors.scene.answer]
    )
    # nothing of the denied call, neither what it is nor the provider's name for it, in any byte; a
    # notice says where it would have fetched from
    said = played.way.said()
    assert (
        COMMANDS["denied"].encode() not in said
        and WITNESS.encode() not in said
        and b"call_denied" not in said
    )
    # and it is in no history, so that the provider is not told that it ran
    assert COMMANDS["denied"] not in json.dumps(task[-1].body)
    assert verdicts(place, played.calls) == (
        [] if edits else [(False, "allow"), (True, "block"), (False, "allow")]
    )


def check_seals(task: list[Told]) -> None:
    """Sealed thoughts come back from the record, whatever the client's dialect.

    A stand-in is right only for the call beside the denied one: the seal that both have stood on
    the denied one.
    """
    first, *later = (t.seen for t in task if t.seen is not None)
    if later and (first.thinks or task[0].vendor == "gemini"):
        assert [seen.sealed > 0 for seen in later] == [True, True]
        assert [seen.dummies for seen in later] in ([0, 0], [0, 1])


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize(("agent", "client"), WAYS)
def test_an_agent_does_its_task_without_the_denied_command(
    place: Place, tmp_path: Path, agent: str, client: str, upstream: str
) -> None:
    check_done(
        place, play(place, tmp_path, agent, client, upstream, Scene()), agent, client, upstream
    )
    check_seals(place.vendors.task())


@rotated(CALLING, 0)
def test_the_calls_beside_a_denied_one_run(
    place: Place, tmp_path: Path, agent: str, client: str, upstream: str
) -> None:
    check_done(
        place,
        play(place, tmp_path, agent, client, upstream, Scene(three_at_once)),
        agent,
        client,
        upstream,
    )


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize(("agent", "client"), CALLING)
def test_an_agent_goes_on_behind_a_denied_command(
    place: Place, tmp_path: Path, agent: str, client: str, upstream: str
) -> None:
    """Nothing else was left for it to run: its model was asked again."""
    check_done(
        place,
        play(place, tmp_path, agent, client, upstream, Scene(denied_alone)),
        agent,
        client,
        upstream,
    )


@rotated(WAYS, 1)
def test_an_interrupted_agent_leaves_nothing_open_and_runs_again(
    place: Place, tmp_path: Path, agent: str, client: str, upstream: str
) -> None:
    interrupted = play(
        place,
        tmp_path / "interrupted",
        agent,
        client,
        upstream,
        Scene(stalls=True),
        lambda: place.vendors.stalled.wait(60),
    )
    assert place.vendors.left.wait(10), str(interrupted.ran)
    assert len(place.vendors.task()) == 1
    assert "client_gone" in {c["reason"] for c in interrupted.calls} <= {"client_gone", "complete"}
    check_done(
        place,
        play(place, tmp_path / "again", agent, client, upstream, Scene()),
        agent,
        client,
        upstream,
    )


@rotated(WAYS, 3)
def test_an_agent_waits_for_a_silent_provider(
    place: Place, tmp_path: Path, agent: str, client: str, upstream: str
) -> None:
    check_done(
        place,
        play(place, tmp_path, agent, client, upstream, Scene(silence_s=SILENT_S)),
        agent,
        client,
        upstream,
    )


@rotated(WAYS, 2)
def test_an_agent_asks_an_overloaded_provider_again(
    place: Place, tmp_path: Path, agent: str, client: str, upstream: str
) -> None:
    check_done(
        place,
        play(place, tmp_path, agent, client, upstream, Scene(overloaded=True)),
        agent,
        client,
        upstream,
    )


def test_the_record_of_all_of_them_holds(place: Place) -> None:
    def sealed() -> bool:
        code, said = verified(place.product.database_url)
        assert code in (0, 4), said
        return code == 0 and said["unsealed"] == 0

    assert place.product.audit("calls", limit=1)["items"]
    wait_for(sealed, timeout_s=20, what="a record that verifies whole")


def test_an_agent_whose_api_is_not_served_is_refused_with_what_to_do(
    place: Place, tmp_path: Path
) -> None:
    with door(place.product.url) as way:
        ran = run(CODING_AGENTS["gemini-cli"], tmp_path, way.url, KEY, MODELS["gemini"], "gemini")
    assert ran.code != 0 and [status for _, status, _ in way.answers] == [404], str(ran)
    assert (
        f"use a client that speaks chat/completions or Responses (base URL {place.product.url}/v1)"
        in ran.err
    ), str(ran)
