"""Recorded turns of Responses in the next request: reasoning, sealed, stands before what it led to;
what was blocked stays out."""

import json
from typing import Any

import pytest

from protocol import codecs
from protocol.dialects.turns import StoredTurn, pack_turns, unpack_turns
from protocol.request import ChatRequest, TextPart, ToolResultPart, ToolUsePart, Turn
from protocol.target import Target
from tests.support.checks.decoding import turns_of
from tests.support.json_values import Json, as_json
from tests.support.request_codecs import written_body
from tests.support.upstreams.responses import (
    events,
    frames,
    function_call,
    message,
    reasoning,
    response,
)

SEARCH = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "q"},
}
ANSWER = [
    reasoning("gAAA1", "One.", "Two."),
    SEARCH,
    reasoning("gAAA2"),
    message("Look.", phase="commentary"),
    function_call("call_1", "f", '{"a":1}'),
    function_call("call_2", "g", "{}"),
]


def built(items: list[Json], *, whole: bool = False) -> Any:
    builder = turns_of("responses").TurnBuilder()
    if whole:
        builder.take(as_json(response(items)))
    else:
        for event in events(items):
            builder.take(frames([event]))
    builder.finish()
    return builder


def stored(items: list[Json], released: dict[str, int], **more: Any) -> StoredTurn:
    """The turn as the record has it; `released` are the client's ids of its calls and their
    blocks."""
    turn = StoredTurn(
        "c", built(items).content(), "", tuple(released), blocks=tuple(released.values()), **more
    )
    return unpack_turns(pack_turns([turn])).turns[0]


def asked(*parts: Any, dialect: str = "openai", model: str = "m") -> ChatRequest:
    results = tuple(ToolResultPart(p.id, "r") for p in parts if isinstance(p, ToolUsePart))
    turns = (
        Turn("user", (TextPart("hi"),)),
        Turn("assistant", parts),
        Turn("user", results or (TextPart("go on"),)),
    )
    return ChatRequest(dialect=dialect, model=model, turns=turns)


def written(request: ChatRequest, turn: StoredTurn, upstream: str = "up") -> list[Json]:
    merged, container, dropped = turns_of("responses").with_turns(
        request, [turn], upstream=upstream
    )
    assert (container, dropped) == ("", [])
    body = written_body(merged, Target(dialect="responses"))
    items: list[Json] = body["input"]
    return items[1:]


@pytest.mark.parametrize("whole", [True, False])
def test_a_turn_is_built_however_it_came(whole: bool) -> None:
    builder = built(ANSWER, whole=whole)
    assert builder.complete and builder.content() == built(ANSWER).content()
    assert [b["kind"] for b in builder.content()][:3] == ["thinking", "thinking", "server_tool_use"]


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_what_was_sealed_comes_back_before_what_it_led_to(dialect: str) -> None:
    calls = (ToolUsePart("call_1", "f", '{"a": 1}'), ToolUsePart("call_2", "g", "{}"))
    items = written(
        asked(TextPart("Look."), *calls, dialect=dialect),
        stored(ANSWER, {"call_1": 6, "call_2": 7}),
    )
    said = [{"type": "summary_text", "text": one} for one in ("One.", "Two.")]
    assert items[:5] == [
        {"type": "reasoning", "summary": said, "encrypted_content": "gAAA1"},
        SEARCH,
        {"type": "reasoning", "summary": [], "encrypted_content": "gAAA2"},
        {"type": "message", "role": "assistant", "content": "Look.", "phase": "commentary"},
        # the client's own arguments: a policy may have replaced upstream's
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": '{"a": 1}'},
    ]
    assert [i["type"] for i in items[5:]] == [
        "function_call",
        "function_call_output",
        "function_call_output",
    ]


def test_a_blocked_call_stays_out_and_the_notice_stays() -> None:
    items = written(
        asked(TextPart("Look. [blocked]"), ToolUsePart("call_1", "f", "{}")),
        stored(ANSWER, {"call_1": 6}),
    )
    assert [i["type"] for i in items] == [
        "reasoning",
        "web_search_call",
        "reasoning",
        "message",
        "function_call",
        "function_call_output",
    ]
    assert items[3]["content"] == "Look. [blocked]" and '"g"' not in json.dumps(items)


def test_what_a_program_called_says_so_again() -> None:
    caller = {"type": "program", "caller_id": "p"}
    program = {"type": "program", "call_id": "p", "code": "x", "fingerprint": "gAAA"}
    turn = stored([program, function_call("call_1", "f", "{}", caller=caller)], {"call_1": 1})
    items = written(asked(ToolUsePart("call_1", "f", "{}")), turn)
    assert items[0] == program
    assert items[1] == {
        "type": "function_call",
        "call_id": "call_1",
        "name": "f",
        "arguments": "{}",
        "caller": caller,
    }
    assert items[2]["caller"] == caller


NUMBERS = '"a":1.10,"b":1E2,"c":-0,"d":123456789012345678901234567890'


@pytest.mark.parametrize(
    "said",
    [
        '"type":"web_search_call","action":{"type":"search","query":"q",%s}',
        '"type":"shell_call","environment":{"type":"container_auto"},"action":{"commands":["ls"],%s}',
        '"type":"file_search_call","queries":["q",{%s}]',
        '"type":"tool_search_call","execution":"server","arguments":{%s}',
    ],
)
def test_numbers_of_a_call_go_back_as_they_came(said: str) -> None:
    item = f'{{"id":"i","call_id":"i","status":"completed",{said % NUMBERS}}}'
    whole = json.dumps(response([function_call("call_1", "f", "{}")])).replace(
        '"output": [', f'"output": [{item},'
    )
    builder = turns_of("responses").TurnBuilder()
    builder.take(whole.encode())
    assert builder.complete
    call = max(b["index"] for b in builder.content())
    [turn] = unpack_turns(
        pack_turns([StoredTurn("c", builder.content(), "", ("call_1",), blocks=(call,))])
    ).turns
    merged, *_ = turns_of("responses").with_turns(
        asked(ToolUsePart("call_1", "f", "{}")), [turn], upstream="up"
    )
    assert (
        NUMBERS in (codecs.encode_request(merged, Target(dialect="responses")).body or b"").decode()
    )


@pytest.mark.parametrize("damage", ["cut", "unknown", "changed"])
def test_a_turn_that_is_not_understood_is_not_sent_back(damage: str) -> None:
    builder, made = turns_of("responses").TurnBuilder(), events([message("Hello")])
    if damage == "cut":
        made = made[:-1]
    elif damage == "unknown":
        made.insert(3, {"type": "response.crystal.delta"})
    else:
        made[-1]["response"]["output"][0]["content"] = [{"type": "output_text", "text": "Help"}]
    for event in made:
        builder.take(frames([event]))
    builder.finish()
    assert not builder.complete
