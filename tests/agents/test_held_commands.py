"""Real coding agents as they are, with a command that waits for a person."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.agents.conftest import MODELS, Place, configuration
from tests.support.approvals import asked, decide, used_by
from tests.support.checks.record import rows
from tests.support.clients.coding_agents import CODING_AGENTS, Ran, run
from tests.support.servers.product import CLIENT_KEY, KEY, running
from tests.support.servers.stores import Stores
from tests.support.vendors.server import door, vendors
from tests.support.vendors.story import FIRST, LAST, RAN, SECOND, Scene, second_alone
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.agents, pytest.mark.timeout(600)]
WAYS = [("claude-code", "anthropic", "anthropic"), ("codex", "responses", "responses")]
WAITS_S = 40


@pytest.fixture(scope="module")
def place(stores: Stores) -> Iterator[Place]:
    """As for all agents, but that people are asked about the second command, for one key while its
    client waits, for the other not."""
    with vendors() as made:
        config = configuration(made.url)
        rule = {"name": "second", "argument_matches": "second-"}
        asking = {"use": "tool_rules", "ask": [rule], "approval": {"hold_s": 120}}
        config["policies"]["default"].append(asking)
        for key in config["keys"]:
            key["roles"] = ["client", "auditor"]
            key["hold_s"] = 0 if key["name"] == "client" else 120
        with running(*stores, config) as product:
            yield Place(product, made)


def start(place: Place, folder: Path, way: tuple[str, str, str], key: str) -> Ran:
    """Run an agent once, in one session whoever it is."""
    agent, client, upstream = way
    place.vendors.begin(Scene(second_alone))
    session = {"x-sluice-session": f"session-{agent}"}
    with door(place.product.url, session) as to_product:
        return run(CODING_AGENTS[agent], folder, to_product.url, key, MODELS[upstream], client)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way[0])
def test_a_held_command_runs_once_when_it_is_approved(
    place: Place, tmp_path: Path, way: tuple[str, str, str]
) -> None:
    with ThreadPoolExecutor(1) as pool:
        running_agent = pool.submit(start, place, tmp_path, way, KEY)
        waits = "SELECT count(*)::int FROM approvals WHERE outcome IS NULL AND"
        waits += f" at < now() - interval '{WAITS_S} seconds'"
        wait_for(
            lambda: rows(place.product.database_url, waits) == [(1,)] or running_agent.done(),
            timeout_s=WAITS_S + 60,
            what="a command that waits",
        )
        assert not running_agent.done(), str(running_agent.result())
        one, *others = asked(place.product, "second-")
        assert decide(place.product, one) == "approved"
        ran = running_agent.result(120)
    assert ran.code == 0 and LAST in ran.out, str(ran)
    # it asked once for what it waited for, and ran each command once
    assert sorted((ran.folder / RAN).read_text().split()) == [FIRST, SECOND]
    assert used_by(place.product, one) and all(used_by(place.product, other) for other in others)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way[0])
def test_past_the_hold_the_turn_ends_and_the_agent_asks_again(
    place: Place, tmp_path: Path, way: tuple[str, str, str]
) -> None:
    held = start(place, tmp_path / "held", way, CLIENT_KEY)
    one, *_ = asked(place.product, "second-")
    assert held.code == 0 and one in held.out, str(held)
    assert (held.folder / RAN).read_text().split() == [FIRST]
    assert decide(place.product, one) == "approved"
    again = start(place, tmp_path / "again", way, CLIENT_KEY)
    assert again.code == 0 and LAST in again.out, str(again)
    assert sorted((again.folder / RAN).read_text().split()) == [FIRST, SECOND]
    assert used_by(place.product, one)
