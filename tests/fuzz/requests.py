"""Requests with all that clients send, and error answers of upstreams: where fuzzing begins."""

import json

from protocol.request import DialectName
from tests.support.json_values import Json, as_json

_SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "minLength": 1}, "unit": {"enum": ["C", "F"]}},
    "required": ["city"],
}
_IMAGE = "data:image/png;base64,iVBORw0KGgo="
_CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'},
}
_TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "description": "d", "parameters": _SCHEMA, "strict": True},
}
_CACHE = {"type": "ephemeral", "ttl": "1h"}
_OPENAI: list[Json] = [
    {
        "model": "m",
        "messages": [
            {"role": "system", "content": "be kind"},
            {"role": "developer", "content": [{"type": "text", "text": "and short"}]},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "x"},
                    {"type": "image_url", "image_url": {"url": _IMAGE, "detail": "low"}},
                ],
            },
            {"role": "assistant", "content": None, "tool_calls": [_CALL], "refusal": None},
            {
                "role": "tool",
                "tool_call_id": "call_1",
                "content": [{"type": "text", "text": "sun"}],
            },
            {"role": "assistant", "content": "It is sunny.", "reasoning_content": "hm"},
            {"role": "user", "content": "and now?", "name": "anna"},
        ],
        "tools": [
            _TOOL,
            {"type": "custom", "custom": {"name": "code", "format": {"type": "text"}}},
        ],
        "tool_choice": {
            "type": "allowed_tools",
            "allowed_tools": {
                "mode": "auto",
                "tools": [{"type": "function", "function": {"name": "get_weather"}}],
            },
        },
        "parallel_tool_calls": False,
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_completion_tokens": 100,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": ["END"],
        "reasoning_effort": "low",
        "user": "u",
        "metadata": {"a": "b"},
        "seed": 1,
        "logit_bias": {"5": 1},
        "prompt_cache_key": "k",
        "service_tier": "auto",
    },
    {
        "model": "m",
        "messages": [
            {"role": "user", "content": "x"},
            {
                "role": "assistant",
                "content": None,
                "function_call": {"name": "f", "arguments": "{}"},
            },
            {"role": "function", "name": "f", "content": "y"},
        ],
        "functions": [{"name": "f", "parameters": _SCHEMA}],
        "function_call": {"name": "f"},
        "max_tokens": 5,
        "n": 1,
    },
    {
        "model": "m",
        "messages": [
            {
                "role": "user",
                "content": [
                    {
                        "type": "file",
                        "file": {
                            "file_data": "data:application/pdf;base64,JVBERi0=",
                            "filename": "a.pdf",
                        },
                    }
                ],
            }
        ],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "n", "schema": _SCHEMA, "strict": True},
        },
        "web_search_options": {
            "search_context_size": "low",
            "user_location": {"type": "approximate", "approximate": {"city": "Paris"}},
        },
        "tool_choice": "required",
        "tools": [_TOOL],
        "logprobs": True,
        "top_logprobs": 2,
    },
]
_USE = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Paris"}}
_ANTHROPIC: list[Json] = [
    {
        "model": "m",
        "max_tokens": 2000,
        "system": [{"type": "text", "text": "be kind", "cache_control": _CACHE}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "x", "cache_control": _CACHE},
                    {
                        "type": "image",
                        "source": {
                            "type": "base64",
                            "media_type": "image/png",
                            "data": "iVBORw0KGgo=",
                        },
                    },
                    {
                        "type": "document",
                        "source": {"type": "text", "media_type": "text/plain", "data": "doc"},
                        "citations": {"enabled": True},
                    },
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                    {"type": "text", "text": "so"},
                    _USE,
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_1",
                        "content": [{"type": "text", "text": "sun"}],
                        "is_error": True,
                    }
                ],
            },
        ],
        "tools": [
            {
                "name": "get_weather",
                "description": "d",
                "input_schema": _SCHEMA,
                "strict": True,
                "cache_control": _CACHE,
            },
            {"type": "bash_20250124", "name": "bash"},
            {
                "type": "web_search_20250305",
                "name": "web_search",
                "max_uses": 3,
                "allowed_domains": ["example.com"],
            },
        ],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "stream": True,
        "stop_sequences": ["END"],
        "temperature": 1,
        "top_k": 5,
        "metadata": {"user_id": "u"},
        "service_tier": "auto",
    },
    {
        "model": "m",
        "max_tokens": 10,
        "messages": [
            {"role": "user", "content": "x"},
            {
                "role": "assistant",
                "content": [
                    {
                        "type": "server_tool_use",
                        "id": "srvtoolu_1",
                        "name": "web_search",
                        "input": {"query": "q"},
                    },
                    {
                        "type": "web_search_tool_result",
                        "tool_use_id": "srvtoolu_1",
                        "content": [
                            {
                                "type": "web_search_result",
                                "url": "https://e.org",
                                "title": "t",
                                "encrypted_content": "ZQ==",
                            }
                        ],
                    },
                    {"type": "redacted_thinking", "data": "ZQ=="},
                    {
                        "type": "text",
                        "text": "so",
                        "citations": [
                            {"type": "char_location", "cited_text": "c", "document_index": 0}
                        ],
                    },
                ],
            },
            {"role": "user", "content": [{"type": "text", "text": "y"}]},
        ],
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": _SCHEMA}},
        "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]},
        "mcp_servers": [{"type": "url", "url": "https://mcp.example.com", "name": "box"}],
        "container": "c_1",
    },
]

_FLAT = {
    "type": "function",
    "name": "get_weather",
    "description": "d",
    "parameters": _SCHEMA,
    "strict": True,
}
_RESPONSES: list[Json] = [
    {
        "model": "m",
        "instructions": "be kind",
        "input": [
            {"role": "developer", "content": "and short"},
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "x"},
                    {"type": "input_image", "image_url": _IMAGE, "detail": "low"},
                ],
            },
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "hm"}],
                "encrypted_content": "c2Vh",
            },
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Well.", "annotations": []}],
            },
            {
                "type": "function_call",
                "call_id": "call_1",
                "name": "get_weather",
                "arguments": '{"city":"Paris"}',
                "namespace": "ns",
            },
            {"type": "custom_tool_call", "call_id": "call_2", "name": "code", "input": "x"},
            {
                "type": "function_call_output",
                "call_id": "call_1",
                "output": [{"type": "input_text", "text": "sun"}],
            },
            {"type": "custom_tool_call_output", "call_id": "call_2", "output": "y"},
            {"type": "additional_tools", "role": "developer", "tools": [{**_FLAT, "name": "late"}]},
            {"role": "user", "content": "and now?"},
        ],
        "tools": [
            _FLAT,
            {"type": "custom", "name": "code"},
            {"type": "namespace", "name": "ns", "tools": [_FLAT]},
        ],
        "tool_choice": {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "function", "name": "get_weather"}],
        },
        "parallel_tool_calls": False,
        "stream": True,
        "store": False,
        "max_output_tokens": 100,
        "temperature": 0.5,
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {
            "verbosity": "low",
            "format": {"type": "json_schema", "name": "n", "schema": _SCHEMA, "strict": True},
        },
        "include": ["reasoning.encrypted_content"],
        "metadata": {"a": "b"},
        "truncation": "auto",
    },
    {
        "model": "m",
        "input": [
            {"role": "user", "content": "x"},
            {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
            {
                "type": "shell_call_output",
                "call_id": "c",
                "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "timeout"}}],
            },
            {
                "type": "web_search_call",
                "id": "ws_1",
                "status": "completed",
                "action": {"type": "search", "query": "q"},
            },
        ],
        "tools": [
            {"type": "shell"},
            {"type": "web_search"},
            {"type": "mcp", "server_label": "s", "server_url": "https://example.com"},
        ],
    },
    {
        "model": "m",
        "input": "hello",
        "previous_response_id": "resp_1",
        "client_metadata": {"a": "b"},
    },
]


def seeds(dialect: DialectName) -> list[bytes]:
    """Requests of a client of this dialect."""
    bodies = {"openai": _OPENAI, "anthropic": _ANTHROPIC, "responses": _RESPONSES}[dialect]
    return [json.dumps(body, ensure_ascii=False).encode() for body in bodies]


def errors(dialect: DialectName) -> list[bytes]:
    """Error answers of an upstream of this dialect."""
    error = {
        "type": "invalid_request_error",
        "message": "prompt is too long: 5 tokens",
        "param": "messages",
        "code": "context_length_exceeded",
    }
    groq = {
        "error": {
            "message": "no",
            "code": "tool_use_failed",
            "failed_generation": '{"name":"bash"}',
        }
    }
    bodies = (
        [{"error": error}, groq]
        if dialect == "openai"
        else [{"type": "error", "error": error, "request_id": "req_1"}]
    )
    return [as_json(body) for body in bodies] + [b"<html>bad gateway</html>", b""]
