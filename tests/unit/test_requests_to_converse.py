"""Requests of chat and Messages clients written for Converse: what is said, what is left out by
name, what is refused; and that botocore's validation of the API takes every body."""

import base64
import json
import random
import re
from typing import Any

import pytest
from botocore.validate import ParamValidator

from protocol import codecs
from protocol.bytes.eventstream import EventStreamSplitter
from protocol.dialects.turns import StoredTurn
from protocol.errors import InvalidRequest
from protocol.request import ChatRequest, OtherPart, TextPart, ToolUsePart, Turn
from protocol.target import Target, Translated
from tests.support.checks.decoding import turns_of
from tests.support.json_values import Json
from tests.support.request_codecs import read_request, sent_body, written_body
from tests.support.upstreams import converse as made

CLAUDE, NOVA, OSS, LLAMA = (
    "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "us.amazon.nova-2-lite-v1:0",
    "openai.gpt-oss-120b-1:0",
    "meta.llama3-3-70b",
)
ADAPTIVE = (
    "arn:aws:bedrock:us-east-1:123456789012:inference-profile/global.anthropic.claude-opus-4-6-v1"
)
SHAPE = made.service().operation_model("Converse").input_shape
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"0" * 8).decode()
IMAGE_URL = {"type": "image_url", "image_url": {"url": "https://a/b.png"}}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}


def blobs(value: Any) -> Any:
    """As botocore is given it: bytes where the wire has base64."""
    if isinstance(value, dict):
        return {
            k: base64.b64decode(v) if k in ("bytes", "redactedContent") else blobs(v)
            for k, v in value.items()
        }
    return [blobs(v) for v in value] if isinstance(value, list) else value


def written(client: str, body: Json, **target: Any) -> tuple[Json, Translated]:
    if client == "anthropic":
        body = {"max_tokens": 1000} | body
    request = read_request(client, {"messages": [{"role": "user", "content": "hi"}]} | body)
    translated = codecs.encode_request(request, Target(dialect="converse", **target))
    found = sent_body(translated)
    report = ParamValidator().validate(blobs(found) | {"modelId": "m"}, SHAPE)
    assert not report.has_errors(), report.generate_report()
    return found, translated


def chat(model: str = CLAUDE, **body: Any) -> tuple[Json, Translated]:
    return written("openai", {"model": model} | body)


def messages(model: str = CLAUDE, **body: Any) -> tuple[Json, Translated]:
    return written("anthropic", {"model": model} | body)


def called(identity: str = "call_1", name: str = "weather", result: Any = "mild") -> list[Json]:
    call = {
        "id": identity,
        "type": "function",
        "function": {"name": name, "arguments": '{"city": "Oslo"}'},
    }
    return [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": identity, "content": result},
    ]


def test_system_texts_turns_and_options() -> None:
    turns = [
        {"role": "system", "content": "one"},
        {"role": "user", "content": "a"},
        {"role": "user", "content": " "},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": "c"},
        {"role": "system", "content": "two"},
    ]
    body, got = chat(
        messages=turns, max_completion_tokens=9, temperature=1.7, stop=["x", " "], user="someone"
    )
    assert body["system"] == [{"text": "one"}]
    assert [(m["role"], [b["text"] for b in m["content"]]) for m in body["messages"]] == [
        ("user", ["a", "b"]),
        ("assistant", ["c"]),
        ("user", ["[system message] two"]),
    ]
    assert body["inferenceConfig"] == {"maxTokens": 9, "temperature": 1.0, "stopSequences": ["x"]}
    assert got.dropped == ("user", "stop")
    assert chat(messages=[{"role": "system", "content": "only"}])[0] == {
        "messages": [{"role": "user", "content": [{"text": "only"}]}]
    }


@pytest.mark.parametrize(
    ("content", "is_error", "model", "want"),
    [
        ("", False, CLAUDE, {"content": []}),
        ("x", True, NOVA, {"content": [{"text": "x"}], "status": "error"}),
        ("x", True, LLAMA, {"content": [{"text": "[error]"}, {"text": "x"}]}),
        (
            [
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": PNG},
                }
            ],
            False,
            CLAUDE,
            {"content": [{"image": {"format": "png", "source": {"bytes": PNG}}}]},
        ),
    ],
)
def test_results(content: Any, is_error: bool, model: str, want: Json) -> None:
    result = {"type": "tool_result", "tool_use_id": "t", "content": content, "is_error": is_error}
    use = {"type": "tool_use", "id": "t", "name": "weather", "input": {"a": 1.50}}
    turns = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{"type": "text", "text": "and?"}, result]},
    ]
    body, _ = messages(model, messages=turns)
    assert body["messages"][2]["content"] == [
        {"toolResult": {"toolUseId": "t"} | want},
        {"text": "and?"},
    ]


@pytest.mark.parametrize(
    ("choice", "model", "want", "dropped"),
    [
        ("auto", CLAUDE, None, ()),
        ("required", CLAUDE, {"any": {}}, ()),
        ("required", LLAMA, None, ("tool_choice",)),
        (
            {"type": "function", "function": {"name": "weather"}},
            NOVA,
            {"tool": {"name": "weather"}},
            (),
        ),
        ({"type": "function", "function": {"name": "weather"}}, OSS, None, ("tool_choice",)),
    ],
)
def test_the_choice_of_a_tool(choice: Any, model: str, want: Any, dropped: tuple[str, ...]) -> None:
    body, got = chat(model, tools=[TOOL], tool_choice=choice)
    assert (body["toolConfig"].get("toolChoice"), got.dropped) == (want, dropped)


def test_no_choice_means_no_tools_and_after_calls_it_is_refused() -> None:
    assert "toolConfig" not in chat(tools=[TOOL], tool_choice="none")[0]
    with pytest.raises(InvalidRequest, match="none cannot be sent"):
        chat(messages=called(), tools=[TOOL], tool_choice="none")


def test_one_call_at_a_time() -> None:
    body, got = chat(tools=[TOOL], tool_choice="required", parallel_tool_calls=False)
    assert body["additionalModelRequestFields"]["tool_choice"] == {
        "type": "any",
        "disable_parallel_tool_use": True,
    }
    assert "toolChoice" not in body["toolConfig"] and got.dropped == ()
    assert chat(NOVA, tools=[TOOL], parallel_tool_calls=False)[1].dropped == (
        "parallel_tool_calls",
    )


@pytest.mark.parametrize(
    ("model", "effort", "fields", "dropped"),
    [
        (CLAUDE, "low", {"thinking": {"type": "enabled", "budget_tokens": 2048}}, ()),
        (
            ADAPTIVE,
            "xhigh",
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
            (),
        ),
        (
            NOVA,
            "minimal",
            {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low"}},
            (),
        ),
        (OSS, "xhigh", {"reasoning_effort": "high"}, ()),
        (LLAMA, "low", None, ("reasoning_effort",)),
        (LLAMA, "none", None, ()),
    ],
)
def test_how_much_to_think(model: str, effort: str, fields: Any, dropped: tuple[str, ...]) -> None:
    body, got = chat(model, reasoning_effort=effort)
    assert (body.get("additionalModelRequestFields"), got.dropped) == (fields, dropped)


def test_a_budget_leaves_room_and_takes_no_sampling() -> None:
    body, got = messages(
        max_tokens=3000,
        thinking={"type": "enabled", "budget_tokens": 2000},
        temperature=0.5,
        top_k=3,
    )
    assert body["additionalModelRequestFields"] == {
        "thinking": {"type": "enabled", "budget_tokens": 2000}
    }
    assert body["inferenceConfig"] == {"maxTokens": 3000} and set(got.dropped) == {
        "temperature",
        "top_k",
    }
    assert chat(messages=called(), reasoning_effort="low")[1].dropped == ("reasoning_effort",)
    assert messages(NOVA, top_k=3)[0]["additionalModelRequestFields"] == {
        "inferenceConfig": {"topK": 3}
    }


def test_the_form_of_the_answer() -> None:
    spec = {"type": "json_schema", "json_schema": {"name": "an answer", "schema": SCHEMA}}
    native, _ = chat(response_format=spec)
    form = native["outputConfig"]["textFormat"]["structure"]["jsonSchema"]
    assert (
        json.loads(form["schema"])["properties"] == SCHEMA["properties"]
        and form["name"] == "an_answer"
    )
    emulated, got = chat(NOVA, response_format=spec)
    assert got.restore.json_tool == "json_response" and emulated["toolConfig"]["toolChoice"] == {
        "tool": {"name": "json_response"}
    }
    told, got = chat(LLAMA, response_format=spec)
    assert "toolChoice" not in told["toolConfig"] and "json_response" in told["system"][-1]["text"]
    loose, _ = chat(LLAMA, response_format={"type": "json_object"}, tools=[TOOL])
    assert (
        "one JSON object" in loose["system"][-1]["text"] and len(loose["toolConfig"]["tools"]) == 1
    )


@pytest.mark.parametrize("cited", [True, False])
def test_a_search_result_says_whether_it_is_to_be_cited(cited: bool) -> None:
    found: Json = {
        "type": "search_result",
        "source": "https://e",
        "title": "T",
        "content": [{"type": "text", "text": "x"}],
    }
    found |= {"citations": {"enabled": True}} if cited else {}
    call = {"type": "tool_use", "id": "t", "name": "find", "input": {}}
    asked = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [call]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t", "content": [found]}],
        },
    ]
    body, _ = messages(messages=asked, tools=[{"name": "find", "input_schema": SCHEMA}])
    [said] = body["messages"][2]["content"][0]["toolResult"]["content"]
    assert said["searchResult"].get("citations") == ({"enabled": True} if cited else None)
    request = read_request("anthropic", {"model": "m", "max_tokens": 9, "messages": asked})
    for other in ("openai", "gemini"):
        assert (
            "messages[].citations" in codecs.encode_request(request, Target(dialect=other)).dropped
        ) == cited


def test_images_and_documents() -> None:
    documents = [
        {
            "type": "document",
            "title": title,
            "source": {"type": "text", "media_type": "text/plain", "data": "x"},
        }
        for title in ("a/é.txt", "a/é.txt", "")
    ]
    documents.append(
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
        }
    )
    body, _ = messages(
        messages=[{"role": "user", "content": [*documents, {"type": "text", "text": "these"}]}]
    )
    found = [b["document"] for b in body["messages"][0]["content"][:-1]]
    names = [d["name"] for d in found]
    assert len(set(names)) == 4 and all(
        re.fullmatch(r"[A-Za-z0-9 \-()\[\]]+", n) and "  " not in n for n in names
    )
    assert [d["format"] for d in found] == ["txt", "txt", "txt", "pdf"]
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    body, _ = chat(messages=[{"role": "user", "content": [image]}])
    assert body["messages"][0]["content"] == [
        {"image": {"format": "png", "source": {"bytes": PNG}}}
    ]


def test_marks_for_the_cache() -> None:
    mark = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    tool = {"name": "weather", "input_schema": SCHEMA} | mark
    text = [{"type": "text", "text": str(i)} | mark for i in range(4)]
    body, got = messages(
        system=[{"type": "text", "text": "s"} | mark],
        tools=[tool],
        messages=[{"role": "user", "content": text}],
    )
    point = {"cachePoint": {"type": "default", "ttl": "1h"}}
    assert body["system"] == [{"text": "s"}, point]
    assert json.dumps(body).count("cachePoint") == 4 and got.dropped == ("cache_control",)
    assert "cachePoint" not in json.dumps(
        messages(LLAMA, system=[{"type": "text", "text": "s"} | mark])[0]
    )


def test_what_the_provider_runs_needs_its_family_and_a_model_that_has_it() -> None:
    search: Json = {"web_search_options": {}}
    body, _ = written("openai", {"model": NOVA} | search, families=frozenset(("web_search",)))
    assert body["toolConfig"]["tools"] == [{"systemTool": {"name": "nova_grounding"}}]
    code = {"model": NOVA, "tools": [{"type": "code_execution_20250825", "name": "code_execution"}]}
    body, _ = written("anthropic", code, families=frozenset(("code_execution",)))
    assert body["toolConfig"]["tools"] == [{"systemTool": {"name": "nova_code_interpreter"}}]
    for client, asked, families in (
        ("openai", {"model": NOVA} | search, ()),
        ("openai", {"model": CLAUDE} | search, ("web_search",)),
        ("anthropic", code, ("web_search",)),
    ):
        with pytest.raises(InvalidRequest):
            written(client, asked, families=frozenset(families))


@pytest.mark.parametrize(
    ("client", "body", "named"),
    [
        *(
            ("openai", {name: {"a": 1}}, name)
            for name in (
                "guardrailConfig",
                "performanceConfig",
                "requestMetadata",
                "promptVariables",
                "additionalModelRequestFields",
                "inferenceConfig",
                "additionalModelResponseFieldPaths",
                "outputConfig",
            )
        ),
        ("openai", {"messages": [{"role": "assistant", "content": "x"}]}, "messages"),
        ("openai", {"messages": [{"role": "user", "content": [IMAGE_URL]}]}, "messages"),
        (
            "openai",
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "other"}}},
            "tool_choice",
        ),
        ("anthropic", {"tools": [{"type": "web_fetch_20250910", "name": "web_fetch"}]}, "tools"),
        (
            "anthropic",
            {"mcp_servers": [{"type": "url", "url": "https://a", "name": "m"}]},
            "mcp_servers",
        ),
    ],
)
def test_what_cannot_be_said_is_refused_by_name(client: str, body: Json, named: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        written(client, {"model": CLAUDE} | body)
    assert raised.value.param == named


def test_a_recorded_turn_goes_back_as_it_was_and_to_its_own_upstream_alone() -> None:
    builder = turns_of("converse").TurnBuilder()
    for chunk in EventStreamSplitter(1 << 20).feed(made.thought_call("tooluse_1")):
        builder.take(chunk)
    assert builder.complete
    stored = StoredTurn(
        call_id="c",
        upstream="aws",
        model=CLAUDE,
        container="",
        content=builder.content(),
        tool_call_ids=("call_1",),
        blocks=(2,),
    )
    request = read_request("openai", {"model": CLAUDE, "messages": called()})
    turned, container, dropped = turns_of("converse").with_turns(request, [stored], upstream="aws")
    assert (container, dropped) == ("", [])
    body = written_body(turned, Target(dialect="converse"))
    sealed = {"reasoningText": {"text": "The weather is asked.", "signature": made.THOUGHT}}
    assert body["messages"][1]["content"][0] == {"reasoningContent": sealed}
    assert body["messages"][1]["content"][-1]["toolUse"]["toolUseId"] == "call_1"
    assert turns_of("converse").with_turns(request, [stored], upstream="other")[0] is request


def test_a_request_that_is_made_here_is_written_too() -> None:
    request = ChatRequest(
        dialect="converse", model=CLAUDE, system=("s",), turns=(Turn("user", (TextPart("q"),)),)
    )
    body = written_body(request, Target(dialect="converse"))
    assert body == {
        "messages": [{"role": "user", "content": [{"text": "q"}]}],
        "system": [{"text": "s"}],
    }
    odd = ChatRequest(
        dialect="openai",
        model=CLAUDE,
        turns=(Turn("user", (OtherPart("x", {"type": "x"}, "other"),)),),
    )
    with pytest.raises(InvalidRequest):
        codecs.encode_request(odd, Target(dialect="converse"))
    broken = ChatRequest(
        dialect="converse",
        model=CLAUDE,
        turns=(Turn("user", (TextPart("q"),)), Turn("assistant", (ToolUsePart("a", "n", "{"),))),
    )
    with pytest.raises(InvalidRequest, match="cannot be read"):
        codecs.encode_request(broken, Target(dialect="converse"))


def test_whatever_is_asked_is_valid_or_refused() -> None:
    for seed in range(150):
        chance = random.Random(seed)
        body: Json = {"model": chance.choice((CLAUDE, ADAPTIVE, NOVA, OSS, LLAMA, "anything"))}
        options = {
            "messages": called(
                chance.choice(("é" * 80, "a b", "ok")),
                chance.choice(("weather", "x.y", "z" * 90)),
                chance.choice(("", "r")),
            ),
            "tools": [TOOL],
            "tool_choice": chance.choice(("auto", "required", "none")),
            "temperature": chance.choice((0, 0.3, 2)),
            "top_p": 0.5,
            "max_tokens": chance.choice((1, 5000)),
            "reasoning_effort": chance.choice(("none", "low", "high")),
            "stop": chance.choice(("x", ["\n", "y"])),
            "parallel_tool_calls": chance.choice((True, False)),
            "service_tier": "flex",
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "é", "schema": SCHEMA},
            },
        }
        body |= {name: value for name, value in options.items() if chance.random() < 0.5}
        try:
            written("openai", body)
        except InvalidRequest as error:
            if not error.param:
                pytest.fail(f"seed {seed}: {error.message}")
