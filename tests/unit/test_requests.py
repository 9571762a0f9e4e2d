"""Requests of both dialects: read, refused with the parameter's name, and written for either
provider."""

from typing import Any

import msgspec
import pytest

from protocol.dialects.table import CLIENTS
from protocol.errors import InvalidRequest
from protocol.request import (
    ChatRequest,
    DialectName,
    TextPart,
    ToolResultPart,
    Turn,
)
from protocol.server_tools.data import table
from protocol.target import Target
from tests.support.json_values import Json, as_json
from tests.support.request_codecs import written_body

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
OPENAI: Json = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {
            "role": "developer",
            "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "kind."}],
        },
        {"role": "user", "content": "Weather?", "name": "ann"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call.1",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
                },
                {
                    "id": "call_2",
                    "type": "function",
                    "function": {"name": "refresh", "arguments": ""},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "call.1", "content": "sunny"},
        {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "done"}]},
        {"role": "user", "content": [{"type": "text", "text": "Thanks. And now?"}]},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": "d",
                "parameters": SCHEMA,
                "strict": True,
            },
        },
        {"type": "function", "function": {"name": "refresh"}},
    ],
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "stream": True,
    "stream_options": {"include_usage": True},
    "max_completion_tokens": 77,
    "temperature": 1.7,
    "top_p": 0.5,
    "stop": ["END", " "],
    "user": "ann@example.com",
    "seed": 7,
}
ANTHROPIC: Json = {
    "model": "m",
    "system": [
        {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "Be kind."},
    ],
    "messages": [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "Looking."},
                {
                    "type": "tool_use",
                    "id": "toolu_1",
                    "name": "get_weather",
                    "input": {"city": "Paris"},
                },
                {"type": "tool_use", "id": "toolu_2", "name": "refresh", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Thanks."},
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"},
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_2",
                    "content": [{"type": "text", "text": "no"}],
                    "is_error": True,
                },
            ],
        },
    ],
    "tools": [
        {
            "name": "get_weather",
            "description": "d",
            "input_schema": SCHEMA,
            "cache_control": {"type": "ephemeral"},
        }
    ],
    "tool_choice": {"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True},
    "stream": True,
    "max_tokens": 77,
    "temperature": 0.7,
    "top_p": 0.5,
    "stop_sequences": ["END"],
    "metadata": {"user_id": "u1"},
    "top_k": 5,
}
EVERY = frozenset(table().families)
MINIMAL: dict[str, Json] = {
    "openai": {"model": "m", "messages": [{"role": "user", "content": "x"}]},
    "anthropic": {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]},
}


def read(dialect: DialectName, body: Json) -> ChatRequest:
    return CLIENTS[dialect].decode_request(
        as_json(body), endpoint="messages" if dialect == "anthropic" else "chat"
    )


def write(dialect: DialectName, request: ChatRequest) -> Json:
    body: Json = written_body(request, Target(dialect=dialect, families=EVERY))
    return body


def cross(dialect: DialectName, **changes: Any) -> Json:
    """A minimal request of `dialect`, changed, as the other dialect gets it."""
    other: DialectName = "anthropic" if dialect == "openai" else "openai"
    return write(other, read(dialect, MINIMAL[dialect] | changes))


def test_same_dialect_keeps_what_is_not_modelled() -> None:
    body = write("anthropic", read("anthropic", ANTHROPIC))
    body["messages"][0]["content"] = "Weather?"
    assert body == ANTHROPIC
    again = write("openai", read("openai", OPENAI))
    assert [m["role"] for m in again["messages"]] == [
        "system",
        "developer",
        "user",
        "assistant",
        "tool",
        "tool",
        "user",
    ]
    assert again["messages"][2]["name"] == "ann"
    assert again["messages"][5] == OPENAI["messages"][5]
    for field in (
        "tools",
        "seed",
        "max_completion_tokens",
        "stop",
        "user",
        "temperature",
        "stream_options",
    ):
        assert again[field] == OPENAI[field]


def test_a_changed_request_keeps_the_rest() -> None:
    request = read("anthropic", ANTHROPIC)
    changed = msgspec.structs.replace(
        request,
        system=("Other.",),
        turns=(Turn("user", (ToolResultPart("t", "new", extra={"content": [{}]}),)),),
    )
    body = write("anthropic", changed)
    assert body["system"] == [{"type": "text", "text": "Other."}]
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "new"}]}
    ]
    assert body["top_k"] == 5
    other = msgspec.structs.replace(
        read("openai", OPENAI),
        turns=(
            Turn(
                "user",
                (ToolResultPart("t", "new", extra={"content": [{"type": "text", "text": "old"}]}),),
            ),
        ),
    )
    assert write("openai", other)["messages"][-1] == {
        "role": "tool",
        "tool_call_id": "t",
        "content": "new",
    }


def test_what_is_no_text_stays_as_it_is_in_its_dialect() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    content = [{"type": "text", "text": "see"}, image]
    request = read(
        "openai", MINIMAL["openai"] | {"messages": [{"role": "user", "content": content}]}
    )
    assert write("openai", request)["messages"][0]["content"] == content
    refused = [{"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}]
    assert (
        write("openai", read("openai", MINIMAL["openai"] | {"messages": refused}))["messages"]
        == refused
    )
    with pytest.raises(InvalidRequest, match="image_url"):
        write("anthropic", request)
    block = {"type": "image", "source": {"type": "url", "url": "https://x"}}
    for blocks in ([block], [{"type": "tool_result", "tool_use_id": "t", "content": [block]}]):
        other = read(
            "anthropic", MINIMAL["anthropic"] | {"messages": [{"role": "user", "content": blocks}]}
        )
        assert write("anthropic", other)["messages"][0]["content"][0].items() >= blocks[0].items()


@pytest.mark.parametrize(
    ("dialect", "changes", "param"),
    [
        ("openai", {"logprobs": True}, "logprobs"),
        ("openai", {"response_format": {"type": "grammar"}}, "response_format"),
        ("openai", {"web_search_options": {"depth": 3}}, "web_search_options"),
        ("openai", {"prediction": {"type": "content"}}, "prediction"),
        ("anthropic", {"thinking": {"type": "brand_new"}}, "thinking"),
        ("anthropic", {"mcp_servers": [{}]}, "mcp_servers"),
        ("anthropic", {"stop_sequences": ["1", "2", "3", "4", "5"]}, "stop_sequences"),
        (
            "anthropic",
            {"messages": [{"role": "assistant", "content": [{"type": "image"}]}]},
            "messages",
        ),
        (
            "anthropic",
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "tool_use", "id": "a", "name": "b", "input": {}}],
                    }
                ]
            },
            "messages",
        ),
        (
            "openai",
            {
                "messages": [
                    {
                        "role": "assistant",
                        "tool_calls": [{"id": "a", "function": {"name": "b", "arguments": "{"}}],
                    }
                ]
            },
            "messages",
        ),
    ],
)
def test_what_the_other_dialect_cannot_say_is_refused_by_name(
    dialect: DialectName, changes: Json, param: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        cross(dialect, **changes)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("dialect", "changes"),
    [
        (
            "openai",
            {
                "response_format": {"type": "text"},
                "logprobs": False,
                "modalities": ["text"],
                "n": 1,
                "store": True,
                "top_logprobs": None,
            },
        ),
        ("anthropic", {"thinking": {"type": "disabled"}, "service_tier": "auto", "top_k": 3}),
    ],
)
def test_what_changes_nothing_is_left_out(dialect: DialectName, changes: Json) -> None:
    assert cross(dialect, **changes) == cross(dialect)


BOTH: list[tuple[Json, str]] = [
    ({"model": None}, "model"),
    ({"model": 7}, "model"),
    ({"model": "x" * 201}, "model"),
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": {}}, "messages"),
    ({"messages": ["x"]}, "messages"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages"),
    ({"messages": [{"role": "user"}]}, "messages"),
    ({"messages": [{"role": "user", "content": 7}]}, "messages"),
    ({"messages": [{"role": "user", "content": ["x"]}]}, "messages"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages"),
    ({"tools": {}}, "tools"),
    ({"tools": ["x"]}, "tools"),
    ({"tools": [{"name": 7, "function": {}}]}, "tools"),
    ({"tool_choice": "sometimes"}, "tool_choice"),
    ({"tool_choice": {"type": "tool"}}, "tool_choice"),
    ({"stream": "yes"}, "stream"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": True}, "max_tokens"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": [1]}, "top_p"),
    ({"n": 2}, "n"),
    ({"n": "1"}, "n"),
    ({"base_url": "http://evil"}, "base_url"),
    ({"api_base": "http://evil"}, "api_base"),
    ({"headers": {}}, "headers"),
    ({"api_key": "sk-x"}, "api_key"),
    ({"extra_headers": {}}, "extra_headers"),
    ({"custom_llm_provider": "x"}, "custom_llm_provider"),
]
ONLY: list[tuple[DialectName, Json, str]] = [
    ("openai", {"functions": []}, "functions"),
    ("openai", {"function_call": "auto"}, "function_call"),
    ("openai", {"audio": {}}, "audio"),
    ("openai", {"modalities": ["audio"]}, "modalities"),
    ("openai", {"stop": 7}, "stop"),
    ("openai", {"stop": [7]}, "stop"),
    ("openai", {"user": 7}, "user"),
    ("openai", {"stream_options": "x"}, "stream_options"),
    ("openai", {"stream_options": {"include_usage": 1}}, "include_usage"),
    ("openai", {"parallel_tool_calls": 1}, "parallel_tool_calls"),
    ("openai", {"tools": [{"type": "custom", "custom": {"name": 7}}]}, "tools"),
    ("openai", {"tools": [{"function": {"name": "x", "parameters": []}}]}, "tools"),
    ("openai", {"messages": [{"role": "system", "content": [{"type": "image_url"}]}]}, "messages"),
    ("openai", {"messages": [{"role": "tool", "content": "x"}]}, "messages"),
    ("openai", {"messages": [{"role": "function", "content": "x"}]}, "messages"),
    ("openai", {"messages": [{"role": "assistant", "function_call": {}}]}, "messages"),
    ("openai", {"messages": [{"role": "assistant", "tool_calls": 7}]}, "messages"),
    ("openai", {"messages": [{"role": "assistant", "tool_calls": [7]}]}, "messages"),
    (
        "openai",
        {
            "messages": [
                {
                    "role": "assistant",
                    "tool_calls": [{"id": 7, "function": {"name": "a", "arguments": ""}}],
                }
            ]
        },
        "messages",
    ),
    ("anthropic", {"max_tokens": None}, "max_tokens"),
    ("anthropic", {"system": 7}, "system"),
    ("anthropic", {"system": ["x"]}, "system"),
    ("anthropic", {"stop_sequences": "x"}, "stop_sequences"),
    ("anthropic", {"metadata": 7}, "metadata"),
    ("anthropic", {"metadata": {"user_id": 7}}, "user_id"),
    ("anthropic", {"tools": [{"name": "x"}]}, "tools"),
    (
        "anthropic",
        {
            "messages": [
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "a", "name": "b", "input": 7}],
                }
            ]
        },
        "messages",
    ),
    (
        "anthropic",
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "a", "content": 7}],
                }
            ]
        },
        "messages",
    ),
]


@pytest.mark.parametrize(
    ("dialect", "changes", "param"), [*((d, *case) for d in MINIMAL for case in BOTH), *ONLY]
)
def test_bad_requests_name_the_parameter(dialect: DialectName, changes: Json, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(dialect, MINIMAL[dialect] | changes)
    assert caught.value.param == param
    assert caught.value.http_status == 400


def test_optional_parts_may_be_null() -> None:
    nothing = {
        "tools": None,
        "stop": None,
        "stop_sequences": None,
        "system": None,
        "tool_choice": None,
        "metadata": None,
        "temperature": None,
        "stream": None,
    }
    for dialect in MINIMAL:
        named: DialectName = "openai" if dialect == "openai" else "anthropic"
        assert read(named, MINIMAL[dialect] | nothing).turns == (Turn("user", (TextPart("x"),)),)
    result = [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}]
    assert read("anthropic", MINIMAL["anthropic"] | {"messages": result}).turns[0].parts == (
        ToolResultPart("a", ""),
    )
    assert read("openai", MINIMAL["openai"] | {"stop": "x", "max_tokens": 3}).max_tokens == 3
