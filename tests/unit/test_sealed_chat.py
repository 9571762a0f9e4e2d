"""What seals an answer of a chat/completions provider: its own clients get it with what it seals,
others bring it back from the record."""

import json
from typing import Any

import pytest

from protocol.dialects.turns import StoredTurn
from protocol.records import EventRecord, ToolCallRecord
from settings.config import Config
from tests.support.checks.decoding import turns_of
from tests.support.clients.answering import Answer, Watch
from tests.support.json_values import Json, as_json
from tests.support.upstreams.turns import events

SEAL = "U0lHTkFUVVJF"
GOOGLE: Json = {"extra_content": {"google": {"thought_signature": SEAL}}}
LITELLM: Json = {"provider_specific_fields": {"thought_signature": SEAL}}
DETAILS: Json = {
    "reasoning": "Hm.",
    "reasoning_details": [
        {"type": "reasoning.text", "text": "Hm.", "format": "google-gemini-v1", "index": 0},
        {
            "type": "reasoning.encrypted",
            "data": SEAL,
            "format": "google-gemini-v1",
            "id": "call_1",
            "index": 0,
        },
    ],
}
ENCRYPTED: Json = {"reasoning_details": DETAILS["reasoning_details"][1:]}
BLOCKS: Json = {
    "reasoning_content": "Hm.",
    "thinking_blocks": [{"type": "thinking", "thinking": "Hm.", "signature": SEAL}],
}
REDACTED: Json = {"thinking_blocks": [{"type": "redacted_thinking", "data": SEAL}]}
SIGNED: Json = {
    "extra_content": {"google": {"thought": True, "thought_signature": SEAL}},
    "thought_signature": SEAL,
}
OF_MESSAGE: dict[str, Json] = {
    "details": DETAILS,
    "encrypted": ENCRYPTED,
    "blocks": BLOCKS,
    "redacted": REDACTED,
    "signed": SIGNED,
}
"""Fields of an assistant message."""
OF_CALL: dict[str, Json] = {"google": GOOGLE, "litellm": LITELLM}
"""Fields of a call."""
TOOLS: dict[str, list[Json]] = {
    "openai": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "anthropic": [{"name": "f", "input_schema": {"type": "object"}}],
    "responses": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
}
both_forms = pytest.mark.parametrize("streams", [True, False])


def config(**upstream: Any) -> Config:
    one = {"dialect": "openai", "base_url": "http://127.0.0.1:1", **upstream}
    return Config.model_validate(
        {"upstreams": {"up": one}, "models": [{"match": "*", "upstream": "up"}]}
    )


def body(streams: bool, fields: Json, *calls: Json) -> bytes:
    """An answer with a call for each of `calls`, which are what is beside its function."""
    made = [
        {
            "index": n,
            "id": f"call_{n}",
            "type": "function",
            "function": {"name": "f", "arguments": '{"n":%d}' % n},  # noqa: UP031
            **more,
        }
        for n, more in enumerate(calls, 1)
    ]
    head: Json = {"id": "x", "created": 1, "model": "m"}
    if not streams:
        message = {"role": "assistant", "content": None, **fields, "tool_calls": made}
        return as_json(
            {**head, "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
        )
    deltas = [
        {"role": "assistant", "content": "", **fields},
        *({"tool_calls": [one]} for one in made),
    ]
    chunks: list[Json] = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        for delta in deltas
    ]
    chunks[-1]["choices"][0]["finish_reason"] = "tool_calls"
    return b"".join(b"data: %s\n\n" % as_json(chunk) for chunk in chunks) + b"data: [DONE]\n\n"


def answered(client: str, streams: bool, sent: bytes, *, deny: str = "", **upstream: Any) -> Answer:
    asked = Answer(
        "openai",
        client,
        streams=streams,
        policies=[Watch(deny)],
        config=config(**upstream),
        tools=TOOLS[client],
    )
    return asked.feed(sent, streams=streams)


def notes(answer: Answer, kind: str) -> list[str]:
    return [r.detail for r in answer.records if isinstance(r, EventRecord) and r.kind == kind]


@both_forms
@pytest.mark.parametrize("name", OF_CALL)
def test_a_client_of_the_dialect_gets_what_seals_a_call_with_the_call_and_only_with_it(
    name: str, streams: bool
) -> None:
    answer = answered(
        "openai", streams, body(streams, {}, OF_CALL[name], {}, OF_CALL[name]), deny='"n":3'
    )
    assert answer.data.count(SEAL.encode()) == 1
    if not streams:
        [first, second] = json.loads(answer.data)["choices"][0]["message"]["tool_calls"]
        assert first.items() >= OF_CALL[name].items() and not second.keys() & OF_CALL[name].keys()
    assert notes(answer, "sealed") and not notes(answer, "withheld")


@both_forms
@pytest.mark.parametrize("name", OF_MESSAGE)
def test_it_gets_what_seals_the_message(name: str, streams: bool) -> None:
    answer = answered("openai", streams, body(streams, OF_MESSAGE[name], {}))
    assert answer.data.count(SEAL.encode()) == json.dumps(OF_MESSAGE[name]).count(SEAL)


@both_forms
@pytest.mark.parametrize(
    ("fields", "call"), [({}, GOOGLE), (SIGNED, {}), (BLOCKS, {}), (DETAILS, {})]
)
def test_an_upstream_s_seals_may_be_withheld(fields: Json, call: Json, streams: bool) -> None:
    answer = answered("openai", streams, body(streams, fields, call), sealed="withhold")
    assert (
        SEAL.encode() not in answer.data
        and notes(answer, "withheld")
        and not notes(answer, "sealed")
    )


@both_forms
def test_prose_in_a_sealed_field_is_withheld_and_named(streams: bool) -> None:
    call = {"extra_content": {"google": {"thought_signature": "rm -rf / at once"}}}
    answer = answered("openai", streams, body(streams, {"thought_signature": "some prose"}, call))
    assert b"prose" not in answer.data and b"rm -rf" not in answer.data
    assert len(notes(answer, "withheld")) == 2


def test_thinking_blocks_that_say_something_else_than_the_reasoning_are_withheld() -> None:
    fields = {
        "reasoning_content": "Hm.",
        "thinking_blocks": [{"type": "thinking", "thinking": "Ha!", "signature": SEAL}],
    }
    answer = answered("openai", True, body(True, fields, {}))
    assert b"Ha!" not in answer.data and notes(answer, "withheld") == ["1: thinking_blocks"]


def history(client: str) -> Json:
    """The conversation with the answer as a client of another dialect sends it back, without its
    second call, which was blocked."""
    if client == "anthropic":
        use = [
            {"type": "tool_use", "id": f"call_{n}", "name": "f", "input": {"n": n}} for n in (1, 3)
        ]
        results = [
            {"type": "tool_result", "tool_use_id": f"call_{n}", "content": "r"} for n in (1, 3)
        ]
        said: list[Json] = [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": use},
            {"role": "user", "content": results},
        ]
        return {"messages": said}
    calls = [
        {
            "type": "function_call",
            "call_id": f"call_{n}",
            "name": "f",
            "arguments": json.dumps({"n": n}),
        }
        for n in (1, 3)
    ]
    outputs = [
        {"type": "function_call_output", "call_id": f"call_{n}", "output": "r"} for n in (1, 3)
    ]
    return {"input": [{"role": "user", "content": "go"}, *calls, *outputs]}


def next_request(client: str, answer: Answer, sent: bytes, streams: bool) -> Json:
    """The assistant message of the next request, with the answer from the record."""
    builder = turns_of("openai").TurnBuilder()
    for chunk in events(sent) if streams else [sent]:
        builder.take(chunk)
    assert builder.complete
    rows = [r for r in answer.records if isinstance(r, ToolCallRecord) and r.verdict == "allow"]
    ids, blocks = tuple(r.tool_call_id for r in rows), tuple(r.block for r in rows)
    turn = StoredTurn("c", builder.content(), "", ids[::-1], "up", "m", blocks[::-1])
    again = Answer(
        "openai",
        client,
        config=config(),
        stored=[turn],
        model="m",
        tools=TOOLS[client],
        **history(client),
    )
    [said] = again.dispatched
    found: Json = said["messages"][1]
    return found


@both_forms
@pytest.mark.parametrize("client", ["anthropic", "responses"])
@pytest.mark.parametrize("name", [*OF_MESSAGE, *OF_CALL])
def test_clients_of_other_dialects_bring_it_back_from_the_record(
    name: str, client: str, streams: bool
) -> None:
    sealed = OF_CALL.get(name, {})
    sent = body(streams, OF_MESSAGE.get(name, {}), sealed, sealed, sealed)
    answer = answered(client, streams, sent, deny='"n":2')
    assert (
        SEAL.encode() not in answer.data
        and not notes(answer, "sealed")
        and not notes(answer, "withheld")
    )
    said = next_request(client, answer, sent, streams)
    assert [c["id"] for c in said["tool_calls"]] == ["call_1", "call_3"]
    assert all(c.items() >= sealed.items() for c in said["tool_calls"])
    fields = {
        n: v
        for n, v in OF_MESSAGE.get(name, {}).items()
        if n not in ("reasoning", "reasoning_content")
    }
    assert {n: said.get(n) for n in fields} == fields


def test_entries_that_a_stream_cut_into_pieces_are_one_again() -> None:
    builder = turns_of("openai").TurnBuilder()
    for text, more in (("I ", {}), ("think.", {}), ("", {"signature": SEAL}), ("Then.", {})):
        detail = {"type": "reasoning.text", "index": 0, "text": text, **more}
        delta = {"reasoning": text, "reasoning_details": [detail]}
        builder.feed(b"data: %s\n\n" % as_json({"choices": [{"index": 0, "delta": delta}]}))
    builder.feed(b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n')
    [block] = builder.content()
    first = {"type": "reasoning.text", "index": 0, "text": "I think.", "signature": SEAL}
    assert builder.complete and block["body"] == {
        "reasoning_details": [first, {"type": "reasoning.text", "index": 0, "text": "Then."}]
    }


@both_forms
@pytest.mark.parametrize("client", ["anthropic", "responses"])
@pytest.mark.parametrize("name", ["encrypted", "redacted"])
def test_what_shows_nothing_makes_no_empty_thinking_block(
    name: str, client: str, streams: bool
) -> None:
    answer = answered(client, streams, body(streams, OF_MESSAGE[name], {}))
    assert (
        b"thinking" not in answer.data
        and b'"reasoning"' not in answer.data.split(b'"output"')[-1].split(b'"usage"')[0]
    )
    assert b"call_1" in answer.data
