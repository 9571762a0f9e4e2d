"""Whatever an upstream does to a Messages answer: it decodes, or it is refused as one of its
dialect; nothing else is raised."""

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import codecs
from protocol.dialects import CLIENTS, DIALECTS
from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.events import Event, MessageStart
from protocol.request import ChatRequest
from tests.support.checks.decoding import by_block
from tests.support.checks.order import check_messages_frames
from tests.support.upstreams.recordings import own

NAMES = [
    "every-field",
    "compaction",
    "refusal",
    "server-tool-among",
    "tool-in-message-start",
    "thinking",
    "spliced",
]
STREAMS = [
    [
        json.loads(part.split(b"data: ", 1)[1])
        for part in own(f"anthropic-{n}.sse").split(b"\n\n")
        if part
    ]
    for n in NAMES
]
ODD: list[Any] = [
    None,
    "",
    0,
    -1,
    1.5,
    True,
    [],
    {},
    "two words",
    "x" * 200,
    {"type": "text"},
    [{"type": "direct"}],
    1 << 70,
    "\ud83d",
]
ODD += [
    "text",
    "tool_use",
    "compaction",
    "input_json_delta",
    "text_delta",
    "citations_delta",
    "message_start",
    {"a": {"b": [1, "two words"]}},
]
UNKNOWN = frozenset(
    (
        "block text",
        "event text",
        "event two words",
        "delta text",
        "field novelty",
        "message field novelty",
        "usage novelty",
    )
)


def _places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [place for key, below in items for place in [(*at, key), *_places(below, (*at, key))]]


@st.composite
def _damaged(draw: st.DrawFn) -> list[Any]:
    frames: Any = deepcopy(draw(st.sampled_from(STREAMS)))
    for _ in range(draw(st.integers(1, 3))):
        *way, key = draw(st.sampled_from(_places(frames)))
        holder = frames
        for step in way:
            holder = holder[step]
        match draw(st.sampled_from(["set", "set", "add", "drop", "twice"])):
            case "add" if isinstance(holder, dict):
                holder["novelty"] = deepcopy(draw(st.sampled_from(ODD)))
            case "twice" if isinstance(holder, list):
                holder.insert(key, deepcopy(holder[key]))
            case "drop" if len(frames) > 1:
                del holder[key]
            case _:
                holder[key] = deepcopy(draw(st.sampled_from(ODD)))
    return [*frames]


@pytest.mark.slow
@settings(max_examples=300)
@given(_damaged(), st.sampled_from([frozenset[str](), UNKNOWN]))
def test_a_damaged_stream_decodes_or_is_refused(frames: list[Any], unknown: frozenset[str]) -> None:
    decoder, events = DIALECTS["anthropic"].decoder(unknown), list[Event]()
    try:
        for frame in frames:
            events += decoder.feed(b"data: " + json.dumps(frame).encode() + b"\n\n")
    except RemoteProtocolError:
        assert decoder.finish() == []
        return
    events += decoder.finish()
    for stream in (True, False):
        request = ChatRequest(dialect="anthropic", model="m", stream=stream)
        try:
            data = (
                CLIENTS["anthropic"]
                .encoder(request, call_id="a", created=7)
                .encode(by_block(events))
            )
        except LocalProtocolError:
            # arguments that are not JSON, blocks without an end: the session never releases those
            continue
        if stream and any(isinstance(e, MessageStart) for e in events):
            check_messages_frames(data)


@settings(max_examples=300)
@given(_damaged(), st.sampled_from([frozenset[str](), UNKNOWN]))
def test_a_damaged_whole_answer_decodes_or_is_refused(
    frames: list[Any], unknown: frozenset[str]
) -> None:
    blocks = [f["content_block"] for f in frames if isinstance(f, dict) and "content_block" in f]
    extra: dict[str, Any] = next(
        (
            f["message"]
            for f in frames
            if isinstance(f, dict) and isinstance(f.get("message"), dict)
        ),
        {},
    )
    body = {"id": "m", **extra, "type": "message", "content": blocks, "stop_reason": "end_turn"}
    try:
        events = codecs.decode_whole("anthropic", json.dumps(body).encode(), unknown)
    except RemoteProtocolError:
        return
    assert isinstance(events[0], MessageStart)
