"""Requests of Responses clients written for Responses providers: what they say, and nothing that a
provider would keep or look up."""

import json
import os
from typing import Any

import msgspec
import pytest

from protocol import codecs
from protocol.request import (
    ChatRequest,
    ConversationState,
    TextPart,
    ToolResultPart,
    ToolUsePart,
    Turn,
)
from protocol.server_tools.data import table
from protocol.target import Target
from tests.support.clients.to_responses import ENCRYPTED, STREAMED, WHOLE, paired
from tests.support.json_values import Json
from tests.support.request_codecs import read_request, sent_body
from tests.support.upstreams.recordings import ROOT

ALL = frozenset(table().families)
SHARED = ROOT.parent / "shared" / "dialect-streams"
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}'}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "1"}
IMAGE = {"type": "input_image", "image_url": "https://a.example/x"}
FUNCTION = {"type": "function", "name": "f"}
EXEC = {"type": "exec", "command": ["ls"], "env": {}}
SEALED = {"type": "reasoning", "summary": [], "encrypted_content": "gAAA"}


def read(**body: Any) -> ChatRequest:
    request = read_request("responses", {"model": "m", "input": "hi", **body})
    # what is in front of it was put there before it is written
    return msgspec.structs.replace(
        request, state=msgspec.structs.replace(request.state or ConversationState(), previous="")
    )


def write(request: ChatRequest, families: frozenset[str] = ALL) -> Json:
    translated = codecs.encode_request(request, Target(dialect="responses", families=families))
    body: Json = sent_body(translated)
    assert body["store"] is False and not body.keys() & {
        "previous_response_id",
        "conversation",
        "background",
    }
    return body


def same(item: Json) -> Json:
    return {"type": "message", **item} if "role" in item else item


ITEMS: list[list[Json]] = [
    [{"role": "user", "content": "hi"}],
    [
        {
            "role": "user",
            "content": [{"type": "input_text", "text": "a"}, {**IMAGE, "detail": "low"}],
        }
    ],
    [
        {"role": "developer", "content": "be kind"},
        {"role": "user", "content": "hi"},
        {"role": "system", "content": "now"},
    ],
    [{"role": "user", "content": "hi"}, SEALED, CALL, OUTPUT],
    [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "so", "phase": "commentary"},
        CALL,
        OUTPUT,
    ],
    [CALL, {**OUTPUT, "output": [{"type": "input_text", "text": "a"}, IMAGE]}],
    [{**CALL, "namespace": "ns"}, OUTPUT],
    [
        {**CALL, "caller": {"type": "program", "caller_id": "p"}},
        {**OUTPUT, "caller": {"type": "program", "caller_id": "p"}},
    ],
    [
        {"type": "custom_tool_call", "call_id": "c", "name": "sql", "input": 'SELECT "x"'},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "1"},
    ],
    [
        {
            "type": "apply_patch_call",
            "call_id": "c",
            "operation": {"type": "delete_file", "path": "a"},
            "status": "completed",
        },
        {
            "type": "apply_patch_call_output",
            "call_id": "c",
            "status": "completed",
            "output": "done",
        },
    ],
    [
        {
            "type": "shell_call",
            "call_id": "c",
            "action": {"commands": ["ls"], "timeout_ms": 5},
            "status": "completed",
        },
        {
            "type": "shell_call_output",
            "call_id": "c",
            "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
        },
    ],
    [
        {
            "type": "local_shell_call",
            "id": "l",
            "call_id": "c",
            "action": EXEC,
            "status": "completed",
        },
        {"type": "local_shell_call_output", "id": "c", "output": "a"},
    ],
    [
        {
            "type": "tool_search_call",
            "call_id": "c",
            "execution": "client",
            "arguments": {"q": "x"},
            "status": "completed",
        },
        {
            "type": "tool_search_output",
            "call_id": "c",
            "execution": "client",
            "status": "completed",
            "tools": [FUNCTION],
        },
    ],
    [
        {
            "type": "web_search_call",
            "id": "ws_1",
            "status": "completed",
            "action": {"type": "search", "query": "q"},
        },
        {"role": "assistant", "content": "so"},
    ],
    [
        {
            "type": "mcp_approval_request",
            "id": "mcpr_1",
            "name": "f",
            "server_label": "box",
            "arguments": "{}",
        },
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
    ],
    [
        {
            "role": "assistant",
            "content": [
                {"type": "output_text", "text": "a", "annotations": []},
                {"type": "refusal", "refusal": "no"},
            ],
        }
    ],
]


@pytest.mark.parametrize("items", ITEMS)
def test_items_go_out_as_they_came(items: list[Json]) -> None:
    body = write(read(input=items))
    assert body["input"] == [same(item) for item in items]
    # the types want an id, under which a provider that keeps nothing would look
    kept = {"id": "x", "status": "completed"}
    answered = [
        i["type"] == "reasoning"
        or (i.get("role") == "assistant" and isinstance(i["content"], list))
        for i in body["input"]
    ]
    WHOLE.validate_python(
        body
        | {
            "input": [
                {**kept, **i} if is_answer else i
                for i, is_answer in zip(body["input"], answered, strict=True)
            ]
        }
    )


def test_what_a_provider_would_look_up_stays_here() -> None:
    items = [
        {"type": "message", "id": "msg_1", "role": "user", "content": "hi"},
        {**SEALED, "id": "rs_1"},
        {
            "type": "message",
            "id": "msg_2",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "x"}],
        },
        {**CALL, "id": "fc_1"},
        OUTPUT,
    ]
    body = write(read(input=items, store=True, previous_response_id="resp_1"))
    assert [i.get("id") for i in body["input"]] == [None] * 5 and body["input"][1] == SEALED
    paired(body["input"])


def test_reasoning_without_anything_encrypted_is_left_out_by_name() -> None:
    unsealed = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "hm"}],
    }
    raw = {
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm"}],
    }
    request = read(input=[{"role": "user", "content": "hi"}, unsealed, raw, SEALED, CALL, OUTPUT])
    translated = codecs.encode_request(request, Target(dialect="responses", families=ALL))
    assert translated.dropped == ("input[].reasoning",)
    assert sent_body(translated)["input"][1:3] == [raw, SEALED]


def test_fields_go_out_as_they_came() -> None:
    fields: Json = {
        "instructions": "be kind",
        "max_output_tokens": 99,
        "temperature": 0.5,
        "top_p": 0.5,
        "metadata": {"a": "b"},
        "user": "u",
        "text": {
            "format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}},
            "verbosity": "low",
        },
        "reasoning": {"effort": "low", "summary": "auto", "context": "all_turns"},
        "parallel_tool_calls": False,
        "stream": True,
        "prompt_cache_key": "k",
        "service_tier": "flex",
        "max_tool_calls": 3,
        "top_logprobs": 2,
        "safety_identifier": "s",
        "include": [ENCRYPTED, "message.output_text.logprobs"],
        "tools": [
            {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": None},
            {
                "type": "namespace",
                "name": "ns",
                "description": "d",
                "tools": [{"type": "function", "name": "g", "strict": True}],
            },
            {
                "type": "custom",
                "name": "sql",
                "format": {"type": "grammar", "syntax": "lark", "definition": "x"},
            },
            {"type": "apply_patch"},
        ],
        "tool_choice": {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "function", "name": "f"}],
        },
    }
    body = write(read(**fields))
    assert {n: body[n] for n in fields if n != "include"} == {
        n: v for n, v in fields.items() if n != "include"
    }
    assert (
        set(body["include"]) == {ENCRYPTED, "message.output_text.logprobs"}
        and body["truncation"] == "disabled"
    )
    STREAMED.validate_python(body)


def test_what_would_be_left_out_unseen_is_not() -> None:
    families = ALL - {"context_management"}
    request = read(truncation="auto", stream_options={"include_obfuscation": True})
    translated = codecs.encode_request(request, Target(dialect="responses", families=ALL))
    assert sent_body(translated)["truncation"] == "auto"
    # the family is one that every key has
    assert write(request, families)["truncation"] == "auto" and "stream_options" not in write(
        request
    )


@pytest.mark.parametrize(
    ("choice", "tools"),
    [
        (
            {"type": "function", "name": "f"},
            [{"type": "function", "name": "f", "parameters": None, "strict": None}],
        ),
        (
            {"type": "mcp", "server_label": "box"},
            [{"type": "mcp", "server_label": "box", "server_url": "https://a.example"}],
        ),
        (
            {"type": "mcp", "server_label": "box", "name": "f"},
            [{"type": "mcp", "server_label": "box", "server_url": "https://a.example"}],
        ),
        ({"type": "web_search_preview"}, [{"type": "web_search_preview"}]),
        ({"type": "apply_patch"}, [{"type": "apply_patch"}]),
        ("required", [{"type": "apply_patch"}]),
    ],
)
def test_choices_go_out_as_they_came(choice: Any, tools: list[Any]) -> None:
    assert write(read(tools=tools, tool_choice=choice))["tool_choice"] == choice


def test_what_a_policy_changed_is_what_goes_out() -> None:
    request = read(instructions="be kind", input=[{"role": "user", "content": "hi"}, CALL, OUTPUT])
    turns = (
        Turn("user", (TextPart("ho"),)),
        Turn("assistant", (ToolUsePart("c", "f", '{"a": 2}'),)),
        Turn("user", (ToolResultPart("c", "left out", is_error=True),)),
    )
    body = write(msgspec.structs.replace(request, system=("be good",), turns=turns))
    assert body["instructions"] == "be good"
    said = [
        {"type": "message", "role": "user", "content": "ho"},
        {**CALL, "arguments": '{"a": 2}'},
        {**OUTPUT, "output": "[error] left out"},
    ]
    assert body["input"] == said
    more = write(msgspec.structs.replace(request, system=("one", "two")))
    assert [i["content"] for i in more["input"][:2]] == [
        "one",
        "two",
    ] and "instructions" not in more


def recorded() -> dict[str, Json]:
    """Requests as clients sent them."""
    if not SHARED.exists():
        return {}
    found = {
        p.name: json.loads(p.read_text())
        for p in sorted((SHARED / "openai-responses").glob("*.request.json"))
    }
    clients = sorted((SHARED / "clients").glob("codex-*.json")) + sorted(
        (SHARED / "clients").glob("openai-agents-*.json")
    )
    return {n: b for n, b in found.items() if "input" in b} | {
        p.name: json.loads(p.read_text())["body"] for p in clients
    }


REQUESTS = recorded()
CHANGED = {
    "store",
    "include",
    "truncation",
    "stream_options",
    "client_metadata",
    "input",
    "background",
    "previous_response_id",
    "tools",
}


@pytest.mark.parametrize("name", sorted(REQUESTS) or ["none"])
def test_requests_of_real_clients_go_out_as_they_came(name: str) -> None:
    if not REQUESTS:
        if os.environ.get("CI"):
            pytest.fail("../shared/dialect-streams is missing")
        pytest.skip("../shared/dialect-streams is missing")
    asked = REQUESTS[name]
    if asked.get("background"):
        return
    body = write(read(**asked))
    assert {n: v for n, v in body.items() if n not in CHANGED} == {
        n: v for n, v in asked.items() if n not in CHANGED and v not in (None, False)
    }
    assert len(body.get("tools") or []) == len(asked.get("tools") or [])
    if isinstance(asked["input"], list):
        assert len(body["input"]) == len(asked["input"])
        sent = [
            {n: v for n, v in same(i).items() if n not in ("id", "content")} for i in asked["input"]
        ]
        assert [
            {n: v for n, v in i.items() if n not in ("id", "content")} for i in body["input"]
        ] == sent
