"""Assistant turns built from raw events equal what the SDK accumulates, and come back into a
request unchanged or not at all."""

import json

import msgspec
import pytest

from protocol import bounds
from protocol.bytes.json_strict import dumps
from protocol.dialects.anthropic.turn import TurnBuilder, with_turns
from protocol.dialects.turns import StoredTurn, pack_turns, unpack_turns
from protocol.request import (
    ChatRequest,
    OtherPart,
    Reasoning,
    TextPart,
    ToolResultPart,
    ToolUsePart,
    Turn,
)
from tests.support.json_values import Json
from tests.support.upstreams.recordings import framed, own, recordings
from tests.support.upstreams.turns import events, streamed

ANTHROPIC = {r.name: r for r in recordings() if r.dialect == "anthropic"}
BROKEN = [n for n, r in ANTHROPIC.items() if r.must or "error_type" in r.facts]
THINKING: Json = {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"}
REDACTED: Json = {"type": "redacted_thinking", "data": "ZW5j"}
SEARCH: Json = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "web_search",
    "input": {"query": "x"},
}
FOUND: Json = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [{"encrypted_content": "Zm9v"}],
}
USE: Json = {
    "type": "tool_use",
    "id": "toolu_1",
    "name": "get_weather",
    "input": {"city": "Paris"},
}
CITED: Json = {
    "type": "text",
    "text": "It rains.",
    "citations": [{"type": "web_search_result_location", "encrypted_index": "eA"}],
}
ASKED = Reasoning(effort="high")


def built(*raw: bytes) -> TurnBuilder:
    builder = TurnBuilder()
    for chunk in raw:
        builder.take(chunk)
    return builder


def raw_stream(*lines: str) -> list[bytes]:
    return events(framed("anthropic", list(lines)))


START = '{"type":"message_start","message":{"id":"msg_1","type":"message","content":[]}}'
STOPS = (
    '{"type":"content_block_stop","index":0}',
    '{"type":"message_delta","delta":{"stop_reason":"tool_use"}}',
    '{"type":"message_stop"}',
)


def call_of(arguments: str) -> list[bytes]:
    block = '{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"s","name":"n","input":{}}}'
    delta = {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "input_json_delta", "partial_json": arguments},
    }
    return raw_stream(START, block, json.dumps(delta), *STOPS)


# --- building ---


@pytest.mark.parametrize("name", BROKEN)
def test_a_recording_that_broke_is_no_turn(name: str) -> None:
    recording = ANTHROPIC[name]
    assert not built(
        *(events(recording.body) if recording.is_stream else [recording.body])
    ).complete


@pytest.mark.parametrize(
    "name",
    [
        "anthropic-cut.sse",
        "anthropic-error.sse",
        "anthropic-cut-by-max-tokens.sse",
        "anthropic-spliced.sse",
    ],
)
def test_a_broken_stream_is_no_turn(name: str) -> None:
    assert not built(*events(own(name))).complete


def test_a_turn_past_the_bound_is_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = call_of("{}")
    size = sum(map(len, turn))
    for bound in (size, size - 1):
        monkeypatch.setattr(bounds, "MAX_TURN_BYTES", bound)
        assert built(*turn).complete is (bound == size)


def test_every_cut_of_a_stream_is_incomplete() -> None:
    chunks = streamed([THINKING, CITED, USE], "tool_use")
    assert [built(*chunks[:n]).complete for n in range(len(chunks) + 1)] == [False] * len(
        chunks
    ) + [True]


def test_segments_of_a_paused_turn_are_one_turn() -> None:
    builder = built(*streamed([THINKING, SEARCH], "pause_turn", container="c_1"))
    assert (builder.complete, builder.is_paused) == (True, True)
    for chunk in streamed([FOUND, USE], "tool_use", identity="msg_2"):
        builder.take(chunk)
    assert (builder.complete, builder.is_paused) == (True, False)
    assert (builder.content(), builder.container) == ([THINKING, SEARCH, FOUND, USE], "c_1")


@pytest.mark.parametrize(
    "lines",
    [
        (START, *STOPS[1:], START),
        (START, START.replace("msg_1", "msg_2"), *STOPS[1:]),
        (START, '{"type":"content_block_foo","index":0}', *STOPS[1:]),
        (
            START,
            '{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}',
            *STOPS[1:],
        ),
        (
            START,
            '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}',
            *STOPS[1:],
        ),
        (
            START,
            '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
            '{"type":"content_block_delta","index":0,"delta":{"type":"new_delta","text":"x"}}',
            *STOPS,
        ),
        (START, '{"type":"error","error":{"type":"overloaded_error","message":"m"}}', *STOPS[1:]),
        (START, '{"type":"message_stop"}'),
        STOPS[1:],
        ('{"type":"message_start","message":{"type":"message","content":[]}}', *STOPS[1:]),
    ],
)
def test_what_is_not_understood_is_no_turn(lines: tuple[str, ...]) -> None:
    assert not built(*raw_stream(*lines)).complete


def test_chunks_of_the_other_dialect_are_no_turn() -> None:
    assert not built(b'data: {"id":"x","choices":[]}\n\n', b"data: [DONE]\n\n").complete
    assert not built(b'{"error":{"message":"m"}}').complete


@pytest.mark.parametrize(
    "arguments", ['{"a":1', "[1]", '{"a":1,"a":2}', '{"a":NaN}', '{"a":' * 200 + "1" + "}" * 200]
)
def test_arguments_that_are_no_plain_object_are_no_turn(arguments: str) -> None:
    assert not built(*call_of(arguments)).complete


def test_lone_surrogates_pass_through() -> None:
    delta = (
        '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a\\ud800"}}'
    )
    block = '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}'
    builder = built(*raw_stream(START, block, delta, *STOPS))
    assert builder.content() == [{"type": "text", "text": "a\ud800"}]
    assert (
        unpack_turns(pack_turns([StoredTurn("c", builder.content(), "", ())])).turns[0].content
        == builder.content()
    )


# --- merging ---


def stored(
    content: list[Json],
    *ids: str,
    call: str = "c1",
    container: str = "",
    upstream: str = "",
) -> StoredTurn:
    return StoredTurn(call, content, container, ids or ("toolu_1",), upstream)


def request(*turns: Turn, reasoning: Reasoning | None = ASKED) -> ChatRequest:
    return ChatRequest(dialect="openai", model="m", turns=turns, reasoning=reasoning)


def use(identity: str = "toolu_1", arguments: str = '{"city": "Paris"}') -> ToolUsePart:
    return ToolUsePart(identity, "get_weather", arguments)


def asks(text: str = "q") -> Turn:
    return Turn("user", (TextPart(text),))


def says(*parts: TextPart | ToolUsePart) -> Turn:
    return Turn("assistant", parts)


def answers(*ids: str) -> Turn:
    return Turn("user", tuple(ToolResultPart(i, "rain") for i in ids or ("toolu_1",)))


def other(block: Json) -> OtherPart:
    return OtherPart(block["type"], block, "anthropic")


def test_case_8_the_turn_begins_with_the_exact_thinking_block() -> None:
    asked = request(asks(), says(use()), answers())
    made, container, dropped = with_turns(
        asked, [stored([THINKING, REDACTED, USE], container="c_1")]
    )
    assert made.turns[1].parts == (other(THINKING), other(REDACTED), use())
    assert (made.turns[0], made.turns[2], made.reasoning) == (asked.turns[0], asked.turns[2], ASKED)
    assert (container, dropped) == ("c_1", [])


@pytest.mark.parametrize(
    ("reasoning", "name"),
    [
        (Reasoning(effort="low"), "reasoning_effort"),
        (Reasoning(mode="budget", budget_tokens=2000), "thinking"),
    ],
)
def test_case_8_with_an_unknown_turn_thinking_is_off_and_nothing_is_forged(
    reasoning: Reasoning, name: str
) -> None:
    asked = request(
        asks(),
        says(TextPart("Let me see."), use("toolu_9")),
        answers("toolu_9"),
        reasoning=reasoning,
    )
    made, container, dropped = with_turns(asked, [stored([THINKING, USE])])
    assert made == msgspec.structs.replace(asked, reasoning=Reasoning(mode="off"))
    assert (container, dropped) == ("", [name])


def test_found_pages_and_citations_come_back_whole() -> None:
    asked = request(asks(), says(TextPart("It rains."), use()), answers())
    made, _, _ = with_turns(asked, [stored([THINKING, SEARCH, FOUND, CITED, USE])])
    assert made.turns[1].parts == (
        other(THINKING),
        other(SEARCH),
        other(FOUND),
        other(CITED),
        use(),
    )


@pytest.mark.parametrize(
    ("content", "want"),
    [
        (
            [THINKING, CITED, SEARCH, {"type": "text", "text": "More."}, USE],
            ["thinking", "=IT RAINS.", "server_tool_use", "toolu_1"],
        ),
        ([THINKING, SEARCH, USE], ["thinking", "server_tool_use", "=IT RAINS.", "toolu_1"]),
    ],
)
def test_the_clients_text_stays_where_a_policy_changed_it(
    content: list[Json], want: list[str]
) -> None:
    made, _, _ = with_turns(
        request(asks(), says(TextPart("IT RAINS."), use()), answers()), [stored(content)]
    )
    found = [
        (
            f"={p.text}"
            if isinstance(p, TextPart)
            else getattr(p, "id", None) or getattr(p, "kind", "")
        )
        for p in made.turns[1].parts
    ]
    assert found == want


def test_a_client_that_trims_gets_the_recorded_text() -> None:
    made, _, _ = with_turns(
        request(asks(), says(TextPart("It rains.\n"), use()), answers()), [stored([CITED, USE])]
    )
    assert made.turns[1].parts == (other(CITED), use())


def test_the_clients_arguments_stay_and_a_blocked_call_stays_out() -> None:
    blocked = {"type": "tool_use", "id": "toolu_2", "name": "bash", "input": {}}
    asked = request(asks(), says(use(arguments='{"city": "Rome"}')), answers())
    made, _, _ = with_turns(asked, [stored([THINKING, USE, blocked])])
    assert made.turns[1].parts == (other(THINKING), use(arguments='{"city": "Rome"}'))


@pytest.mark.parametrize(
    "identity", [{"id": "toolu_1"}, {"id": ""}, {}], ids=["twice", "empty", "none"]
)
def test_a_blocked_call_with_no_id_of_its_own_stays_out(identity: dict[str, str]) -> None:
    blocked = {"type": "tool_use", **identity, "name": "bash", "input": {}}
    made, _, _ = with_turns(request(asks(), says(use()), answers()), [stored([USE, blocked])])
    assert made.turns[1].parts == (use(),)


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "tool_use", "name": "f", "input": {}}],
        [{"type": "tool_use", "id": "x", "name": "f"}],
    ],
)
def test_a_turn_whose_ids_were_replaced_counts_as_unknown(content: list[Json]) -> None:
    made, _, dropped = with_turns(
        request(asks(), says(use("call_ours0")), answers("call_ours0")),
        [stored(content, "call_ours0")],
    )
    assert (
        made.turns[1].parts == (use("call_ours0"),)
        and dropped
        and made.reasoning == Reasoning(mode="off")
    )


def test_a_call_from_code_at_the_provider_keeps_its_caller() -> None:
    caller = {"type": "code_execution_20250825", "tool_id": "srvtoolu_1"}
    made, _, _ = with_turns(
        request(asks(), says(use(arguments='{"city": "Rome"}')), answers()),
        [stored([USE | {"caller": caller}])],
    )
    [part] = made.turns[1].parts
    assert isinstance(part, OtherPart)
    assert json.loads(dumps(part.body)) == USE | {"caller": caller, "input": {"city": "Rome"}}
    made, _, _ = with_turns(
        request(asks(), says(use()), answers()), [stored([USE | {"caller": {"type": "direct"}}])]
    )
    assert made.turns[1].parts == (use(),)


ID_CASES: dict[str, tuple[Turn, list[StoredTurn]]] = {
    "forged": (says(use("toolu_x")), [stored([THINKING, USE])]),
    "partly forged": (says(use(), use("toolu_x")), [stored([THINKING, USE])]),
    "twice in one turn": (says(use(), use()), [stored([THINKING, USE])]),
    "of two recorded turns": (
        says(use()),
        [stored([THINKING, USE]), stored([THINKING, USE], call="c2")],
    ),
    "mixed from two turns": (
        says(use(), use("toolu_2")),
        [
            stored([THINKING, USE]),
            stored([THINKING, USE | {"id": "toolu_2"}], "toolu_2", call="c2"),
        ],
    ),
    "of another provider's turn": (says(use()), [stored([THINKING, USE], upstream="other")]),
    "not in the recorded content": (says(use()), [stored([THINKING])]),
    "thinking without signature": (
        says(use()),
        [stored([{"type": "thinking", "thinking": "x", "signature": ""}, USE])],
    ),
}


@pytest.mark.parametrize("case", ID_CASES)
def test_ids_that_are_not_of_exactly_one_turn_put_nothing_in(case: str) -> None:
    turn, found = ID_CASES[case]
    asked = request(asks(), turn, answers())
    made, _, dropped = with_turns(asked, found, upstream="claude")
    assert (made.turns, made.reasoning, dropped) == (
        asked.turns,
        Reasoning(mode="off"),
        ["reasoning_effort"],
    )
