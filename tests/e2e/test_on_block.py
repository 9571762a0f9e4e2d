"""`on_block: continue` through all processes: the model is asked again, its client gets one answer,
and the record has all of them."""

from collections.abc import Iterator

import pytest

from tests.support.clients.sdk_calls import DIALECTS, MODES, STOPS, Mode, ask
from tests.support.json_values import Json
from tests.support.servers.stores import Stores
from tests.support.upstreams.paused_turn import reply
from tests.support.upstreams.product import Place, call_of, config, new_session, replayed
from tests.support.upstreams.replay import Replay

SERIES = [
    {
        "use": "tool_rules",
        "deny": [{"name": "deletes", "tool": "*", "argument_matches": "rm -rf"}],
        "on_block": "continue",
    }
]
BAD: Json = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "rm -rf ~"}}
GOOD: Json = {"type": "tool_use", "id": "toolu_2", "name": "get_weather", "input": {"city": "Oslo"}}


@pytest.fixture(scope="module")
def place(stores: Stores) -> Iterator[Place]:
    def made(replay: Replay) -> Json:
        base = config(replay)
        return base | {"policies": base["policies"] | {"default": SERIES}}

    with replayed(*stores, made) as running:
        yield running


def text(said: str) -> Json:
    return {"type": "text", "text": said}


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("client", DIALECTS)
def test_a_blocked_call_is_given_back_and_the_turn_goes_on(
    place: Place, client: str, mode: Mode
) -> None:
    product, replay = place
    streamed, session = mode != "whole", new_session()
    replay.answer(
        reply([text("I delete."), BAD], "tool_use", (10, 5), streamed=streamed),
        reply([text("I look."), GOOD], "tool_use", (30, 7), streamed=streamed),
    )
    said = ask(
        product.url, client, mode, "go", model="claude-x", headers={"x-sluice-session": session}
    )
    assert said.text.startswith("I delete.") and said.text.endswith("I look.")
    assert "[Sluice blocked the tool call 'bash': rule 'deletes'" in said.text
    assert said.plain_calls == [("get_weather", {"city": "Oslo"})]
    assert (said.stop, said.tokens) == (STOPS[client]["tools"], (30, 12))
    first, second = (a.body for a in replay.asked)
    assert second["messages"][:-2] == first["messages"] or client == "anthropic"
    turn, results = second["messages"][-2:]
    assert turn == {"role": "assistant", "content": [text("I delete."), BAD]}
    [result] = results["content"]
    assert (result["tool_use_id"], result["is_error"]) == ("toolu_1", True)
    call = call_of(product, session)
    assert (call["state"], call["reason"]) == ("ENDED", "complete")
    usage = call["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (40, 12)
    shown = product.audit(f"calls/{call['call_id']}")
    assert [(a["segment"], a["kind"], a["output_tokens"]) for a in shown["attempts"]] == [
        (0, "first", 5),
        (1, "continue", 7),
    ]
    listed = product.audit("tool-calls", call_id=call["call_id"], order="asc")["items"]
    assert [(c["name"], c["verdict"]) for c in listed] == [
        ("bash", "block"),
        ("get_weather", "allow"),
    ]


def test_a_model_that_insists_is_asked_three_times(place: Place) -> None:
    product, replay = place
    session = new_session()
    replay.answer(*(reply([BAD], "tool_use", (1, 1), streamed=True) for _ in range(9)))
    said = ask(
        product.url,
        "anthropic",
        "iterate",
        "go",
        model="claude-x",
        headers={"x-sluice-session": session},
    )
    assert (said.stop, len(replay.asked), said.calls) == ("end_turn", 3, [])
    assert "ended this turn: 3 answers in a row had only blocked tool calls" in said.text
    call = call_of(product, session)
    assert (call["state"], call["usage"]["output_tokens"]) == ("ENDED", 3)
