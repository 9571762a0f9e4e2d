"""A paused turn: continued for clients of chat/completions as one message, relayed to clients of
the Messages dialect."""

from collections.abc import Iterator

import pytest

from tests.support.clients.sdk_calls import MODES, Mode, ask
from tests.support.json_values import Json
from tests.support.servers.stores import Stores
from tests.support.upstreams.paused_turn import CONTAINER, FIRST, FOUND, SEARCH, SECOND, reply
from tests.support.upstreams.product import (
    Place,
    call_of,
    config,
    new_session,
    recorded_chunks,
    replayed,
)
from tests.support.upstreams.replay import Replay, Reply


@pytest.fixture(scope="module")
def place(stores: Stores) -> Iterator[Place]:
    def made(replay: Replay) -> Json:
        base = config(replay)
        keys = [key | {"server_tools": ["web_search"]} for key in base["keys"]]
        routes = [
            r
            | (
                {"server_tools": [{"type": "web_search_20250305", "name": "web_search"}]}
                if r["match"] == "claude-*"
                else {}
            )
            for r in base["models"]
        ]
        deny = {
            "default": [
                {
                    "use": "tool_rules",
                    "deny": [{"tool": "web_search", "argument_matches": "forbidden"}],
                }
            ]
        }
        return base | {"keys": keys, "models": routes, "policies": base["policies"] | deny}

    with replayed(*stores, made) as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_paused_turn_goes_on_for_an_openai_client_as_one_message(
    place: Place, mode: Mode
) -> None:
    product, replay = place
    streamed, session = mode != "whole", new_session()
    replay.answer(
        reply(FIRST, "pause_turn", (10, 5), streamed=streamed),
        reply([FOUND, SEARCH | {"id": "srvtoolu_2"}], "pause_turn", (20, 6), streamed=streamed),
        reply(
            [FOUND | {"tool_use_id": "srvtoolu_2"}, *SECOND[1:]],
            "tool_use",
            (30, 7),
            streamed=streamed,
        ),
    )
    said = ask(
        product.url, "openai", mode, "go", model="claude-x", headers={"x-sluice-session": session}
    )
    assert (said.text, said.thinking) == ("Searching. Found it.", "Let me see.")
    assert said.plain_calls == [("get_weather", {"city": "Paris"})]
    assert (said.stop, said.tokens) == ("tool_calls", (60, 18))
    first, second, third = (a.body for a in replay.asked)
    assert second["messages"] == [*first["messages"], {"role": "assistant", "content": FIRST}]
    assert third["messages"][-1]["content"] == [*FIRST, FOUND, SEARCH | {"id": "srvtoolu_2"}]
    assert (second["tools"], second["container"]) == (first["tools"], CONTAINER["id"])
    call = call_of(product, session)
    assert (call["state"], call["reason"]) == ("ENDED", "complete")
    assert len(recorded_chunks(product, call["call_id"])) == (
        len(FIRST) * 2 + 3 + 7 + 9 if streamed else 3
    )
    listed = product.audit("tool-calls", call_id=call["call_id"], order="asc")["items"]
    assert sorted((c["name"], c["executor"], c["verdict"]) for c in listed) == [
        ("get_weather", "client", "allow"),
        ("web_search", "provider", "allow"),
        ("web_search", "provider", "allow"),
    ]


def test_a_turn_that_never_ends_stops_after_eight_segments(place: Place) -> None:
    product, replay = place
    replay.answer(
        *(
            reply([SEARCH | {"id": f"srvtoolu_{n}"}], "pause_turn", (1, 1), streamed=True)
            for n in range(9)
        )
    )
    said = ask(product.url, "openai", "iterate", "go", model="claude-x")
    assert (said.stop, len(replay.asked), said.tokens) == ("length", 8, (8, 8))


def test_a_denied_call_in_a_paused_turn_is_not_continued(place: Place) -> None:
    product, replay = place
    bad = SEARCH | {"input": {"query": "forbidden"}}
    replay.answer(reply([bad], "pause_turn", (1, 1), streamed=True))
    said = ask(product.url, "openai", "iterate", "go", model="claude-x")
    assert (said.stop, len(replay.asked)) == ("stop", 1)
    assert (
        "blocked the tool call 'web_search' and withheld its result: rule 'deny[0]' of the policy"
        " 'default'" in said.text
    )


@pytest.mark.slow
def test_an_error_in_a_later_segment_ends_the_message(place: Place) -> None:
    product, replay = place
    replay.answer(
        reply(FIRST, "pause_turn", (10, 5), streamed=True),
        Reply(b'{"type":"error","error":{"type":"overloaded_error","message":"m"}}', 529),
    )
    session = new_session()
    with pytest.raises(Exception, match="m") as raised:
        ask(
            product.url,
            "openai",
            "iterate",
            "go",
            model="claude-x",
            headers={"x-sluice-session": session},
        )
    assert type(raised.value).__name__ == "APIError"
    assert call_of(product, session)["state"] == "FAILED"
