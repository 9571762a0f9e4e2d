"""The scripted providers of the agents' tests refuse what real ones refuse, so that a wrong
translation fails those tests."""

from collections.abc import Callable

import pytest

from tests.support.json_values import Json
from tests.support.vendors.checking import seal
from tests.support.vendors.server import VENDORS, vendor_of
from tests.support.vendors.story import FIRST, LAST, SECOND, Do, Refused, Say, two_turns

SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
PATHS = {
    "openai": "/v1/chat/completions",
    "anthropic": "/v1/messages",
    "responses": "/v1/responses",
    "gemini": "/v1beta/models/m:generateContent",
    "converse": "/model/m/converse",
    "strict": "/strict/v1/chat/completions",
}


def conversation(vendor: str, result: str) -> Json:
    """A request that brings back the result of one call, as each vendor takes it."""
    arguments = {"command": "x"}
    turns: list[Json]
    use: Json
    came: Json
    tool: Json
    if vendor in ("openai", "strict"):
        call: Json = {
            "id": "c1",
            "type": "function",
            "function": {"name": "bash", "arguments": '{"command": "x"}'},
        }
        turns = [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
        ]
        tool = {"type": "function", "function": {"name": "bash", "parameters": SCHEMA}}
        return {
            "model": "m",
            "tools": [tool],
            "messages": [*turns, {"role": "tool", "tool_call_id": "c1", "content": result}],
        }
    if vendor == "anthropic":
        use = {"type": "tool_use", "id": "c1", "name": "bash", "input": arguments}
        came = {"type": "tool_result", "tool_use_id": "c1", "content": result}
        turns = [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [came]},
        ]
        return {
            "model": "m",
            "max_tokens": 9,
            "tools": [{"name": "bash", "input_schema": SCHEMA}],
            "messages": turns,
        }
    if vendor == "responses":
        item: Json = {
            "type": "function_call",
            "call_id": "c1",
            "name": "bash",
            "arguments": '{"command": "x"}',
        }
        turns = [
            {"role": "user", "content": "go"},
            item,
            {"type": "function_call_output", "call_id": "c1", "output": result},
        ]
        tool = {"type": "function", "name": "bash", "parameters": SCHEMA, "strict": None}
        return {"model": "m", "store": False, "tools": [tool], "input": turns}
    if vendor == "gemini":
        part: Json = {
            "functionCall": {"name": "bash", "args": arguments},
            "thoughtSignature": seal("x"),
        }
        came = {"functionResponse": {"name": "bash", "response": {"output": result}}}
        turns = [
            {"role": r, "parts": [p]}
            for r, p in (("user", {"text": "go"}), ("model", part), ("user", came))
        ]
        return {
            "contents": turns,
            "tools": [{"functionDeclarations": [{"name": "bash", "parametersJsonSchema": SCHEMA}]}],
        }
    use = {"toolUse": {"toolUseId": "c1", "name": "bash", "input": arguments}}
    came = {"toolResult": {"toolUseId": "c1", "content": [{"text": result}]}}
    turns = [
        {"role": r, "content": [b]}
        for r, b in (("user", {"text": "go"}), ("assistant", use), ("user", came))
    ]
    return {
        "messages": turns,
        "toolConfig": {"tools": [{"toolSpec": {"name": "bash", "inputSchema": {"json": SCHEMA}}}]},
    }


def turns_of(body: Json) -> list[Json]:
    """The conversation in a request."""
    found: list[Json] = next(
        body[name] for name in ("messages", "input", "contents") if name in body
    )
    return found


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_provider_goes_through_its_story(vendor: str) -> None:
    module, path = VENDORS[vendor], PATHS[vendor]
    assert vendor_of(path) == vendor
    parts = two_turns(module.read(conversation(vendor, FIRST), path))
    assert [type(p) for p in parts] == [Say, Do, Do]
    assert two_turns(module.read(conversation(vendor, f"{FIRST} {SECOND}"), path)) == [Say(LAST)]


def _without_result(body: Json) -> None:
    turns_of(body).pop()


def _without_call(body: Json) -> None:
    del turns_of(body)[1]


def _unknown_field(body: Json) -> None:
    body["call_me"] = "x"


@pytest.mark.parametrize("damage", [_without_result, _without_call, _unknown_field])
@pytest.mark.parametrize("vendor", VENDORS)
def test_a_provider_refuses_what_real_ones_refuse(
    vendor: str, damage: Callable[[Json], None]
) -> None:
    body = conversation(vendor, FIRST)
    damage(body)
    with pytest.raises(Refused):
        VENDORS[vendor].read(body, PATHS[vendor])


def test_sealed_thoughts_are_looked_at() -> None:
    unsigned = conversation("gemini", FIRST)
    del unsigned["contents"][1]["parts"][0]["thoughtSignature"]
    foreign = conversation("responses", FIRST)
    foreign["input"].insert(1, {"type": "reasoning", "summary": [], "encrypted_content": "made up"})
    for vendor, body, word in (
        ("gemini", unsigned, "thought_signature"),
        ("responses", foreign, "could not be verified"),
    ):
        with pytest.raises(Refused, match=word):
            VENDORS[vendor].read(body, PATHS[vendor])


@pytest.mark.parametrize(
    ("turns", "word"),
    [
        (["user", "system"], "at the beginning"),
        (["system", "system", "user"], "at the beginning"),
        (["developer", "user"], "role"),
        (["user", "user"], "alternate"),
        (["system", "assistant", "user"], "start with a user"),
        (["user", "assistant"], "ends with an assistant"),
    ],
)
def test_a_strict_template_takes_one_system_message_and_turns_that_alternate(
    turns: list[str], word: str
) -> None:
    body = {"model": "m", "messages": [{"role": role, "content": "x"} for role in turns]}
    with pytest.raises(Refused, match=word):
        VENDORS["strict"].read(body, PATHS["strict"])


def test_a_strict_template_takes_no_user_behind_a_tool() -> None:
    body = conversation("strict", FIRST)
    body["messages"].append({"role": "user", "content": "go on"})
    with pytest.raises(Refused, match="after role 'tool'"):
        VENDORS["strict"].read(body, PATHS["strict"])
