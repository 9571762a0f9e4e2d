"""Tools, names, ids and web search of a Messages request, as chat/completions says them."""

import json
from typing import Any

import msgspec
import pytest

from protocol import codecs
from protocol.dialects.table import CLIENTS
from protocol.errors import InvalidRequest
from protocol.requests.names import Names
from protocol.server_tools.data import table
from protocol.server_tools.typed import as_function
from protocol.target import Target
from tests.support.clients.to_openai import (
    CLOSED,
    SCHEMA,
    SEARCH,
    SEARCHING,
    TOOL,
    USER,
    read,
    result,
    said,
    translate,
    use,
    write,
)
from tests.support.json_values import Json, as_json
from tests.support.request_codecs import sent_body


def test_tools_are_functions_and_what_they_lose_is_noted() -> None:
    tool: Json = TOOL | {
        "type": "custom",
        "description": "d",
        "cache_control": {"type": "ephemeral"},
        "input_examples": [{}],
    }
    tool |= {
        "defer_loading": False,
        "allowed_callers": ["direct", "code_execution_20250825"],
        "eager_input_streaming": True,
    }
    translated = translate(tools=[tool])
    assert sent_body(translated)["tools"] == [
        {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}
    ]
    assert translated.dropped == (
        "cache_control",
        "tools[].input_examples",
        "tools[].eager_input_streaming",
        "tools[].allowed_callers",
    )


def test_strict_stays_where_it_is_legal() -> None:
    loose = translate(tools=[TOOL | {"strict": True}])
    assert sent_body(loose)["tools"][0]["function"] == {
        "name": "f",
        "parameters": SCHEMA,
    }
    assert loose.dropped == ("tools[].strict",)
    assert write(tools=[{"name": "f", "input_schema": CLOSED, "strict": True}])["tools"][0][
        "function"
    ] == {
        "name": "f",
        "parameters": CLOSED,
        "strict": True,
    }


@pytest.mark.parametrize(
    ("tool", "property_"),
    [
        ({"type": "bash_20250124", "name": "bash"}, "restart"),
        (
            {
                "type": "text_editor_20250728",
                "name": "str_replace_based_edit_tool",
                "max_characters": 900,
            },
            "insert_text",
        ),
        ({"type": "text_editor_20250124", "name": "str_replace_editor"}, "new_str"),
        ({"type": "memory_20250818", "name": "memory"}, "old_path"),
        (
            {
                "type": "computer_20251124",
                "name": "computer",
                "display_width_px": 800,
                "display_height_px": 600,
                "enable_zoom": True,
            },
            "region",
        ),
        (
            {
                "type": "computer_20241022",
                "name": "computer",
                "display_width_px": 800,
                "display_height_px": 600,
            },
            "coordinate",
        ),
    ],
)
def test_typed_client_tools_are_functions_of_the_same_name(tool: Json, property_: str) -> None:
    body = write(
        tools=[tool],
        messages=[USER, *said(use(name=tool["name"]), role="assistant"), *said(result("1"))],
    )
    function = body["tools"][0]["function"]
    assert (
        function["name"] == tool["name"]
        and property_ in function["parameters"]["properties"]
        and function["description"]
    )
    assert body["messages"][1]["tool_calls"][0]["function"]["name"] == tool["name"]


def test_typed_tools_differ_by_version() -> None:
    def schema(kind: str, **options: Any) -> str:
        tool = as_function(read(tools=[{"type": kind, "name": "n"} | options]).tools[0])
        assert tool is not None
        return tool.description + json.dumps(tool.schema)

    assert "undo_edit" in schema("text_editor_20250124") and "undo_edit" not in schema(
        "text_editor_20250429"
    )
    assert "insert_text" not in schema("text_editor_20241022")
    assert "900" in schema("text_editor_20250728", max_characters=900)
    assert "scroll" not in schema("computer_20241022").replace("clicks and scroll", "").replace(
        "actions and scroll", ""
    )
    assert "zoom" not in schema("computer_20251124") and "zoom" in schema(
        "computer_20251124", enable_zoom=True
    )
    known = [
        f"{r.prefix}_{v}"
        for r in table().tools
        if r.executor == "client" and "toolset" not in r.prefix
        for v in r.versions
    ]
    assert all(schema(kind) for kind in known)
    assert as_function(read(tools=[TOOL]).tools[0]) is None


def test_names_that_openai_refuses_are_mapped_both_ways() -> None:
    long = "mcp__" + "x" * 100
    tools = [TOOL | {"name": n} for n in (long, long + "y", "a.b", "a_b", "fine-1")]
    messages = [USER, *said(use(name="a.b"), use("u", "gone.away"), role="assistant")]
    translated = translate(
        tools=tools, messages=messages, tool_choice={"type": "tool", "name": long}
    )
    body = sent_body(translated)
    names = [t["function"]["name"] for t in body["tools"]]
    assert len(set(names)) == 5 and all(
        len(n) <= 64 and n.replace("-", "_").replace("_", "").isalnum() for n in names
    )
    assert names[3:] == ["a_b", "fine-1"]
    back = translated.restore.names
    assert [back.get(n, n) for n in names] == [long, long + "y", "a.b", "a_b", "fine-1"]
    assert body["tool_choice"]["function"]["name"] == names[0]
    assert [back[c["function"]["name"]] for c in body["messages"][1]["tool_calls"]] == [
        "a.b",
        "gone.away",
    ]
    alone = Names(["a.b"]).upstream("a.b")
    assert alone == names[2], "the name must not depend on what else is offered"
    assert Names(["a.b", alone]).upstream("a.b") not in (alone, "a.b")


def test_long_call_ids_are_shortened_for_the_vendor_alone() -> None:
    messages = [USER, *said(use("t" * 50), role="assistant"), *said(result("1", "t" * 50))]
    found = write(model="gpt-4.1", messages=messages)["messages"]
    assert (
        found[1]["tool_calls"][0]["id"] == found[2]["tool_call_id"]
        and len(found[2]["tool_call_id"]) <= 40
    )
    assert write(messages=messages)["messages"][2]["tool_call_id"] == "t" * 50


def test_web_search_goes_to_models_that_search_for_keys_that_may() -> None:
    tool = SEARCH | {
        "max_uses": 5,
        "user_location": {"type": "approximate", "city": "Paris", "region": None},
    }
    translated = translate(SEARCHING, model="gpt-4o-search-preview", tools=[tool])
    body = sent_body(translated)
    assert body["web_search_options"] == {
        "user_location": {"type": "approximate", "approximate": {"city": "Paris"}},
        "search_context_size": "medium",
    }
    assert "tools" not in body and translated.dropped == ("tools[].max_uses",)


@pytest.mark.parametrize(
    ("target", "model", "tool", "why"),
    [
        (Target(dialect="openai"), "gpt-4o-search-preview", SEARCH, "server_tools"),
        (SEARCHING, "gpt-4.1", SEARCH, "cannot be sent"),
        (
            SEARCHING,
            "gpt-4o-search-preview",
            SEARCH | {"allowed_domains": ["a.example"]},
            "allowed_domains",
        ),
        (
            SEARCHING,
            "gpt-4o-search-preview",
            SEARCH | {"blocked_domains": ["a.example"]},
            "blocked_domains",
        ),
    ],
)
def test_a_search_that_cannot_be_kept_within_its_bounds_is_refused(
    target: Target, model: str, tool: Json, why: str
) -> None:
    with pytest.raises(InvalidRequest, match=why) as caught:
        translate(target, model=model, tools=[tool])
    assert caught.value.param == "tools"


def test_the_operators_search_is_added_for_models_that_search() -> None:
    target = msgspec.structs.replace(SEARCHING, added_tools=(SEARCH | {"max_uses": 1},))
    added = sent_body(translate(target, model="gpt-4o-search-preview"))
    assert added["web_search_options"] == {"search_context_size": "low"}
    assert "web_search_options" not in sent_body(translate(target, model="gpt-4.1"))
    own = as_json({"model": "gpt-4o-search-preview", "messages": [USER]})
    written = codecs.encode_request(CLIENTS["openai"].decode_request(own), target, changed=False)
    assert sent_body(written) == json.loads(own) | {
        "web_search_options": {"search_context_size": "low"}
    }
