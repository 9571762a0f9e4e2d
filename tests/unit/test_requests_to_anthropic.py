"""Requests of chat/completions clients, as a Messages provider gets them: a case for each field (docs/protocol.md 1.1, 1.2)."""

import base64
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pydantic
import pytest
from anthropic.types.beta import message_create_params

from protocol import codecs
from protocol.errors import InvalidRequest
from protocol.openai_chat.tools_read import CUSTOM_SCHEMA
from protocol.request import ChatRequest, OtherPart, Part, ResponseFormat, TextPart, ToolResultPart, ToolUsePart, Turn
from protocol.server_tools.data import table
from protocol.target import Target, Translated
from tests.support.upstreams.recordings import SHARED

EVERY = frozenset(table().families)
OLD, UNKNOWN, BUDGET, ADAPTIVE, NEWEST = "claude-3-5-haiku-latest", "m", "claude-sonnet-4-5", "claude-opus-4-6", "claude-opus-4-8"
NEVER_FORCED = "claude-fable-5"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CLOSED = SCHEMA | {"additionalProperties": False}
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}
OTHER = {"type": "function", "function": {"name": "g"}}
WRITTEN = {"name": "f", "description": "d", "input_schema": SCHEMA}
USER = {"role": "user", "content": "x"}
EPHEMERAL = {"type": "ephemeral"}
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n....").decode()
PDF = base64.b64encode(b"%PDF-1.7 ...").decode()
_validate = pydantic.TypeAdapter(message_create_params.MessageCreateParamsNonStreaming).validate_python


def read(body: dict[str, Any]) -> ChatRequest:
    return codecs.decode_request("openai", json.dumps({"model": UNKNOWN, "messages": [USER]} | body).encode(), endpoint="chat")


def translate(*, families: frozenset[str] = EVERY, target: dict[str, Any] | None = None, **body: Any) -> Translated:
    return codecs.encode_request(read(body), Target(dialect="anthropic", families=families, **(target or {})))


def cross(**body: Any) -> dict[str, Any]:
    """The body for the provider; it fits the SDK's own types."""
    written: dict[str, Any] = json.loads(translate(**body).body or b"")
    _validate({k: v for k, v in written.items() if k != "stream"})
    return written


def refused(**body: Any) -> str:
    """The parameter that is named."""
    with pytest.raises(InvalidRequest) as caught:
        translate(**body)
    assert caught.value.http_status == 400
    return caught.value.param or ""


def texts(*values: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": value} for value in values]


def call(identity: str, name: str = "f", arguments: str = "{}") -> dict[str, Any]:
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


# --- messages ---


def test_every_leading_system_message_is_a_block_of_its_own_and_keeps_what_it_marks_for_the_cache() -> None:
    marked = [{"type": "text", "text": "b", "cache_control": EPHEMERAL}, {"type": "text", "text": "c"}, {"type": "text", "text": " "}]
    messages = [
        {"role": "system", "content": "a", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        {"role": "developer", "content": marked},
        {"role": "developer", "content": [{"type": "text", "text": "d"}, {"type": "text", "text": "e"}], "name": "n"},
        {"role": "system", "content": " "},
        USER,
    ]
    done = translate(messages=messages)
    assert json.loads(done.body or b"")["system"] == [
        {"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        {"type": "text", "text": "b", "cache_control": EPHEMERAL},
        {"type": "text", "text": "c"},
        {"type": "text", "text": "de"},
    ]
    assert done.dropped == ("messages[].name",)
    # a policy that rewrote the text does not bring the old one back
    request = msgspec.structs.replace(read({"messages": messages}), system=("A", "B", "C", ""))
    body = json.loads(codecs.encode_request(request, Target(dialect="anthropic")).body or b"")
    assert [block["text"] for block in body["system"]] == ["A", "B", "C"]


SYSTEM = {"role": "system", "content": "s"}
ANSWER = {"role": "assistant", "content": "y"}


@pytest.mark.parametrize(
    ("messages", "roles"),
    [
        ([USER, SYSTEM, ANSWER, USER], ["user", "system", "assistant", "user"]),
        ([USER, SYSTEM], ["user", "system"]),
        ([USER, SYSTEM, {"role": "developer", "content": "t"}], ["user", "system"]),
        ([USER, SYSTEM, USER], ["user"]),
        ([USER, SYSTEM, {"role": "assistant", "content": " "}, USER], ["user"]),
        ([USER, ANSWER, SYSTEM, ANSWER], ["user", "assistant", "user", "assistant"]),
    ],
)
def test_a_later_system_message_stays_one_where_the_model_and_the_place_allow_it(messages: list[Any], roles: list[str]) -> None:
    assert [m["role"] for m in cross(model=NEWEST, messages=messages)["messages"]] == roles
    for model in (UNKNOWN, "claude-opus-4-7"):
        written = cross(model=model, messages=messages)["messages"]
        assert "system" not in [m["role"] for m in written]
        assert "[system message] s" in json.dumps(written)


@pytest.mark.parametrize("message", [SYSTEM, {"role": "tool", "tool_call_id": "a", "content": "x"}, USER], ids=lambda m: str(m["role"]))
@pytest.mark.timeout(10)
def test_many_messages_of_one_kind_take_linear_time(message: dict[str, Any]) -> None:
    done = translate(model=NEWEST, messages=[SYSTEM, USER, *[message] * 9_900])
    assert done.body is not None
    assert done.body.count(b'"x"') + done.body.count(b'"s"') > 9_900


def test_messages_of_the_same_role_are_one_and_empty_text_is_none() -> None:
    messages = [
        USER,
        {"role": "user", "content": [*texts("", " ", "b")]},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "c"},
    ]
    assert cross(messages=messages)["messages"] == [{"role": "user", "content": texts("x", "b", "c")}]
    assert refused(messages=[{"role": "user", "content": " "}]) == "messages"


def test_a_request_of_system_messages_alone_asks_the_last_of_them() -> None:
    body = cross(messages=[SYSTEM, {"role": "developer", "content": "Say hello."}])
    assert (body["system"], body["messages"]) == (texts("s"), [{"role": "user", "content": texts("Say hello.")}])


def test_all_results_come_first_and_in_one_message() -> None:
    messages = [
        USER,
        {"role": "assistant", "content": "Looking.", "tool_calls": [call("a"), call("b", "g", "")]},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "user", "content": "hurry"},
        {"role": "tool", "tool_call_id": "b", "content": texts("2", "3")},
    ]
    assert cross(messages=messages, tools=[TOOL, OTHER])["messages"][1:] == [
        {
            "role": "assistant",
            "content": [
                *texts("Looking."),
                {"type": "tool_use", "id": "a", "name": "f", "input": {}},
                {"type": "tool_use", "id": "b", "name": "g", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "1"},
                {"type": "tool_result", "tool_use_id": "b", "content": "23"},
                *texts("hurry"),
            ],
        },
    ]


def test_an_image_in_a_result_stays_an_image() -> None:
    content = [*texts("see"), {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}]
    messages = [USER, {"role": "assistant", "tool_calls": [call("a")]}, {"role": "tool", "tool_call_id": "a", "content": content}]
    result = cross(messages=messages)["messages"][2]["content"][0]["content"]
    assert [block["type"] for block in result] == ["text", "image"]


def test_a_result_that_failed_says_so() -> None:
    request = msgspec.structs.replace(read({}), turns=(Turn("user", (ToolResultPart("a", "no", is_error=True),)),))
    block = json.loads(codecs.encode_request(request, Target(dialect="anthropic")).body or b"")["messages"][0]["content"][0]
    assert block == {"type": "tool_result", "tool_use_id": "a", "content": "no", "is_error": True}


def user(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    written: list[dict[str, Any]] = cross(messages=[{"role": "user", "content": list(parts)}])["messages"][0]["content"]
    return written


def image(url: Any, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"GIF87a", "image/gif"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
    ],
)
def test_an_image_is_what_its_first_bytes_say_and_not_its_label(start: bytes, kind: str) -> None:
    data = base64.b64encode(start + b"....").decode()
    source = {"type": "base64", "media_type": kind, "data": data}
    assert user(image(f"data:image/x-anything;base64,{data}")) == [{"type": "image", "source": source}]


def test_an_images_address_is_passed_on_and_never_fetched() -> None:
    for url in ("https://example.org/a.png?b=c", "http://169.254.169.254/latest/meta-data"):
        assert user(image(url)) == [{"type": "image", "source": {"type": "url", "url": url}}]
    assert translate(messages=[{"role": "user", "content": [image("https://x", detail="high")]}]).dropped == (
        "messages[].image_url.detail",
    )
    assert translate(messages=[{"role": "user", "content": [image("https://x", detail="auto")]}]).dropped == ()


def file(**values: Any) -> dict[str, Any]:
    return {"type": "file", "file": values}


def test_files_are_documents_and_keep_their_name() -> None:
    """LiteLLM leaves the name out."""
    source = {"type": "base64", "media_type": "application/pdf", "data": PDF}
    expected = [{"type": "document", "source": source, "title": "a.pdf"}]
    assert user(file(file_data=f"data:application/pdf;base64,{PDF}", filename="a.pdf")) == expected
    assert user(file(file_data=PDF, filename="a.pdf")) == expected
    text = base64.b64encode("schön".encode()).decode()
    assert user(file(file_data=f"data:text/plain;charset=utf-8;base64,{text}")) == [
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "schön"}}
    ]
    assert user(file(file_data=f"data:image/png;base64,{PNG}"))[0]["source"]["media_type"] == "image/png"


def test_a_stored_file_needs_its_family() -> None:
    messages = [{"role": "user", "content": [file(file_id="file_1")]}]
    done = translate(messages=messages)
    expected = [{"type": "document", "source": {"type": "file", "file_id": "file_1"}}]
    assert json.loads(done.body or b"")["messages"][0]["content"] == expected
    assert done.betas == ("files-api-2025-04-14",)
    with pytest.raises(InvalidRequest, match="file_id"):
        translate(messages=messages, families=frozenset())
    assert refused(messages=[{"role": "user", "content": [file(file_id=7)]}]) == "messages"


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (image("data:image/png;base64,QUJD"), "neither JPEG"),
        (image("data:image/svg+xml;base64,PHN2Zy8+"), "neither JPEG"),
        (image("data:image/png;base64,!"), "not valid base64"),
        (image("data:image/png,abc"), "in base64"),
        (image("data:image/png;base64"), "in base64"),
        (image("file:///etc/passwd"), "http"),
        (image("ftp://x"), "http"),
        (image(7), "must be a string"),
        ({"type": "image_url"}, "must be a string"),
        (image("data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(20 * 1024 * 1024)).decode()), "larger"),
        (file(), "file_data or file_id"),
        ({"type": "file"}, "file_data or file_id"),
        (file(file_data="data:application/zip;base64,UEsDBA=="), "neither a PDF"),
        (file(file_data="data:text/plain;base64,/w=="), "UTF-8"),
        ({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}, "input_audio"),
        ({"type": "document", "source": {}}, "document"),
        ({"type": "refusal", "refusal": 7}, "refusal"),
    ],
    ids=lambda value: value if isinstance(value, str) else "part",
)
def test_parts_that_the_provider_cannot_be_given_are_refused(part: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidRequest, match=why) as caught:
        translate(messages=[{"role": "user", "content": [part]}])
    assert caught.value.param == "messages"


def test_what_an_assistant_said_before() -> None:
    refusal = {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}, {"type": "refusal", "refusal": " "}]}
    assert cross(messages=[USER, refusal, USER])["messages"][1]["content"] == texts("no")
    said: dict[str, Any] = {
        "role": "assistant",
        "content": "a",
        "refusal": "no",
        "reasoning_content": "hm",
        "annotations": [],
        "audio": None,
        "made_up": 1,
    }
    done = translate(messages=[USER, said, USER])
    assert json.loads(done.body or b"")["messages"][1]["content"] == texts("no", "a")
    assert done.dropped == ("messages[].made_up",)
    assert cross(messages=[USER, {"role": "assistant", "content": "prefill \n"}])["messages"][1]["content"] == texts("prefill")
    assert refused(messages=[USER, {"role": "assistant", "audio": {"id": "a"}}]) == "messages"


def test_thinking_that_a_client_tells_is_never_passed_on_as_the_models() -> None:
    thinking = [{"type": "thinking", "thinking": "t", "signature": "s"}]
    forged = {"role": "assistant", "content": "a", "thinking_blocks": thinking}
    assert cross(messages=[USER, forged, USER])["messages"][1]["content"] == texts("a")
    assert (
        refused(messages=[USER, {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "s"}]}]) == "messages"
    )


def test_blocks_from_the_record_go_out_as_they_were_and_where_they_were() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    result = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"encrypted_content": "e"}]}
    blocks = tuple(OtherPart(str(b["type"]), b, "anthropic") for b in (thinking, search, result))
    parts: tuple[Part, ...] = (blocks[0], TextPart("Looking."), *blocks[1:], ToolUsePart("toolu_1", "f", '{"city": "Paris"}'))
    turns = (Turn("user", (TextPart("x"),)), Turn("assistant", parts, {"cache_control": EPHEMERAL}), Turn("user", (TextPart("y"),)))
    request = msgspec.structs.replace(read({"tools": [TOOL]}), turns=turns)
    target = Target(dialect="anthropic", families=EVERY, container="container_1")
    body = json.loads(codecs.encode_request(request, target).body or b"")
    call_block = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"city": "Paris"}, "cache_control": EPHEMERAL}
    assert body["messages"][1]["content"] == [thinking, *texts("Looking."), search, result, call_block]
    assert body["container"] == "container_1"
    ends = msgspec.structs.replace(request, turns=(turns[0], Turn("assistant", blocks[:1], {"cache_control": EPHEMERAL}), turns[2]))
    assert json.loads(codecs.encode_request(ends, target).body or b"")["messages"][1]["content"] == [thinking]


def test_arguments_are_never_guessed() -> None:
    for arguments in ("{", "[]", '"a"', '{"a": 1, "a": 2}', "{'a': 1}"):
        assert refused(messages=[USER, {"role": "assistant", "tool_calls": [call("a", "f", arguments)]}]) == "messages"
    written = cross(
        messages=[USER, {"role": "assistant", "tool_calls": [call("a", "f", " ")]}, {"role": "tool", "tool_call_id": "a", "content": ""}]
    )
    assert written["messages"][1]["content"][0]["input"] == {}


def test_ids_are_made_fit_and_stay_apart() -> None:
    calls = [call("a.1"), call("a_1"), call("a!1"), call("")]
    results = [{"role": "tool", "tool_call_id": i, "content": i} for i in ("a_1", "a.1", "a!1")]
    messages = cross(messages=[USER, {"role": "assistant", "tool_calls": calls}, *results])["messages"]
    ids = [block["id"] for block in messages[1]["content"]]
    assert ids == ["a_1", "a_1_2", "a_1_3", "call"]
    assert [(b["tool_use_id"], b["content"]) for b in messages[2]["content"]] == [("a_1_2", "a_1"), ("a_1", "a.1"), ("a_1_3", "a!1")]


def test_breakpoints_of_the_cache() -> None:
    part = {"type": "text", "text": "b", "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}}
    done = translate(messages=[{"role": "user", "content": [*texts("a"), part]}])
    assert json.loads(done.body or b"")["messages"][0]["content"][1] == {"type": "text", "text": "b", "cache_control": EPHEMERAL}
    assert done.dropped == ("prompt_cache_breakpoint.ttl",)
    many = [{"type": "text", "text": str(i), "prompt_cache_breakpoint": {"mode": "explicit"}} for i in range(6)]
    tool = TOOL | {"cache_control": EPHEMERAL}
    done = translate(messages=[{"role": "user", "content": many}], tools=[tool])
    body = json.loads(done.body or b"")
    assert ["cache_control" in block for block in body["messages"][0]["content"]] == [False, False, False, True, True, True]
    assert (body["tools"][0]["cache_control"], done.dropped) == (EPHEMERAL, ("prompt_cache_breakpoint",))
    assert user({"type": "text", "text": "a", "cache_control": EPHEMERAL}) == [{"type": "text", "text": "a", "cache_control": EPHEMERAL}]


# --- legacy functions ---

LEGACY: dict[str, Any] = {
    "messages": [
        USER,
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"city": "a"}'}},
        {"role": "function", "name": "f", "content": "1"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"city": "b"}'}},
        {"role": "function", "name": "f", "content": None},
    ],
    "functions": [TOOL["function"]],
    "function_call": {"name": "f"},
}


def test_functions_are_tools_of_which_one_is_called() -> None:
    """LiteLLM answers 400."""
    request = read(LEGACY)
    assert request.legacy_functions
    body = cross(**LEGACY)
    assert body["tools"] == [WRITTEN]
    assert body["tool_choice"] == {"type": "tool", "name": "f", "disable_parallel_tool_use": True}
    pairs = [
        (m["content"][0]["id"], body["messages"][i + 1]["content"][0]) for i, m in enumerate(body["messages"]) if m["role"] == "assistant"
    ]
    assert pairs == [
        ("call_function_1", {"type": "tool_result", "tool_use_id": "call_function_1", "content": "1"}),
        ("call_function_2", {"type": "tool_result", "tool_use_id": "call_function_2", "content": ""}),
    ]
    assert cross(**LEGACY | {"function_call": None})["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert cross(**LEGACY | {"function_call": "none"})["tool_choice"] == {"type": "none"}


def test_made_up_ids_belong_to_nobody_else() -> None:
    messages = [USER, {"role": "assistant", "tool_calls": [call("call_function_1")], "function_call": {"name": "f", "arguments": ""}}]
    assert [p.id for p in read({"messages": messages}).turns[1].parts if isinstance(p, ToolUsePart)] == [
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
        ({"messages": [{"role": "assistant", "function_call": {"name": "f", "arguments": {}}}]}, "messages"),
    ],
)
def test_wrong_functions_are_named(body: dict[str, Any], param: str) -> None:
    assert refused(**body) == param


# --- tools ---


def tools(*functions: dict[str, Any], **body: Any) -> list[dict[str, Any]]:
    written: list[dict[str, Any]] = cross(tools=[{"type": "function", "function": f} for f in functions], **body)["tools"]
    return written


def test_a_tools_words_reach_the_provider() -> None:
    vendor = {"cache_control": EPHEMERAL, "allowed_callers": ["direct"], "input_examples": [{"city": "a"}], "eager_input_streaming": True}
    assert tools({"name": "f", "description": "d", "parameters": SCHEMA, **vendor}) == [WRITTEN | vendor]
    assert cross(tools=[TOOL | vendor])["tools"] == [WRITTEN | vendor]
    assert cross(tools=[TOOL | {"defer_loading": True}, TOOL | {"function": OTHER["function"]}])["tools"][0]["defer_loading"] is True
    done = translate(tools=[TOOL | {"defer_loading": True, "cache_control": EPHEMERAL, "colour": "red"}])
    assert json.loads(done.body or b"")["tools"] == [WRITTEN | {"defer_loading": True}]
    assert done.dropped == ("tools[].cache_control", "tools[].colour")


def test_strict_is_kept() -> None:
    """LiteLLM leaves it out."""
    strict = {"name": "f", "parameters": SCHEMA | {"properties": {"city": {"type": "string", "minLength": 2}}}, "strict": True}
    compiled = CLOSED | {"properties": {"city": {"type": "string", "description": "minLength: 2"}}}
    assert tools(strict, model=BUDGET) == tools(strict) == [{"name": "f", "input_schema": compiled, "strict": True}]
    assert tools(strict | {"strict": False}) == [{"name": "f", "input_schema": strict["parameters"]}]
    for model, parameters in ((OLD, strict["parameters"]), (BUDGET, {"type": "object", "additionalProperties": True})):
        done = translate(model=model, tools=[{"type": "function", "function": strict | {"parameters": parameters}}])
        assert json.loads(done.body or b"")["tools"] == [{"name": "f", "input_schema": parameters}]
        assert done.dropped == ("tools[].strict",)


def test_references_in_a_tools_schema_stay_references() -> None:
    """LiteLLM writes each of them out."""
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "string"}}}
    assert tools({"name": "f", "parameters": schema})[0]["input_schema"] == schema


def test_a_choice_at_the_top_of_a_tools_schema_is_not_lost() -> None:
    """LiteLLM drops a oneOf there: the model is told of no argument at all."""
    schema = {
        "oneOf": [{"type": "object", "properties": {"a": {"type": "string"}}}, {"type": "object", "properties": {"b": {"type": "string"}}}]
    }
    request = read({"tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}]})
    assert request.tools[0].schema == schema
    written = tools({"name": "f", "parameters": schema})[0]["input_schema"]
    assert not written.keys() & {"oneOf", "anyOf", "allOf"}
    assert written["properties"] == {"a": {"type": "string"}, "b": {"type": "string"}}
    assert refused(tools=[{"type": "function", "function": {"name": "f", "parameters": {"oneOf": [{"type": "string"}]}}}]) == "tools"


def test_names_are_made_fit_and_turned_back() -> None:
    names = ["my tool", "my_tool", "my.tool", "x" * 200, "ünï"]
    done = translate(
        tools=[{"type": "function", "function": {"name": name}} for name in names],
        tool_choice={"type": "function", "function": {"name": "my tool"}},
        messages=[USER, {"role": "assistant", "tool_calls": [call("a", "my.tool"), call("b", "old tool")]}],
    )
    body = json.loads(done.body or b"")
    upstream = [tool["name"] for tool in body["tools"]]
    assert upstream == ["my_tool_2", "my_tool", "my_tool_3", "x" * 128, "_n_"]
    assert body["tool_choice"]["name"] == "my_tool_2"
    assert [block["name"] for block in body["messages"][1]["content"]] == ["my_tool_3", "old_tool"]
    back = dict(done.restore.names)
    assert back == {"my_tool_2": "my tool", "my_tool_3": "my.tool", "x" * 128: "x" * 200, "_n_": "ünï", "old_tool": "old tool"}
    assert [back.get(name, name) for name in upstream] == names


def test_many_names_that_become_one_take_linear_time() -> None:
    names = ["a" + "!" * (i % 2) + chr(0x4E00 + i) for i in range(1_000)]
    done = translate(tools=[{"type": "function", "function": {"name": name}} for name in names])
    assert len(done.restore.names) == 1_000


CUSTOM = {"type": "custom", "custom": {"name": "run", "description": "d", "format": {"type": "text"}}}


def test_custom_tools_are_functions_of_one_text() -> None:
    history = {"role": "assistant", "tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "run", "input": 'say "hi"\n'}}]}
    body: dict[str, Any] = {
        "tools": [CUSTOM],
        "tool_choice": {"type": "custom", "custom": {"name": "run"}},
        "messages": [USER, history, {"role": "tool", "tool_call_id": "a", "content": "ok"}],
    }
    request = read(body)
    assert (request.tools[0].kind, request.tools[0].schema) == ("custom", CUSTOM_SCHEMA)
    written = cross(**body)
    assert written["tools"] == [{"name": "run", "description": "d", "input_schema": CUSTOM_SCHEMA}]
    assert written["tool_choice"] == {"type": "tool", "name": "run"}
    assert written["messages"][1]["content"] == [{"type": "tool_use", "id": "a", "name": "run", "input": {"input": 'say "hi"\n'}}]
    grammar = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: WORD"}}
    assert refused(tools=[{"type": "custom", "custom": {"name": "run", "format": grammar}}]) == "tools"


def test_a_provider_that_knows_tools_of_its_own_gets_them_where_the_key_may() -> None:
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 2}
    assert cross(tools=[TOOL, search])["tools"] == [WRITTEN, search]
    bash = {"type": "bash_20250124", "name": "bash"}
    assert cross(tools=[bash])["tools"] == [bash]
    assert [t.kind for t in read({"tools": [TOOL, search, bash, CUSTOM]}).tools] == ["function", "server", "client", "custom"]
    with pytest.raises(InvalidRequest, match="web_search"):
        translate(tools=[search], families=frozenset())
    assert refused(tools=[{"type": "teleport"}]) == "tools"
    for bad in ({"type": 7}, {"type": "custom"}, {"type": "custom", "custom": {}}, 7):
        assert refused(tools=[bad]) == "tools"


BOTH = [TOOL, OTHER]


@pytest.mark.parametrize(
    ("choice", "parallel", "expected", "offered"),
    [
        (None, None, None, "fg"),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}, "fg"),
        ("auto", True, {"type": "auto"}, "fg"),
        ("none", False, {"type": "none"}, "fg"),
        ("required", False, {"type": "any", "disable_parallel_tool_use": True}, "fg"),
        ({"type": "function", "function": {"name": "g"}}, False, {"type": "tool", "name": "g", "disable_parallel_tool_use": True}, "fg"),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [OTHER]}}, None, {"type": "auto"}, "g"),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "name": "f"}]}},
            None,
            {"type": "any"},
            "f",
        ),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}, None, {"type": "none"}, "fg"),
    ],
)
def test_tool_choice(choice: Any, parallel: bool | None, expected: Any, offered: str) -> None:
    """LiteLLM answers 400 to allowed_tools."""
    body = cross(tools=BOTH, tool_choice=choice, parallel_tool_calls=parallel)
    assert (body.get("tool_choice"), "".join(t["name"] for t in body["tools"])) == (expected, offered)


@pytest.mark.parametrize(
    ("choice", "offered"),
    [
        ({"type": "function", "function": {"name": "nobody"}}, BOTH),
        ({"type": "function", "function": {"name": "f"}}, None),
        ("required", None),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"function": {"name": "nobody"}}]}}, BOTH),
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
def test_a_call_is_forced_where_the_model_takes_it_and_else_that_is_said(model: str, effort: Any, expected: Any, dropped: Any) -> None:
    done = translate(model=model, reasoning_effort=effort, tools=BOTH, tool_choice="required", max_tokens=9000)
    assert (json.loads(done.body or b"")["tool_choice"], done.dropped) == (expected, dropped)
    one = translate(model=model, reasoning_effort=effort, tools=BOTH, tool_choice="required", max_tokens=9000, parallel_tool_calls=False)
    assert json.loads(one.body or b"")["tool_choice"] == expected | {"disable_parallel_tool_use": True}


def test_calls_in_the_history_bring_their_definitions() -> None:
    messages = [USER, {"role": "assistant", "tool_calls": [call("a", "my f")]}, {"role": "tool", "tool_call_id": "a", "content": ""}]
    done = translate(messages=messages)
    body = json.loads(done.body or b"")
    assert (body["tools"], body["tool_choice"]) == ([{"name": "my_f", "input_schema": {"type": "object"}}], {"type": "none"})


# --- the answer's form ---


def json_schema(schema: Any = SCHEMA, **more: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "weather", "schema": schema, **more}}


def test_a_schema_for_the_answer_is_native_where_the_model_has_it() -> None:
    strictly = SCHEMA | {"title": "T", "properties": {"city": {"type": "string", "maxLength": 3}}}
    expected = CLOSED | {"properties": {"city": {"type": "string", "description": "maxLength: 3"}}, "description": "The weather."}
    body = cross(
        model=ADAPTIVE, response_format=json_schema(strictly, description="The weather.", strict=True), tools=[TOOL], reasoning_effort="low"
    )
    assert body["output_config"] == {"effort": "low", "format": {"type": "json_schema", "schema": expected}}
    assert (body["tools"], "tool_choice" in body) == ([WRITTEN], False)
    described = json_schema(SCHEMA | {"description": "Of its own."}, description="The weather.")
    assert cross(model=ADAPTIVE, response_format=described)["output_config"]["format"]["schema"]["description"] == "Of its own."
    request = read({"response_format": json_schema(strictly, strict=True)})
    assert request.response_format == ResponseFormat("json_schema", "weather", strictly, strict=True)


OPEN = {"type": "object", "additionalProperties": {"type": "string"}}
TREE = {
    "type": "object",
    "properties": {"left": {"$ref": "#/$defs/T"}},
    "$defs": {"T": {"type": "object", "properties": {"left": {"$ref": "#/$defs/T"}}}},
}


@pytest.mark.parametrize(("model", "schema"), [(OLD, SCHEMA), (UNKNOWN, SCHEMA), (ADAPTIVE, OPEN), (ADAPTIVE, TREE)])
def test_else_it_is_the_schema_of_a_tool_that_must_be_called(model: str, schema: dict[str, Any]) -> None:
    done = translate(model=model, response_format=json_schema(schema, description="The weather."))
    body = json.loads(done.body or b"")
    assert done.restore.json_tool == "json_response"
    assert [(t["name"], t["input_schema"]) for t in body["tools"]] == [("json_response", schema)]
    assert body["tools"][0]["description"].endswith("The weather.")
    assert body["tool_choice"] == {"type": "tool", "name": "json_response", "disable_parallel_tool_use": True}
    assert "output_config" not in body


def test_the_clients_tools_stay_reachable_beside_a_form() -> None:
    """LiteLLM forces its own tool, and the client's are never called."""
    taken = [TOOL, {"type": "function", "function": {"name": "json_response"}}]
    done = translate(response_format=json_schema(), tools=taken)
    body = json.loads(done.body or b"")
    assert [t["name"] for t in body["tools"]] == ["f", "json_response", "json_response_2"]
    assert (done.restore.json_tool, body["tool_choice"]) == ("json_response_2", {"type": "any", "disable_parallel_tool_use": True})
    forced = translate(response_format=json_schema(), tools=[TOOL], tool_choice="required")
    assert (json.loads(forced.body or b"")["tools"], forced.restore.json_tool) == ([WRITTEN], "")
    never = json.loads(translate(response_format=json_schema(), tools=[TOOL], tool_choice="none").body or b"")
    assert never["tool_choice"] == {"type": "tool", "name": "json_response", "disable_parallel_tool_use": True}


@pytest.mark.parametrize(
    "body",
    [
        {"model": BUDGET, "reasoning_effort": "low", "response_format": json_schema(OPEN)},
        {"model": NEVER_FORCED, "response_format": json_schema(OPEN)},
        {"web_search_options": {}, "response_format": json_schema()},
    ],
)
def test_a_form_where_no_call_can_be_forced_is_asked_for(body: dict[str, Any]) -> None:
    done = translate(**body)
    written = json.loads(done.body or b"")
    assert written["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert "json_response" in written["system"][-1]["text"]
    assert (done.restore.json_tool, done.dropped) == ("json_response", ())


def test_json_object_is_asked_for() -> None:
    """LiteLLM drops it without a word."""
    done = translate(model=ADAPTIVE, response_format={"type": "json_object"})
    body = json.loads(done.body or b"")
    assert (done.restore.json_tool, body["tool_choice"]["name"]) == ("json_response", "json_response")
    assert body["tools"][0]["input_schema"] == {"type": "object", "additionalProperties": True}
    beside = translate(response_format={"type": "json_object"}, tools=[TOOL], messages=[SYSTEM, USER])
    body = json.loads(beside.body or b"")
    assert (body["tools"], "tool_choice" in body, beside.restore.json_tool) == ([WRITTEN], False, "")
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


# --- options ---


def test_web_search() -> None:
    place = {"city": "Paris", "country": "FR", "region": "IDF", "timezone": "Europe/Paris"}
    options = {"search_context_size": "low", "user_location": {"type": "approximate", "approximate": place}}
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 1, "user_location": {"type": "approximate", **place}}
    assert cross(web_search_options=options, tools=[TOOL])["tools"] == [WRITTEN, search]
    assert cross(web_search_options={"user_location": None})["tools"] == [{"type": "web_search_20250305", "name": "web_search"}]
    assert refused(web_search_options=options, families=frozenset()) == "web_search_options"
    assert refused(web_search_options={}, tools=[{"type": "function", "function": {"name": "web_search"}}]) == "web_search_options"
    assert refused(web_search_options={"search_context_size": "huge"}) == "web_search_options"
    assert refused(web_search_options={"user_location": {"type": "exact"}}) == "web_search_options"
    assert refused(web_search_options=7) == "web_search_options"


def test_server_tools_of_the_operators_come_after_the_clients() -> None:
    added = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
    body = json.loads(translate(tools=[TOOL], target={"added_tools": (added,)}).body or b"")
    assert body["tools"] == [WRITTEN, added]


@pytest.mark.parametrize(
    ("model", "effort", "limit", "expected", "dropped"),
    [
        (BUDGET, "minimal", 9000, {"max_tokens": 9000, "thinking": {"type": "enabled", "budget_tokens": 1024}}, ()),
        (BUDGET, "high", 2000, {"max_tokens": 2000, "thinking": {"type": "enabled", "budget_tokens": 1999}}, ()),
        (BUDGET, "high", 1024, {"max_tokens": 1024}, ("reasoning_effort",)),
        (BUDGET, "high", None, {"max_tokens": 12288, "thinking": {"type": "enabled", "budget_tokens": 8192}}, ()),
        (BUDGET, "none", None, {"max_tokens": 4096, "thinking": {"type": "disabled"}}, ()),
        (UNKNOWN, "low", None, {"max_tokens": 6144, "thinking": {"type": "enabled", "budget_tokens": 2048}}, ()),
        (OLD, "low", None, {"max_tokens": 6144}, ("reasoning_effort",)),
        (OLD, "none", None, {"max_tokens": 4096}, ()),
        (
            NEWEST,
            "minimal",
            9,
            {"max_tokens": 9, "thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "low"}},
            (),
        ),
        (
            ADAPTIVE,
            "xhigh",
            9,
            {"max_tokens": 9, "thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "high"}},
            (),
        ),
        (NEWEST, "none", 9, {"max_tokens": 9, "thinking": {"type": "disabled"}}, ()),
    ],
)
def test_effort(model: str, effort: str, limit: int | None, expected: dict[str, Any], dropped: tuple[str, ...]) -> None:
    """LiteLLM asks for more thinking than the answer may have tokens (high with max_tokens 2000): the provider refuses that."""
    done = translate(model=model, reasoning_effort=effort, max_tokens=limit)
    assert {k: v for k, v in json.loads(done.body or b"").items() if k not in ("model", "messages")} == expected
    assert done.dropped == dropped


def test_a_turn_in_the_middle_thinks_only_where_its_thinking_is_known() -> None:
    messages = [USER, {"role": "assistant", "tool_calls": [call("a")]}, {"role": "tool", "tool_call_id": "a", "content": ""}]
    done = translate(model=BUDGET, reasoning_effort="low", messages=messages)
    assert ("thinking" in json.loads(done.body or b""), done.dropped) == (False, ("reasoning_effort",))
    request = read({"model": BUDGET, "reasoning_effort": "low", "messages": messages})
    known = Turn("assistant", (OtherPart("thinking", {"type": "thinking"}, "anthropic"), *request.turns[1].parts))
    request = msgspec.structs.replace(request, turns=(request.turns[0], known, request.turns[2]))
    assert "thinking" in json.loads(codecs.encode_request(request, Target(dialect="anthropic")).body or b"")
    assert "thinking" in cross(model=BUDGET, reasoning_effort="low", messages=[USER, ANSWER, USER])


def test_the_vendors_own_words_of_thinking_count_first() -> None:
    thinking = {"type": "enabled", "budget_tokens": 2000}
    assert cross(thinking=thinking)["thinking"] == thinking
    done = translate(thinking=thinking, reasoning_effort="low")
    assert (json.loads(done.body or b"")["thinking"], done.dropped) == (thinking, ("reasoning_effort",))
    assert cross(model="claude-opus-4-5", thinking=thinking, reasoning_effort="max")["output_config"] == {"effort": "high"}
    assert cross(thinking=thinking, reasoning_effort="none")["thinking"] == thinking
    assert refused(thinking="hard") == "thinking"
    assert refused(reasoning_effort="heroic") == "reasoning_effort"
    assert refused(reasoning_effort=7) == "reasoning_effort"


@pytest.mark.parametrize(
    ("model", "given", "expected", "dropped"),
    [
        (BUDGET, {"max_tokens": 70_000}, 64_000, ("max_tokens",)),
        (BUDGET, {"max_completion_tokens": 70_000, "max_tokens": 5}, 64_000, ("max_completion_tokens",)),
        (UNKNOWN, {"max_tokens": 10**9}, 10**9, ()),
        (UNKNOWN, {"max_completion_tokens": 7, "max_tokens": 5}, 7, ()),
        ("claude-3-haiku-20240307", {}, 4096, ()),
    ],
)
def test_max_tokens(model: str, given: dict[str, Any], expected: int, dropped: tuple[str, ...]) -> None:
    done = translate(model=model, **given)
    assert (json.loads(done.body or b"")["max_tokens"], done.dropped) == (expected, dropped)


@pytest.mark.parametrize(
    ("model", "given", "expected", "dropped"),
    [
        # LiteLLM forwards 1.7, which the provider refuses
        (UNKNOWN, {"temperature": 1.7, "top_p": 0.9}, {"temperature": 1.0, "top_p": 0.9}, ()),
        (UNKNOWN, {"temperature": 0, "top_k": 4}, {"temperature": 0.0, "top_k": 4}, ()),
        (BUDGET, {"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5}, ("top_p",)),
        (BUDGET, {"top_p": 0.9}, {"top_p": 0.9}, ()),
        (NEWEST, {"temperature": 0.5, "top_p": 0.9, "top_k": 4}, {}, ("temperature", "top_p", "top_k")),
        (BUDGET, {"temperature": 0.5, "reasoning_effort": "low", "top_k": 4}, {}, ("temperature", "top_k")),
        (BUDGET, {"temperature": 1, "reasoning_effort": "low"}, {"temperature": 1.0}, ()),
        (BUDGET, {"top_p": 0.5, "reasoning_effort": "low"}, {}, ("top_p",)),
        (BUDGET, {"top_p": 0.97, "reasoning_effort": "low"}, {"top_p": 0.97}, ()),
        (ADAPTIVE, {"temperature": 0.5, "reasoning_effort": "low"}, {"temperature": 0.5}, ()),
    ],
)
def test_sampling(model: str, given: dict[str, Any], expected: dict[str, Any], dropped: tuple[str, ...]) -> None:
    done = translate(model=model, **given)
    body = json.loads(done.body or b"")
    assert ({k: body[k] for k in ("temperature", "top_p", "top_k") if k in body}, done.dropped) == (expected, dropped)


def test_stops_that_are_white_are_dropped_and_named() -> None:
    """LiteLLM forwards them, and the provider refuses."""
    done = translate(stop=["END", " ", "\n"])
    assert (json.loads(done.body or b"")["stop_sequences"], done.dropped) == (["END"], ("stop",))
    assert cross(stop="END")["stop_sequences"] == ["END"]
    assert "stop_sequences" not in cross(stop="\n")


def test_whom_a_request_is_for_is_told_as_a_hash_alone() -> None:
    """LiteLLM drops what looks like an address without a word."""
    for field in ("user", "safety_identifier"):
        assert cross(**{field: "ann@example.com"})["metadata"] == {"user_id": sha256(b"ann@example.com").hexdigest()}
    assert refused(safety_identifier=7) == "safety_identifier"


@pytest.mark.parametrize(
    ("tier", "expected", "dropped"),
    [
        ("auto", "auto", ()),
        ("default", "auto", ()),
        ("flex", "standard_only", ("service_tier",)),
        ("priority", "standard_only", ("service_tier",)),
    ],
)
def test_service_tier(tier: str, expected: str, dropped: tuple[str, ...]) -> None:
    done = translate(service_tier=tier)
    assert (json.loads(done.body or b"")["service_tier"], done.dropped) == (expected, dropped)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("frequency_penalty", 0.5),
        ("logit_bias", {"1": 2}),
        ("metadata", {"a": "b"}),
        ("presence_penalty", 0),
        ("prompt_cache_key", "k"),
        ("prompt_cache_options", {"mode": "explicit"}),
        ("prompt_cache_retention", "24h"),
        ("seed", 0),
        ("store", True),
        ("verbosity", "low"),
    ],
)
def test_what_has_no_word_there_is_left_out_and_named(name: str, value: Any) -> None:
    done = translate(**{name: value})
    assert (done.body, done.dropped) == (translate().body, (name,))
    nothing: dict[str, Any] = {name: None}
    assert translate(**nothing).dropped == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stream_options", {"include_usage": True}),
        ("modalities", ["text"]),
        ("n", 1),
        ("logprobs", False),
        ("top_logprobs", 0),
        ("store", False),
        ("response_format", {"type": "text"}),
        ("audio", None),
        ("tools", []),
        ("parallel_tool_calls", True),
    ],
)
def test_what_asks_for_nothing_is_left_out_in_silence(name: str, value: Any) -> None:
    assert translate(**{name: value}) == translate()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 2),
        ("logprobs", True),
        ("top_logprobs", 3),
        ("audio", {"voice": "a"}),
        ("modalities", ["text", "audio"]),
        ("prediction", {"type": "content", "content": "x"}),
        ("moderation", {"model": "m"}),
        ("speed", "fast"),
        ("workspace_id", "w"),
        ("something_new", {"a": 1}),
        ("base_url", "http://evil"),
    ],
)
def test_what_cannot_be_said_there_is_refused_by_name(name: str, value: Any) -> None:
    assert refused(**{name: value}) == name


@pytest.mark.parametrize(
    ("name", "value", "beta"),
    [
        ("container", "container_1", None),
        ("context_management", {"edits": []}, "context-management-2025-06-27"),
        ("cache_control", EPHEMERAL, None),
        ("mcp_servers", [{"type": "url", "url": "https://mcp.example", "name": "n"}], "mcp-client-2025-11-20"),
    ],
)
def test_the_vendors_own_words_pass_where_the_key_may(name: str, value: Any, beta: str | None) -> None:
    done = translate(**{name: value})
    assert json.loads(done.body or b"")[name] == value
    assert done.betas == ((beta,) if beta else ())
    if name in ("container", "mcp_servers"):
        assert refused(**{name: value}, families=frozenset()) == name


def test_beta_names_in_the_body_are_gated_like_those_of_the_header() -> None:
    done = translate(betas=["files-api-2025-04-14"])
    assert ("betas" in json.loads(done.body or b""), done.betas) == (False, ("files-api-2025-04-14",))
    gated = translate(betas=["files-api-2025-04-14"], families=frozenset())
    assert (gated.betas, gated.dropped) == ((), ("anthropic-beta: files-api-2025-04-14",))


# --- the same dialect ---

RICH: dict[str, Any] = {
    **LEGACY,
    "model": "gpt-4o",
    "modalities": ["text"],
    "prediction": {"type": "content", "content": "x"},
    "reasoning_effort": "low",
    "response_format": json_schema(strict=True, description="d"),
    "logprobs": True,
}
MODERN: dict[str, Any] = {
    "model": "gpt-4o",
    "messages": [
        {"role": "developer", "content": [{"type": "text", "text": "s", "prompt_cache_breakpoint": {"mode": "explicit"}}], "name": "n"},
        {
            "role": "user",
            "content": [
                {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
                image("https://x", detail="low"),
                file(file_id="file_1"),
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "run", "input": "ls\n"}}, call("b")],
        },
        {"role": "tool", "tool_call_id": "a", "content": [image("https://y")]},
        {"role": "tool", "tool_call_id": "b", "content": "1"},
    ],
    "tools": [
        {"type": "custom", "custom": {"name": "run", "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "s: A"}}}},
        TOOL | {"function": TOOL["function"] | {"strict": True}, "cache_control": EPHEMERAL},
    ],
    "tool_choice": {
        "type": "allowed_tools",
        "allowed_tools": {
            "mode": "required",
            "tools": [{"type": "custom", "custom": {"name": "run"}}, {"type": "function", "function": {"name": "f"}}],
        },
    },
    "web_search_options": {"search_context_size": "low"},
    "response_format": {"type": "json_object"},
}


@pytest.mark.parametrize("body", [RICH, MODERN, {k: v for k, v in RICH.items() if k != "function_call"}], ids=["rich", "modern", "plain"])
def test_in_its_own_dialect_all_of_it_is_legal_and_comes_out_again(body: dict[str, Any]) -> None:
    request = read(body)
    target = Target(dialect="openai", families=EVERY)
    assert codecs.encode_request(request, target, changed=False).body is None
    assert json.loads(codecs.encode_request(request, target).body or b"") == body


@pytest.mark.parametrize("value", ["auto", "none", {"type": "custom", "custom": {"name": "run"}}])
def test_choices_come_out_again(value: Any) -> None:
    body = MODERN | {"tool_choice": value}
    assert json.loads(codecs.encode_request(read(body), Target(dialect="openai", families=EVERY)).body or b"") == body


def test_what_a_provider_runs_is_gated_where_the_dialects_are_the_same_too() -> None:
    asking: list[dict[str, Any]] = [{"web_search_options": {}}, {"tools": [{"type": "web_search_preview"}]}]
    for body in asking:
        with pytest.raises(InvalidRequest):
            codecs.encode_request(read(body), Target(dialect="openai"), changed=False)
    allowed = codecs.encode_request(read({"tools": [{"type": "web_search_preview"}]}), Target(dialect="openai", families=EVERY))
    assert json.loads(allowed.body or b"")["tools"] == [{"type": "web_search_preview"}]


def own(**body: Any) -> ChatRequest:
    data: dict[str, Any] = {"model": "claude-opus-4-8", "max_tokens": 5, "messages": [USER]} | body
    return codecs.decode_request("anthropic", json.dumps(data).encode(), endpoint="messages")


def test_a_messages_request_passes_as_received_unless_something_is_added() -> None:
    use = {"type": "tool_use", "id": "a.b", "name": "my tool", "input": {"b": 1, "a": 2.50}}
    turns = [USER, {"role": "assistant", "content": [use]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a.b"}]}]
    request = own(messages=turns, top_k=3, temperature=0.3, tools=[WRITTEN])
    assert codecs.encode_request(request, Target(dialect="anthropic"), changed=False).body is None
    target = Target(dialect="anthropic", families=EVERY, container="c_1")
    body = json.loads(codecs.encode_request(request, target, changed=False).body or b"")
    assert (body["container"], body["top_k"], body["temperature"], body["tools"]) == ("c_1", 3, 0.3, [WRITTEN])
    assert body["messages"][1]["content"] == [use]
    added = {"type": "web_search_20250305", "name": "web_search"}
    more = Target(dialect="anthropic", families=EVERY, added_tools=(added,))
    body = json.loads(codecs.encode_request(request, more, changed=False).body or b"")
    assert (body["tools"], body["messages"][1]["content"]) == ([WRITTEN, added], [use])
    mine = own(container="c_2")
    assert codecs.encode_request(mine, target, changed=False).body is None


def test_a_messages_request_may_not_hold_parts_of_the_other_dialect() -> None:
    foreign = msgspec.structs.replace(own(), turns=(Turn("user", (OtherPart("file", {"type": "file"}, "openai"),)),))
    with pytest.raises(InvalidRequest, match="file"):
        codecs.encode_request(foreign, Target(dialect="anthropic"))


@pytest.mark.parametrize("path", sorted(SHARED.glob("openai/*.request.json")), ids=lambda p: p.stem)
def test_recorded_requests_cross(path: Path) -> None:
    body = json.loads(path.read_text())
    if "reasoning" in body:
        # a reseller's own word
        assert refused(**body) == "reasoning"
        return
    written = cross(**body)
    assert written["model"] == body["model"]
    for tool in written.get("tools", ()):
        assert jsonschema_rs.meta.is_valid(tool.get("input_schema", {}))
