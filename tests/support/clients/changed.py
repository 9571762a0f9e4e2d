"""A request of either dialect, under policies that change it, and what goes upstream."""

import json
from typing import Any

import msgspec
import pytest

from policy.base import Policy
from policy.session.effects import Respond, SendUpstream
from policy.session.session import Session
from protocol.request import (
    DialectName,
)
from tests.support.checks.approving import SCHEMA
from tests.support.clients.answering import CONFIG
from tests.support.json_values import Json, as_json
from tests.support.worker_calls import call_info

WAYS: list[tuple[DialectName, DialectName]] = [
    (c, u) for c in ("openai", "anthropic") for u in ("openai", "anthropic")
]
every_way = pytest.mark.parametrize(("client", "upstream"), WAYS)
MODEL: dict[DialectName, str] = {"openai": "gpt-5-x", "anthropic": "claude-sonnet-4-5"}
FAMILIES = ("web_search", "files")
ANSWER = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}

RESULT = [{"type": "text", "text": "old result"}]
BODIES: dict[DialectName, Json] = {
    "openai": {
        "max_completion_tokens": 4_000,
        "temperature": 1,
        "top_p": 1,
        "stop": ["old stop"],
        "user": "alice",
        "safety_identifier": "alice",
        "reasoning_effort": "high",
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "old_answer", "schema": ANSWER},
        },
        "seed": 5,
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "old system"}]},
            {"role": "user", "content": "old question"},
            {
                "role": "assistant",
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "bash", "arguments": '{"old":1}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": RESULT},
        ],
        "tools": [
            {
                "type": "function",
                "function": {"name": n, "description": "old", "parameters": SCHEMA},
            }
            for n in ("bash", "read")
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
    },
    "anthropic": {
        "max_tokens": 4_000,
        "temperature": 1,
        "top_p": 1,
        "stop_sequences": ["old stop"],
        "metadata": {"user_id": "alice"},
        "thinking": {"type": "enabled", "budget_tokens": 2_000},
        "output_config": {"effort": "high", "format": {"type": "json_schema", "schema": ANSWER}},
        "system": [{"type": "text", "text": "old system"}],
        "messages": [
            {"role": "user", "content": "old question"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c1", "name": "bash", "input": {"old": 1}}],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c1", "content": RESULT}],
            },
        ],
        "tools": [
            {"name": n, "description": "old", "input_schema": SCHEMA} for n in ("bash", "read")
        ],
        "tool_choice": {"type": "auto"},
    },
}


def sent_by(
    client: DialectName,
    upstream: DialectName,
    *policies: Policy,
    body: Json | None = None,
    **info: Any,
) -> Json | Respond:
    """What goes upstream as it does, `as received` spelled out, or the refusal."""
    call = call_info("c", client, nonce="nonce", max_arguments_bytes=100_000, server_tools=FAMILIES)
    session = Session(msgspec.structs.replace(call, **info), policies, CONFIG)
    asked = {"model": MODEL[upstream], **(body or BODIES[client])}
    session.begin(as_json(asked))
    taken = session.drain()
    outputs = taken.outputs
    if taken.lookup:
        session.turns([])
        outputs = session.drain().outputs
    [out] = outputs
    if isinstance(out, Respond):
        return out
    assert isinstance(out, SendUpstream)
    found: Json = json.loads(out.body) if out.body is not None else asked
    return found


def texts(value: Any) -> str:
    """A value as JSON, to look for words in it."""
    return json.dumps(value, ensure_ascii=False)
