"""Requests of both clients written for Gemini, each checked against the official SDK's types;
recorded turns with their signatures."""

import json
from typing import Any

import pytest

from protocol.bytes.json_schema_parts import Unsupported
from protocol.dialects.gemini.messages_write import NO_SIGNATURE
from protocol.dialects.gemini.schema import openapi
from protocol.dialects.gemini.tools_write import NAMES
from protocol.dialects.turns_write import SYSTEM_MARK
from protocol.errors import InvalidRequest
from protocol.requests.names import Names
from tests.support.json_values import Json
from tests.support.upstreams.gemini import MODEL, answer, body_of, call, piece, stored_turn, write

USER: Json = {"role": "user", "content": "hi"}
PNG = "iVBORw0KGgo="
SCHEMA = {"type": "object", "properties": {"a": {"type": ["integer", "null"]}}, "required": ["a"]}
FORM = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}


def tool(name: str = "weather", **function: Any) -> Json:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    return {"type": "function", "function": {"name": name, "parameters": parameters, **function}}


def calls(*ids: str, name: str = "weather") -> Json:
    made = [
        {"id": i, "type": "function", "function": {"name": name, "arguments": f'{{"city":"{i}"}}'}}
        for i in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


def result(identity: str, content: str = "rain") -> Json:
    return {"role": "tool", "tool_call_id": identity, "content": content}


def asked(*messages: Json, **more: Any) -> Json:
    return {"messages": list(messages) or [USER], **more}


def signatures(sent: Json) -> list[str]:
    return [
        p.get("thoughtSignature", "")
        for c in sent["contents"]
        for p in c["parts"]
        if "functionCall" in p
    ]


def test_roles_alternate_and_begin_with_the_user() -> None:
    said = {"role": "assistant", "content": "a"}
    sent, written = write(
        asked(
            {"role": "system", "content": "S"},
            said,
            said,
            USER,
            {"role": "system", "content": "later"},
            USER,
        )
    )
    assert sent["systemInstruction"] == {"parts": [{"text": "S"}]}
    assert [c["role"] for c in sent["contents"]] == ["user", "model", "user"]
    assert [p["text"] for p in sent["contents"][2]["parts"]] == ["hi", f"{SYSTEM_MARK}later", "hi"]
    assert written.dropped == ()
    assert write(asked({"role": "system", "content": "S"}))[0] == {
        "contents": [{"role": "user", "parts": [{"text": "S"}]}]
    }
    gemma, _ = write(asked({"role": "system", "content": "S"}, USER), model="gemma-3-27b-it")
    assert (
        gemma["contents"][0]["parts"] == [{"text": "S"}, {"text": "hi"}]
        and "systemInstruction" not in gemma
    )


def test_results_stand_in_one_content_in_the_order_of_their_calls() -> None:
    sent, written = write(asked(USER, calls("1", "2"), result("2", '{"x": 1}'), result("1"), USER))
    responses = [
        p["functionResponse"] for p in sent["contents"][2]["parts"] if "functionResponse" in p
    ]
    assert responses == [
        {"name": "weather", "response": {"output": "rain"}},
        {"name": "weather", "response": {"x": 1}},
    ]
    assert sent["contents"][2]["parts"][2] == {"text": "hi"} and written.dropped == (
        "thought_signature",
    )


@pytest.mark.parametrize(
    ("messages", "left", "dropped"),
    [
        (
            [USER, calls("1", "2"), result("1")],
            ["1"],
            ("messages[].tool_calls", "thought_signature"),
        ),
        ([USER, calls("1"), USER], [], ("messages[].tool_calls",)),
        ([USER, result("9"), USER], [], ("messages[].tool_result",)),
        (
            [USER, calls("1"), result("1"), calls("1"), result("1")],
            ["1", "1"],
            ("thought_signature",),
        ),
    ],
)
def test_a_call_and_its_result_stand_together_or_not_at_all(
    messages: list[Any], left: list[str], dropped: tuple[str, ...]
) -> None:
    sent, written = write(asked(*messages))
    assert [
        p["functionCall"]["args"]["city"]
        for c in sent["contents"]
        for p in c["parts"]
        if "functionCall" in p
    ] == left
    assert set(written.dropped) == set(dropped)


def test_reasoning_alone_between_results_and_text_parts_no_contents() -> None:
    use = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}],
    }
    thought = {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}],
    }
    answered = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "1", "content": "x"}],
    }
    sent, _ = write(asked(USER, use, answered, thought, USER), "anthropic")
    assert [len(content["parts"]) for content in sent["contents"]] == [1, 1, 2]
    # the text stands beside a result, so the call before it is of the current turn
    assert sent["contents"][1]["parts"][0]["thoughtSignature"] == "skip_thought_signature_validator"


def test_an_error_and_media_in_results_of_a_messages_client() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    use = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}],
    }
    failed = {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": "no"}
    shown = {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": [{"type": "text", "text": "see"}, image],
    }
    for model, block, after in (
        (MODEL, shown, 1),
        ("gemini-2.5-flash", shown, 3),
        (MODEL, failed, 1),
    ):
        sent, _ = write(
            asked(USER, use, {"role": "user", "content": [block]}), "anthropic", model=model
        )
        response = sent["contents"][2]["parts"][0]["functionResponse"]
        assert response["response"] == (
            {"error": "no"} if block is failed else {"output": "see[file]"}
        )
        assert len(sent["contents"][2]["parts"]) == after and ("parts" in response) == (
            block is shown and model == MODEL
        )


def test_media_go_inline_and_no_url_is_fetched() -> None:
    parts = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        {
            "type": "file",
            "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="},
        },
    ]
    sent, _ = write(asked({"role": "user", "content": parts}))
    assert [
        p["inlineData"]["mimeType"] for p in sent["contents"][0]["parts"] if "inlineData" in p
    ] == ["image/png", "application/pdf"]
    stored = {"type": "image", "source": {"type": "url", "url": "gs://bucket/a.png"}}
    sent, _ = write(asked({"role": "user", "content": [stored]}), "anthropic")
    assert sent["contents"][0]["parts"] == [
        {"fileData": {"fileUri": "gs://bucket/a.png", "mimeType": "image/png"}}
    ]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (
            asked(
                {
                    "role": "user",
                    "content": [
                        {"type": "image_url", "image_url": {"url": "https://x.example/a.png"}}
                    ],
                }
            ),
            "messages",
        ),
        (
            asked({"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}),
            "messages",
        ),
        (asked(n=2), "n"),
        (asked(stop=list("abcdef")), "stop"),
        (asked(logprobs=True), "logprobs"),
        (asked(seed="x"), "seed"),
        *[
            (asked(**{name: value}), name)
            for name, value in (
                ("safetySettings", []),
                ("cachedContent", "c"),
                ("labels", {"a": "b"}),
            )
        ],
        (asked(web_search_options={}), "web_search_options"),
        (
            asked(tools=[tool()], tool_choice={"type": "function", "function": {"name": "other"}}),
            "tool_choice",
        ),
        (asked(tool_choice="required"), "tool_choice"),
        (
            asked(
                USER,
                {
                    **calls("1"),
                    "tool_calls": [
                        {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{"}}
                    ],
                },
                result("1"),
            ),
            "messages",
        ),
    ],
)
def test_what_cannot_be_said_is_refused_by_name(body: Json, param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        write(body)
    assert refused.value.param == param


def test_strict_tools_are_validated_and_what_has_no_word_is_noted() -> None:
    sent, written = write(
        asked(
            tools=[tool(strict=True)],
            parallel_tool_calls=False,
            user="u",
            logit_bias={"1": 1},
            seed=3,
            presence_penalty=0.5,
        )
    )
    assert sent["toolConfig"] == {"functionCallingConfig": {"mode": "VALIDATED"}}
    assert sent["generationConfig"] == {"seed": 3, "presencePenalty": 0.5}
    assert set(written.dropped) == {"parallel_tool_calls", "user", "logit_bias"}


@pytest.mark.parametrize("name", ["a b", "1st", "", "x" * 65, "weather!", "\u00fc", "-a"])
def test_names_are_rewritten_each_to_one_of_its_own(name: str) -> None:
    names = Names([name, "weather", name + "?"], NAMES)
    there = {names.upstream(one) for one in (name, "weather", name + "?")}
    assert len(there) == 3 and all(
        0 < len(one) <= 64 and (one[0].isalpha() or one[0] == "_") and one.isascii()
        for one in there
    )
    assert names.upstream("weather") == "weather" and set(names.changed().values()) == {
        name,
        name + "?",
    }
    taken = Names([name, names.upstream(name)], NAMES)
    assert taken.upstream(name) != names.upstream(name), (
        "a client's name that looks like ours is another tool"
    )


@pytest.mark.parametrize(
    ("model", "more", "has"),
    [
        ("gemini-3-pro", {}, {"form"}),
        ("gemini-3-pro", {"tools": [tool()]}, {"form"}),
        ("gemini-2.5-pro", {}, {"form"}),
        ("gemini-2.5-pro", {"tools": [tool()]}, {"json_tool"}),
        ("gemini-2.0-flash", {"tools": [tool()]}, {"json_tool"}),
        ("gemini-2.0-flash", {}, {"older"}),
        ("gemini-2.5-pro", {"tools": [tool()], "tool_choice": "none"}, {"form"}),
        ("gemini-2.5-pro", {"tools": [tool()], "tool_choice": "required"}, set()),
    ],
)
def test_the_form_of_the_answer(model: str, more: Json, has: set[str]) -> None:
    sent, written = write(asked(response_format=FORM, **more), model=model)
    config = sent.get("generationConfig", {})
    found = {
        "form": config.get("responseJsonSchema") == SCHEMA,
        "older": config.get("responseSchema") == openapi(SCHEMA),
        "json_tool": written.restore.json_tool == "json_response",
    }
    assert {name for name, is_there in found.items() if is_there} == has
    if "json_tool" in has:
        assert sent["toolConfig"]["functionCallingConfig"]["mode"] == "ANY"


SEARCH = {"type": "web_search_20250305", "name": "web_search"}


@pytest.mark.parametrize(
    ("tool_type", "field"),
    [
        (SEARCH, "googleSearch"),
        ({"type": "web_fetch_20250910", "name": "web_fetch"}, "urlContext"),
        ({"type": "code_execution_20250825", "name": "code_execution"}, "codeExecution"),
    ],
)
def test_tools_that_the_provider_runs_need_their_family_and_show_their_calls(
    tool_type: Json, field: str
) -> None:
    with pytest.raises(InvalidRequest, match="not allowed with this key"):
        write(asked(tools=[tool_type]), "anthropic")
    family = frozenset((tool_type["name"],))
    sent, _ = write(asked(tools=[tool_type]), "anthropic", families=family)
    assert sent["tools"] == [{field: {}}] and sent["toolConfig"] == {
        "includeServerSideToolInvocations": True
    }
    with pytest.raises(InvalidRequest, match="together with functions"):
        write(
            asked(tools=[tool_type, {"name": "f", "input_schema": {"type": "object"}}]),
            "anthropic",
            model="gemini-2.5-pro",
            families=family,
        )


def test_a_search_of_chat_completions_and_domains_that_cannot_be_kept() -> None:
    family = frozenset(("web_search",))
    sent, written = write(asked(web_search_options={"search_context_size": "low"}), families=family)
    assert sent["tools"] == [{"googleSearch": {}}] and written.dropped == (
        "web_search_options.search_context_size",
    )
    with pytest.raises(InvalidRequest, match="blocked_domains"):
        write(
            asked(tools=[SEARCH | {"blocked_domains": ["x.example"]}]), "anthropic", families=family
        )


@pytest.mark.parametrize(
    ("model", "thinking", "config", "dropped"),
    [
        (
            "gemini-2.5-pro",
            {"type": "enabled", "budget_tokens": 4000},
            {"includeThoughts": True, "thinkingBudget": 4000},
            (),
        ),
        ("gemini-2.5-pro", {"type": "disabled"}, {"thinkingBudget": 128}, ("thinking",)),
        ("gemini-2.5-flash", {"type": "disabled"}, {"thinkingBudget": 0}, ()),
        (
            "gemini-2.5-flash",
            {"type": "adaptive"},
            {"includeThoughts": True, "thinkingBudget": -1},
            (),
        ),
        (
            "gemini-3-flash",
            {"type": "enabled", "budget_tokens": 4000},
            {"includeThoughts": True, "thinkingLevel": "MEDIUM"},
            (),
        ),
        (
            "gemini-3-pro",
            {"type": "enabled", "budget_tokens": 4000},
            {"includeThoughts": True, "thinkingLevel": "LOW"},
            (),
        ),
        ("gemini-3-flash", {"type": "disabled"}, {"thinkingLevel": "MINIMAL"}, ("thinking",)),
        ("gemini-2.0-flash", {"type": "enabled", "budget_tokens": 4000}, None, ("thinking",)),
    ],
)
def test_thinking_by_what_the_model_takes(
    model: str, thinking: Any, config: Any, dropped: tuple[str, ...]
) -> None:
    sent, written = write(asked(thinking=thinking), "anthropic", model=model)
    assert sent["generationConfig"].get("thinkingConfig") == config and written.dropped == dropped


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({"type": ["string", "null"]}, {"type": "STRING", "nullable": True}),
        ({"const": 1}, {"type": "STRING", "format": "enum", "enum": ["1"]}),
        (
            {"enum": ["a", None]},
            {"type": "STRING", "format": "enum", "enum": ["a"], "nullable": True},
        ),
        (
            {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "d"},
            {"type": "STRING", "description": "d", "nullable": True},
        ),
        (
            {"oneOf": [{"type": "string"}, {"type": "integer"}]},
            {"anyOf": [{"type": "STRING"}, {"type": "INTEGER"}]},
        ),
        ({"$ref": "#/$defs/d"}, {"type": "BOOLEAN"}),
        (
            {"allOf": [{"$ref": "#/$defs/d"}, {"description": "d"}]},
            {"type": "BOOLEAN", "description": "d"},
        ),
        ({"type": "string", "format": "email", "default": "x", "examples": []}, {"type": "STRING"}),
        ({"type": "array"}, {"type": "ARRAY", "items": {"type": "STRING"}}),
    ],
)
def test_a_schema_in_the_older_subset(schema: Json, written: Json) -> None:
    root = {
        "type": "object",
        "$defs": {"d": {"type": "boolean"}},
        "properties": {"p": schema},
        "additionalProperties": False,
    }
    assert openapi(root) == {"type": "OBJECT", "properties": {"p": written}}


def test_schemas_that_go_in_a_circle_or_grow_are_refused() -> None:
    loop = {"type": "object", "properties": {"p": {"$ref": "#"}}}
    wide: Json = {
        "type": "object",
        "properties": {"p": {"$ref": "#/$defs/d0"}},
        "$defs": {"d20": {"type": "string"}},
    }
    wide["$defs"] |= {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(20)}
    deep: Json = {"type": "string"}
    for _ in range(500):
        deep = {"type": "array", "items": deep}
    for schema in (
        loop,
        wide,
        {"type": "object", "properties": {"p": deep}},
        {"type": "object", "properties": {"p": {"allOf": [{"$ref": "#/properties/p"}]}}},
    ):
        with pytest.raises(Unsupported):
            openapi(schema)
    assert openapi({"type": "object", "properties": {}}) is None


# --- recorded turns ---

THOUGHT: Json = {"text": "hm", "thought": True}


def turn_of(*parts: Json, ids: tuple[str, ...], blocks: tuple[int, ...], **more: Any) -> Any:
    return stored_turn(
        body_of(*(answer(part, finish=None) for part in parts), answer()),
        ids=ids,
        blocks=blocks,
        **more,
    )


@pytest.mark.parametrize("client", ["openai", "anthropic"])
def test_each_part_comes_back_with_its_own_signature(client: str) -> None:
    parts: list[Json] = [
        THOUGHT,
        {"text": "I look. "},
        {"text": "Now.", "thoughtSignature": "AAAA"},
        call(signature="BBBB", city="x"),
        call(city="y"),
    ]
    stored = turn_of(*parts, ids=("1", "2"), blocks=(3, 4))
    if client == "openai":
        history = [calls("1", "2") | {"content": "I look. Now."}, result("1"), result("2")]
    else:
        uses = [
            {"type": "tool_use", "id": i, "name": "weather", "input": {"city": i}} for i in "12"
        ]
        thought = {"type": "thinking", "thinking": "hm", "signature": ""}
        said = [{"type": "text", "text": "I look. "}, {"type": "text", "text": "Now."}]
        results = [{"type": "tool_result", "tool_use_id": i, "content": "rain"} for i in "12"]
        history = [
            {"role": "assistant", "content": [thought, *said, *uses]},
            {"role": "user", "content": results},
        ]
    sent, written = write(asked(USER, *history), client, stored=[stored])
    one, two = ({"functionCall": {"name": "weather", "args": {"city": i}}} for i in "12")
    assert sent["contents"][1]["parts"] == [
        {"text": "I look. "},
        parts[2],
        one | {"thoughtSignature": "BBBB"},
        two,
    ]
    assert written.dropped == ()


def test_a_signature_on_an_empty_part_and_what_the_provider_ran_come_back() -> None:
    code = {
        "executableCode": {"language": "PYTHON", "code": "1", "id": "c"},
        "thoughtSignature": "CCCC",
    }
    ran = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "id": "c"}}
    search = {"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "id": "s", "args": {"n": 1.5}}}
    found = {
        "toolResponse": {"toolType": "GOOGLE_SEARCH_WEB", "id": "s", "response": {"a": [1]}},
        "thoughtSignature": "DDDD",
    }
    empty: Json = {"text": "", "thoughtSignature": "EEEE"}
    parts: list[Json] = [
        code,
        ran,
        search,
        found,
        {"text": "a"},
        empty,
        {"functionCall": {"name": "weather", "args": {}, "id": "up-1"}},
        empty,
    ]
    sent, written = write(
        asked(USER, calls("1") | {"content": "a"}, result("1")),
        stored=[turn_of(*parts, ids=("1",), blocks=(5,))],
    )
    made = {
        "functionCall": {"name": "weather", "args": {"city": "1"}, "id": "up-1"},
        "thoughtSignature": NO_SIGNATURE,
    }
    assert sent["contents"][1]["parts"] == [*parts[:6], made, empty]
    assert sent["contents"][2]["parts"][0]["functionResponse"][
        "id"
    ] == "up-1" and written.dropped == ("thought_signature",)


def test_a_blocked_call_stays_out_with_what_seals_it() -> None:
    # the client got the second call alone
    stored = turn_of(call("rm", signature="BBBB"), call(city="x"), ids=("2",), blocks=(1,))
    sent, written = write(asked(USER, calls("2"), result("2")), stored=[stored])
    assert (
        "rm" not in json.dumps(sent)
        and signatures(sent) == [NO_SIGNATURE]
        and written.dropped == ("thought_signature",)
    )


def test_a_turn_is_complete_with_its_finish_and_a_cut_one_never() -> None:
    with pytest.raises(AssertionError):
        stored_turn(body_of(answer(call(), finish=None)), ids=(), blocks=())
    with pytest.raises(AssertionError):
        stored_turn(body_of(answer(piece(name="f"), finish="MAX_TOKENS")), ids=(), blocks=())
    late = answer(call(signature="BBBB")), {"usageMetadata": {"promptTokenCount": 1}}
    assert stored_turn(body_of(*late), ids=("1",), blocks=(0,)).content[0]["signature"] == "BBBB"


def test_what_comes_after_a_finish_reason_is_of_the_turn() -> None:
    # some models end each chunk with one
    chunks = (
        answer({"text": "I look. "}),
        answer({"text": "Now."}),
        answer(call(signature="BBBB")),
        answer(call(signature="CCCC")),
    )
    stored = stored_turn(body_of(*chunks), ids=("1", "2"), blocks=(2, 3))
    sent, written = write(
        asked(USER, calls("1", "2") | {"content": "I look. Now."}, result("1"), result("2")),
        stored=[stored],
    )
    assert signatures(sent) == ["BBBB", "CCCC"] and written.dropped == ()
    assert "".join(p.get("text", "") for p in sent["contents"][1]["parts"]) == "I look. Now."
    # a record that ends before a call: the call is the client's, and stays
    short = stored_turn(body_of(*chunks[:3]), ids=("1", "2"), blocks=(2, 3))
    assert signatures(
        write(asked(USER, calls("1", "2"), result("1"), result("2")), stored=[short])[0]
    ) == ["BBBB", ""]
    failed = body_of(answer(call()), {"error": {"code": 500, "message": "m", "status": "INTERNAL"}})
    with pytest.raises(AssertionError):
        stored_turn(failed, ids=("1",), blocks=(0,))
