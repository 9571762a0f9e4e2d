"""Events become answers that the official SDKs accumulate to the same message, streamed and whole,
in both dialects."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import dialects
from protocol.errors import LocalProtocolError
from protocol.events import (
    ArgumentsDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    MessageStart,
    MessageStop,
    Opaque,
    Ping,
    SignatureDelta,
    StopReason,
    TextDelta,
    UpstreamFailed,
    Usage,
)
from protocol.request import ChatRequest, DialectName
from tests.support.checks.decoding import decode
from tests.support.clients.sdk import anthropic_answer, openai_answer

CALL = "01990000-0000-7000-8000-00000000abcd"
DIALECTS: list[DialectName] = ["openai", "anthropic"]
START = MessageStart("up1", "model-x", Usage(20, 1, 5, 2))
STOP = MessageStop(StopReason.TOOL_USE, Usage(20, 42, 5, 2, 3))

RAW_START = {"input_tokens": 1, "output_tokens": 1}
RAW_STOP = {
    "input_tokens": 1,
    "output_tokens": 2,
    "cache_read_input_tokens": 3,
    "cache_creation_input_tokens": 4,
    "output_tokens_details": {"thinking_tokens": 5},
}


def text(index: int, *parts: str, kind: BlockKind = BlockKind.TEXT, name: str = "") -> list[Event]:
    return [
        BlockStart(index, kind, "", name),
        *[TextDelta(index, p) for p in parts],
        BlockStop(index),
    ]


def call(index: int, *parts: str, id: str = "call_1", name: str = "f") -> list[Event]:
    return [
        BlockStart(index, BlockKind.TOOL_USE, id, name),
        *[ArgumentsDelta(index, p) for p in parts],
        BlockStop(index),
    ]


THINKING: list[Event] = [
    BlockStart(0, BlockKind.THINKING),
    TextDelta(0, "Let me "),
    TextDelta(0, "think."),
    SignatureDelta(0, "c2ln"),
    BlockStop(0),
]
ANSWER: list[Event] = [
    START,
    *THINKING,
    *text(2, "Grüße, ", "Welt"),
    *call(5, '{"a"', ":1}"),
    *call(6, "", id="call_2", name="g"),
    STOP,
]


def encode(
    client: DialectName, events: list[Event], *, stream: bool = True, usage: bool = True
) -> bytes:
    request = ChatRequest(dialect=client, model="asked", stream=stream, include_usage=usage)
    return dialects.CLIENTS[client].encoder(request, call_id=CALL, created=7).encode(events)


def frames(data: bytes) -> list[Any]:
    return [
        json.loads(part.split(b"data: ", 1)[1])
        for part in data.split(b"\n\n")
        if part and b"[DONE]" not in part
    ]


@pytest.mark.parametrize("stream", [True, False])
def test_openai_sdk_sees_the_message(stream: bool) -> None:
    answer = openai_answer(encode("openai", ANSWER, stream=stream), stream=stream)
    message = answer.choices[0].message
    assert (answer.id, answer.created, answer.model) == (f"chatcmpl-{CALL}", 7, "model-x")
    assert message.content == "Grüße, Welt"
    assert (message.model_extra or {})["reasoning_content"] == "Let me think."
    calls: list[Any] = list(message.tool_calls or ())
    assert [(c.id, c.type, c.function.name, c.function.arguments) for c in calls] == [
        ("call_1", "function", "f", '{"a":1}'),
        ("call_2", "function", "g", "{}"),
    ]
    assert answer.choices[0].finish_reason == "tool_calls"
    assert answer.usage is not None
    assert answer.usage.model_dump(exclude_none=True) == {
        "prompt_tokens": 27,
        "completion_tokens": 42,
        "total_tokens": 69,
        "prompt_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }


@pytest.mark.parametrize("stream", [True, False])
def test_anthropic_sdk_sees_the_message(stream: bool) -> None:
    answer = anthropic_answer(encode("anthropic", ANSWER, stream=stream), stream=stream)
    assert (answer.id, answer.model, answer.stop_reason) == (
        "msg_" + CALL.replace("-", ""),
        "model-x",
        "tool_use",
    )
    assert [b.model_dump(exclude_none=True) for b in answer.content] == [
        {"type": "thinking", "thinking": "Let me think.", "signature": "c2ln"},
        {"type": "text", "text": "Grüße, Welt"},
        {"type": "tool_use", "id": "call_1", "name": "f", "input": {"a": 1}},
        {"type": "tool_use", "id": "call_2", "name": "g", "input": {}},
    ]
    usage = answer.usage
    assert (
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_input_tokens,
        usage.cache_creation_input_tokens,
    ) == (20, 42, 5, 2)


def test_same_dialect_keeps_upstreams_ids() -> None:
    start = MessageStart(
        "gen-1",
        "m",
        Usage(),
        {"dialect": "openai", "created": 5, "service_tier": "default", "content_null": True},
    )
    events: list[Event] = [start, *call(0, "{}"), STOP]
    for stream in (True, False):
        answer = openai_answer(encode("openai", events, stream=stream), stream=stream)
        assert (
            answer.id,
            answer.created,
            answer.service_tier,
            answer.choices[0].message.content,
        ) == ("gen-1", 5, "default", None)
        own: list[Event] = [
            MessageStart("up", "m", Usage(), {"dialect": "anthropic"}),
            *call(0, "{}"),
            STOP,
        ]
        assert anthropic_answer(encode("anthropic", own, stream=stream), stream=stream).id == "up"
    assert anthropic_answer(encode("anthropic", events), stream=True).id.startswith("msg_")


def test_reasoning_keeps_its_field() -> None:
    events: list[Event] = [
        START,
        *text(0, "a", kind=BlockKind.THINKING, name="reasoning"),
        *text(1, "b"),
        MessageStop(StopReason.END_TURN),
    ]
    for stream in (True, False):
        message = (
            openai_answer(encode("openai", events, stream=stream), stream=stream).choices[0].message
        )
        assert (message.model_extra or {})["reasoning"] == "a"


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        (StopReason.END_TURN, "stop"),
        (StopReason.STOP_SEQUENCE, "stop"),
        (StopReason.TOOL_USE, "tool_calls"),
        (StopReason.MAX_TOKENS, "length"),
        (StopReason.CONTEXT_WINDOW, "length"),
        (StopReason.PAUSE_TURN, "length"),
        (StopReason.COMPACTION, "length"),
        (StopReason.REFUSAL, "content_filter"),
    ],
)
def test_stop_reasons(reason: StopReason, finish: str) -> None:
    events: list[Event] = [
        START,
        *text(0, "a"),
        MessageStop(reason, Usage(1, 1), "END" if reason is StopReason.STOP_SEQUENCE else None),
    ]
    for stream in (True, False):
        assert (
            openai_answer(encode("openai", events, stream=stream), stream=stream)
            .choices[0]
            .finish_reason
            == finish
        )
        answer = anthropic_answer(encode("anthropic", events, stream=stream), stream=stream)
        assert answer.stop_reason == reason
        assert answer.stop_sequence == ("END" if reason is StopReason.STOP_SEQUENCE else None)


def test_usage_chunk_comes_last_only_when_asked_and_known() -> None:
    events: list[Event] = [START, *text(0, "a"), STOP]
    assert frames(encode("openai", events))[-1]["choices"] == []
    assert "usage" not in frames(encode("openai", events, usage=False))[-1]
    assert (
        "usage"
        not in frames(encode("openai", [START, *text(0, "a"), MessageStop(StopReason.END_TURN)]))[
            -1
        ]
    )
    assert encode("openai", events).endswith(b"data: [DONE]\n\n")
    cached = frames(encode("openai", [START, MessageStop(StopReason.END_TURN, Usage(1, 2, 3))]))[
        -1
    ]["usage"]
    assert cached == {
        "prompt_tokens": 4,
        "completion_tokens": 2,
        "total_tokens": 6,
        "prompt_tokens_details": {"cached_tokens": 3},
    }
    total: list[Event] = [
        START,
        MessageStop(StopReason.END_TURN, Usage(1, 2), None, {"total_tokens": 9}),
    ]
    assert frames(encode("openai", total))[-1]["usage"]["total_tokens"] == 9


@pytest.mark.parametrize("client", DIALECTS)
@pytest.mark.parametrize("stream", [True, False])
def test_joining_deltas_changes_nothing_for_the_client(client: DialectName, stream: bool) -> None:
    apart: list[Event] = [START, *text(0, "a", "", "b", "c"), *call(1, '{"x"', ":1}"), STOP]
    joined: list[Event] = [START, *text(0, "abc"), *call(1, '{"x":1}'), STOP]
    one, two = (encode(client, e, stream=stream) for e in (apart, joined))
    if client == "openai":
        assert openai_answer(one, stream=stream) == openai_answer(two, stream=stream)
    else:
        assert anthropic_answer(one, stream=stream) == anthropic_answer(two, stream=stream)


@given(st.lists(st.text(min_size=1), min_size=1), st.sampled_from(DIALECTS))
def test_decoding_what_was_encoded_gives_it_back(parts: list[str], dialect: DialectName) -> None:
    openai = dialect == "openai"
    extra: dict[str, Any] = {
        "dialect": dialect,
        **({"content_null": False, "created": 1} if openai else {"usage": RAW_START}),
    }
    events: list[Event] = [
        MessageStart("m", "x", Usage(1, 1) if dialect == "anthropic" else Usage(), extra),
        *text(0, *parts, kind=BlockKind.THINKING, name="reasoning" if dialect == "openai" else ""),
        *text(1, *parts),
        *call(2, *parts),
        MessageStop(
            StopReason.TOOL_USE, Usage(1, 2, 3, 4, 5), None, {} if openai else {"usage": RAW_STOP}
        ),
    ]
    data = encode(dialect, events)
    decoded = decode(dialect, [data])
    if dialect == "openai" and isinstance(stop := decoded[-1], MessageStop):
        # beside the counts there is the object that they were read from
        assert stop.extra.keys() == {"usage"}
        decoded[-1] = msgspec.structs.replace(stop, extra={})
    assert decoded == events


ODD = ["a", "\ud83d", "\ude00", "\u0000", "\u2028", "</script>", '"\\', "😀"]


@given(st.lists(st.sampled_from(ODD), min_size=1), st.sampled_from(DIALECTS))
def test_any_text_a_model_writes_goes_through(parts: list[str], dialect: DialectName) -> None:
    data = encode(dialect, [START, *text(0, *parts), MessageStop(StopReason.END_TURN)])
    assert [e.text for e in decode(dialect, [data]) if isinstance(e, TextDelta)] == parts
    assert encode(
        dialect, [START, *text(0, *parts), MessageStop(StopReason.END_TURN)], stream=False
    )


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("client", DIALECTS)
def test_upstream_failure_is_an_error_and_nothing_after_it(
    client: DialectName, stream: bool
) -> None:
    request = ChatRequest(dialect=client, model="m", stream=stream)
    encoder = dialects.CLIENTS[client].encoder(request, call_id=CALL, created=7)
    encoder.encode([START, BlockStart(0, BlockKind.TEXT), TextDelta(0, "a")])
    data = encoder.encode([UpstreamFailed("overloaded_error", "busy")])
    assert b"busy" in data
    assert b"[DONE]" not in data
    with pytest.raises(LocalProtocolError):
        encoder.encode([TextDelta(0, "b")])


@pytest.mark.parametrize("stream", [True, False])
def test_other_blocks_are_whole_in_their_dialect_and_invisible_in_the_other(stream: bool) -> None:
    body = {"type": "redacted_thinking", "data": "x"}
    other: list[Event] = [
        BlockStart(0, BlockKind.OTHER, name="redacted_thinking", body=body),
        BlockStop(0),
    ]
    start = MessageStart("up1", "model-x", Usage(20, 1, 5, 2), {"dialect": "anthropic"})
    events: list[Event] = [start, *other, *text(1, "a"), Ping(), Opaque("x"), STOP]
    assert (
        openai_answer(encode("openai", events, stream=stream), stream=stream)
        .choices[0]
        .message.content
        == "a"
    )
    content = anthropic_answer(encode("anthropic", events, stream=stream), stream=stream).content
    assert [b.type for b in content] == ["redacted_thinking", "text"]


BAD: list[list[Event]] = [
    [BlockStart(0, BlockKind.TEXT)],
    [MessageStop(StopReason.END_TURN)],
    [START, START],
    [START, TextDelta(0, "a")],
    [START, ArgumentsDelta(0, "a")],
    [START, *text(0, "a"), ArgumentsDelta(0, "a")],
    [START, BlockStart(0, BlockKind.TOOL_USE, "x", "f"), TextDelta(0, "a")],
    [START, BlockStart(0, BlockKind.OPAQUE)],
    [START, MessageStop(StopReason.END_TURN), Ping()],
]


@pytest.mark.parametrize("events", BAD)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("client", DIALECTS)
def test_sequences_that_the_dialect_does_not_allow(
    client: DialectName, stream: bool, events: list[Event]
) -> None:
    with pytest.raises(LocalProtocolError):
        encode(client, events, stream=stream)


@pytest.mark.parametrize("stream", [True, False])
def test_messages_has_one_block_open_at_a_time(stream: bool) -> None:
    after: list[Event] = [BlockStart(1, BlockKind.TEXT), BlockStop(1), SignatureDelta(0, "s"), STOP]
    for event in after:
        with pytest.raises(LocalProtocolError):
            encode("anthropic", [START, BlockStart(0, BlockKind.TEXT), event], stream=stream)
    with pytest.raises(LocalProtocolError):
        encode("anthropic", [START, *call(0, "{x"), STOP], stream=False)
    with pytest.raises(LocalProtocolError):
        encode("openai", [START, BlockStop(0)])


def test_keepalives_and_content_types() -> None:
    for client, keepalive in (
        ("openai", b": keepalive\n\n"),
        ("anthropic", b'event: ping\ndata: {"type": "ping"}\n\n'),
    ):
        dialect: DialectName = "openai" if client == "openai" else "anthropic"
        assert dialects.CLIENTS[dialect].keepalive == keepalive
        for stream in (True, False):
            encoder = dialects.CLIENTS[dialect].encoder(
                ChatRequest(dialect=dialect, model="m", stream=stream), call_id=CALL, created=7
            )
            assert encoder.content_type == (
                "text/event-stream; charset=utf-8" if stream else "application/json"
            )


def test_refusal_details_come_out_in_their_dialect() -> None:
    stop = MessageStop(
        StopReason.REFUSAL,
        Usage(1, 1),
        None,
        {"stop_details": {"type": "refusal", "category": "cyber"}},
    )
    for stream in (True, False):
        details = anthropic_answer(
            encode("anthropic", [START, stop], stream=stream), stream=stream
        ).stop_details
        assert details is not None
        assert details.category == "cyber"
