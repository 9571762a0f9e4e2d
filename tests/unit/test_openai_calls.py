"""Calls in answers of chat/completions: functions of the time before tools, free-form tools,
refusals, and what vendors do with ids."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.dialects.table import DIALECTS
from protocol.errors import RemoteProtocolError
from protocol.events import (
    ArgumentsDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    MessageStart,
    MessageStop,
    StopReason,
)
from tests.support.checks.decoding import decode, texts
from tests.support.checks.kinds import of_kind
from tests.support.clients.sdk import openai_answer
from tests.support.json_values import Json, as_json
from tests.support.upstreams.completions import answers, body_of, chunk, stream, whole


def arguments(events: list[Event]) -> str:
    return "".join(e.text for e in events if isinstance(e, ArgumentsDelta))


# --- calls of the time before tools ---


LEGACY = [
    chunk(role="assistant", content=None, function_call={"name": "f", "arguments": ""}),
    chunk(function_call={"arguments": '{"a"'}),
    chunk(function_call={"name": "", "arguments": ":1}"}),
    chunk("function_call"),
]


def test_a_legacy_call_is_a_tool_call() -> None:
    events = stream(*LEGACY)
    (start,) = of_kind(events, BlockStart)
    assert (start.kind, start.name, start.form) == (BlockKind.TOOL_USE, "f", "legacy")
    assert not start.id and events == stream(*LEGACY)
    assert arguments(events) == '{"a":1}'
    assert isinstance(events[-1], MessageStop) and events[-1].stop_reason is StopReason.TOOL_USE
    odd = whole(
        {"content": None, "function_call": {"name": "f", "arguments": {"a": 1}}}, "function_call"
    )
    assert arguments(odd) == '{"a":1}'


def test_a_provider_that_answers_in_the_old_form_unasked_is_heard_as_directly() -> None:
    direct = openai_answer(body_of(*LEGACY), stream=True).choices[0].model_dump()
    streamed, sent = (c.model_dump() for c in answers(stream(*LEGACY)))
    assert streamed == direct
    assert (sent["finish_reason"], sent["message"]["function_call"]["name"]) == (
        "function_call",
        "f",
    )


def test_a_legacy_client_gets_one_call_of_many() -> None:
    calls = [
        {
            "index": n,
            "id": f"c{n}",
            "type": "function",
            "function": {"name": "f", "arguments": str(n)},
        }
        for n in range(3)
    ]
    for choice in answers(stream(chunk(tool_calls=calls), chunk("tool_calls")), legacy=True):
        assert (choice.message.function_call.arguments, choice.message.tool_calls) == ("0", None)


@pytest.mark.parametrize(
    "chunks",
    [
        [
            chunk(function_call={"name": "f", "arguments": "{}"}),
            chunk("function_call"),
            chunk(function_call={"arguments": "1"}),
        ],
        [chunk(function_call={"name": "f"}), chunk(function_call={"name": "g"})],
        [chunk(function_call={"arguments": "{}"}), chunk("function_call")],
        [
            chunk(
                tool_calls=[
                    {"index": 0, "id": "a", "function": {"name": "f"}, "custom": {"name": "g"}}
                ]
            )
        ],
        [
            chunk(tool_calls=[{"index": 0, "id": "a", "function": {"name": "f"}}]),
            chunk(tool_calls=[{"index": 0, "custom": {"input": "x"}}]),
        ],
        [
            chunk(tool_calls=[{"index": 0, "id": "a", "custom": {"name": "f"}}]),
            chunk(tool_calls=[{"index": 0, "function": {}}]),
        ],
        [chunk(refusal=7)],
    ],
)
def test_what_calls_may_not_be(chunks: list[Json]) -> None:
    with pytest.raises(RemoteProtocolError):
        stream(*chunks)


# --- free-form tools ---


def custom(*pieces: str) -> list[Json]:
    first = {"index": 0, "id": "call_x", "type": "custom", "custom": {"name": "patch", "input": ""}}
    return [
        chunk(role="assistant", content=None, tool_calls=[first]),
        *[chunk(tool_calls=[{"index": 0, "custom": {"input": p}}]) for p in pieces],
        chunk("tool_calls"),
    ]


ODD = ["a", '"', "\\", "\n", "\u2028", "\u0000", "😀", "\ud83d", "\ude00", "é"]


@given(st.lists(st.sampled_from(ODD), max_size=20))
def test_the_text_of_a_free_form_call_is_its_input(pieces: list[str]) -> None:
    body = b"".join(b"data: " + as_json(c) + b"\n\n" for c in custom(*pieces))
    events = decode("openai", [body])
    assert json.loads(arguments(events)) == {"input": json.loads(json.dumps("".join(pieces)))}


def test_free_form_calls_come_out_as_they_came() -> None:
    events = stream(*custom("*** Begin\n", 'say "hi"'))
    assert arguments(events) == '{"input":"*** Begin\\nsay \\"hi\\""}'
    direct = (
        openai_answer(body_of(*custom("*** Begin\n", 'say "hi"')), stream=True)
        .choices[0]
        .model_dump()
    )
    streamed, sent = (c.model_dump() for c in answers(events))
    assert streamed == direct
    (call,) = sent["message"]["tool_calls"]
    assert call == {
        "id": "call_x",
        "type": "custom",
        "custom": {"name": "patch", "input": '*** Begin\nsay "hi"'},
    }
    message = {
        "tool_calls": [
            {"id": "call_x", "type": "custom", "custom": {"name": "patch", "input": "x"}}
        ]
    }
    assert arguments(whole(message, "tool_calls")) == '{"input":"x"}'
    assert arguments(stream(*custom())) == '{"input":""}'


def test_a_free_form_call_may_say_its_type_late_or_its_name_last() -> None:
    late = [
        chunk(tool_calls=[{"index": 0, "id": "x"}]),
        chunk(tool_calls=[{"index": 0, "custom": {"input": '"a'}}]),
    ]
    late += [
        chunk(tool_calls=[{"index": 0, "custom": {"name": "patch", "input": "b"}}]),
        chunk("tool_calls"),
    ]
    assert arguments(stream(*late)) == '{"input":"\\"ab"}'


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ('{"input":"a"}', "a"),
        ('{"input":7}', '{"input":7}'),
        ('{"input":"a","b":1}', '{"input":"a","b":1}'),
        ("{cut", "{cut"),
        ("", ""),
    ],
)
def test_arguments_for_a_free_form_tool_become_text(told: str, text: str) -> None:
    events: list[Event] = [
        MessageStart("i", "m"),
        BlockStart(0, BlockKind.TOOL_USE, "x", "patch"),
        ArgumentsDelta(0, told),
        BlockStop(0),
    ]
    for choice in answers([*events, MessageStop(StopReason.TOOL_USE)]):
        assert choice.model_dump()["message"]["tool_calls"][0]["custom"]["input"] == text


def test_escaping_free_form_text_is_linear() -> None:
    def cost(pieces: int) -> float:
        chunks = [b"data: " + as_json(c) + b"\n\n" for c in custom(*['"\\' * 20] * pieces)]
        best = 9.0
        for _ in range(3):
            decoder, before = DIALECTS["openai"].decoder(), time.process_time()
            for piece in chunks:
                decoder.feed(piece)
            best = min(best, time.process_time() - before)
        return best

    assert cost(8_000) < 20 * cost(1_000)


# --- refusals ---


def test_a_refusal_is_text_that_policies_read_and_ends_as_upstream_said() -> None:
    for finish, reason in (("stop", StopReason.END_TURN), ("content_filter", StopReason.REFUSAL)):
        events = stream(
            chunk(role="assistant", content=""),
            chunk(refusal="I can"),
            chunk(refusal="not."),
            chunk(finish),
        )
        assert of_kind(events, BlockStart) == [BlockStart(0, BlockKind.TEXT, "", "refusal")]
        assert texts(events) == {0: "I cannot."}
        assert isinstance(events[-1], MessageStop) and events[-1].stop_reason is reason
        for choice in answers(events):
            assert (choice.message.refusal, choice.finish_reason, choice.message.content) == (
                "I cannot.",
                finish,
                "",
            )
    assert [
        e.stop_reason
        for e in stream(chunk(refusal="no"), chunk("length"))
        if isinstance(e, MessageStop)
    ] == [StopReason.MAX_TOKENS]


# --- vendors ---


def test_many_calls_cost_what_they_are() -> None:
    def cost(calls: int) -> float:
        pieces = [
            {"index": n, "id": f"c{n}", "function": {"name": "f", "arguments": "{}"}}
            for n in range(calls)
        ]
        data = b"data: " + as_json(chunk(tool_calls=pieces)) + b"\n\n"
        more = (
            b"data: "
            + as_json(
                chunk(
                    tool_calls=[
                        {"index": p["index"], "function": {"arguments": " "}} for p in pieces
                    ]
                )
            )
            + b"\n\n"
        )
        best = 9.0
        for _ in range(5):
            decoder, before = DIALECTS["openai"].decoder(), time.process_time()
            decoder.feed(data)
            decoder.feed(more)
            best = min(best, time.process_time() - before)
        return best

    assert cost(8_000) < 32 * cost(1_000)
