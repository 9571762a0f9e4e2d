"""A Messages client gets every field that its own dialect's upstream sent, and of the other
dialect's only what it can read."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import codecs
from protocol.citations import Citation
from protocol.dialects.anthropic.cited import read_citation
from protocol.dialects.openai_chat.cited import read_citation as read_annotation
from protocol.dialects.table import CLIENTS
from protocol.errors import LocalProtocolError
from protocol.events import (
    ArgumentsDelta,
    AttachmentDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    MessageStart,
    MessageStop,
    RawDelta,
    SignatureDelta,
    StopReason,
    TextDelta,
    Usage,
)
from protocol.request import ChatRequest
from tests.support.checks.decoding import by_block, decode
from tests.support.checks.order import check_messages_frames, read_frames
from tests.support.clients.sdk import anthropic_answer, anthropic_beta_answer
from tests.support.json_values import Json
from tests.support.upstreams.frames import delta, message, start, stop, stream
from tests.support.upstreams.recordings import own

SAME = MessageStart("up1", "model-x", Usage(20, 1), {"dialect": "anthropic"})
FOREIGN = MessageStart("up1", "model-x", Usage(20, 1), {"dialect": "openai"})
STOP = MessageStop(StopReason.END_TURN, Usage(20, 42))
OWN = [
    "anthropic-every-field.sse",
    "anthropic-compaction.sse",
    "anthropic-refusal.sse",
    "anthropic-server-tool-among.sse",
]
CITATION = {
    "type": "page_location",
    "cited_text": "x",
    "document_index": 0,
    "start_page_number": 1,
    "end_page_number": 2,
}


def encode(events: list[Event], *, streams: bool = True) -> bytes:
    request = ChatRequest(dialect="anthropic", model="asked", stream=streams)
    return CLIENTS["anthropic"].encoder(request, call_id="a-b", created=7).encode(events)


def body(events: list[Event]) -> Json:
    found: Json = json.loads(encode(events, streams=False))
    return found


@pytest.mark.parametrize("name", OWN)
def test_whole_message_is_the_accumulated_one(name: str) -> None:
    events = by_block(decode("anthropic", [own(name)]))
    direct = anthropic_beta_answer(own(name), stream=True).model_dump()
    assert anthropic_beta_answer(encode(events, streams=False), stream=False).model_dump() == direct
    # and once more through a provider that did not stream
    again = by_block(codecs.decode_whole("anthropic", encode(events, streams=False)))
    for streams in (True, False):
        assert (
            anthropic_beta_answer(encode(again, streams=streams), stream=streams).model_dump()
            == direct
        )


def test_annotations_of_the_other_dialect_go_into_an_object_of_our_own() -> None:
    notes = [
        {
            "type": "url_citation",
            "url_citation": {"url": "https://weather.example", "start_index": 0, "end_index": 1},
        }
    ]
    events: list[Event] = [
        FOREIGN,
        BlockStart(0, BlockKind.TEXT),
        TextDelta(0, "a"),
        AttachmentDelta(0, "citation", read_annotation(notes[0])),
    ]
    events += [
        AttachmentDelta(0, "citation", Citation(kind="url", url="https://a", title="t")),
        AttachmentDelta(0, "logprobs", {"content": []}),
        BlockStop(0),
        STOP,
    ]
    data = encode(events)
    bare = {
        "type": "url_citation",
        "url": "https://a",
        "title": "t",
        "start_index": -1,
        "end_index": -1,
    }
    assert (
        read_frames(data)[-2]["sluice"] == {"annotations": [*notes, bare]} == body(events)["sluice"]
    )
    assert "citations" not in body(events)["content"][0]
    assert anthropic_answer(data, stream=True).content[0].model_dump(exclude_none=True) == {
        "type": "text",
        "text": "a",
    }


def test_nothing_of_the_other_dialect_looks_like_this_one() -> None:
    extra = {
        "usage": {"prompt_tokens": 20},
        "container": {"id": "c"},
        "fields": {"field": {"x": 1}, "message field": {"x": 1}},
    }
    first = MessageStart("up1", "model-x", Usage(20, 1), {**FOREIGN.extra, **extra})
    other = BlockStart(0, BlockKind.OTHER, name="audio", body={"type": "audio"})
    events: list[Event] = [
        first,
        other,
        BlockStop(0),
        BlockStart(1, BlockKind.TOOL_USE, "t", "n", {"index": 0}),
    ]
    events += [
        ArgumentsDelta(1, "{}"),
        RawDelta("chunk field x", -1, {"x": 1}, "openai"),
        BlockStop(1),
    ]
    events.append(MessageStop(StopReason.TOOL_USE, Usage(20, 42, 3, 4, 5), None, extra))
    usage = {
        "input_tokens": 20,
        "output_tokens": 42,
        "cache_read_input_tokens": 3,
        "cache_creation_input_tokens": 4,
    }
    usage |= {"output_tokens_details": {"thinking_tokens": 5}}  # type: ignore[dict-item]
    frames = read_frames(encode(events))
    check_messages_frames(encode(events))
    assert frames[-2] == {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": usage,
    }
    assert set(frames[0]) == {"type", "message"}
    whole = body(events)
    assert whole["content"] == [{"type": "tool_use", "id": "t", "name": "n", "input": {}}]
    assert set(whole) == {
        "id",
        "type",
        "role",
        "model",
        "content",
        "stop_reason",
        "stop_sequence",
        "usage",
    }
    assert whole["usage"] == usage


def test_named_frames_and_fields_come_out_where_they_were() -> None:
    unknown = (
        "event novelty",
        "delta novelty",
        "block novelty",
        "message field one",
        "field two",
        "delta field three",
        "text field four",
    )
    sent = [
        {**message(one=1, usage={"input_tokens": 1, "output_tokens": 1}), "two": 2},
        {"type": "novelty", "a": [1]},
        start(0, type="unheard", a=1),
        stop(0),
        start(1, type="novelty", a=1),
        delta(1, "text_delta", text="a"),
        stop(1),
        start(2, type="text", text="", four=4),
        delta(2, "novelty", a=1),
        delta(2, "text_delta", text="a", three=3),
        stop(2),
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None, "three": 3},
            "usage": {"output_tokens": 3},
            "two": 2,
        },
        {"type": "message_stop", "two": 3},
    ]
    events = stream(*sent, unknown=unknown)
    got = read_frames(encode(events))
    sent[0]["message"] |= {"stop_reason": None, "stop_sequence": None}
    beside = [delta(1, "text_delta", text="", three=3), delta(1, "text_delta", text="a")]
    want = [
        *sent[:2],
        {**sent[4], "index": 0},
        {**sent[5], "index": 0},
        stop(0),
        {**sent[7], "index": 1},
        {**sent[8], "index": 1},
    ]
    assert got == [*want, *beside, stop(1), *sent[11:]]
    check_messages_frames(
        encode([e for e in events if not (isinstance(e, RawDelta) and e.index < 0)])
    )
    answer = body(events)
    assert (answer["one"], answer["two"], answer["three"]) == (1, 3, 3)
    assert answer["content"] == [
        {"type": "novelty", "a": 1},
        {"type": "text", "text": "a", "four": 4},
    ]


def test_a_raw_frame_is_written_only_inside_its_block() -> None:
    raw = RawDelta("delta novelty", 0, delta(0, "novelty"), "anthropic")
    for before in (SAME, BlockStart(1, BlockKind.TEXT)):
        encoder = CLIENTS["anthropic"].encoder(
            ChatRequest(dialect="anthropic", model="m", stream=True), call_id="a", created=7
        )
        encoder.encode([SAME] if before is SAME else [SAME, before])
        with pytest.raises(LocalProtocolError):
            encoder.encode([raw])
    assert encode([RawDelta("event novelty", -1, {"type": "novelty"}, "anthropic")]) == b""


def test_an_attachment_belongs_to_the_open_block() -> None:
    for streams in (True, False):
        with pytest.raises(LocalProtocolError):
            encode([SAME, AttachmentDelta(0, "citation", read_citation(CITATION))], streams=streams)


def test_a_fallback_without_a_model_changes_no_model() -> None:
    events: list[Event] = [
        SAME,
        BlockStart(0, BlockKind.OTHER, name="fallback", body={"type": "fallback"}),
        BlockStop(0),
        STOP,
    ]
    assert body(events)["model"] == "model-x"


WORDS = st.text("abc_09", min_size=1, max_size=9)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=5),
    lambda v: st.dictionaries(st.text(max_size=5), v),
)
RESULT = st.builds(
    lambda v: {"type": "web_search_tool_result", "tool_use_id": "s", "content": v}, JSON
)
CALLER = st.none() | st.fixed_dictionaries(
    {"caller": st.fixed_dictionaries({"type": WORDS, "tool_id": WORDS})}
)


def _blocks(parts: list[tuple[str, Any]]) -> list[Event]:
    events: list[Event] = []
    for index, (kind, value) in enumerate(parts):
        match kind:
            case "text":
                events += [
                    BlockStart(index, BlockKind.TEXT, body={"citations": []}),
                    TextDelta(index, "a"),
                ]
                events += [AttachmentDelta(index, "citation", read_citation({"cited": value}))]
            case "thinking":
                events += [
                    BlockStart(index, BlockKind.THINKING),
                    TextDelta(index, "a"),
                    SignatureDelta(index, "s"),
                ]
            case "call":
                events += [
                    BlockStart(index, BlockKind.TOOL_USE, "t", "n", value),
                    ArgumentsDelta(index, '{"a":1}'),
                ]
            case "server":
                events += [
                    BlockStart(
                        index,
                        BlockKind.SERVER_TOOL_USE,
                        "t",
                        "n",
                        {"type": "mcp_tool_use", **(value or {})},
                    )
                ]
                events += [ArgumentsDelta(index, '{"a":1}')]
            case _:
                events.append(
                    BlockStart(index, BlockKind.OTHER, name="web_search_tool_result", body=value)
                )
        events.append(BlockStop(index))
    return events


PARTS = st.lists(
    st.tuples(st.just("text"), JSON)
    | st.tuples(st.just("thinking"), st.none())
    | st.tuples(st.just("call"), CALLER)
    | st.tuples(st.just("server"), CALLER)
    | st.tuples(st.just("result"), RESULT),
    max_size=5,
)
COUNTS = st.fixed_dictionaries(
    {
        "input_tokens": st.just(1),
        "output_tokens": st.just(2),
        "service_tier": WORDS,
        "iterations": st.lists(WORDS),
    }
)


@pytest.mark.slow
@given(PARTS, COUNTS, st.none() | st.fixed_dictionaries({"id": WORDS}))
def test_decoding_what_was_encoded_gives_it_back(
    parts: list[tuple[str, Any]], usage: Json, container: Any
) -> None:
    extra = {"usage": usage, "container": container} if container else {"usage": usage}
    first = MessageStart("m", "x", Usage(1, 2), {"dialect": "anthropic", **extra})
    events = [
        first,
        *_blocks(parts),
        MessageStop(StopReason.END_TURN, Usage(1, 2), None, extra, "Why."),
    ]
    stopped = MessageStop(
        StopReason.END_TURN,
        Usage(1, 2),
        None,
        {**extra, "stop_details": {"type": "refusal"}},
        "Why.",
    )
    data = encode(events)
    check_messages_frames(data)
    assert decode("anthropic", [data]) == [*events[:-1], stopped]
    assert codecs.decode_whole("anthropic", encode(events, streams=False)) == [
        *events[:-1],
        stopped,
    ]
