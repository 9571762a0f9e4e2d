"""Requests that try to get past the gate: names that only look like others, names that carry more,
lists that grow."""

import time
from typing import Any

import pytest

from protocol import codecs
from protocol.dialects.table import CLIENTS
from protocol.errors import InvalidRequest
from protocol.request import DialectName
from protocol.target import MAX_DROPPED, MORE, RequestNotes, Target
from tests.support.json_values import Json, as_json
from tests.support.request_codecs import read_request

TURNS = [{"role": "user", "content": "go"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def send(dialect: DialectName, upstream: DialectName, **body: Any) -> Any:
    request = {"model": "m", "max_tokens": 9, "messages": TURNS} | body
    asked = CLIENTS[dialect].decode_request(
        as_json(request), endpoint="messages" if dialect == "anthropic" else "chat"
    )
    return codecs.encode_request(asked, Target(dialect=upstream), changed=False)


@pytest.mark.case("C5")
@pytest.mark.parametrize(
    "body",
    [
        {"Tools": [TOOL]},
        {"MESSAGES": TURNS},
        {"Web_Search_Options": {}},
        {"N": 2},
        {"tools": [TOOL | {"Function": {"name": "g"}}]},
        {
            "messages": [
                {"role": "user", "content": [{"type": "image_url", "Image_URL": {"url": "x"}}]}
            ]
        },
        {"Plugins": [{"id": "web"}]},
    ],
    ids=lambda b: next(iter(b)),
)
def test_a_name_that_differs_in_case_alone_is_refused(body: Json) -> None:
    # servers written in Go read it as the other
    with pytest.raises(InvalidRequest, match="must be written"):
        send("openai", "openai", **body)


@pytest.mark.case("C5", "A8")
@pytest.mark.parametrize(
    "name",
    [
        "lora_path",
        "custom_logit_processor",
        "AWS_region_name",
        "Api_Base",
        "bootstrap_host",
        "data_sources",
    ],
)
def test_routing_and_code_are_not_taken_from_requests(name: str) -> None:
    with pytest.raises(InvalidRequest, match="not taken from requests"):
        send("openai", "openai", **{name: "x"})


@pytest.mark.parametrize(
    ("model", "family"), [("m:online", "web_search"), ("@preset/mine", "fallback")]
)
def test_a_model_s_name_carries_no_more_than_a_model(model: str, family: str) -> None:
    with pytest.raises(InvalidRequest, match=family):
        send("openai", "openai", model=model)


@pytest.mark.parametrize("where", ["part", "result"])
def test_a_stored_file_needs_its_family_in_this_dialect_too(where: str) -> None:
    part = {"type": "file", "file": {"file_id": "file-1"}}
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    result = [
        *TURNS,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": [part]},
    ]
    with pytest.raises(InvalidRequest, match="files"):
        send(
            "openai",
            "openai",
            messages=[{"role": "user", "content": [part]}] if where == "part" else result,
        )


def test_the_system_prompt_holds_text_alone() -> None:
    block = {
        "type": "tool_addition",
        "text": "x",
        "tool": {"type": "web_search_20250305", "name": "web_search"},
    }
    with pytest.raises(InvalidRequest, match="system"):
        send("anthropic", "anthropic", system=[block])


def test_a_server_tool_under_another_name_is_refused() -> None:
    asked = {"type": "web_search_20250305", "name": "search"}
    body = {"model": "m", "max_tokens": 9, "messages": TURNS, "tools": [asked]}
    request = read_request("anthropic", body)
    target = Target(dialect="anthropic", families=frozenset(("web_search",)))
    with pytest.raises(InvalidRequest, match="needs the name"):
        codecs.encode_request(request, target, changed=False)


def test_many_names_that_become_one_cost_linear_time() -> None:
    def seconds(count: int) -> float:
        tools = [
            {"type": "function", "function": {"name": "ä" * 130 + chr(0x4E00 + n)}}
            for n in range(count)
        ]
        began = time.thread_time()
        send("openai", "anthropic", tools=tools)
        return time.thread_time() - began

    # the first loads what it needs; a collection of garbage or another thread's turn is not theirs
    few, many = (min(seconds(count) for _ in range(4)) for count in (125, 1000))
    assert many < 0.5 and many / few < 24, (few, many)


def test_what_was_left_out_is_noted_up_to_a_bound() -> None:
    request = read_request("openai", {"model": "m", "messages": TURNS})
    draft = RequestNotes(request=request, target=Target(dialect="openai"))
    for n in range(MAX_DROPPED + 50):
        draft.drop(f"p{n}")
    assert (len(draft.dropped), draft.dropped[-1]) == (MAX_DROPPED + 1, MORE)


def test_two_tools_of_one_name_are_refused() -> None:
    """Finding C13: the first one's schema was looked at, and the client could run the second."""
    message = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]}
    functions = [{"type": "function", "function": {"name": "bash"}}] * 2
    customs = [functions[0], {"type": "custom", "custom": {"name": "bash"}}]
    for tools in (functions, customs):
        with pytest.raises(InvalidRequest, match="same name"):
            read_request("openai", message | {"tools": tools})
    with pytest.raises(InvalidRequest, match="same name"):
        read_request("openai", message | {"functions": [{"name": "f"}] * 2})
    own = {"name": "bash", "input_schema": {"type": "object"}}
    for other in (own, {"type": "bash_20250124", "name": "bash"}):
        with pytest.raises(InvalidRequest, match="same name"):
            read_request("anthropic", message | {"tools": [own, other]})
    two = [{"type": "mcp_toolset", "mcp_server_name": name} for name in "ab"]
    assert len(read_request("anthropic", message | {"tools": two}).tools) == 2
