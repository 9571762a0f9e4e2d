"""Requests of chat/completions for an upstream of the same: every field goes out as it came, and
gates hold."""

import msgspec
import pytest

from protocol import codecs
from protocol.errors import InvalidRequest
from protocol.request import Turn
from protocol.target import Target
from tests.support.clients.to_openai import (
    CLOSED,
    SCHEMA,
    SEARCH,
    SEARCHING,
    THOUGHT,
    TOOL,
    USER,
    read,
    said,
    translate,
    use,
)
from tests.support.json_values import Json
from tests.support.request_codecs import read_request, sent_body, written_body

OPENAI_OWN: Json = {
    "model": "gpt-4.1",
    "messages": [
        {
            "role": "developer",
            "content": [{"type": "text", "text": "be brief", "prompt_cache_breakpoint": True}],
        },
        {"role": "user", "content": "x", "name": "ann"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c", "type": "custom", "custom": {"name": "sh", "input": "ls\n"}}
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "content": "done", "reasoning_content": "hm", "annotations": []},
        {
            "role": "user",
            "content": [
                {
                    "type": "image_url",
                    "image_url": {"url": "https://x.example/a.png", "detail": "low"},
                },
                {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
                {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:x"}},
            ],
        },
    ],
    "tools": [
        {
            "type": "custom",
            "custom": {"name": "sh", "description": "d", "format": {"type": "text"}},
        },
        {
            "type": "function",
            "function": {"name": "f", "parameters": SCHEMA, "strict": False},
            "cache_control": {"type": "ephemeral"},
        },
    ],
    "tool_choice": {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "auto", "tools": [{"type": "custom", "custom": {"name": "sh"}}]},
    },
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": CLOSED, "strict": True, "description": "d"},
    },
    "web_search_options": {"search_context_size": "low"},
    "reasoning_effort": "low",
    "logprobs": True,
    "top_logprobs": 2,
    "seed": 7,
    "metadata": {"a": "b"},
    "min_p": 0.1,
    "verbosity": "low",
    "max_completion_tokens": 9,
    "temperature": 0.3,
    "stop": ["a", "b", "c", "d", "e"],
}
LEGACY_OWN: Json = {
    "model": "gpt-4.1",
    "messages": [
        USER,
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "1"},
    ],
    "functions": [{"name": "f", "description": "d", "parameters": SCHEMA}],
    "function_call": {"name": "f"},
    "max_tokens": 9,
    "user": "u",
}


NAMED = {"tool_choice": {"type": "custom", "custom": {"name": "sh"}}}


@pytest.mark.parametrize("body", [OPENAI_OWN, OPENAI_OWN | NAMED, LEGACY_OWN])
def test_every_field_of_the_same_dialect_goes_out_as_it_came(body: Json) -> None:
    request = read_request("openai", body)
    assert written_body(request, SEARCHING) == body
    assert codecs.encode_request(request, SEARCHING, changed=False).body is None


def test_a_web_search_that_the_key_may_not_make_is_refused_though_nothing_changed() -> None:
    request = read_request("openai", OPENAI_OWN)
    with pytest.raises(InvalidRequest) as caught:
        codecs.encode_request(request, Target(dialect="openai"), changed=False)
    assert caught.value.param == "web_search_options"


def test_blocks_of_the_other_dialect_are_refused_in_a_changed_request() -> None:
    thought = read(messages=said(THOUGHT[0], role="assistant")).turns
    request = read_request("openai", {"model": "m", "messages": [USER]})
    for turns in (
        thought,
        (Turn("user", read(messages=said(use(), role="assistant")).turns[0].parts),),
    ):
        with pytest.raises(InvalidRequest) as caught:
            codecs.encode_request(
                msgspec.structs.replace(request, turns=turns), Target(dialect="openai")
            )
        assert caught.value.param == "messages"


def test_a_search_without_a_place_says_nothing_of_one() -> None:
    body = sent_body(
        translate(SEARCHING, model="gpt-4o-search-preview", tools=[SEARCH | {"max_uses": 9}, TOOL])
    )
    assert body["web_search_options"] == {"search_context_size": "high"} and len(body["tools"]) == 1
