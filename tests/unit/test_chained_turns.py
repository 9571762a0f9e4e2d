"""Answers without tool calls that a Responses client goes on with: what sealed them comes back from
the record."""

import pytest

from policy.session.effects import SendUpstream
from policy.session.session import Session
from protocol.dialects.table import DIALECTS
from protocol.dialects.turns import StoredTurn, WantedTurns
from protocol.stored_answers import StoredAnswers
from settings.config import Config
from tests.support.checks.decoding import turns_of
from tests.support.json_values import Json, as_json
from tests.support.upstreams.responses import response
from tests.support.worker_calls import call_info

EARLIER = "0197a1b2-0000-7000-8000-000000000001"
ITEM = f"msg_{EARLIER.replace('-', '')}_1"
SEAL = "c2VhbA"
TEXT = "It rains."
MODELS = {
    "responses": "gpt-5.5",
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-3-pro",
    "converse": "us.anthropic.claude-x",
    "openai": "m",
}


def whole(upstream: str) -> bytes:
    """An answer of a text alone, sealed."""
    said: Json
    match upstream:
        case "responses":
            reasoning = {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [],
                "encrypted_content": SEAL,
            }
            part = {"type": "output_text", "text": TEXT, "annotations": []}
            said = response(
                [reasoning, {"type": "message", "id": "m", "role": "assistant", "content": [part]}]
            )
        case "anthropic":
            content = [
                {"type": "thinking", "thinking": "Hm.", "signature": SEAL},
                {"type": "text", "text": TEXT},
            ]
            said = {
                "id": "m",
                "type": "message",
                "role": "assistant",
                "model": "m",
                "content": content,
                "stop_reason": "end_turn",
            }
        case "gemini":
            parts = [{"text": TEXT, "thoughtSignature": SEAL}]
            said = {
                "candidates": [
                    {"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
                ]
            }
        case "converse":
            thought = {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": SEAL}}}
            said = {
                "output": {"message": {"role": "assistant", "content": [thought, {"text": TEXT}]}},
                "stopReason": "end_turn",
            }
            said |= {
                "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2},
                "metrics": {"latencyMs": 1},
            }
        case _:
            message = {
                "role": "assistant",
                "content": TEXT,
                "reasoning_details": [{"type": "reasoning.encrypted", "data": SEAL, "index": 0}],
            }
            said = {
                "id": "x",
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            }
    return as_json(said)


def going_on(upstream: str, text: str) -> tuple[WantedTurns, str]:
    """What is looked up for a request that goes on with an earlier one, and what is sent."""
    one = {"dialect": upstream, "base_url": "http://127.0.0.1:1"}
    config = Config.model_validate(
        {"upstreams": {"up": one}, "models": [{"match": "*", "upstream": "up"}]}
    )
    session = Session(
        call_info("c", "responses"),
        [],
        config,
    )
    asked = {
        "model": MODELS[upstream],
        "input": "next",
        "previous_response_id": f"resp_{EARLIER.replace('-', '')}",
    }
    session.begin(as_json(asked | {"reasoning": {"effort": "high"}}))
    said = {
        "type": "message",
        "role": "assistant",
        "id": ITEM,
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }
    session.drain()
    session.answers(
        StoredAnswers(
            before=[{"type": "message", "role": "user", "content": "first"}, said], answers=1
        )
    )
    wanted = session.drain().lookup
    assert isinstance(wanted, WantedTurns)
    builder = turns_of(upstream).TurnBuilder()
    builder.take(whole(upstream))
    builder.finish()
    assert builder.complete
    session.turns([StoredTurn(EARLIER, builder.content(), "", (), "up", MODELS[upstream])])
    [sent] = session.drain().outputs
    assert isinstance(sent, SendUpstream) and sent.body is not None
    return wanted, sent.body.decode()


@pytest.mark.parametrize("upstream", DIALECTS)
def test_an_answer_without_calls_brings_back_what_sealed_it(upstream: str) -> None:
    wanted, sent = going_on(upstream, TEXT)
    assert wanted == WantedTurns(upstream, (), (EARLIER,))
    assert sent.count(SEAL) == 1 and sent.count(TEXT) == 1


@pytest.mark.parametrize("upstream", DIALECTS)
def test_a_text_that_is_not_the_recorded_one_brings_back_nothing(upstream: str) -> None:
    _, sent = going_on(upstream, "It shines.")
    assert SEAL not in sent and TEXT not in sent and sent.count("It shines.") == 1
