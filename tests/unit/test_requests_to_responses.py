"""Requests of chat/completions and Messages clients written for Responses (docs/change/protocol.md,
Responses), held to the SDK's types."""

import json
from typing import Any

import pytest

from protocol import codecs
from protocol.errors import InvalidRequest
from protocol.request import DialectName
from protocol.target import Target, Translated
from tests.support.clients.to_responses import ENCRYPTED, STREAMED, WHOLE, paired
from tests.support.json_values import Json
from tests.support.request_codecs import read_request

USER = {"role": "user", "content": "hi"}
SENT = {"type": "message", "role": "user", "content": "hi"}
SCHEMA = {
    "type": "object",
    "properties": {"q": {"type": "string"}},
    "required": ["q"],
    "additionalProperties": False,
}
ALL = frozenset(("web_search", "code_execution", "mcp"))
PNG = "data:image/png;base64,iVBORw0KGgo="
SEARCH = {"type": "web_search_20250305", "name": "web_search"}
AUDIO = {"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}}
GRAMMAR = {"syntax": "lark", "definition": "x"}
SERVER = {"type": "url", "url": "https://mcp.example/x", "name": "box"}


def translate(dialect: DialectName, families: frozenset[str] = ALL, **body: Any) -> Translated:
    asked = {
        "model": "m",
        "messages": [USER],
        **({"max_tokens": 50} if dialect == "anthropic" else {}),
        **body,
    }
    request = read_request(dialect, {n: v for n, v in asked.items() if v is not None})
    return codecs.encode_request(request, Target(dialect="responses", families=families))


def written(translated: Translated) -> Json:
    assert translated.body is not None
    body: Json = json.loads(translated.body)
    (STREAMED if body.get("stream") else WHOLE).validate_python(body, strict=False)
    assert body["store"] is False and not body.keys() & {"previous_response_id", "conversation"}
    paired(body["input"])
    return body


def call(identity: str, name: str = "look", arguments: str = "{}") -> Json:
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


CHAT: list[tuple[str, Json, Json, tuple[str, ...]]] = [
    (
        "nothing",
        {},
        {"model": "m", "input": [SENT], "include": [ENCRYPTED], "truncation": "disabled"},
        (),
    ),
    ("a model that does not reason", {"model": "gpt-4.1"}, {"include": None}, ()),
    (
        "system texts",
        {
            "model": "gpt-5.5",
            "messages": [
                {"role": "system", "content": "a"},
                {"role": "developer", "content": "b"},
                USER,
                {"role": "system", "content": "c"},
            ],
        },
        {
            "instructions": "a\n\nb",
            "input": [SENT, {"type": "message", "role": "developer", "content": "c"}],
        },
        (),
    ),
    (
        "limits",
        {"max_completion_tokens": 99, "temperature": 0.5},
        {"max_output_tokens": 99, "temperature": 0.5},
        (),
    ),
    (
        "sampling where it is refused",
        {"model": "gpt-5.5", "temperature": 0.5},
        {"temperature": None},
        ("temperature",),
    ),
    (
        "effort",
        {"model": "gpt-5.5", "reasoning_effort": "minimal"},
        {"reasoning": {"effort": "none"}},
        (),
    ),
    (
        "effort of a model nobody knows",
        {"reasoning_effort": "high"},
        {"reasoning": {"effort": "high"}},
        (),
    ),
    (
        "effort without reasoning",
        {"model": "gpt-4.1", "reasoning_effort": "high"},
        {"reasoning": None},
        ("reasoning_effort",),
    ),
    (
        "what does not exist",
        {"seed": 1, "logit_bias": {"1": 1}, "top_k": 4},
        {"seed": None},
        ("seed", "logit_bias", "top_k"),
    ),
    ("cache key", {"prompt_cache_key": "k"}, {"prompt_cache_key": "k"}, ()),
    ("verbosity", {"verbosity": "low"}, {"text": {"verbosity": "low"}}, ()),
    ("user", {"user": "u"}, {"user": "u"}, ()),
    ("user, vendor", {"model": "gpt-5.5", "user": "u" * 99}, {"user": None}, ()),
    (
        "tools are not strict unless they were",
        {
            "tools": [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}],
            "parallel_tool_calls": False,
        },
        {
            "tools": [{"type": "function", "name": "look", "parameters": SCHEMA, "strict": False}],
            "parallel_tool_calls": False,
        },
        (),
    ),
    (
        "strict, forced",
        {
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "look", "parameters": SCHEMA, "strict": True},
                }
            ],
            "tool_choice": {"type": "function", "function": {"name": "look"}},
        },
        {
            "tools": [{"type": "function", "name": "look", "parameters": SCHEMA, "strict": True}],
            "tool_choice": {"type": "function", "name": "look"},
        },
        (),
    ),
    (
        "custom tools and allowed ones",
        {
            "tools": [
                {
                    "type": "custom",
                    "custom": {"name": "sql", "format": {"type": "grammar", "grammar": GRAMMAR}},
                },
                {"type": "function", "function": {"name": "look", "parameters": {}}},
            ],
            "tool_choice": {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [{"type": "custom", "custom": {"name": "sql"}}],
                },
            },
        },
        {
            "tool_choice": {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "custom", "name": "sql"}],
            }
        },
        (),
    ),
    (
        "a tool loop: text, then calls, then their results",
        {
            "messages": [
                USER,
                {
                    "role": "assistant",
                    "content": "So.",
                    "tool_calls": [call("a"), call("b", "look", '{"q":1}')],
                },
                {"role": "tool", "tool_call_id": "b", "content": "2"},
                {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "1"}]},
                USER,
            ]
        },
        {
            "input": [
                SENT,
                {"type": "message", "role": "assistant", "content": "So."},
                {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"},
                {"type": "function_call", "call_id": "b", "name": "look", "arguments": '{"q":1}'},
                {"type": "function_call_output", "call_id": "b", "output": "2"},
                {"type": "function_call_output", "call_id": "a", "output": "1"},
                SENT,
            ]
        },
        (),
    ),
    (
        "images and files",
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "t"},
                        {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
                        {
                            "type": "file",
                            "file": {
                                "file_data": "data:application/pdf;base64,JVBERi0x",
                                "filename": "a.pdf",
                            },
                        },
                    ],
                }
            ]
        },
        {
            "input": [
                {
                    "type": "message",
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "t"},
                        {"type": "input_image", "image_url": PNG, "detail": "low"},
                        {
                            "type": "input_file",
                            "filename": "a.pdf",
                            "file_data": "data:application/pdf;base64,JVBERi0x",
                        },
                    ],
                }
            ]
        },
        (),
    ),
    (
        "the answer's form",
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": SCHEMA, "strict": True},
            }
        },
        {
            "text": {
                "format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}
            }
        },
        (),
    ),
    (
        "any object",
        {"response_format": {"type": "json_object"}},
        {"text": {"format": {"type": "json_object"}}},
        (),
    ),
    (
        "a search",
        {"web_search_options": {"search_context_size": "low"}},
        {
            "tools": [{"type": "web_search", "search_context_size": "low"}],
            "include": [ENCRYPTED, "web_search_call.action.sources"],
        },
        (),
    ),
    ("streamed", {"stream": True, "stream_options": {"include_usage": True}}, {"stream": True}, ()),
]
MESSAGES: list[tuple[str, Json, Json, tuple[str, ...]]] = [
    ("nothing", {}, {"input": [SENT], "max_output_tokens": 50}, ()),
    (
        "thinking is shown",
        {
            "model": "gpt-5.5",
            "max_tokens": 9999,
            "thinking": {"type": "enabled", "budget_tokens": 2000},
        },
        {"reasoning": {"effort": "low", "summary": "auto"}},
        (),
    ),
    (
        "adaptive",
        {"model": "gpt-5.5", "thinking": {"type": "adaptive"}},
        {"reasoning": {"summary": "auto"}},
        (),
    ),
    (
        "off",
        {"model": "gpt-5.5", "thinking": {"type": "disabled"}},
        {"reasoning": {"effort": "none"}},
        (),
    ),
    (
        "results keep their images",
        {
            "messages": [
                USER,
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {}}],
                },
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "a",
                            "content": [
                                {"type": "text", "text": "t"},
                                {
                                    "type": "image",
                                    "source": {
                                        "type": "base64",
                                        "media_type": "image/png",
                                        "data": "iVBORw0KGgo=",
                                    },
                                },
                            ],
                        }
                    ],
                },
            ]
        },
        {
            "input": [
                SENT,
                {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"},
                {
                    "type": "function_call_output",
                    "call_id": "a",
                    "output": [
                        {"type": "input_text", "text": "t"},
                        {"type": "input_image", "image_url": PNG, "detail": "auto"},
                    ],
                },
            ]
        },
        (),
    ),
    (
        "server tools by the table",
        {
            "tools": [
                {**SEARCH, "max_uses": 3, "allowed_domains": ["a.example"]},
                {"type": "code_execution_20250825", "name": "code_execution"},
            ]
        },
        {
            "tools": [
                {
                    "type": "web_search",
                    "search_context_size": "medium",
                    "filters": {"allowed_domains": ["a.example"]},
                },
                {"type": "code_interpreter", "container": {"type": "auto"}},
            ],
            "include": [
                ENCRYPTED,
                "web_search_call.action.sources",
                "code_interpreter_call.outputs",
            ],
        },
        (),
    ),
    (
        "an MCP server runs without a question",
        {
            "mcp_servers": [{**SERVER, "authorization_token": "t"}],
            "tools": [
                {
                    "type": "mcp_toolset",
                    "mcp_server_name": "box",
                    "default_config": {"enabled": False},
                    "configs": {"a": {"enabled": True}},
                }
            ],
        },
        {
            "tools": [
                {
                    "type": "mcp",
                    "server_label": "box",
                    "server_url": "https://mcp.example/x",
                    "require_approval": "never",
                    "authorization": "t",
                    "allowed_tools": ["a"],
                }
            ]
        },
        (),
    ),
    (
        "tools of the dialect's own types are functions",
        {"tools": [{"type": "bash_20250124", "name": "bash"}], "tool_choice": {"type": "any"}},
        {"tool_choice": "required"},
        (),
    ),
    (
        "thinking of another provider stays out",
        {
            "messages": [
                USER,
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "x", "signature": "s"},
                        {"type": "text", "text": "t"},
                    ],
                },
            ]
        },
        {"input": [SENT, {"type": "message", "role": "assistant", "content": "t"}]},
        ("messages[].thinking",),
    ),
]


@pytest.mark.parametrize(
    ("dialect", "name", "body", "expected", "dropped"),
    [("openai", *row) for row in CHAT] + [("anthropic", *row) for row in MESSAGES],
)
def test_what_a_client_says_is_said_again(
    dialect: str,
    name: str,
    body: Json,
    expected: Json,
    dropped: tuple[str, ...],
) -> None:
    translated = translate(dialect, **body)
    found = written(translated)
    assert {n: found.get(n) for n in expected} == expected, name
    assert translated.dropped == dropped


@pytest.mark.parametrize(
    ("dialect", "body", "param"),
    [
        ("openai", {"stop": ["x"]}, "stop"),
        ("anthropic", {"stop_sequences": ["x"]}, "stop_sequences"),
        ("openai", {"prediction": {"type": "content", "content": "x"}}, "prediction"),
        ("openai", {"messages": [{"role": "user", "content": [AUDIO]}]}, "messages"),
        (
            "openai",
            {
                "messages": [
                    {"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}
                ]
            },
            "messages",
        ),
        ("anthropic", {"tools": [{**SEARCH, "blocked_domains": ["a"]}]}, "tools"),
        ("anthropic", {"tools": [{"type": "web_fetch_20250910", "name": "web_fetch"}]}, "tools"),
        ("anthropic", {"tools": [{"type": "mcp_toolset", "mcp_server_name": "nobody"}]}, "tools"),
        (
            "anthropic",
            {
                "tools": [
                    {
                        "name": "a",
                        "input_schema": {},
                        "allowed_callers": ["code_execution_20250825"],
                    }
                ]
            },
            "tools",
        ),
        ("anthropic", {"container": "c"}, "container"),
    ],
)
def test_what_cannot_be_said_is_refused_by_name(dialect: str, body: Json, param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        translate(dialect, ALL | {"web_fetch"}, **body)
    assert refused.value.param == param
