"""Events become answers that the official SDKs accumulate to the same message, streamed and whole,
in both dialects."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.dialects import table as dialects
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
from tests.support.json_values import Json

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


def encode(
    client: DialectName, events: list[Event], *, stream: bool = True, usage: bool = True
) -> bytes:
    request = ChatRequest(dialect=client, model="asked", stream=stream, include_usage=usage)
    return dialects.CLIENTS[client].encoder(request, call_id=CALL, created=7).encode(events)


@given(st.lists(st.text(min_size=1), min_size=1), st.sampled_from(DIALECTS))
def test_decoding_what_was_encoded_gives_it_back(parts: list[str], dialect: DialectName) -> None:
    openai = dialect == "openai"
    extra: Json = {
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
