"""Messages answers become events, by block index; what we do not model is withheld, what is cut
never ends well."""

import json

import pytest

from protocol import codecs
from protocol.dialects.table import DIALECTS
from protocol.errors import RemoteProtocolError
from protocol.events import (
    ArgumentsDelta,
    BlockKind,
    BlockStart,
    MessageStop,
    Opaque,
    StopReason,
    UpstreamFailed,
    Usage,
)
from tests.support.checks.decoding import decode, texts
from tests.support.json_values import Json
from tests.support.upstreams.frames import delta, end, message, opaque, start, stop, stream
from tests.support.upstreams.recordings import framed, own

FILES = [
    "anthropic-text.sse",
    "anthropic-tools-parallel.sse",
    "anthropic-tool-full-input.sse",
    "anthropic-tool-in-message-start.sse",
    "anthropic-thinking.sse",
    "anthropic-server-tool-among.sse",
    "anthropic-error.sse",
    "anthropic-cut.sse",
    "anthropic-cut-by-max-tokens.sse",
    "anthropic-same-start-twice.sse",
    "anthropic-every-field.sse",
    "anthropic-compaction.sse",
    "anthropic-refusal.sse",
]


TEXT = start(0, type="text", text="")


@pytest.mark.case("U11")
@pytest.mark.parametrize("name", [n for n in FILES if n != "anthropic-cut.sse"])
def test_bytes_after_the_end_are_withheld(name: str) -> None:
    body = own(name)
    after = decode("anthropic", [body + framed("anthropic", [json.dumps(TEXT)])])
    assert after == [*decode("anthropic", [body]), Opaque("data after the end")]


@pytest.mark.case("U6")
def test_server_blocks_never_touch_a_clients_call() -> None:
    events = decode("anthropic", [own("anthropic-server-tool-among.sse")])
    assert [e for e in events if isinstance(e, BlockStart | ArgumentsDelta)] == [
        BlockStart(0, BlockKind.TOOL_USE, "toolu_a", "get_weather"),
        ArgumentsDelta(0, '{"city":"Paris"}'),
        BlockStart(
            1, BlockKind.SERVER_TOOL_USE, "srvtoolu_1", "web_search", {"type": "server_tool_use"}
        ),
        ArgumentsDelta(1, '{"query":"x"}'),
        BlockStart(
            2,
            BlockKind.OTHER,
            name="web_search_tool_result",
            body={"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        ),
        BlockStart(3, BlockKind.TEXT),
    ]
    assert opaque(events) == []
    assert texts(events) == {3: "Found."}


def test_errors_and_cuts() -> None:
    assert decode("anthropic", [own("anthropic-error.sse")])[-1] == UpstreamFailed(
        "overloaded_error", "Overloaded"
    )
    cut = decode("anthropic", [own("anthropic-cut.sse")])
    assert isinstance(cut[-1], UpstreamFailed)
    assert cut[-1].kind == "api_error"
    assert decode("anthropic", [b"event: error\ndata: plain\n\n"]) == [
        UpstreamFailed("api_error", "the upstream reported an error")
    ]
    assert stream({"type": "error", "error": "odd"}) == [
        UpstreamFailed("api_error", "the upstream reported an error")
    ]
    with pytest.raises(RemoteProtocolError):
        decode("anthropic", [own("anthropic-spliced.sse")])


@pytest.mark.case("U5")
@pytest.mark.parametrize(
    "frames",
    [
        [TEXT],
        [*end()],
        [{"type": "message_stop"}],
        [message(), TEXT, stop(0), TEXT],
        [message(), start(-1, type="text")],
        [message(), delta(0, "text_delta", text="a")],
        [message(), TEXT, stop(0), delta(0, "text_delta", text="a")],
        [message(), TEXT, stop(0), stop(0)],
        [message(), stop(4)],
        [message(), TEXT, delta(0, "input_json_delta", partial_json="{}")],
        [message(), TEXT, delta(0, "thinking_delta", thinking="a")],
        [
            message(),
            start(0, type="tool_use", id="t", name="n", input={}),
            delta(0, "text_delta", text="a"),
        ],
        [message(), start(0, type="tool_use", id=7, name="n", input={})],
        [message(), start(0, type="text", text=["a"])],
        [message(), TEXT, delta(0, "compaction_delta", content="a")],
        [
            message(),
            start(0, type="tool_use", id="t", name="n", input={}),
            delta(0, "citations_delta", citation={}),
        ],
        [
            message(),
            start(0, type="web_search_tool_result", content=[]),
            delta(0, "text_delta", text="a"),
        ],
        [message(usage={"input_tokens": "many"})],
        [message(), {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 1.5}}],
        [message(), *end(None)],
        [message(), *end("surprise")],
        [message(content=7)],
        [{"type": "message_start", "message": "x"}],
    ],
)
def test_what_the_dialect_forbids(frames: list[Json]) -> None:
    with pytest.raises(RemoteProtocolError):
        stream(*frames)


@pytest.mark.case("U5")
@pytest.mark.parametrize(
    "data", [b"nonsense", b"[]", b"{}", b'{"type":7}', b"\xff", b'{"type":"ping"']
)
def test_frames_that_cannot_be_read(data: bytes) -> None:
    decoder = DIALECTS["anthropic"].decoder()
    with pytest.raises(RemoteProtocolError):
        decoder.feed(b"data: " + data + b"\n\n")
    assert decoder.feed(b'data: {"type":"ping"}\n\n') == [Opaque("data after the end")]
    assert decoder.finish() == []


@pytest.mark.case("U5", "U7")
def test_what_is_not_modelled_is_withheld_and_named() -> None:
    events = stream(
        message(container={"id": "some prose"}, usage={"note": "some prose"}, novelty=1),
        {"type": "novelty", "content": "x"},
        start(0, type="text", text="a", citations="odd", novelty="x"),
        delta(0, "citations_delta", citation="odd"),
        delta(0, "text_delta", text="b", novelty="x"),
        delta(0, "novelty", text={"odd": 1}, more="x"),
        {**stop(0), "novelty": "x"},
        start(1, type="tool_use", id="t", name="n", input={}, caller={"type": "some prose"}),
        stop(1),
        start(2, type="novelty", text="x"),
        delta(2, "text_delta", text="x"),
        stop(2),
        *end(
            "refusal",
            stop_details={"type": "refusal", "novelty": "some prose"},
            container={"id": "more prose"},
        ),
    )
    assert opaque(events) == [
        "container",
        "usage note",
        "message field novelty",
        "event novelty",
        "citations",
        "text field novelty",
        "delta citations_delta",
        "delta field novelty",
        "delta novelty",
        "field novelty",
        "caller",
        "block novelty",
        "delta text_delta",
        "stop_details novelty",
        "container",
    ]
    assert texts(events) == {0: "ab"}
    extra = {"stop_details": {"type": "refusal"}, "usage": {"output_tokens": 3}}
    assert events[-1] == MessageStop(StopReason.REFUSAL, Usage(output_tokens=3), None, extra)


def test_blocks_may_lack_what_comes_in_deltas() -> None:
    events = stream(
        message(),
        start(0, type="text"),
        delta(0, "text_delta", text="a"),
        stop(0),
        start(1, type="thinking"),
        stop(1),
        *end(),
    )
    assert texts(events) == {0: "a"}


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"type":"message","content":7}', b'{"type":"message"}', b"\xff"]
)
def test_bad_whole_answers(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        codecs.decode_whole("anthropic", body)


def test_whole_error_with_status_200() -> None:
    body = b'{"type":"error","error":{"type":"overloaded_error","message":"m"}}'
    assert codecs.decode_whole("anthropic", body) == [UpstreamFailed("overloaded_error", "m")]
