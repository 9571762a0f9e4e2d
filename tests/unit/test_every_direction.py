"""Tools, choices, forms of the answer, searches and families: what each client's words become at
each provider. A cell is a place of the written body, or what is refused or left out, by the
client's own name of it. And no field of a request is lost without a word.
"""

import contextlib
import json
from typing import Any

import pytest

from protocol import codecs
from protocol.dialects.table import CLIENTS, DIALECTS
from protocol.errors import InvalidRequest
from protocol.target import Target
from providers.doors import vertex
from settings import config_faults
from tests.support.checks.markdown import DOCS, names, tables
from tests.support.json_values import Json, as_json
from tests.support.request_codecs import read_request

MODELS = {
    "openai": "gpt-4.1",
    "anthropic": "claude-sonnet-4-5",
    "responses": "gpt-5",
    "gemini": "gemini-3-flash",
    "converse": "us.amazon.nova-2-lite-v1:0",
}
SCHEMA: Json = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
BASES: dict[str, Json] = {
    "openai": {"messages": [{"role": "user", "content": "hi"}]},
    "anthropic": {"max_tokens": 4000, "messages": [{"role": "user", "content": "hi"}]},
    "responses": {"input": "hi"},
}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def tools(**beside: Any) -> dict[str, Json]:
    """Two functions, as each client offers them."""
    named = [{"name": name, "description": "d", **beside} for name in ("weather", "clock")]
    return {
        "openai": {
            "tools": [{"type": "function", "function": {**t, "parameters": SCHEMA}} for t in named]
        },
        "anthropic": {"tools": [{**t, "input_schema": SCHEMA} for t in named]},
        "responses": {
            "tools": [
                {"type": "function", "strict": False, **t, "parameters": SCHEMA} for t in named
            ]
        },
    }


TOOLS, SEARCH = tools(), {"type": "web_search_20250305", "name": "web_search"}


def write(
    client: str, body: Json, upstream: str, families: tuple[str, ...] = ()
) -> tuple[Json, tuple[str, ...]]:
    """The body for the provider and what was left out. Raises InvalidRequest."""
    searches = upstream == "openai" and "web_search" in families
    said = (
        {"model": "gpt-4o-search-preview" if searches else MODELS[upstream]} | BASES[client] | body
    )
    request = read_request(client, said)
    made = codecs.encode_request(request, Target(dialect=upstream, families=frozenset(families)))
    return (said if made.body is None else json.loads(made.body)), made.dropped


def at(value: Any, path: str) -> Any:
    """What is at a path of names and numbers; None where nothing is."""
    for step in path.split("."):
        if isinstance(value, list):
            value = value[int(step)] if int(step) < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


def chosen(openai: Any, anthropic: Any, responses: Any) -> dict[str, Json]:
    said = {"openai": openai, "anthropic": anthropic, "responses": responses}
    return {
        client: TOOLS[client] | {"tool_choice": choice}
        for client, choice in said.items()
        if choice is not None
    }


def formed(kind: Json | None, with_tools: bool) -> dict[str, Json]:
    """An answer's form: json_object where `kind` is None, else json_schema with what `kind`
    says."""
    schema = {"name": "a", "schema": SCHEMA, **(kind or {})}
    openai = (
        {"type": "json_object"} if kind is None else {"type": "json_schema", "json_schema": schema}
    )
    responses = {"type": "json_object"} if kind is None else {"type": "json_schema", **schema}
    said: dict[str, Json] = {
        "openai": {"response_format": openai},
        "responses": {"text": {"format": responses}},
    }
    if kind is not None:
        said["anthropic"] = {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}
    return {client: (TOOLS[client] if with_tools else {}) | body for client, body in said.items()}


def searched(tool: Json, **options: Any) -> dict[str, Json]:
    return {
        "openai": {"web_search_options": options},
        "anthropic": {"tools": [SEARCH | tool]},
        "responses": {"tools": [{"type": "web_search", **options}]},
    }


def both(one: dict[str, Json], more: dict[str, Json]) -> dict[str, Json]:
    """The fields of both, with the tools of both."""
    made = {c: one[c] | more[c] for c in sorted(one.keys() & more.keys())}
    return {
        c: (
            body
            | (
                {"tools": [*one[c].get("tools", ()), *more[c].get("tools", ())]}
                if "tools" in body
                else {}
            )
        )
        for c, body in made.items()
    }


SHOWN = "toolConfig.includeServerSideToolInvocations"
CHOICE, CALLING = "toolConfig.toolChoice", "toolConfig.functionCallingConfig"
PARALLEL = {
    "anthropic": "tool_choice.disable_parallel_tool_use",
    "openai": "parallel_tool_calls",
    "responses": "parallel_tool_calls",
}
FUNCTION = {"type": "function", "name": "weather"}
ALLOWED = {"type": "allowed_tools", "mode": "required", "tools": [FUNCTION]}
NESTED = {"type": "function", "function": {"name": "weather"}}
ALLOWED_CHAT = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NESTED]}}
RESULT = {
    "anthropic": (
        TOOLS["anthropic"]
        | {
            "messages": [
                {"role": "user", "content": "hi"},
                {
                    "role": "assistant",
                    "content": [
                        {
                            "type": "tool_use",
                            "id": "call_1",
                            "name": "weather",
                            "input": {"city": "Oslo"},
                        }
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "call_1",
                            "content": [
                                {
                                    "type": "image",
                                    "source": {
                                        "type": "base64",
                                        "media_type": "image/png",
                                        "data": PNG,
                                    },
                                }
                            ],
                        }
                    ],
                },
            ]
        }
    ),
    "responses": (
        TOOLS["responses"]
        | {
            "input": [
                {"role": "user", "content": "hi"},
                {
                    "type": "function_call",
                    "call_id": "call_1",
                    "name": "weather",
                    "arguments": '{"city": "Oslo"}',
                },
                {
                    "type": "function_call_output",
                    "call_id": "call_1",
                    "output": [
                        {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"}
                    ],
                },
            ]
        }
    ),
}
MCP: dict[str, Json] = {
    "anthropic": {
        "mcp_servers": [{"type": "url", "name": "m", "url": "https://m.example"}],
        "tools": [{"type": "mcp_toolset", "mcp_server_name": "m"}],
    },
    "responses": {
        "tools": [
            {
                "type": "mcp",
                "server_label": "m",
                "server_url": "https://m.example",
                "require_approval": "never",
            }
        ]
    },
}
CODE: dict[str, Json] = {
    "anthropic": {"tools": [{"type": "code_execution_20250825", "name": "code_execution"}]},
    "responses": {"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]},
}
FETCH: dict[str, Json] = {
    "anthropic": {"tools": [{"type": "web_fetch_20250910", "name": "web_fetch"}]}
}
FILES: dict[str, Json] = {
    "responses": {"tools": [{"type": "file_search", "vector_store_ids": ["v"]}]}
}
IMAGES: dict[str, Json] = {"responses": {"tools": [{"type": "image_generation"}]}}
GRAMMAR = {"syntax": "lark", "definition": 'start: "a"'}
CUSTOM = {
    "openai": {
        "tools": [
            {
                "type": "custom",
                "custom": {"name": "c", "format": {"type": "grammar", "grammar": GRAMMAR}},
            }
        ]
    },
    "responses": {
        "tools": [{"type": "custom", "name": "c", "format": {"type": "grammar", **GRAMMAR}}]
    },
}
PLACE = {"type": "approximate", "country": "NO"}
LOCATED = searched({"user_location": PLACE}, user_location=PLACE) | {
    "openai": {
        "web_search_options": {
            "user_location": {"type": "approximate", "approximate": {"country": "NO"}}
        }
    }
}
NO_CALL: dict[str, Json] = {
    "openai": {"tool_choice": "none"},
    "anthropic": {"tool_choice": {"type": "none"}},
    "responses": {"tool_choice": "none"},
}
SEARCHES = ("web_search",)
WHERE = {"openai": "web_search_options", "anthropic": "tools", "responses": "tools"}
Cell = Any
"""(place, value), `...` for anything there; "refused: NAME" or "dropped: NAME"; or these by client.
NAME, too, may be by client."""
ROWS: list[tuple[str, dict[str, Json], tuple[str, ...], tuple[Cell, Cell, Cell, Cell, Cell]]] = [
    # feature, how each client says it, families, and at openai, anthropic, responses, gemini,
    # converse
    (
        "tools",
        TOOLS,
        (),
        (
            ("tools.1.function.parameters", SCHEMA),
            ("tools.1.input_schema", SCHEMA),
            ("tools.1.parameters", SCHEMA),
            ("tools.0.functionDeclarations.1.parametersJsonSchema", SCHEMA),
            ("toolConfig.tools.1.toolSpec.inputSchema.json", SCHEMA),
        ),
    ),
    (
        "strict",
        tools(strict=True),
        (),
        (
            ("tools.0.function.strict", True),
            ("tools.0.strict", True),
            ("tools.0.strict", True),
            (f"{CALLING}.mode", "VALIDATED"),
            "dropped: tools[].strict",
        ),
    ),
    (
        "auto",
        chosen("auto", {"type": "auto"}, "auto"),
        (),
        (
            ("tool_choice", "auto"),
            ("tool_choice.type", "auto"),
            ("tool_choice", "auto"),
            (f"{CALLING}.mode", "AUTO"),
            (CHOICE, None),
        ),
    ),
    (
        "none",
        chosen("none", {"type": "none"}, "none"),
        (),
        (
            ("tool_choice", "none"),
            ("tool_choice.type", "none"),
            ("tool_choice", "none"),
            (f"{CALLING}.mode", "NONE"),
            ("toolConfig", None),
        ),
    ),
    (
        "required",
        chosen("required", {"type": "any"}, "required"),
        (),
        (
            ("tool_choice", "required"),
            ("tool_choice.type", "any"),
            ("tool_choice", "required"),
            (CALLING, {"mode": "ANY"}),
            (CHOICE, {"any": {}}),
        ),
    ),
    (
        "named",
        chosen(NESTED, {"type": "tool", "name": "weather"}, FUNCTION),
        (),
        (
            ("tool_choice", NESTED),
            ("tool_choice", {"type": "tool", "name": "weather"}),
            ("tool_choice", FUNCTION),
            (CALLING, {"mode": "ANY", "allowedFunctionNames": ["weather"]}),
            (CHOICE, {"tool": {"name": "weather"}}),
        ),
    ),
    (
        "allowed",
        chosen(ALLOWED_CHAT, None, ALLOWED),
        (),
        (
            {"openai": ("tool_choice", ALLOWED_CHAT), "responses": ("tools.1", None)},
            ("tools.1", None),
            ("tool_choice", ALLOWED),
            (CALLING, {"mode": "ANY", "allowedFunctionNames": ["weather"]}),
            ("toolConfig.tools.1", None),
        ),
    ),
    (
        "one call at a time",
        {
            "openai": TOOLS["openai"] | {"parallel_tool_calls": False},
            "responses": TOOLS["responses"] | {"parallel_tool_calls": False},
            "anthropic": (
                TOOLS["anthropic"]
                | {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
            ),
        },
        (),
        (
            ("parallel_tool_calls", False),
            ("tool_choice.disable_parallel_tool_use", True),
            ("parallel_tool_calls", False),
            ("dropped", PARALLEL),
            ("dropped", PARALLEL),
        ),
    ),
    (
        "json_object",
        formed(None, False),
        (),
        (
            ("response_format", {"type": "json_object"}),
            ("tool_choice.name", "json_response"),
            ("text.format", {"type": "json_object"}),
            ("generationConfig.responseMimeType", "application/json"),
            (CHOICE, {"tool": {"name": "json_response"}}),
        ),
    ),
    (
        "json_object and tools",
        formed(None, True),
        (),
        (
            ("response_format", {"type": "json_object"}),
            ("system.0.text", ...),
            ("text.format", {"type": "json_object"}),
            ("generationConfig.responseMimeType", "application/json"),
            ("system.0.text", ...),
        ),
    ),
    *(
        (
            f"json_schema strict {strict} tools {beside}",
            formed({"strict": strict}, beside),
            (),
            (
                {
                    "openai": ("response_format.json_schema.strict", strict),
                    "responses": ("response_format.json_schema.strict", strict),
                    "anthropic": ("response_format.json_schema.strict", True),
                },
                ("output_config.format.schema", SCHEMA),
                {
                    "openai": ("text.format.strict", strict),
                    "responses": ("text.format.strict", strict),
                    "anthropic": ("text.format.strict", True),
                },
                ("generationConfig.responseJsonSchema", SCHEMA),
                (f"toolConfig.tools.{2 if beside else 0}.toolSpec.name", "json_response"),
            ),
        )
        for strict in (True, False)
        for beside in (True, False)
    ),
    (
        "image in a result",
        RESULT,
        (),
        (
            ("messages.3.content.1.type", "image_url"),
            ("messages.2.content.0.content.0.type", "image"),
            ("input.2.output.0.type", "input_image"),
            ("contents.2.parts.0.functionResponse.parts.0.inlineData.mimeType", "image/png"),
            ("messages.2.content.0.toolResult.content.0.image.format", "png"),
        ),
    ),
    (
        "search",
        searched({}),
        SEARCHES,
        (
            ("web_search_options", {}),
            ("tools.0.type", "web_search_20250305"),
            ("tools.0.type", "web_search"),
            ("tools", [{"googleSearch": {}}]),
            ("toolConfig.tools.0.systemTool.name", "nova_grounding"),
        ),
    ),
    (
        "search for few pages",
        searched({"max_uses": 1}, search_context_size="low"),
        SEARCHES,
        (
            {
                "openai": ("web_search_options.search_context_size", "low"),
                "anthropic": "dropped: tools[].max_uses",
                "responses": ("web_search_options.search_context_size", "low"),
            },
            ("tools.0.max_uses", 1),
            {
                "openai": ("tools.0.search_context_size", "low"),
                "anthropic": ("tools.0.search_context_size", "low"),
                "responses": ("tools.0.search_context_size", "low"),
            },
            *(
                (
                    (
                        "dropped",
                        {
                            "openai": "web_search_options.search_context_size",
                            "anthropic": "tools[].max_uses",
                            "responses": "tools[].search_context_size",
                        },
                    ),
                )
                * 2
            ),
        ),
    ),
    (
        "search from a place",
        LOCATED,
        SEARCHES,
        (
            ("web_search_options.user_location.approximate.country", "NO"),
            ("tools.0.user_location.country", "NO"),
            ("tools.0.user_location.country", "NO"),
            (
                "dropped",
                {
                    "openai": "web_search_options.user_location",
                    "anthropic": "tools[].user_location",
                    "responses": "tools[].user_location",
                },
            ),
            ("refused", WHERE),
        ),
    ),
    (
        "search beside functions",
        both(TOOLS, searched({})),
        SEARCHES,
        (
            ("web_search_options", {}),
            ("tools.2.type", "web_search_20250305"),
            ("tools.2.type", "web_search"),
            (SHOWN, True),
            ("toolConfig.tools.2.systemTool.name", "nova_grounding"),
        ),
    ),
    (
        "search, but no call",
        both(both(TOOLS, searched({})), NO_CALL),
        SEARCHES,
        (
            {
                "openai": ("web_search_options", {}),
                "anthropic": ("web_search_options", None),
                "responses": ("web_search_options", None),
            },
            ("tool_choice.type", "none"),
            ("tool_choice", "none"),
            ("tools.1", None),
            ("toolConfig", None),
        ),
    ),
    (
        "code",
        CODE,
        ("code_execution",),
        (
            "refused: tools",
            ("tools.0.name", "code_execution"),
            ("tools.0.type", "code_interpreter"),
            ("tools.0.codeExecution", {}),
            ("toolConfig.tools.0.systemTool.name", "nova_code_interpreter"),
        ),
    ),
    (
        "fetch",
        FETCH,
        ("web_fetch",),
        (
            "refused: tools",
            ("tools.0.name", "web_fetch"),
            "refused: tools",
            ("tools.0.urlContext", {}),
            "refused: tools",
        ),
    ),
    (
        "mcp",
        MCP,
        ("mcp",),
        (
            ("refused", {"anthropic": "mcp_servers", "responses": "tools"}),
            ("mcp_servers.0.url", "https://m.example"),
            ("tools.0.type", "mcp"),
            ("refused", {"anthropic": "mcp_servers", "responses": "tools"}),
            ("refused", {"anthropic": "mcp_servers", "responses": "tools"}),
        ),
    ),
    (
        "files",
        FILES,
        ("file_search",),
        (
            "refused: tools",
            "refused: tools",
            ("tools.0.type", "file_search"),
            "refused: tools",
            "refused: tools",
        ),
    ),
    (
        "grammar",
        CUSTOM,
        (),
        (
            ("tools.0.custom.format.grammar", GRAMMAR),
            {"openai": "refused: tools", "responses": "dropped: tools[].format"},
            ("tools.0.format", {"type": "grammar", **GRAMMAR}),
            {"openai": "refused: tools", "responses": "dropped: tools[].format"},
            {"openai": "refused: tools", "responses": "dropped: tools[].format"},
        ),
    ),
]
CELLS = [
    pytest.param(
        said[client], client, upstream, families, cell, id=f"{feature}: {client} to {upstream}"
    )
    for feature, said, families, row in ROWS
    for upstream, cell in zip(DIALECTS, row, strict=True)
    for client in said
]


@pytest.mark.parametrize(("body", "client", "upstream", "families", "cell"), CELLS)
def test_what_a_client_says_has_its_equal_or_a_name(
    body: Json, client: str, upstream: str, families: tuple[str, ...], cell: Cell
) -> None:
    cell = cell[client] if isinstance(cell, dict) else cell
    kind, value = cell.split(": ") if isinstance(cell, str) else cell
    value = value[client] if kind in ("refused", "dropped") and isinstance(value, dict) else value
    if kind == "refused":
        with pytest.raises(InvalidRequest) as refused:
            write(client, body, upstream, families)
        assert refused.value.param == value
        return
    written, dropped = write(client, body, upstream, families)
    if kind == "dropped":
        assert value in dropped
        return
    found = at(written, kind)
    assert found is not None if value is ... else found == value
    assert set(dropped) <= {"thought_signature"}


PROVIDED = [
    (client, said[client])
    for said in (
        searched({}),
        CODE,
        FETCH,
        MCP,
        FILES,
        IMAGES,
        {"anthropic": {"mcp_servers": MCP["anthropic"]["mcp_servers"]}},
    )
    for client in said
]


@pytest.mark.parametrize(("client", "body"), PROVIDED)
def test_without_its_family_no_tool_of_a_provider_goes_anywhere(client: str, body: Json) -> None:
    for upstream in DIALECTS:
        with pytest.raises(InvalidRequest) as refused:
            write(client, body, upstream)
        assert refused.value.param in body, upstream


FIELDS: dict[str, Json] = {
    "openai": {
        "temperature": 0.5,
        "top_p": 0.5,
        "stop": ["x"],
        "max_tokens": 99,
        "max_completion_tokens": 98,
        "user": "u",
        "safety_identifier": "s",
        "seed": 1,
        "logit_bias": {"1": 1},
        "frequency_penalty": 0.5,
        "presence_penalty": 0.5,
        "metadata": {"a": "b"},
        "store": True,
        "service_tier": "priority",
        "reasoning_effort": "high",
        "verbosity": "low",
        "logprobs": True,
        "prompt_cache_key": "k",
        "prompt_cache_retention": "24h",
        "prediction": {"type": "content", "content": "x"},
        "modalities": ["text"],
        "top_k": 3,
        "response_format": {"type": "json_object"},
        "parallel_tool_calls": False,
        "tool_choice": "none",
        "web_search_options": {},
        "cache_control": {"type": "ephemeral"},
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "moderation": {"a": 1},
        "mcp_servers": [{"type": "url", "name": "m", "url": "https://m.example"}],
        "stream": True,
    },
    "anthropic": {
        "temperature": 0.5,
        "top_p": 0.5,
        "top_k": 4,
        "stop_sequences": ["x"],
        "metadata": {"user_id": "u"},
        "system": "s",
        "speed": "fast",
        "service_tier": "standard_only",
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "output_config": {"effort": "low"},
        "cache_control": {"type": "ephemeral"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015"}]},
        "container": "c",
        "mcp_servers": MCP["anthropic"]["mcp_servers"],
        "tool_choice": {"type": "none"},
        "inference_geo": "eu",
        "stream": True,
        "diagnostics": {"previous_message_id": "m"},
        "output_format": {"type": "json_schema", "schema": SCHEMA},
    },
    "responses": {
        "temperature": 0.5,
        "top_p": 0.5,
        "instructions": "i",
        "max_output_tokens": 99,
        "max_tool_calls": 3,
        "metadata": {"a": "b"},
        "user": "u",
        "safety_identifier": "s",
        "prompt_cache_key": "k",
        "prompt_cache_retention": "24h",
        "service_tier": "priority",
        "text": {"verbosity": "low"},
        "reasoning": {"effort": "high"},
        "top_logprobs": 2,
        "truncation": "auto",
        "background": True,
        "context_management": [{"type": "compaction", "compact_threshold": 1000}],
        "include": ["message.output_text.logprobs"],
        "parallel_tool_calls": False,
        "tool_choice": "none",
        "conversation": "c",
        "prompt": {"id": "p"},
        "store": False,
        "image": {"a": 1},
        "moderation": {"a": 1},
        "access_programs": ["x"],
        "prompt_cache_options": {"a": "b"},
        "stream_options": {"include_obfuscation": False},
        "stream": True,
    },
}
NO_MEANING = {
    # of answers with sound in them, which nobody relays; and what is for the gateway alone
    ("openai", "modalities"),
    ("responses", "store"),
    ("responses", "stream_options"),
}
DROPPED = tables(
    (DOCS / "change" / "protocol.md").read_text(encoding="utf-8"), "1.16 Names in x-sluice-dropped"
)[0][1:]
STREAMS_IN_PATH = ("gemini", "converse")


def refused_name(client: str, body: Json, upstream: str) -> str | None:
    try:
        write(client, body, upstream)
    except InvalidRequest as error:
        return error.param or "?"
    return None


@pytest.mark.parametrize(
    ("client", "name"), [(client, name) for client, said in FIELDS.items() for name in said]
)
def test_no_field_is_lost_without_a_word(client: str, name: str) -> None:
    for upstream in DIALECTS:
        if (client, name) in NO_MEANING or (name == "stream" and upstream in STREAMS_IN_PATH):
            continue
        beside = TOOLS[client] if name in ("parallel_tool_calls", "tool_choice") else {}
        body = beside | {name: FIELDS[client][name]}
        if (refused := refused_name(client, body, upstream)) is not None:
            assert refused == name, upstream
            continue
        written, dropped = write(client, body, upstream)
        assert all(one.split(".")[0] == name for one in dropped), upstream
        assert dropped or written != write(client, beside, upstream)[0], upstream
        # an option of the neutral form never goes out as it is
        assert '"meaning"' not in json.dumps(written), upstream


@pytest.mark.parametrize(
    ("client", "upstream"), [(one, other) for one in CLIENTS for other in DIALECTS if one != other]
)
def test_the_page_has_the_name_of_what_is_left_out(client: str, upstream: str) -> None:
    asked: list[tuple[Json, tuple[str, ...]]] = [
        (
            (TOOLS[client] if name in ("parallel_tool_calls", "tool_choice") else {})
            | {name: value},
            (),
        )
        for name, value in FIELDS[client].items()
    ]
    asked += [(said[client], families) for _, said, families, _ in ROWS if client in said]
    found = set[str]()
    for body, families in asked:
        with contextlib.suppress(InvalidRequest):
            found |= {*write(client, body, upstream, families)[1]}
    listed = {(*names(row[0]), *names(row[1])): names(row[2]) for row in DROPPED}
    assert listed.get((client, upstream), []) == sorted(found - {"thought_signature"})


@pytest.mark.parametrize(
    "dialect", [name for name, one in DIALECTS.items() if not one.takes_server_tools]
)
@pytest.mark.parametrize(
    ("setting", "value"),
    [("server_tools", [SEARCH]), ("mcp_servers", MCP["anthropic"]["mcp_servers"])],
)
def test_tools_that_an_operator_adds_are_refused_where_nothing_would_add_them(
    dialect: str, setting: str, value: Any
) -> None:
    route = {"match": "*", "upstream": "u", setting: value}
    faults = list(config_faults._faults_of_route(("models", 0), route, {"u": {"dialect": dialect}}))
    assert [place for place, _ in faults] == [("models", 0, setting)]


def test_every_client_has_its_fields_here() -> None:
    assert FIELDS.keys() == CLIENTS.keys() == TOOLS.keys()


def test_vertex_is_not_asked_to_show_each_step() -> None:
    functions = {"functionCallingConfig": {"mode": "ANY"}}
    body = write(
        "anthropic",
        TOOLS["anthropic"] | {"tools": [*TOOLS["anthropic"]["tools"], SEARCH]},
        "gemini",
        SEARCHES,
    )[0]
    assert at(body, SHOWN) is True
    for config, left in ((functions, functions), ({}, None)):
        sent = json.loads(
            vertex.without_shown(as_json(body | {"toolConfig": body["toolConfig"] | config}))
        )
        assert sent.get("toolConfig") == left and sent["tools"] == body["tools"]
    untouched = as_json({"contents": [{"parts": [{"text": "includeServerSideToolInvocations"}]}]})
    assert vertex.without_shown(untouched) == untouched
