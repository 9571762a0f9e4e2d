"""Requests of Responses clients: read without loss, refused by name, seen by policies, and told to
providers of other dialects."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from protocol import codecs
from protocol.dialects.responses.changes import write_tools
from protocol.errors import InvalidRequest
from protocol.policy_changes import Unclear, reconciled
from protocol.request import ChatRequest, OtherPart, TextPart, ToolResultPart, ToolUsePart
from protocol.request_texts import map_texts
from protocol.request_texts import texts as texts_of
from protocol.requests.addresses import refuse_private
from protocol.requests.copies import copied
from protocol.target import Target, Translated
from tests.support.json_values import Json
from tests.support.request_codecs import read_request

CLIENTS = Path(__file__).parents[2].parent / "shared" / "dialect-streams" / "clients"
PNG = "iVBORw0KGgo="
FUNCTION = {
    "type": "function",
    "name": "look",
    "description": "looks",
    "parameters": {"type": "object", "properties": {}},
}
MCP = {"type": "mcp", "server_label": "box", "server_url": "https://a.example/"}
ELSEWHERE = MCP | {"server_url": "https://b.example/"}
ALL = frozenset(
    (
        "web_search",
        "code_execution",
        "mcp",
        "files",
        "context_management",
        "file_search",
        "image_generation",
        "tool_search",
    )
)


def read(**fields: Any) -> ChatRequest:
    return read_request("responses", {"model": "m", "input": "hi", **fields})


def brings(*tools: Json, execution: str = "") -> Json:
    if not execution:
        return {"type": "additional_tools", "role": "developer", "tools": [*tools]}
    return {
        "type": "tool_search_output",
        "call_id": "c",
        "execution": execution,
        "status": "completed",
        "tools": [*tools],
    }


def searched(execution: str) -> Json:
    return {"type": "tool_search_call", "call_id": "c", "execution": execution, "arguments": {}}


def parts(item: Json) -> list[Any]:
    return [
        part
        for turn in read(input=[{"role": "user", "content": "q"}, item]).turns[1:]
        for part in turn.parts
    ]


def sent(
    request: ChatRequest, dialect: str, *, families: frozenset[str] = ALL, model: str = ""
) -> tuple[Json, Translated]:
    known = {"openai": "gpt-5", "anthropic": "claude-sonnet-4-5", "responses": "gpt-5"}[dialect]
    asked = ChatRequest(
        **{n: getattr(request, n) for n in ChatRequest.__struct_fields__}
        | {"model": model or known}
    )
    done = codecs.encode_request(asked, Target(dialect=dialect, families=families))
    return json.loads(done.body or b"null"), done


# --- read ---

SEEN = [{"type": "input_text", "text": "r"}, {"type": "input_image", "image_url": "u"}]
RAN = [{"stdout": "o", "stderr": "e", "outcome": {"type": "exit", "exit_code": 1}}]
ITEMS: list[tuple[Json, Any]] = [
    ({"role": "assistant", "content": "said"}, [TextPart("said")]),
    (
        {
            "type": "message",
            "id": "msg_1",
            "status": "completed",
            "phase": "commentary",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "a", "annotations": []}],
        },
        [
            TextPart(
                "a",
                {
                    "annotations": [],
                    "item": {"id": "msg_1", "status": "completed", "phase": "commentary"},
                },
            )
        ],
    ),
    (
        {
            "type": "function_call",
            "call_id": "c",
            "name": "look",
            "arguments": '{"a":1}',
            "namespace": "ns",
            "id": "fc_1",
        },
        [ToolUsePart("c", "look", '{"a":1}', {"item": {"namespace": "ns", "id": "fc_1"}})],
    ),
    (
        {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": 'a"b'},
        [ToolUsePart("c", "f", '{"input":"a\\"b"}', form="custom")],
    ),
    (
        {
            "type": "shell_call",
            "call_id": "c",
            "action": {"commands": ["ls"]},
            "status": "completed",
        },
        [
            ToolUsePart(
                "c",
                "shell",
                '{"commands":["ls"]}',
                {"item": {"type": "shell_call", "status": "completed"}},
                "typed",
            )
        ],
    ),
    (
        {
            "type": "computer_call",
            "call_id": "c",
            "actions": [{"type": "wait"}],
            "pending_safety_checks": [],
        },
        [
            ToolUsePart(
                "c",
                "computer",
                '{"actions":[{"type":"wait"}]}',
                {"item": {"type": "computer_call", "pending_safety_checks": []}},
                "typed",
            )
        ],
    ),
    ({"type": "function_call_output", "call_id": "c", "output": "r"}, [ToolResultPart("c", "r")]),
    (
        {"type": "function_call_output", "call_id": "c", "output": SEEN},
        [ToolResultPart("c", "r[input_image]", extra={"content": SEEN})],
    ),
    (
        {"type": "shell_call_output", "call_id": "c", "output": RAN},
        [
            ToolResultPart(
                "c",
                "oe",
                extra={"content": RAN, "item": {"type": "shell_call_output"}},
                form="typed",
            )
        ],
    ),
    (
        {"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": "no"},
        [
            ToolResultPart(
                "c",
                "no",
                True,
                {"item": {"type": "apply_patch_call_output", "status": "failed"}},
                "typed",
            )
        ],
    ),
    (
        {"type": "local_shell_call_output", "id": "c", "output": "o"},
        [
            ToolResultPart(
                "c",
                "o",
                extra={"item": {"type": "local_shell_call_output"}, "named": "id"},
                form="typed",
            )
        ],
    ),
]


@pytest.mark.parametrize(("item", "want"), ITEMS, ids=[i[0].get("type", "easy") for i in ITEMS])
def test_an_item_becomes_these_parts(item: Json, want: Any) -> None:
    assert parts(item) == want


CARRIED: list[Json] = [
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "s"}],
        "encrypted_content": "c2Vh",
    },
    {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "q"},
    },
    {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
    {"type": "compaction", "encrypted_content": "c2Vh"},
    {
        "type": "shell_call",
        "call_id": "c",
        "action": {"commands": ["ls"]},
        "environment": {"type": "container_reference"},
    },
    {"type": "tool_search_call", "call_id": None, "execution": "server", "arguments": {}},
    {"type": "program", "id": "cm_1", "call_id": "c", "code": "x", "fingerprint": "f"},
]


@pytest.mark.parametrize("item", CARRIED, ids=[str(i["type"]) for i in CARRIED])
def test_what_is_a_providers_own_stays_as_it_came(item: Json) -> None:
    assert parts(item) == [OtherPart(str(item["type"]), item, "responses")]


def test_tools_are_named_as_policies_know_them() -> None:
    brought = {
        "type": "additional_tools",
        "role": "developer",
        "tools": [{**FUNCTION, "name": "late"}],
    }
    tools = [
        FUNCTION,
        {"type": "custom", "name": "free", "format": {"type": "text"}},
        {"type": "apply_patch"},
        {"type": "shell"},
        {"type": "computer_use_preview", "display_width": 1},
        {"type": "namespace", "name": "ns", "description": "d", "tools": [FUNCTION]},
        {"type": "tool_search", "execution": "client", "parameters": {"type": "object"}},
        {"type": "web_search"},
        {"type": "mcp", "server_label": "deep", "server_url": "https://example.com"},
    ]
    request = read(tools=tools, input=[{"role": "user", "content": "q"}, brought])
    assert [(t.name, t.kind) for t in request.tools] == [
        ("look", "function"),
        ("free", "custom"),
        ("apply_patch", "client"),
        ("shell", "client"),
        ("computer", "client"),
        ("ns.look", "function"),
        ("tool_search", "client"),
        ("web_search", "server"),
        ("mcp_deep", "server"),
        ("late", "function"),
    ]
    assert request.tools[-1].outer == {"item": 0} and write_tools(list(request.tools[:-1])) == tools


TUNNEL = {"type": "mcp", "server_label": "box", "tunnel_id": "1"}
REFUSED: list[tuple[Json, str, str]] = [
    ({"conversation": "conv_1"}, "conversation", "unsupported_parameter"),
    ({"background": True}, "background", "unsupported_parameter"),
    ({"prompt": {"id": "pmpt_1"}}, "prompt", "unsupported_parameter"),
    *(
        ({name: 1}, name, "unknown_parameter")
        for name in ("n", "stop", "logit_bias", "frequency_penalty", "seed", "strange", "messages")
    ),
    *(
        ({name: value}, name, "invalid_request")
        for name, value in {
            "model": 7,
            "input": 7,
            "instructions": 7,
            "include": "x",
            "previous_response_id": 7,
            "text": 7,
            "reasoning": "high",
            "store": "yes",
            "stream": 1,
            "max_output_tokens": 0,
            "temperature": "x",
            "tools": [7],
            "tool_choice": 7,
            "base_url": "http://evil",
            "api_key": "not-ours",
            "headers": {},
        }.items()
    ),
    ({"tools": [{"type": "function", "parameters": {}}]}, "tools", "invalid_request"),
    ({"tools": [{"type": "function", "name": "f", "parameters": 7}]}, "tools", "invalid_request"),
    ({"Input": "x"}, "input", "invalid_request"),
    ({"api_base": "http://x"}, "api_base", "invalid_request"),
    ({"input": []}, "input", "invalid_request"),
    ({"input": [{"type": "strange"}]}, "input", "invalid_request"),
    ({"input": [{"content": "x"}]}, "input", "invalid_request"),
    ({"input": [{"role": "tool", "content": "x"}]}, "input", "invalid_request"),
    (
        {"input": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]},
        "input",
        "invalid_request",
    ),
    (
        {"input": [{"role": "user", "content": [{"type": "input_audio", "data": "x"}]}]},
        "input",
        "invalid_request",
    ),
    (
        {
            "input": [
                {"role": "user", "content": [{"type": "input_image", "image_url": {"url": "x"}}]}
            ]
        },
        "input",
        "invalid_request",
    ),
    ({"input": [{"role": "user", "Content": "x"}]}, "content", "invalid_request"),
    ({"input": [{"type": "item_reference", "id": "rs_1"}]}, "input", "item_not_found"),
    ({"input": [{"id": "rs_1"}]}, "input", "item_not_found"),
    (
        {"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]},
        "input",
        "invalid_request",
    ),
    (
        {
            "input": [
                {"type": "function_call_output", "call_id": "c", "output": [{"type": "strange"}]}
            ]
        },
        "input",
        "invalid_request",
    ),
    (
        {"input": [{"type": "shell_call", "call_id": "c", "action": "ls"}]},
        "input",
        "invalid_request",
    ),
    (
        {"input": [{"type": "additional_tools", "tools": [{"type": "strange"}]}]},
        "input",
        "invalid_request",
    ),
    ({"input": [{"type": "additional_tools", "tools": "x"}]}, "input", "invalid_request"),
    ({"tools": [MCP], "input": [brings(ELSEWHERE)]}, "tools", "invalid_request"),
    (
        {"tools": [MCP], "input": [searched("client"), brings(ELSEWHERE, execution="client")]},
        "tools",
        "invalid_request",
    ),
    (
        {"tools": [MCP], "input": [searched("server"), brings(ELSEWHERE, execution="server")]},
        "tools",
        "invalid_request",
    ),
    (
        {"tools": [MCP], "input": [searched("server"), brings(ELSEWHERE, execution="client")]},
        "tools",
        "invalid_request",
    ),
    (
        {
            "input": [
                brings(MCP, execution="server"),
                brings(MCP),
                brings(ELSEWHERE, execution="server"),
            ]
        },
        "tools",
        "invalid_request",
    ),
    (
        {"tools": [TUNNEL], "input": [brings(TUNNEL | {"tunnel_id": "2"})]},
        "tools",
        "invalid_request",
    ),
    ({"input": [brings({"type": "strange"}, execution="server")]}, "input", "invalid_request"),
    ({"input": [{**brings(execution="server"), "tools": "x"}]}, "input", "invalid_request"),
    ({"tools": [{"type": "strange"}]}, "tools", "invalid_request"),
    ({"tools": [{"type": "function", "function": {"name": "x"}}]}, "tools", "invalid_request"),
    ({"tools": [FUNCTION, FUNCTION]}, "tools", "invalid_request"),
    ({"tools": [{"type": "namespace", "name": "n", "tools": []}]}, "tools", "invalid_request"),
    ({"tool_choice": {"type": "strange"}}, "tool_choice", "invalid_request"),
    (
        {"tool_choice": {"type": "allowed_tools", "mode": "required", "tools": []}},
        "tool_choice",
        "invalid_request",
    ),
    ({"text": {"format": {"type": "xml"}}}, "text", "invalid_request"),
    ({"text": {"strange": 1}}, "text", "invalid_request"),
    ({"reasoning": {"strange": 1}}, "reasoning", "invalid_request"),
    ({"include": ["strange"]}, "include", "invalid_request"),
    ({"truncation": "some"}, "truncation", "invalid_request"),
    ({"top_logprobs": 21}, "top_logprobs", "invalid_request"),
    ({"stream_options": {"include_usage": True}}, "stream_options", "invalid_request"),
    ({"max_output_tokens": 0}, "max_output_tokens", "invalid_request"),
]


@pytest.mark.parametrize(
    ("fields", "param", "code"), REFUSED, ids=[json.dumps(f)[:60] for f, _, _ in REFUSED]
)
def test_what_is_not_known_is_refused_by_name(fields: Json, param: str, code: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read(**fields)
    assert (refused.value.param, refused.value.error_code) == (param, code)


@pytest.mark.parametrize(
    "name",
    [
        "codex-0.169-demo-turn1",
        "codex-0.169-demo-turn2",
        "codex-0.169-gpt-5.5-turn1",
        "openai-agents-0.24-turn1",
    ],
)
def test_a_recorded_clients_request_is_read_and_goes_to_every_provider(name: str) -> None:
    if not CLIENTS.exists():
        pytest.skip("../shared/dialect-streams is missing")
    body = json.loads((CLIENTS / f"{name}.json").read_text())["body"]
    request = read_request("responses", body)
    assert write_tools([t for t in request.tools if "item" not in t.outer]) == body.get("tools", [])
    texts = set(texts_of(request))
    for item in body["input"]:
        for part in item.get("content", []) if isinstance(item.get("content"), list) else ():
            assert any(part["text"] in text for text in texts)
    for dialect in ("openai", "anthropic", "responses"):
        out, done = sent(request, dialect, model="gpt-5-search-api" if dialect == "openai" else "")
        assert out["tools"] and not [n for n in done.dropped if n.startswith("input")]
    if "codex" in name:
        with pytest.raises(InvalidRequest, match=r'web_search = "disabled" in config\.toml'):
            sent(request, "responses", families=frozenset())


# --- to other dialects ---

HISTORY: list[Json] = [
    {
        "role": "user",
        "content": [
            {"type": "input_text", "text": "q"},
            {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
            {
                "type": "input_file",
                "filename": "a.pdf",
                "file_data": "data:application/pdf;base64,JVBERi0=",
            },
        ],
    },
    CARRIED[0],
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "let me"}],
    },
    {
        "type": "function_call",
        "call_id": "c1",
        "name": "look",
        "arguments": '{"a":1}',
        "namespace": "ns",
        "id": "fc_1",
    },
    {"type": "custom_tool_call", "call_id": "c2", "name": "free", "input": "text"},
    {"type": "function_call_output", "call_id": "c1", "output": "r1"},
    {
        "type": "custom_tool_call_output",
        "call_id": "c2",
        "output": [{"type": "input_text", "text": "r2"}],
    },
    {"role": "user", "content": "go on"},
]
TOOLS = [
    {"type": "namespace", "name": "ns", "tools": [FUNCTION]},
    {"type": "custom", "name": "free"},
]


def test_a_history_becomes_messages_of_chat() -> None:
    out, done = sent(
        read(
            instructions="be good",
            input=HISTORY,
            tools=TOOLS,
            text={"verbosity": "low"},
            max_output_tokens=9,
        ),
        "openai",
    )
    roles = [m["role"] for m in out["messages"]]
    assert roles == ["developer", "user", "assistant", "tool", "tool", "user"]
    assert [p["type"] for p in out["messages"][1]["content"]] == ["text", "image_url", "file"]
    calls = out["messages"][2]["tool_calls"]
    assert out["messages"][2]["content"] == "let me" and [c["id"] for c in calls] == ["c1", "c2"]
    names = done.restore.names
    assert (
        names[calls[0]["function"]["name"]] == "ns.look"
        and out["tools"][0]["function"]["name"] == calls[0]["function"]["name"]
    )
    assert out["verbosity"] == "low" and out["max_completion_tokens"] == 9 and done.dropped == ()


def test_a_history_becomes_messages_of_the_messages_dialect() -> None:
    out, done = sent(
        read(instructions="be good", input=HISTORY, tools=TOOLS, text={"verbosity": "low"}),
        "anthropic",
    )
    assert [m["role"] for m in out["messages"]] == ["user", "assistant", "user"] and out[
        "system"
    ] == [{"type": "text", "text": "be good"}]
    assert [b["type"] for b in out["messages"][1]["content"]] == ["text", "tool_use", "tool_use"]
    assert [b["type"] for b in out["messages"][2]["content"]] == [
        "tool_result",
        "tool_result",
        "text",
    ]
    assert done.dropped == ("text.verbosity",)


NOTICED: list[tuple[Json, str, str]] = [
    ({"truncation": "auto"}, "anthropic", "truncation"),
    ({"metadata": {"a": "b"}}, "openai", "metadata"),
    ({"prompt_cache_key": "k"}, "anthropic", "prompt_cache_key"),
    ({"reasoning": {"summary": "auto"}}, "openai", "reasoning.summary"),
    ({"reasoning": {"mode": "pro"}}, "anthropic", "reasoning.mode"),
    ({"max_tool_calls": 3}, "openai", "max_tool_calls"),
    ({"top_logprobs": 2}, "anthropic", "top_logprobs"),
    ({"context_management": [{"type": "compaction"}]}, "openai", "context_management"),
    (
        {"input": [{"role": "user", "content": "q"}, CARRIED[1], {"role": "user", "content": "q"}]},
        "openai",
        "input[].web_search_call",
    ),
    (
        {"input": [{"role": "user", "content": "q"}, CARRIED[1], {"role": "user", "content": "q"}]},
        "anthropic",
        "input[].web_search_call",
    ),
]


@pytest.mark.parametrize(
    ("fields", "dialect", "name"), NOTICED, ids=[f"{n}-{d}" for _, d, n in NOTICED]
)
def test_what_another_dialect_has_no_word_for_is_noted(
    fields: Json, dialect: str, name: str
) -> None:
    assert name in sent(read(**fields), dialect)[1].dropped


def test_a_search_and_an_mcp_server_become_those_of_the_messages_dialect() -> None:
    tools = [
        {
            "type": "web_search",
            "filters": {"allowed_domains": ["example.com"]},
            "search_context_size": "high",
        },
        {"type": "code_interpreter", "container": {"type": "auto"}},
        {
            "type": "mcp",
            "server_label": "deep",
            "server_url": "https://example.com/mcp",
            "require_approval": "never",
        },
    ]
    out, _ = sent(read(tools=tools, max_tool_calls=2), "anthropic")
    assert [t["type"] for t in out["tools"]] == [
        "web_search_20250305",
        "code_execution_20250825",
        "mcp_toolset",
    ]
    assert (out["tools"][0]["allowed_domains"], out["tools"][0]["max_uses"]) == (["example.com"], 2)
    assert out["mcp_servers"] == [{"type": "url", "url": "https://example.com/mcp", "name": "deep"}]


CANNOT: list[tuple[Json, str]] = [
    ({"tools": [{"type": "apply_patch"}]}, "tools"),
    ({"tools": [{"type": "file_search", "vector_store_ids": ["v"]}]}, "tools"),
    (
        {
            "tools": [
                {
                    "type": "mcp",
                    "server_label": "d",
                    "server_url": "https://example.com",
                    "require_approval": "always",
                }
            ]
        },
        "tools",
    ),
    (
        {"tools": [FUNCTION, {"type": "web_search"}], "tool_choice": {"type": "web_search"}},
        "tool_choice",
    ),
    (
        {
            "input": [
                {"role": "user", "content": "q"},
                {"type": "shell_call", "call_id": "c", "action": {}},
            ]
        },
        "input",
    ),
    ({"input": [{"role": "user", "content": "q"}, CARRIED[3]]}, "input"),
    ({"input": [{"role": "user", "content": "q"}, CARRIED[6]]}, "input"),
    (
        {
            "input": [
                {
                    "role": "user",
                    "content": [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}],
                }
            ]
        },
        "input",
    ),
    ({"moderation": {"model": "m"}}, "moderation"),
    ({"reasoning": {"effort": "strange"}}, "reasoning"),
]


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
@pytest.mark.parametrize(("fields", "param"), CANNOT, ids=[json.dumps(f)[:50] for f, _ in CANNOT])
def test_what_would_change_the_meaning_is_refused_by_name(
    fields: Json, param: str, dialect: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        sent(read(**fields), dialect)
    assert refused.value.param == param
    assert "messages" not in refused.value.message, "which is another dialect's word"


FAMILY: list[Json] = [
    *(
        {"tools": [{"type": kind}]}
        for kind in (
            "web_search",
            "web_search_preview",
            "file_search",
            "code_interpreter",
            "image_generation",
        )
    ),
    {"tools": [{"type": "mcp", "server_label": "d", "server_url": "https://example.com"}]},
    {"tools": [{"type": "shell", "environment": {"type": "container_auto"}}]},
    {"tools": [{**FUNCTION, "allowed_callers": ["programmatic"]}]},
    {"input": [{"type": "additional_tools", "tools": [{"type": "web_search"}]}]},
    {"input": [brings(MCP, execution="server")]},
    {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]},
    {
        "input": [
            {
                "type": "function_call_output",
                "call_id": "c",
                "output": [{"type": "input_image", "file_id": "f"}],
            }
        ]
    },
    {"input": [CARRIED[2]]},
    {"access_programs": {"cyber": "standard"}},
]


@pytest.mark.parametrize("dialect", ["responses", "openai", "anthropic"])
@pytest.mark.parametrize("fields", FAMILY, ids=[json.dumps(f)[:60] for f in FAMILY])
def test_what_a_provider_runs_needs_its_family_whatever_the_provider_speaks(
    fields: Json, dialect: str
) -> None:
    with pytest.raises(InvalidRequest, match="is not allowed with this key"):
        sent(read(**fields), dialect, families=frozenset())


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_image", "image_url": "http://169.254.169.254/latest"},
        {"type": "input_file", "file_url": "http://localhost/x"},
    ],
)
def test_urls_of_the_own_network_are_refused(part: Json) -> None:
    for items in (
        [{"role": "user", "content": [part]}],
        [{"type": "function_call_output", "call_id": "c", "output": [part]}],
    ):
        with pytest.raises(InvalidRequest, match="own network"):
            refuse_private(read(input=items))


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "mcp", "server_label": "a", "server_url": "http://169.254.169.254/latest"},
        {"type": "image_generation", "input_image_mask": {"image_url": "http://localhost/x"}},
    ],
)
def test_tools_reach_nothing_in_the_own_network(tool: Json) -> None:
    with pytest.raises(InvalidRequest, match="own network") as refused:
        refuse_private(read(tools=[tool]))
    assert refused.value.param == "tools"
    refuse_private(
        read(
            tools=[
                FUNCTION,
                {"type": "mcp", "server_label": "a", "server_url": "https://mcp.example.com/sse"},
            ]
        )
    )


def test_a_label_is_of_one_server() -> None:
    first = {"type": "mcp", "server_label": "a", "server_url": "https://a.example/x"}
    assert (
        len(
            read(
                tools=[
                    first,
                    {"type": "mcp", "server_label": "b", "server_url": "https://b.example/x"},
                ]
            ).tools
        )
        == 2
    )
    with pytest.raises(InvalidRequest, match="same name"):
        read(tools=[first, first | {"server_url": "https://b.example/x"}])


def test_half_of_a_conversation_goes_to_no_provider() -> None:
    for dialect in ("responses", "openai", "anthropic"):
        with pytest.raises(InvalidRequest) as refused:
            sent(read(previous_response_id="resp_1"), dialect)
        assert refused.value.error_code == "previous_response_not_found"


# --- what policies see and change ---

WORD = "sesame"
PLACES: list[Json] = [
    {"instructions": WORD},
    {"metadata": {"a": WORD}},
    {"user": WORD},
    {"safety_identifier": WORD},
    {"tools": [{**FUNCTION, "description": WORD}]},
    {"tools": [{"type": "custom", "name": "f", "description": WORD}]},
    {"tools": [{"type": "namespace", "name": "ns", "description": WORD, "tools": [FUNCTION]}]},
    {"tools": [{"type": "namespace", "name": "ns", "tools": [{**FUNCTION, "description": WORD}]}]},
    {
        "tools": [
            {
                "type": "tool_search",
                "execution": "client",
                "description": WORD,
                "parameters": {"type": "object"},
            }
        ]
    },
    {
        "tools": [
            {**FUNCTION, "parameters": {"type": "object", "properties": {WORD: {"type": "string"}}}}
        ]
    },
    {
        "text": {
            "format": {
                "type": "json_schema",
                "name": "a",
                "schema": {"type": "object", "description": WORD},
            }
        }
    },
    *(
        {"input": [{"role": "user", "content": "q"}, item]}
        for item in (
            {"role": "user", "content": WORD},
            {"role": "developer", "content": WORD},
            {"role": "assistant", "content": WORD},
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "ses"},
                    {"type": "input_text", "text": "ame"},
                ],
            },
            {
                "role": "user",
                "content": [{"type": "input_image", "image_url": f"https://example.com/{WORD}"}],
            },
            {
                "role": "user",
                "content": [
                    {"type": "input_file", "filename": WORD, "file_url": "https://example.com"}
                ],
            },
            {"role": "assistant", "content": [{"type": "refusal", "refusal": WORD}]},
            {
                "type": "function_call",
                "call_id": "c",
                "name": "f",
                "arguments": '{"a":"\\u0073esame"}',
            },
            {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": WORD},
            {"type": "function_call_output", "call_id": "c", "output": WORD},
            {
                "type": "function_call_output",
                "call_id": "c",
                "output": [{"type": "input_text", "text": WORD}],
            },
            {"type": "shell_call", "call_id": "c", "action": {"commands": [WORD]}},
            {
                "type": "shell_call_output",
                "call_id": "c",
                "output": [{"stdout": WORD, "stderr": "", "outcome": {"type": "timeout"}}],
            },
            {
                "type": "apply_patch_call",
                "call_id": "c",
                "status": "completed",
                "operation": {"type": "delete_file", "path": WORD},
            },
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": WORD}]},
            {
                "type": "reasoning",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": WORD}],
            },
            {
                "type": "web_search_call",
                "id": "w",
                "status": "completed",
                "action": {"type": "search", "query": WORD},
            },
            {
                "type": "mcp_call",
                "id": "m",
                "name": "f",
                "server_label": "s",
                "arguments": '{"a":"\\u0073esame"}',
                "output": WORD,
            },
            {
                "type": "additional_tools",
                "role": "developer",
                "tools": [{**FUNCTION, "description": WORD}],
            },
            {
                "type": "tool_search_output",
                "call_id": "c",
                "execution": "client",
                "tools": [{**FUNCTION, "description": WORD}],
            },
        )
    ),
]


@pytest.mark.parametrize("fields", PLACES, ids=[json.dumps(f)[:110] for f in PLACES])
def test_every_text_is_seen_and_what_a_policy_takes_out_reaches_no_provider(
    fields: Json,
) -> None:
    request = read(**fields)
    assert any(WORD in text for text in texts_of(request))
    given = copied(request)
    assert given.echo == {}
    changed = reconciled(given, map_texts(given, lambda text: text.replace(WORD, "redacted")))
    for dialect in ("responses", "openai", "anthropic"):
        try:
            out, _ = sent(changed, dialect)
        except InvalidRequest:
            assert dialect != "responses"
            continue
        said = json.dumps(out)
        assert WORD not in said and "u0073" not in said


def test_tools_that_items_bring_follow_the_list_and_the_list_follows_them() -> None:
    item = {
        "type": "additional_tools",
        "role": "developer",
        "tools": [FUNCTION, {**FUNCTION, "name": "other"}],
    }
    request = read(input=[{"role": "user", "content": "q"}, item])
    fewer = ChatRequest(
        **{n: getattr(request, n) for n in ChatRequest.__struct_fields__}
        | {"tools": request.tools[:1]}
    )
    part = reconciled(request, fewer).turns[1].parts[0]
    assert isinstance(part, OtherPart) and part.body["tools"] == [FUNCTION]
    told = OtherPart("additional_tools", item | {"tools": [FUNCTION]}, "responses")
    turns = (request.turns[0], type(request.turns[1])("user", (told,)))
    less = ChatRequest(
        **{n: getattr(request, n) for n in ChatRequest.__struct_fields__} | {"turns": turns}
    )
    assert [t.name for t in reconciled(request, less).tools] == ["look"]


@pytest.mark.parametrize("execution", ["", "client", "server"])
def test_what_a_provider_is_told_of_its_tools_is_in_the_list_of_tools(execution: str) -> None:
    item = brings({**MCP, "defer_loading": True}, FUNCTION, execution=execution)
    items = [{"role": "user", "content": "q"}, *([searched(execution)] if execution else []), item]
    request = read(input=items)
    assert (
        "mcp_box" in [t.name for t in request.tools]
        and sent(request, "responses")[0].keys() & {"tools"} == set()
    )
    again = reconciled(request, msgspec.structs.replace(request, temperature=0.5))
    assert again.tools == request.tools and sent(again, "responses")[0]["input"][-1] == item
    offered = read(input=items, tools=[MCP])
    assert [t.name for t in offered.tools if t.kind == "server"] == ["mcp_box"]
    assert sent(offered, "responses")[0]["tools"] == [MCP]
    # a policy that takes a server away means all places where it stands
    if execution != "server":
        without = msgspec.structs.replace(
            request, tools=tuple(t for t in request.tools if t.kind != "server")
        )
        assert "mcp" not in json.dumps(sent(reconciled(request, without), "responses")[0])
    for one in (request, offered) if execution == "server" else (offered,):
        with pytest.raises(Unclear, match="stands in an item"):
            reconciled(
                one,
                msgspec.structs.replace(
                    one, tools=tuple(t for t in one.tools if t.kind != "server")
                ),
            )


def test_what_a_policy_cannot_mean_is_refused() -> None:
    request = read(previous_response_id="resp_1")
    fields = {n: getattr(request, n) for n in ChatRequest.__struct_fields__}
    changes: list[Json] = [{"state": None}, {"web_search": {}}, {"extra": {"input": "x"}}]
    for change in changes:
        with pytest.raises(Unclear):
            reconciled(request, ChatRequest(**fields | change))
