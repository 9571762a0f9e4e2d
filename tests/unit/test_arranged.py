"""What clients of one dialect may say anywhere, and providers of another take in one place: system
messages, and results of calls."""

import json
from typing import Any

import pytest

from protocol import codecs
from protocol.dialects.table import CLIENTS, DIALECTS
from protocol.request import ChatRequest, TextPart, ToolResultPart, ToolUsePart, Turn
from protocol.target import Target
from tests.support.json_values import Json, as_json
from tests.support.request_codecs import sent_body

STRICT = "qwen3.8-27b"
MODELS = {
    "openai": STRICT,
    "anthropic": "claude-sonnet-4-5",
    "responses": STRICT,
    "gemini": "gemini-2.5-flash",
    "converse": "qwen.qwen3",
}
INPUT = {
    "openai": "messages",
    "anthropic": "messages",
    "responses": "input",
    "gemini": "contents",
    "converse": "messages",
}


def written(client: str, body: Json, upstream: str, model: str = "", **target: Any) -> Json:
    limit = {"max_tokens": 100} if client == "anthropic" else {}
    asked = as_json({"model": model or MODELS[upstream], **limit, **body})
    made = codecs.encode_request(
        CLIENTS[client].decode_request(asked), Target(dialect=upstream, **target)
    )
    found: Json = json.loads(made.body or asked)
    return found


def roles(body: Json, upstream: str) -> list[str]:
    return [str(one.get("role") or one["type"]) for one in body[INPUT[upstream]]]


def system_in_the_middle(client: str) -> Json:
    said = [("user", "q"), ("system", "later"), ("assistant", "a"), ("user", "r")]
    messages = [{"role": role, "content": text} for role, text in said]
    match client:
        case "anthropic":
            return {"system": "first", "messages": messages}
        case "responses":
            return {"instructions": "first", "input": messages}
        case _:
            return {"messages": [{"role": "system", "content": "first"}, *messages]}


@pytest.mark.parametrize("upstream", DIALECTS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_provider_that_may_have_a_strict_template_gets_one_system_message_and_gets_it_first(
    client: str, upstream: str
) -> None:
    if client == upstream:
        return
    body = written(client, system_in_the_middle(client), upstream)
    front = ["system"] if upstream == "openai" else []
    assert roles(body, upstream) == [
        *front,
        "user",
        "model" if upstream == "gemini" else "assistant",
        "user",
    ]
    first = body[INPUT[upstream]][len(front)]
    assert "q" in str(first) and "[system message] later" in str(first)


@pytest.mark.parametrize(
    ("upstream", "model", "role"),
    [
        ("openai", "gpt-4.1", "system"),
        ("openai", "gpt-5.5", "developer"),
        ("responses", "gpt-5.5", "developer"),
    ],
)
def test_models_of_the_vendor_keep_a_later_system_message_in_its_place(
    upstream: str, model: str, role: str
) -> None:
    body = written("anthropic", system_in_the_middle("anthropic"), upstream, model)
    assert (
        body[INPUT[upstream]][-3]["role"] == role
        and body[INPUT[upstream]][-3]["content"] == "later"
    )


@pytest.mark.parametrize("upstream", [name for name in DIALECTS if name != "anthropic"])
def test_system_messages_before_the_first_question_join_the_system_prompt(upstream: str) -> None:
    leading = [
        {"role": "system", "content": "two"},
        {"role": "system", "content": [{"type": "text", "text": "three"}]},
    ]
    body = written(
        "anthropic",
        {"system": "one", "messages": [*leading, {"role": "user", "content": "q"}]},
        upstream,
    )
    assert "[system message]" not in str(body)
    assert roles(body, upstream) == (["system", "user"] if upstream == "openai" else ["user"])
    places = {
        "openai": "messages",
        "responses": "instructions",
        "gemini": "systemInstruction",
        "converse": "system",
    }
    prompt = str(body[places[upstream]])
    assert prompt.index("one") < prompt.index("two") < prompt.index("three")


def test_tools_written_into_the_prompt_and_several_system_messages_make_one() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    messages = [
        {"role": "system", "content": "one"},
        {"role": "system", "content": "two"},
        {"role": "user", "content": "q"},
    ]
    body = written(
        "openai", {"messages": messages, "tools": [tool]}, "openai", native_tools=False, nonce="n"
    )
    assert roles(body, "openai") == ["system", "user"]
    assert body["messages"][0]["content"].endswith("one\n\ntwo")


def call(number: int) -> Json:
    return {
        "type": "function_call",
        "call_id": f"c{number}",
        "name": "f",
        "arguments": json.dumps({"n": number}),
    }


def output(number: int) -> Json:
    return {"type": "function_call_output", "call_id": f"c{number}", "output": f"out {number}"}


def message(role: str, text: str) -> Json:
    return {"type": "message", "role": role, "content": text}


BETWEEN = {
    "developer": [call(1), message("developer", "note"), output(1)],
    "user": [call(1), message("user", "note"), output(1)],
    "assistant": [call(1), call(2), output(1), message("assistant", "note"), output(2)],
    "assistant with a text of its own": [
        message("assistant", "before"),
        call(1),
        call(2),
        output(2),
        message("assistant", "note"),
        output(1),
    ],
    "user between outputs": [call(1), call(2), output(1), message("user", "note"), output(2)],
    "the next call": [
        call(1),
        call(2),
        output(1),
        call(3),
        output(2),
        message("developer", "note"),
        output(3),
    ],
}


def places(
    value: Any, at: int = -1, found: dict[str, list[int]] | None = None
) -> dict[str, list[int]]:
    """Where calls and results are in a written conversation, by what they are and in which
    message."""
    found = {"call": [], "result": []} if found is None else found
    if isinstance(value, list):
        for number, item in enumerate(value):
            places(item, number if at < 0 else at, found)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if (
                name in ("functionCall", "toolUse")
                or (name, inner) == ("type", "tool_use")
                or name == "tool_calls"
            ):
                found["call"] += [at] * (len(inner) if name == "tool_calls" else 1)
            elif name in ("functionResponse", "toolResult") or (name, inner) in (
                ("type", "tool_result"),
                ("role", "tool"),
            ):
                found["result"].append(at)
            elif isinstance(inner, list | dict):
                places(inner, at, found)
    return found


@pytest.mark.parametrize("upstream", ["openai", "anthropic", "gemini", "converse"])
@pytest.mark.parametrize("name", BETWEEN)
def test_results_stand_straight_behind_their_calls_whatever_stood_between(
    name: str, upstream: str
) -> None:
    tools = [{"type": "function", "name": "f", "parameters": {"type": "object"}}]
    body = written(
        "responses", {"input": [message("user", "go"), *BETWEEN[name]], "tools": tools}, upstream
    )
    at = places(body[INPUT[upstream]])
    calls = 3 if name == "the next call" else 2 if "call_id': 'c2" in str(BETWEEN[name]) else 1
    assert len(at["call"]) == len(at["result"]) == calls
    for where, result in zip(at["call"], at["result"], strict=True):
        # of chat/completions each result is a message of its own
        assert where < result <= where + (at["call"].count(where) if upstream == "openai" else 1)
    text = json.dumps(body[INPUT[upstream]])
    assert text.count("note") == 1 and all(f"out {n}" in text for n in range(1, calls + 1))
    assert roles(body, upstream)[-1] in ("user", "tool")


def test_results_of_several_user_turns_go_to_the_one_answer_that_called() -> None:
    def result(number: int) -> ToolResultPart:
        return ToolResultPart(f"c{number}", f"out {number}")

    calls = Turn("assistant", (ToolUsePart("c1", "f", "{}"), ToolUsePart("c2", "f", "{}")))
    turns = (
        Turn("user", (TextPart("go"),)),
        calls,
        Turn("user", (result(1), TextPart("note"))),
        Turn("user", (result(2),)),
    )
    made = codecs.encode_request(
        ChatRequest(dialect="anthropic", model=STRICT, turns=turns), Target(dialect="openai")
    )
    body = sent_body(made)
    assert roles(body, "openai") == ["user", "assistant", "tool", "tool", "user"]
