"""Real coding agents on a task of two tool calls through the product, with a scripted provider of each dialect behind it.

The agent runs the allowed commands and goes on to the end; the denied one never reaches it; the record has all three calls and holds.
"""

import json
from pathlib import Path

import pytest

from protocol.dialects import CLIENTS, DIALECTS
from tests.agents.conftest import MODELS, Place
from tests.support.checks.sealed import verified
from tests.support.clients.coding_agents import CODING_AGENTS, Ran, run
from tests.support.servers.product import KEY
from tests.support.vendors.server import VENDORS, Door, Told, door
from tests.support.vendors.story import DENIED, FIRST, LAST, SECOND, WITNESS
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.agents, pytest.mark.timeout(600)]

UPSTREAMS = [name for name in VENDORS if name in DIALECTS]
WAYS = [(agent.name, client) for agent in CODING_AGENTS.values() for client in agent.clients if client in CLIENTS]


def the_task(told: list[Told]) -> list[Told]:
    """The requests of the task itself; agents also ask for a title of it."""
    return [t for t in told if t.seen is not None and t.seen.offered]


def results(told: Told) -> str:
    """All results of tool calls in a request."""
    assert told.seen is not None
    return "\n".join(result.text for result in told.seen.results)


def verdicts(place: Place, session_calls: list[str]) -> dict[str, str]:
    """The verdicts of the calls on record, by their arguments."""
    found: dict[str, str] = {}
    for call_id in session_calls:
        for item in place.product.audit("tool-calls", call_id=call_id)["items"]:
            found[json.dumps(item["arguments"])] = item["verdict"]
    return found


def ended_calls(place: Place, since: set[str], count: int) -> list[str]:
    """The calls of a run, when all of them are on record."""

    def ended() -> list[str] | None:
        items = [c for c in place.product.audit("calls", limit=100)["items"] if c["call_id"] not in since]
        return [c["call_id"] for c in items] if len(items) >= count and all(c["ended_at"] for c in items) else None

    return wait_for(ended, timeout_s=15, what="all calls on record")


def check_run(ran: Ran, told: list[Told], way: Door) -> None:
    """What the agent did, seen from itself, from its provider and on the way between."""
    assert ran.code == 0 and LAST in ran.out, str(ran)
    assert not (ran.folder / WITNESS).exists()
    task = the_task(told)
    assert len(task) == 3, [t.path for t in task]
    assert [FIRST in results(t) for t in task] == [False, True, True]
    assert [SECOND in results(t) for t in task] == [False, False, True]
    # nothing of the denied call, neither what it is nor the provider's name for it, in any byte
    said = way.said()
    assert DENIED.encode() not in said and WITNESS.encode() not in said and b"2denied" not in said
    # and it is in no history, so that the provider is not told that it ran
    assert DENIED not in json.dumps(task[-1].body)


def check_seals(told: list[Told], client: str) -> None:
    """Sealed thoughts come back from the record, whatever the client's dialect.

    A stand-in is right only for the call beside the denied one: the seal that both have stood on the denied one.
    """
    first, *later = (t.seen for t in the_task(told) if t.seen is not None)
    if (told[0].vendor, client) == ("responses", "responses"):
        # whoever speaks this dialect asks for what is encrypted and brings it back, or does without: Codex asks, the others do not
        return
    if first.thinks or told[0].vendor == "gemini":
        assert [seen.sealed > 0 for seen in later] == [True, True]
        assert [seen.dummies for seen in later] in ([0, 0], [0, 1])


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize(("agent", "client"), WAYS)
def test_an_agent_does_its_task_without_the_denied_command(place: Place, tmp_path: Path, agent: str, client: str, upstream: str) -> None:
    place.vendors.forget()
    before = {c["call_id"] for c in place.product.audit("calls", limit=100)["items"]}
    with door(place.product.url) as way:
        ran = run(CODING_AGENTS[agent], tmp_path, way.url, KEY, MODELS[upstream], client)
    told = place.vendors.told
    wrong = [(path, status, body[-600:]) for path, status, body in way.answers if status >= 400 and path.startswith("/v1/")]
    assert place.vendors.refusals() == [] and not wrong, f"{place.vendors.refusals()}\n{wrong}\n{ran}"
    assert {t.vendor for t in told} == {upstream}
    check_run(ran, told, way)
    check_seals(told, client)
    decided = verdicts(place, ended_calls(place, before, len(told)))
    assert sorted(decided.values()) == ["allow", "allow", "block"]
    assert [v for text, v in decided.items() if DENIED in text] == ["block"]


def test_the_record_of_all_of_them_holds(place: Place) -> None:
    def sealed() -> bool:
        code, said = verified(place.product.database_url)
        assert code in (0, 4), said
        return code == 0 and said["unsealed"] == 0

    assert place.product.audit("calls", limit=1)["items"]
    wait_for(sealed, timeout_s=20, what="a record that verifies whole")
