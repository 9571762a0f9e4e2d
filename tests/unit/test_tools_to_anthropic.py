"""Tools, functions and the answer's form of chat/completions, as a Messages request says them."""

from typing import Any

import pytest

from protocol.dialects.openai_tools import CUSTOM_SCHEMA
from protocol.errors import InvalidRequest
from protocol.request import ToolUsePart
from tests.support.clients.to_anthropic import (
    ADAPTIVE,
    BUDGET,
    EPHEMERAL,
    LEGACY,
    OLD,
    OTHER,
    SCHEMA,
    SYSTEM,
    TOOL,
    UNKNOWN,
    USER,
    WRITTEN,
    call,
    cross,
    json_schema,
    read,
    refused,
    translate,
)
from tests.support.json_values import Json
from tests.support.request_codecs import sent_body

NEVER_FORCED = "claude-fable-5"

CLOSED = SCHEMA | {"additionalProperties": False}


def test_functions_are_tools_of_which_one_is_called() -> None:
    """LiteLLM answers 400."""
    request = read(LEGACY)
    assert request.legacy_functions
    body = cross(**LEGACY)
    assert body["tools"] == [WRITTEN]
    assert body["tool_choice"] == {"type": "tool", "name": "f", "disable_parallel_tool_use": True}
    pairs = [
        (m["content"][0]["id"], body["messages"][i + 1]["content"][0])
        for i, m in enumerate(body["messages"])
        if m["role"] == "assistant"
    ]
    assert pairs == [
        (
            "call_function_1",
            {"type": "tool_result", "tool_use_id": "call_function_1", "content": "1"},
        ),
        (
            "call_function_2",
            {"type": "tool_result", "tool_use_id": "call_function_2", "content": ""},
        ),
    ]
    assert cross(**LEGACY | {"function_call": None})["tool_choice"] == {
        "type": "auto",
        "disable_parallel_tool_use": True,
    }
    assert cross(**LEGACY | {"function_call": "none"})["tool_choice"] == {"type": "none"}


def test_made_up_ids_belong_to_nobody_else() -> None:
    messages = [
        USER,
        {
            "role": "assistant",
            "tool_calls": [call("call_function_1")],
            "function_call": {"name": "f", "arguments": ""},
        },
    ]
    assert [
        p.id for p in read({"messages": messages}).turns[1].parts if isinstance(p, ToolUsePart)
    ] == [
        "call_function_1",
        "call_function_2",
    ]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"functions": [TOOL["function"]], "tools": [TOOL]}, "functions"),
        ({"functions": [TOOL["function"]], "tool_choice": "auto"}, "tool_choice"),
        ({"functions": [TOOL["function"]], "function_call": "required"}, "function_call"),
        ({"functions": [TOOL["function"]], "function_call": {"name": ""}}, "function_call"),
        ({"functions": [TOOL["function"]], "function_call": {"name": "nobody"}}, "tool_choice"),
        ({"functions": ["x"]}, "functions"),
        ({"functions": [{"name": "f", "parameters": 7}]}, "functions"),
        ({"functions": [{"name": "f", "description": 7}]}, "functions"),
        ({"messages": [{"role": "function", "name": "f", "content": "1"}]}, "messages"),
        ({"messages": [{"role": "function", "content": "1"}]}, "messages"),
        (
            {"messages": [{"role": "assistant", "function_call": {"name": "f", "arguments": {}}}]},
            "messages",
        ),
    ],
)
def test_wrong_functions_are_named(body: Json, param: str) -> None:
    assert refused(**body) == param


# --- tools ---


def tools(*functions: Json, **body: Any) -> list[Json]:
    written: list[Json] = cross(
        tools=[{"type": "function", "function": f} for f in functions], **body
    )["tools"]
    return written


def test_a_tools_words_reach_the_provider() -> None:
    vendor = {
        "cache_control": EPHEMERAL,
        "allowed_callers": ["direct"],
        "input_examples": [{"city": "a"}],
        "eager_input_streaming": True,
    }
    assert tools({"name": "f", "description": "d", "parameters": SCHEMA, **vendor}) == [
        WRITTEN | vendor
    ]
    assert cross(tools=[TOOL | vendor])["tools"] == [WRITTEN | vendor]
    assert (
        cross(tools=[TOOL | {"defer_loading": True}, TOOL | {"function": OTHER["function"]}])[
            "tools"
        ][0]["defer_loading"]
        is True
    )
    done = translate(
        tools=[TOOL | {"defer_loading": True, "cache_control": EPHEMERAL, "colour": "red"}]
    )
    assert sent_body(done)["tools"] == [WRITTEN | {"defer_loading": True}]
    assert done.dropped == ("tools[].cache_control", "tools[].colour")


def test_strict_is_kept() -> None:
    """LiteLLM leaves it out."""
    strict = {
        "name": "f",
        "parameters": SCHEMA | {"properties": {"city": {"type": "string", "minLength": 2}}},
        "strict": True,
    }
    compiled = CLOSED | {"properties": {"city": {"type": "string", "description": "minLength: 2"}}}
    assert (
        tools(strict, model=BUDGET)
        == tools(strict)
        == [{"name": "f", "input_schema": compiled, "strict": True}]
    )
    assert tools(strict | {"strict": False}) == [
        {"name": "f", "input_schema": strict["parameters"]}
    ]
    for model, parameters in (
        (OLD, strict["parameters"]),
        (BUDGET, {"type": "object", "additionalProperties": True}),
    ):
        done = translate(
            model=model,
            tools=[{"type": "function", "function": strict | {"parameters": parameters}}],
        )
        assert sent_body(done)["tools"] == [{"name": "f", "input_schema": parameters}]
        assert done.dropped == ("tools[].strict",)


def test_a_choice_at_the_top_of_a_tools_schema_is_not_lost() -> None:
    """LiteLLM drops a oneOf there: the model is told of no argument at all."""
    schema = {
        "oneOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}},
            {"type": "object", "properties": {"b": {"type": "string"}}},
        ]
    }
    request = read(
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}]}
    )
    assert request.tools[0].schema == schema
    written = tools({"name": "f", "parameters": schema})[0]["input_schema"]
    assert not written.keys() & {"oneOf", "anyOf", "allOf"}
    assert written["properties"] == {"a": {"type": "string"}, "b": {"type": "string"}}
    assert (
        refused(
            tools=[
                {
                    "type": "function",
                    "function": {"name": "f", "parameters": {"oneOf": [{"type": "string"}]}},
                }
            ]
        )
        == "tools"
    )


def test_many_names_that_become_one_take_linear_time() -> None:
    names = ["a" + "!" * (i % 2) + chr(0x4E00 + i) for i in range(1_000)]
    done = translate(tools=[{"type": "function", "function": {"name": name}} for name in names])
    assert len(done.restore.names) == 1_000


CUSTOM = {
    "type": "custom",
    "custom": {"name": "run", "description": "d", "format": {"type": "text"}},
}


def test_custom_tools_are_functions_of_one_text() -> None:
    history = {
        "role": "assistant",
        "tool_calls": [
            {"id": "a", "type": "custom", "custom": {"name": "run", "input": 'say "hi"\n'}}
        ],
    }
    body: Json = {
        "tools": [CUSTOM],
        "tool_choice": {"type": "custom", "custom": {"name": "run"}},
        "messages": [USER, history, {"role": "tool", "tool_call_id": "a", "content": "ok"}],
    }
    request = read(body)
    assert (request.tools[0].kind, request.tools[0].schema) == ("custom", CUSTOM_SCHEMA)
    written = cross(**body)
    assert written["tools"] == [{"name": "run", "description": "d", "input_schema": CUSTOM_SCHEMA}]
    assert written["tool_choice"] == {"type": "tool", "name": "run"}
    assert written["messages"][1]["content"] == [
        {"type": "tool_use", "id": "a", "name": "run", "input": {"input": 'say "hi"\n'}}
    ]
    grammar = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: WORD"}}
    assert (
        refused(tools=[{"type": "custom", "custom": {"name": "run", "format": grammar}}]) == "tools"
    )


def test_a_provider_that_knows_tools_of_its_own_gets_them_where_the_key_may() -> None:
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 2}
    assert cross(tools=[TOOL, search])["tools"] == [WRITTEN, search]
    bash = {"type": "bash_20250124", "name": "bash"}
    assert cross(tools=[bash])["tools"] == [bash]
    assert [t.kind for t in read({"tools": [TOOL, search, bash, CUSTOM]}).tools] == [
        "function",
        "server",
        "client",
        "custom",
    ]
    with pytest.raises(InvalidRequest, match="web_search"):
        translate(tools=[search], families=frozenset())
    assert refused(tools=[{"type": "teleport"}]) == "tools"
    for bad in ({"type": 7}, {"type": "custom"}, {"type": "custom", "custom": {}}, 7):
        assert refused(tools=[bad]) == "tools"


BOTH = [TOOL, OTHER]


@pytest.mark.parametrize(
    ("choice", "offered"),
    [
        ({"type": "function", "function": {"name": "nobody"}}, BOTH),
        ({"type": "function", "function": {"name": "f"}}, None),
        ("required", None),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [{"function": {"name": "nobody"}}]},
            },
            BOTH,
        ),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}}, BOTH),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [7]}}, BOTH),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "sometimes", "tools": []}}, BOTH),
    ],
)
def test_a_choice_of_what_is_not_offered_is_refused(choice: Any, offered: Any) -> None:
    assert refused(tools=offered, tool_choice=choice) == "tool_choice"


@pytest.mark.parametrize(
    ("model", "effort", "expected", "dropped"),
    [
        (BUDGET, None, {"type": "any"}, ()),
        (BUDGET, "low", {"type": "auto"}, ("tool_choice",)),
        (BUDGET, "none", {"type": "any"}, ()),
        (ADAPTIVE, "low", {"type": "any"}, ()),
        (NEVER_FORCED, None, {"type": "auto"}, ("tool_choice",)),
    ],
)
def test_a_call_is_forced_where_the_model_takes_it_and_else_that_is_said(
    model: str, effort: Any, expected: Any, dropped: Any
) -> None:
    done = translate(
        model=model, reasoning_effort=effort, tools=BOTH, tool_choice="required", max_tokens=9000
    )
    assert (sent_body(done)["tool_choice"], done.dropped) == (expected, dropped)
    one = translate(
        model=model,
        reasoning_effort=effort,
        tools=BOTH,
        tool_choice="required",
        max_tokens=9000,
        parallel_tool_calls=False,
    )
    assert sent_body(one)["tool_choice"] == expected | {"disable_parallel_tool_use": True}


OPEN = {"type": "object", "additionalProperties": {"type": "string"}}
TREE = {
    "type": "object",
    "properties": {"left": {"$ref": "#/$defs/T"}},
    "$defs": {"T": {"type": "object", "properties": {"left": {"$ref": "#/$defs/T"}}}},
}


@pytest.mark.parametrize(
    ("model", "schema"), [(OLD, SCHEMA), (UNKNOWN, SCHEMA), (ADAPTIVE, OPEN), (ADAPTIVE, TREE)]
)
def test_else_it_is_the_schema_of_a_tool_that_must_be_called(model: str, schema: Json) -> None:
    done = translate(model=model, response_format=json_schema(schema, description="The weather."))
    body = sent_body(done)
    assert done.restore.json_tool == "json_response"
    assert [(t["name"], t["input_schema"]) for t in body["tools"]] == [("json_response", schema)]
    assert body["tools"][0]["description"].endswith("The weather.")
    assert body["tool_choice"] == {
        "type": "tool",
        "name": "json_response",
        "disable_parallel_tool_use": True,
    }
    assert "output_config" not in body


def test_the_clients_tools_stay_reachable_beside_a_form() -> None:
    """LiteLLM forces its own tool, and the client's are never called."""
    taken = [TOOL, {"type": "function", "function": {"name": "json_response"}}]
    done = translate(response_format=json_schema(), tools=taken)
    body = sent_body(done)
    assert [t["name"] for t in body["tools"]] == ["f", "json_response", "json_response_2"]
    assert (done.restore.json_tool, body["tool_choice"]) == (
        "json_response_2",
        {"type": "any", "disable_parallel_tool_use": True},
    )
    forced = translate(response_format=json_schema(), tools=[TOOL], tool_choice="required")
    assert (sent_body(forced)["tools"], forced.restore.json_tool) == ([WRITTEN], "")
    never = sent_body(translate(response_format=json_schema(), tools=[TOOL], tool_choice="none"))
    assert never["tool_choice"] == {
        "type": "tool",
        "name": "json_response",
        "disable_parallel_tool_use": True,
    }


@pytest.mark.parametrize(
    "body",
    [
        {"model": BUDGET, "reasoning_effort": "low", "response_format": json_schema(OPEN)},
        {"model": NEVER_FORCED, "response_format": json_schema(OPEN)},
        {"web_search_options": {}, "response_format": json_schema()},
    ],
)
def test_a_form_where_no_call_can_be_forced_is_asked_for(body: Json) -> None:
    done = translate(**body)
    written = sent_body(done)
    assert written["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert "json_response" in written["system"][-1]["text"]
    assert (done.restore.json_tool, done.dropped) == ("json_response", ())


def test_json_object_is_asked_for() -> None:
    """LiteLLM drops it without a word."""
    done = translate(model=ADAPTIVE, response_format={"type": "json_object"})
    body = sent_body(done)
    assert (done.restore.json_tool, body["tool_choice"]["name"]) == (
        "json_response",
        "json_response",
    )
    assert body["tools"][0]["input_schema"] == {"type": "object", "additionalProperties": True}
    beside = translate(
        response_format={"type": "json_object"}, tools=[TOOL], messages=[SYSTEM, USER]
    )
    body = sent_body(beside)
    assert (body["tools"], "tool_choice" in body, beside.restore.json_tool) == (
        [WRITTEN],
        False,
        "",
    )
    assert [block["text"][:16] for block in body["system"]] == ["s", "Unless you call "]
    assert "system" not in cross(response_format={"type": "text"})


@pytest.mark.parametrize(
    "value",
    [
        {"type": "grammar"},
        {"type": "json_schema"},
        {"type": "json_schema", "json_schema": {"schema": SCHEMA}},
        json_schema(7),
        json_schema(strict="yes"),
        json_schema({"type": "array", "items": {}}),
        "json",
    ],
)
def test_a_form_that_cannot_be_is_named(value: Any) -> None:
    assert refused(response_format=value) == "response_format"
