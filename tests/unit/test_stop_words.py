"""The word with which an answer ends follows from whether it has calls for its client, whatever
word its provider used."""

import json

import pytest

from protocol.dialects.table import CLIENTS, DIALECTS
from settings.config import Config
from tests.support.clients.answering import Answer, Watch
from tests.support.json_values import Json, as_json

UPSTREAMS = {name: {"dialect": name, "base_url": "http://127.0.0.1:1"} for name in DIALECTS}
CONFIG = Config.model_validate(
    {
        "upstreams": UPSTREAMS,
        "models": [{"match": f"{name}-x", "upstream": name} for name in DIALECTS],
    }
)
ARGUMENTS = {"a": 1}


def answer(upstream: str, word: str, *, has_call: bool) -> bytes:
    """A whole answer of a provider: a text, a call or not, and its word for how it ended."""
    said: Json
    match upstream:
        case "openai":
            function = {"name": "f", "arguments": json.dumps(ARGUMENTS)}
            calls = (
                {"tool_calls": [{"id": "t1", "type": "function", "function": function}]}
                if has_call
                else {}
            )
            said = {
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": "hm", **calls},
                        "finish_reason": word,
                    }
                ]
            }
        case "anthropic":
            blocks: list[Json] = [{"type": "text", "text": "hm"}]
            blocks += (
                [{"type": "tool_use", "id": "t1", "name": "f", "input": ARGUMENTS}]
                if has_call
                else []
            )
            said = {
                "id": "m",
                "type": "message",
                "role": "assistant",
                "model": "m",
                "content": blocks,
                "stop_reason": word,
            }
            said |= {
                "stop_sequence": "END" if word == "stop_sequence" else None,
                "usage": {"input_tokens": 1, "output_tokens": 1},
            }
        case "converse":
            parts: list[Json] = [{"text": "hm"}]
            parts += (
                [{"toolUse": {"toolUseId": "t1", "name": "f", "input": ARGUMENTS}}]
                if has_call
                else []
            )
            said = {
                "output": {"message": {"role": "assistant", "content": parts}},
                "stopReason": word,
                "metrics": {"latencyMs": 1},
            }
            said |= {"usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}}
        case _:
            parts = [
                {"text": "hm"},
                *([{"functionCall": {"name": "f", "args": ARGUMENTS}}] if has_call else []),
            ]
            said = {
                "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": word}]
            }
    return as_json(said)


def word_of(client: str, data: bytes) -> str:
    told = json.loads(data)
    match client:
        case "openai":
            return str(told["choices"][0]["finish_reason"])
        case "anthropic":
            return str(told["stop_reason"])
        case _:
            return (
                "function_call"
                if any(item["type"] == "function_call" for item in told["output"])
                else str(told["status"])
            )


OVER = {"openai": "stop", "anthropic": "end_turn", "responses": "completed"}


def ended(client: str, upstream: str, word: str, *, has_call: bool, deny: str = "") -> str:
    offered = {"name": "f", "parameters": {"type": "object"}}
    tools: dict[str, list[Json]] = {
        "openai": [{"type": "function", "function": offered}],
        "anthropic": [{"name": "f", "input_schema": {"type": "object"}}],
        "responses": [{"type": "function", **offered}],
    }
    call = Answer(
        upstream,
        client,
        streams=False,
        policies=[Watch(deny)],
        config=CONFIG,
        model=f"{upstream}-x",
        tools=tools[client],
    )
    call.feed(answer(upstream, word, has_call=has_call), streams=False)
    return word_of(client, call.data)


@pytest.mark.parametrize("word", ["end_turn", "tool_use"])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_blocked_call_is_none_for_the_client(client: str, word: str) -> None:
    assert ended(client, "anthropic", word, has_call=True, deny='"a"') == OVER[client]
