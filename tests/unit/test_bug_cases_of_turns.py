"""Faults of gateways and SDKs (docs/protocol.md 3) that show in the next request: cases 8 and
13."""

import json
from typing import Any

from protocol.turns import StoredTurn
from tests.support.clients.answering import Answer, Watch, direct
from tests.support.upstreams.cases import (
    began,
    client_call,
    frames,
    text,
    whole,
)
from tests.support.upstreams.frames import delta, end, start, stop
from tests.support.upstreams.weather import (
    PARIS,
    SERVER_CALL,
    THINKING,
    WEATHER,
    recorded_turn,
    validate,
)

FOUND = {
    "type": "tool_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": {"type": "tool_search_tool_search_result", "tool_references": []},
}


def next_request(stored: list[StoredTurn], **more: Any) -> Answer:
    """The second request of an OpenAI client that kept what its dialect shows: a call and its
    result."""
    call = {
        "id": "toolu_1",
        "type": "function",
        "function": {"name": "weather", "arguments": json.dumps(PARIS)},
    }
    turns = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "toolu_1", "content": "rain"},
    ]
    answer = Answer(
        "anthropic", "openai", stored=stored, messages=turns, tools=[WEATHER["openai"]], **more
    )
    assert not answer.refused
    validate(answer.dispatched[0])
    return answer


def test_case_08_the_next_request_begins_its_turn_with_the_recorded_thinking() -> None:
    redacted = {"type": "redacted_thinking", "data": "ZW5jcnlwdGVk"}
    body = frames(
        began(),
        start(0, type="thinking", thinking="", signature=""),
        delta(0, "thinking_delta", thinking="Let me see."),
        delta(0, "signature_delta", signature="c2lnbmF0dXJl"),
        stop(0),
        *whole(1, redacted),
        *client_call(2, "toolu_1", "weather", PARIS),
        *end("tool_use"),
    )
    stored = StoredTurn("c", recorded_turn(body).content(), "", ("toolu_1",), "anthropic")
    sent = next_request([stored], reasoning_effort="low").dispatched[0]
    assert sent["messages"][1]["content"] == [
        THINKING,
        redacted,
        {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": PARIS},
    ]
    assert sent["thinking"]["type"] == "enabled"


def test_case_08_what_is_not_on_record_is_not_made_up() -> None:
    answer = next_request([], reasoning_effort="low")
    sent = answer.dispatched[0]
    assert [b["type"] for b in sent["messages"][1]["content"]] == ["tool_use"]
    assert sent.get("thinking", {"type": "disabled"})["type"] == "disabled"
    assert "reasoning_effort" in answer.session.dropped


MIXED = frames(
    began(),
    *client_call(0, "toolu_1", "weather", PARIS),
    start(1, **SERVER_CALL),
    delta(1, "input_json_delta", partial_json='{"query": "x"}'),
    stop(1),
    *end("tool_use"),
)
CALLED_LATE = SERVER_CALL | {"input": {"query": "x"}}


def test_case_13_an_unanswered_server_call_stays_in_the_next_request_and_its_late_result_is_taken() -> (
    None
):
    stored = StoredTurn("c", recorded_turn(MIXED).content(), "", ("toolu_1",), "anthropic")
    answer = next_request([stored])
    sent = answer.dispatched[0]["messages"]
    assert sent[1]["content"] == [
        {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": PARIS},
        CALLED_LATE,
    ]
    assert [b["type"] for b in sent[2]["content"]] == ["tool_result"]
    said = answer.feed(frames(began(), *whole(0, FOUND), *text(1, "Rain."), *end())).read("iterate")
    assert (said["content"], said["finish"], said["calls"]) == ("Rain.", "stop", [])
    assert said["blocks"] == [FOUND]


def test_case_13_without_a_record_nothing_is_invented() -> None:
    sent = next_request([]).dispatched[0]["messages"]
    assert [b["type"] for b in sent[1]["content"]] == ["tool_use"]


def test_case_13_a_client_of_the_same_dialect_sends_it_itself() -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": PARIS}
    turns = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": [call, CALLED_LATE]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "rain"}],
        },
    ]
    answer = Answer(
        "anthropic", "anthropic", policies=[Watch()], messages=turns, tools=[WEATHER["anthropic"]]
    )
    # exactly as it came
    assert not answer.refused and answer.dispatched == []
    answer.feed(frames(began(), *whole(0, FOUND), *text(1, "Rain."), *end()))
    told = direct.read("anthropic", "beta helper", answer.data)
    assert [b["type"] for b in told["content"]] == ["tool_search_tool_result", "text"]
    assert told["content"][0]["tool_use_id"] == "srvtoolu_1"
