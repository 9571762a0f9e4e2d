"""What Messages answers have beside text and calls: carried for clients of the dialect, withheld
where it could be prose nobody judged."""

from typing import Any

import pytest

from protocol import codecs
from protocol.dialects.anthropic.blocks import CARRIED
from protocol.dialects.anthropic.cited import read_citation
from protocol.dialects.table import DIALECTS
from protocol.errors import RemoteProtocolError
from protocol.events import (
    AttachmentDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    MessageStart,
    MessageStop,
    Opaque,
    RawDelta,
    SignatureDelta,
    TextDelta,
)
from tests.support.checks.decoding import texts
from tests.support.json_values import Json
from tests.support.upstreams.frames import delta, end, message, opaque, start, stop, stream, whole


def last(events: list[Event]) -> MessageStop:
    event = events[-1]
    assert isinstance(event, MessageStop)
    return event


def first(events: list[Event]) -> MessageStart:
    event = events[0]
    assert isinstance(event, MessageStart)
    return event


@pytest.mark.parametrize("kind", sorted(CARRIED))
def test_blocks_that_are_carried_whole(kind: str) -> None:
    block = {
        "type": kind,
        "tool_use_id": "s",
        "content": [{"type": "novelty", "encrypted_content": "x", "page_age": None}],
        "novelty": "x",
    }
    want: list[Event] = [BlockStart(0, BlockKind.OTHER, name=kind, body=block), BlockStop(0)]
    assert stream(message(), start(0, **block), stop(0), *end())[1:-1] == want
    assert stream(message(content=[block]), *end())[1:-1] == want
    assert whole(block)[1:-1] == want


def test_a_compaction_begins_when_it_is_complete() -> None:
    empty = {"type": "compaction", "content": None, "signature": "c2ln"}
    frames = [
        message(),
        start(0, **empty),
        delta(0, "compaction_delta", content="a", encrypted_content="x"),
    ]
    full = {**empty, "content": "a", "encrypted_content": "x"}
    assert stream(*frames, stop(0), *end())[1:-1] == [
        BlockStart(0, BlockKind.OTHER, name="compaction", body=full),
        BlockStop(0),
    ]
    # one that the message ends, and one whose delta says nothing of the encrypted form
    cut = stream(*frames, delta(0, "compaction_delta", content="b"), *end())
    assert cut[1:-1] == [
        BlockStart(0, BlockKind.OTHER, name="compaction", body={**full, "content": "b"}),
        BlockStop(0),
    ]
    with pytest.raises(RemoteProtocolError):
        stream(*frames, stop(0), delta(0, "compaction_delta", content="b"))


@pytest.mark.parametrize(
    ("given", "body", "attached"),
    [
        ({}, None, []),
        ({"citations": None}, {"citations": None}, []),
        ({"citations": []}, {"citations": []}, []),
        ({"citations": [{"a": 1}, {"b": 2}]}, {"citations": []}, [{"a": 1}, {"b": 2}]),
    ],
)
def test_citations_become_attachments(given: Json, body: Json | None, attached: list[Any]) -> None:
    more = delta(0, "citations_delta", citation={"c": 3})
    events = stream(message(), start(0, type="text", text="a", **given), more, stop(0), *end())
    want = [
        BlockStart(0, BlockKind.TEXT, body=body),
        TextDelta(0, "a"),
        *[AttachmentDelta(0, "citation", read_citation(c)) for c in attached],
    ]
    assert events[1:-1] == [
        *want,
        AttachmentDelta(0, "citation", read_citation({"c": 3})),
        BlockStop(0),
    ]
    assert whole({"type": "text", "text": "a", **given})[1:-1] == [*want, BlockStop(0)]


@pytest.mark.parametrize("citations", ["odd", ["odd"], {"a": 1}])
def test_citations_of_another_shape_are_withheld(citations: Any) -> None:
    assert opaque(whole({"type": "text", "text": "a", "citations": citations})) == ["citations"]


def test_a_count_of_hidden_thinking_is_no_text() -> None:
    hidden = delta(0, "thinking_delta", thinking="", estimated_tokens=50)
    events = stream(
        message(),
        start(0, type="thinking", thinking=""),
        hidden,
        delta(0, "signature_delta", signature="s"),
        stop(0),
        *end(),
    )
    assert events[1:-1] == [
        BlockStart(0, BlockKind.THINKING),
        TextDelta(0, ""),
        SignatureDelta(0, "s"),
        BlockStop(0),
    ]


@pytest.mark.parametrize(
    ("details", "what"),
    [
        ("prose", "stop_details"),
        ({"type": "refusal", "explanation": ["some prose"]}, "stop_details explanation"),
        ({"type": "refusal", "category": "some prose"}, "stop_details category"),
        (
            {"type": "refusal", "fallback_credit_token": "some prose"},
            "stop_details fallback_credit_token",
        ),
        (
            {"type": "refusal", "fallback_credit_token": {"a": "b c"}},
            "stop_details fallback_credit_token",
        ),
    ],
)
def test_details_that_could_be_prose_are_withheld(details: Any, what: str) -> None:
    for events in (
        whole(stop_details=details),
        stream(message(), *end("refusal", stop_details=details)),
    ):
        assert opaque(events) == [what]
        assert last(events).explanation == ""


WORDS = ["container", "context_management", "input_transformations", "diagnostics"]


@pytest.mark.parametrize("field", WORDS)
def test_bookkeeping_passes_when_it_is_tame_or_named(field: str) -> None:
    prose: Json = {field: {"id": "some prose"}}
    null: Json = {field: None}
    assert first(stream(message(**{field: {"id": "c"}}), *end())).extra[field] == {"id": "c"}
    for events in (stream(message(**prose), *end()), whole(**prose)):
        assert (opaque(events), field in first(events).extra) == ([field], False)
    assert first(whole(unknown=(field,), **prose)).extra == {"dialect": "anthropic"} | prose
    assert first(whole(**null)).extra[field] is None


BLOCK = {"type": "novelty", "content": "x"}


def test_a_named_block_is_carried_whole_and_its_deltas_are_raw() -> None:
    begun = BlockStart(0, BlockKind.OTHER, name="novelty", body=BLOCK)
    frames = [
        message(),
        start(0, **BLOCK),
        delta(0, "text_delta", text="a"),
        delta(0, "more", a=1),
        stop(0),
        *end(),
    ]
    assert stream(*frames, unknown=("block novelty",))[1:-1] == [
        begun,
        RawDelta("delta text_delta", 0, frames[2], "anthropic"),
        RawDelta("delta more", 0, frames[3], "anthropic"),
        BlockStop(0),
    ]
    assert whole(BLOCK, unknown=("block novelty",))[1:-1] == [begun, BlockStop(0)]
    assert opaque(stream(*frames, unknown=("block other",))) == [
        "block novelty",
        "delta text_delta",
        "delta more",
    ]
    assert whole(BLOCK)[1:-1] == [Opaque("block novelty")]


def test_named_events_and_deltas_are_raw() -> None:
    event = {"type": "novelty", "content": {"a": "some prose"}}
    plain = {"type": "plain", "index": 7}
    more = delta(0, "novelty", a=[1])
    frames = [message(), event, plain, start(0, type="text", text=""), more, stop(0), *end()]
    events = stream(*frames, unknown=("event novelty", "event plain", "delta novelty"))
    assert events[1:-1] == [
        RawDelta("event novelty", -1, event, "anthropic"),
        RawDelta("event plain", -1, plain, "anthropic"),
        BlockStart(0, BlockKind.TEXT),
        RawDelta("delta novelty", 0, more, "anthropic"),
        BlockStop(0),
    ]
    assert opaque(stream(*frames)) == ["event novelty", "event plain", "delta novelty"]


def test_a_named_event_that_no_stream_can_hold_is_withheld() -> None:
    decoder = DIALECTS["anthropic"].decoder(frozenset(("event odd\ndata: x",)))
    decoder.feed(b'data: {"type":"message_start","message":{}}\n\n')
    assert decoder.feed(b'data: {"type":"odd\\ndata: x"}\n\n') == [Opaque("event odd\ndata: x")]
    assert stream({"type": "early"}, unknown=("event early",))[0] == Opaque("event early")


def test_named_fields_are_kept_where_they_were() -> None:
    unknown = (
        "message field one",
        "field two",
        "delta field three",
        "text field four",
        "tool_use field five",
    )
    frames = [
        {**message(one=["some prose"]), "two": 2},
        start(0, type="text", text="", four="some prose"),
        stop(0),
        start(1, type="tool_use", id="t", name="n", input={}, five=5),
        stop(1),
        {"type": "message_delta", "delta": {"three": 3}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "three": 4}, "two": 2},
        {"type": "message_stop"},
    ]
    events = stream(*frames, unknown=unknown)
    assert opaque(events) == []
    assert first(events).extra["fields"] == {
        "field": {"two": 2},
        "message field": {"one": ["some prose"]},
    }
    assert last(events).extra["fields"] == {"delta field": {"three": 4}, "field": {"two": 2}}
    assert [e.body for e in events if isinstance(e, BlockStart)] == [
        {"four": "some prose"},
        {"five": 5},
    ]
    assert len(opaque(stream(*frames))) == 7
    assert first(whole(unknown=unknown, one=1)).extra["fields"] == {"message field": {"one": 1}}


def test_a_named_field_of_a_delta_comes_beside_a_delta_that_says_nothing() -> None:
    frame = {**delta(0, "text_delta", text="a", one=1), "two": 2}
    frames = [message(), start(0, type="text", text=""), frame, stop(0), *end()]
    events = stream(*frames, unknown=("delta field one", "field two"))
    assert events[2:5] == [
        RawDelta("field two", 0, {**delta(0, "text_delta", text=""), "two": 2}, "anthropic"),
        RawDelta("delta field one", 0, delta(0, "text_delta", text="", one=1), "anthropic"),
        TextDelta(0, "a"),
    ]
    assert texts(events) == {0: "a"}


def test_a_named_field_that_has_no_place_is_withheld_all_the_same() -> None:
    events = stream(
        message(),
        {**start(0, type="thinking", thinking=""), "one": 1},
        delta(0, "signature_delta", signature="s", one=1),
        stop(0),
        start(1, type="novelty"),
        delta(1, "text_delta", text="x", one=1),
        *end(),
        unknown=("field one", "delta field one"),
    )
    assert opaque(events) == [
        "field one",
        "delta field one",
        "block novelty",
        "delta text_delta",
        "delta field one",
    ]


def test_too_many_words_are_withheld_together() -> None:
    words = {f"k{i}": "word" * 20 for i in range(60)}
    assert opaque(whole(usage=words)) == ["usage"]


@pytest.mark.parametrize("size", [90_000])
def test_deep_nesting_ends_the_stream_and_not_the_decoder(size: int) -> None:
    decoder = DIALECTS["anthropic"].decoder(frozenset(("event novelty",)))
    decoder.feed(b'data: {"type":"message_start","message":{}}\n\n')
    with pytest.raises(RemoteProtocolError):
        decoder.feed(b'data: {"type":"novelty","error":' + b"[" * size + b"]" * size + b"}\n\n")
    with pytest.raises(RemoteProtocolError):
        codecs.decode_whole(
            "anthropic", b'{"type":"message","container":' + b"[" * size + b"]" * size + b"}"
        )
