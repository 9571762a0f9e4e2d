"""Answers of servers that are nearly of their dialect: zero values, lists beside the text, sources
without an address."""

import json

import pytest

from protocol import codecs
from protocol.dialects.gemini.grounding import recited
from protocol.events import (
    BlockKind,
    BlockStart,
    MessageStop,
    StopReason,
    TextDelta,
    UpstreamFailed,
)
from tests.support.json_values import Json, as_json
from tests.support.upstreams.completions import HEAD, body_of, chunk, encode, stream, whole

NOTHING: Json = {"function_call": {"name": "", "arguments": ""}}


def test_zero_values_are_no_call_and_no_missing_end() -> None:
    streamed = stream(chunk("", content="a", **NOTHING), chunk("", content="b", **NOTHING))
    unstreamed = whole({"content": "ab", **NOTHING}, finish="")
    for events in streamed, unstreamed:
        assert [e.kind for e in events if isinstance(e, BlockStart)] == [BlockKind.TEXT]
        assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "ab"
        assert isinstance(events[-1], MessageStop) and events[-1].stop_reason is StopReason.END_TURN


@pytest.mark.parametrize("finishes", [("", None), (None, None)])
def test_a_stream_that_says_no_end_at_all_was_cut(finishes: tuple[str | None, str | None]) -> None:
    from protocol.dialects.table import DIALECTS

    decoder = DIALECTS["openai"].decoder()
    for frame in body_of(*(chunk(finish, content="a") for finish in finishes)).split(b"\n\n")[:2]:
        decoder.feed(frame + b"\n\n")
    assert isinstance(decoder.finish()[-1], UpstreamFailed), "no [DONE] came"


def test_lists_of_pages_reach_clients_of_the_same_dialect() -> None:
    pages, results = (
        ["https://a.test/1", "https://a.test/2"],
        [{"title": "One", "url": "https://a.test/1"}],
    )
    listed = {"citations": pages, "search_results": results}
    message = {
        "index": 0,
        "message": {"role": "assistant", "content": "x"},
        "finish_reason": "stop",
    }
    whole_body = {**HEAD, "object": "chat.completion", "choices": [message], **listed}
    unstreamed = json.loads(
        encode(codecs.decode_whole("openai", as_json(whole_body)), stream=False)
    )
    frames = encode(stream(chunk(content="x"), chunk("stop") | listed)).split(b"\n\n")
    [last] = [
        json.loads(frame.removeprefix(b"data: ")) for frame in frames if b'"citations"' in frame
    ]
    for told in unstreamed, last:
        assert told["citations"] == pages and told["search_results"] == results


def test_a_source_without_an_address_does_not_take_the_others_along() -> None:
    named = {"uri": "https://a.test", "startIndex": 0}
    found = recited(
        {"citationSources": [named, {"license": "MIT"}, {"title": "A book", "uri": ""}]}
    )
    assert found == {"groundingChunks": [{"citation": named}]}
    assert recited({"citationSources": [named, {"uri": 7}]}) is None
