"""Requests of the Messages dialect for an upstream of the same: as received unless something is
added, and gated all the same."""

import json
from typing import Any

import msgspec
import pytest

from protocol import codecs
from protocol.dialects.table import CLIENTS
from protocol.errors import InvalidRequest
from protocol.request import ChatRequest, OtherPart, Turn
from protocol.target import Target
from tests.support.clients.to_anthropic import (
    EPHEMERAL,
    EVERY,
    LEGACY,
    TOOL,
    USER,
    WRITTEN,
    call,
    file,
    image,
    json_schema,
    read,
)

# --- the same dialect ---


RICH: dict[str, Any] = {
    **LEGACY,
    "model": "gpt-4o",
    "modalities": ["text"],
    "prediction": {"type": "content", "content": "x"},
    "reasoning_effort": "low",
    "response_format": json_schema(strict=True, description="d"),
    "logprobs": True,
}
MODERN: dict[str, Any] = {
    "model": "gpt-4o",
    "messages": [
        {
            "role": "developer",
            "content": [
                {"type": "text", "text": "s", "prompt_cache_breakpoint": {"mode": "explicit"}}
            ],
            "name": "n",
        },
        {
            "role": "user",
            "content": [
                {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
                image("https://x", detail="low"),
                file(file_id="file_1"),
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "a", "type": "custom", "custom": {"name": "run", "input": "ls\n"}},
                call("b"),
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": [image("https://y")]},
        {"role": "tool", "tool_call_id": "b", "content": "1"},
    ],
    "tools": [
        {
            "type": "custom",
            "custom": {
                "name": "run",
                "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "s: A"}},
            },
        },
        TOOL | {"function": TOOL["function"] | {"strict": True}, "cache_control": EPHEMERAL},
    ],
    "tool_choice": {
        "type": "allowed_tools",
        "allowed_tools": {
            "mode": "required",
            "tools": [
                {"type": "custom", "custom": {"name": "run"}},
                {"type": "function", "function": {"name": "f"}},
            ],
        },
    },
    "web_search_options": {"search_context_size": "low"},
    "response_format": {"type": "json_object"},
}


@pytest.mark.parametrize(
    "body",
    [RICH, MODERN, {k: v for k, v in RICH.items() if k != "function_call"}],
    ids=["rich", "modern", "plain"],
)
def test_in_its_own_dialect_all_of_it_is_legal_and_comes_out_again(body: dict[str, Any]) -> None:
    request = read(body)
    target = Target(dialect="openai", families=EVERY)
    assert codecs.encode_request(request, target, changed=False).body is None
    assert json.loads(codecs.encode_request(request, target).body or b"") == body


@pytest.mark.parametrize("value", ["auto", "none", {"type": "custom", "custom": {"name": "run"}}])
def test_choices_come_out_again(value: Any) -> None:
    body = MODERN | {"tool_choice": value}
    assert (
        json.loads(
            codecs.encode_request(read(body), Target(dialect="openai", families=EVERY)).body or b""
        )
        == body
    )


def test_what_a_provider_runs_is_gated_where_the_dialects_are_the_same_too() -> None:
    asking: list[dict[str, Any]] = [
        {"web_search_options": {}},
        {"tools": [{"type": "web_search_preview"}]},
    ]
    for body in asking:
        with pytest.raises(InvalidRequest):
            codecs.encode_request(read(body), Target(dialect="openai"), changed=False)
    allowed = codecs.encode_request(
        read({"tools": [{"type": "web_search_preview"}]}), Target(dialect="openai", families=EVERY)
    )
    assert json.loads(allowed.body or b"")["tools"] == [{"type": "web_search_preview"}]


def own(**body: Any) -> ChatRequest:
    data: dict[str, Any] = {"model": "claude-opus-4-8", "max_tokens": 5, "messages": [USER]} | body
    return CLIENTS["anthropic"].decode_request(json.dumps(data).encode(), endpoint="messages")


def test_a_messages_request_passes_as_received_unless_something_is_added() -> None:
    use = {"type": "tool_use", "id": "a.b", "name": "my tool", "input": {"b": 1, "a": 2.50}}
    turns = [
        USER,
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a.b"}]},
    ]
    request = own(messages=turns, top_k=3, temperature=0.3, tools=[WRITTEN])
    assert codecs.encode_request(request, Target(dialect="anthropic"), changed=False).body is None
    target = Target(dialect="anthropic", families=EVERY, container="c_1")
    body = json.loads(codecs.encode_request(request, target, changed=False).body or b"")
    assert (body["container"], body["top_k"], body["temperature"], body["tools"]) == (
        "c_1",
        3,
        0.3,
        [WRITTEN],
    )
    assert body["messages"][1]["content"] == [use]
    added = {"type": "web_search_20250305", "name": "web_search"}
    more = Target(dialect="anthropic", families=EVERY, added_tools=(added,))
    body = json.loads(codecs.encode_request(request, more, changed=False).body or b"")
    assert (body["tools"], body["messages"][1]["content"]) == ([WRITTEN, added], [use])
    mine = own(container="c_2")
    assert codecs.encode_request(mine, target, changed=False).body is None


def test_a_messages_request_may_not_hold_parts_of_the_other_dialect() -> None:
    foreign = msgspec.structs.replace(
        own(), turns=(Turn("user", (OtherPart("file", {"type": "file"}, "openai"),)),)
    )
    with pytest.raises(InvalidRequest, match="file"):
        codecs.encode_request(foreign, Target(dialect="anthropic"))
