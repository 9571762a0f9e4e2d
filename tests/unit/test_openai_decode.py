"""chat/completions answers become events; what we do not model is withheld, what is cut never ends
well."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol import codecs
from protocol.dialects.table import DIALECTS
from protocol.errors import RemoteProtocolError
from protocol.events import (
    ArgumentsDelta,
    BlockKind,
    BlockStart,
    Event,
    MessageStop,
    Opaque,
    StopReason,
    TextDelta,
    UpstreamFailed,
    Usage,
)
from tests.support.checks.decoding import decode, stopped, texts
from tests.support.checks.kinds import of_kind
from tests.support.json_values import Json, as_json
from tests.support.upstreams.recordings import own

USAGE = Usage(15, 9, 5, None, 3)
FILES = [
    "openai-text.sse",
    "openai-text-crlf.sse",
    "openai-tools-interleaved.sse",
    "openai-tool-whole-in-one.sse",
    "openai-tool-no-arguments-stop.sse",
    "openai-index-reused.sse",
    "openai-reasoning.sse",
    "openai-azure.sse",
    "openai-cut.sse",
    "openai-error-with-choices.sse",
    "openai-error-event.sse",
]


def stream(*chunks: Json | str) -> list[Event]:
    data = [f"data: {c if isinstance(c, str) else json.dumps(c)}\n\n".encode() for c in chunks]
    return decode("openai", [*data, b"data: [DONE]\n\n"])


def delta(finish: str | None = None, **fields: Any) -> Json:
    return {
        "id": "c",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": fields, "finish_reason": finish}],
    }


def fragment(arguments: str | None = None, **fields: Any) -> Json:
    function = {
        k: v
        for k, v in (("name", fields.pop("name", None)), ("arguments", arguments))
        if v is not None
    }
    return delta(tool_calls=[{"function": function, **fields}])


def calls(events: list[Event]) -> list[tuple[str, str, str]]:
    """Id, name and arguments of each tool call, in the order in which they began."""
    found = []
    for event in events:
        if isinstance(event, BlockStart) and event.kind is BlockKind.TOOL_USE:
            arguments = "".join(
                e.text for e in events if isinstance(e, ArgumentsDelta) and e.index == event.index
            )
            found.append((event.id, event.name, arguments))
    return found


def ended(events: list[Event]) -> Event:
    """The end, without what only clients of the same dialect get."""
    return (
        msgspec.structs.replace(events[-1], extra={})
        if isinstance(events[-1], MessageStop)
        else events[-1]
    )


def opaque(events: list[Event]) -> list[str]:
    return [e.what for e in events if isinstance(e, Opaque)]


@pytest.mark.case("U11")
@pytest.mark.parametrize("name", FILES)
def test_bytes_after_the_end_are_withheld(name: str) -> None:
    body = own(name) + b"data: [DONE]\n\n"
    after = decode("openai", [body + b'data: {"choices":[{"delta":{"content":"more"}}]}\n\n'])
    assert [e for e in after if not isinstance(e, Opaque)] == [
        e for e in decode("openai", [body]) if not isinstance(e, Opaque)
    ]
    assert after[-1] == Opaque("data after the end")


@pytest.mark.case("U6")
def test_calls_without_index_or_id() -> None:
    by_id = stream(
        fragment('{"a"', id="x", name="f"),
        fragment(":1}", id="x"),
        fragment("{}", id="y", name="f"),
        delta("tool_calls"),
    )
    assert calls(by_id) == [("x", "f", '{"a":1}'), ("y", "f", "{}")]
    bare = stream(
        fragment('{"a"', name="f"), fragment(":1}"), fragment("{}", name="f"), delta("tool_calls")
    )
    assert [c[1:] for c in calls(bare)] == [("f", '{"a":1}'), ("f", "{}")]
    assert [c[0] for c in calls(bare)] == ["", ""], "the session makes them"
    assert bare == stream(
        fragment('{"a"', name="f"), fragment(":1}"), fragment("{}", name="f"), delta("tool_calls")
    )
    both = stream(
        delta(
            tool_calls=[
                {"function": {"name": "f", "arguments": "1"}},
                {"function": {"name": "g", "arguments": "2"}},
            ]
        ),
        delta("stop"),
    )
    assert [c[1:] for c in calls(both)] == [("f", "1"), ("g", "2")]


@pytest.mark.parametrize(
    "chunks",
    [
        [fragment("{}", index=0, id="x"), delta("tool_calls")],
        [fragment("{}", index=0, id="x", name="ba"), fragment(index=0, name="sh")],
        [fragment("{}", index=0, id="x", name="f"), delta("tool_calls"), fragment("1", index=0)],
        [delta(content="a"), delta("surprise")],
        [delta(content=7)],
        [delta(tool_calls=[7])],
        [{"choices": 7}],
        ["[]"],
        ["nonsense"],
        ['"\\ud800'],
    ],
)
def test_what_the_dialect_forbids(chunks: list[Any]) -> None:
    with pytest.raises(RemoteProtocolError):
        stream(*chunks)


def test_decoder_stays_silent_after_an_error() -> None:
    decoder = DIALECTS["openai"].decoder()
    with pytest.raises(RemoteProtocolError):
        decoder.feed(b"data: nonsense\n\n")
    assert decoder.feed(b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n') == [
        Opaque("data after the end")
    ]
    assert decoder.finish() == []


def test_reasoning_is_a_thinking_block_and_the_last_usage_wins() -> None:
    events = decode("openai", [own("openai-reasoning.sse")])
    assert of_kind(events, BlockStart) == [
        BlockStart(0, BlockKind.THINKING, name="reasoning_content"),
        BlockStart(1, BlockKind.TEXT),
    ]
    assert texts(events) == {0: "Let me think.", 1: "Done."}
    assert ended(events) == MessageStop(StopReason.END_TURN, USAGE)
    other = stream(delta(reasoning="a"), delta(content="b"), delta(reasoning="c"), delta("stop"))
    assert texts(other) == {0: "a", 1: "b", 2: "c"}
    assert other[1] == BlockStart(0, BlockKind.THINKING, name="reasoning")


def test_text_after_a_call_is_a_new_block() -> None:
    events = stream(
        delta(content="a"),
        fragment("{}", index=0, id="x", name="f"),
        delta(content="b"),
        delta("tool_calls"),
    )
    assert [(e.index, str(e.kind)) for e in events if isinstance(e, BlockStart)] == [
        (0, "text"),
        (1, "tool_use"),
        (2, "text"),
    ]
    assert stopped(events) == {0, 1, 2}


@pytest.mark.parametrize(
    "chunks",
    [
        [],
        [delta(content="a")],
        [delta(content="a"), delta("error")],
        [delta("insufficient_system_resource")],
    ],
)
def test_cut_answers_fail(chunks: list[Any]) -> None:
    events = stream(*chunks)
    assert isinstance(events[-1], UpstreamFailed)
    assert not any(isinstance(e, MessageStop) for e in events)


@pytest.mark.case("U11")
def test_cut_stream_and_missing_done() -> None:
    assert isinstance(decode("openai", [own("openai-cut.sse")])[-1], UpstreamFailed)
    finished = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\n'
    assert isinstance(decode("openai", [finished])[-1], MessageStop)


def test_errors_inside_a_stream_are_rebuilt() -> None:
    assert decode("openai", [own("openai-error-with-choices.sse")])[-1] == UpstreamFailed(
        "rate_limit_error", "slow down"
    )
    failed = decode("openai", [own("openai-error-event.sse")])[-1]
    assert isinstance(failed, UpstreamFailed)
    assert "rm -rf" not in failed.message
    for data, message in (
        (b'event: error\ndata: {"message":"m"}\n\n', "m"),
        (b'data: {"error":{"message":7}}\n\n', "the upstream reported an error"),
        (b"event: error\ndata: plain\n\n", "the upstream reported an error"),
        (b'data: {"error":"text"}\n\n', "text"),
        (b'data: {"error":{"message":"m"},"choices":7}\n\n', "m"),
    ):
        assert decode("openai", [data]) == [UpstreamFailed("api_error", message)]


@pytest.mark.case("U5")
@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"annotations": [{}], "audio": {"id": "a"}}, ["annotations", "audio"]),
        ({"annotations": [], "refusal": None, "audio": None}, []),
        ({"reasoning_details": [{"text": "x", "odd": 1}]}, ["reasoning_details"]),
        ({"novelty": "x"}, ["delta field novelty"]),
        ({"novelty": ""}, []),
        (
            {
                "content": [
                    {"type": "text", "text": "b"},
                    {"type": "reference", "reference_ids": [1]},
                ]
            },
            ["content part reference"],
        ),
        (
            {"content": [{"type": "text", "text": "b", "odd": 1}, 7]},
            ["content part field odd", "content part"],
        ),
        (
            {
                "content": [
                    {"type": "text", "text": "b"},
                    {"type": "thinking", "thinking": [{"type": "x"}]},
                ]
            },
            ["content part x"],
        ),
        (
            {"tool_calls": [{"index": 0, "type": "novelty", "custom": {"input": "x"}}]},
            ["tool call of another type"],
        ),
        (
            {
                "tool_calls": [
                    {
                        "index": 0,
                        "id": "x",
                        "function": {"name": "f"},
                        "extra_content": {"a": "some prose"},
                    }
                ]
            },
            ["tool call field extra_content"],
        ),
    ],
)
def test_what_is_not_modelled_is_withheld_and_named(fields: Json, names: list[str]) -> None:
    events = stream(delta(content="a"), delta(**fields), delta("stop"))
    assert opaque(events) == names
    assert texts(events)[0] in ("a", "ab")
    assert isinstance(events[-1], MessageStop)


@pytest.mark.case("U7")
def test_other_choices_fields_and_messages_are_withheld() -> None:
    other = delta(content="a")
    other["choices"].append({"index": 1, "delta": {"content": "secret"}})
    logprobs = delta(content="b")
    logprobs["choices"][0]["logprobs"] = {"content": [{"token": "secret"}]}
    message = delta()
    message["choices"][0] |= {
        "message": {"content": "secret"},
        "logprobs": {"content": None},
        "extra": 1,
    }
    events = stream(other, logprobs, message, {**delta("stop"), "related_questions": ["u"]})
    assert opaque(events) == [
        "choice",
        "logprobs",
        "choice field extra",
        "message in a stream",
        "field related_questions",
    ]
    assert texts(events) == {0: "ab"}


def test_arguments_as_an_object_and_half_surrogates() -> None:
    events = stream(fragment(index=0, id="x", name="f"), delta("tool_calls"))
    assert calls(events) == [("x", "f", "")]
    odd = delta(
        tool_calls=[{"index": 0, "id": "x", "function": {"name": "f", "arguments": {"a": [1]}}}]
    )
    assert calls(stream(odd, delta("stop"))) == [("x", "f", '{"a":[1]}')]
    half = 'data: {"choices":[{"delta":{"content":"%s"}}]}\n\n'
    events = decode("openai", [(half % r"\ud83d").encode(), (half % r"\ude00").encode()])
    assert texts(events) == {0: "\ud83d\ude00"}


def test_odd_shapes_beside_content_do_not_break_it() -> None:
    parts = {"content": [{"type": "text", "text": "a"}]}
    events = stream(
        {"choices": [{"index": 0}, {"index": 0, "delta": parts, "seed": 1, "odd": None}]},
        delta("stop"),
    )
    assert events[1:3] == [BlockStart(0, BlockKind.TEXT), TextDelta(0, "a")]
    odd = delta(
        tool_calls=[{"index": 0, "id": "x", "function": {"name": "f", "arguments": "{}", "odd": 1}}]
    )
    assert opaque(stream(odd, delta("stop"))) == ["function field odd"]
    with pytest.raises(RemoteProtocolError):
        stream({"choices": ["odd"]})
    counted = stream({"choices": [], "usage": {"prompt_tokens": 1}}, delta("stop"))
    assert counted[-1] == MessageStop(
        StopReason.END_TURN, Usage(1), None, {"usage": {"prompt_tokens": 1}}
    )


def test_usage_is_kept_as_it_came_when_it_is_only_numbers() -> None:
    usage = {
        "prompt_tokens": 35,
        "completion_tokens": 12,
        "total_tokens": 109,
        "cost_details": {"upstream": 0.5},
    }
    assert stream(delta(content="a"), delta("stop"), {"choices": [], "usage": usage})[
        -1
    ] == MessageStop(StopReason.END_TURN, Usage(35, 12), None, {"usage": usage})
    told = usage | {"note": "the model says hello"}
    assert stream(delta(content="a"), delta("stop"), {"choices": [], "usage": told})[
        -1
    ] == MessageStop(StopReason.END_TURN, Usage(35, 12), None, {"total_tokens": 109})
    with pytest.raises(RemoteProtocolError):
        stream({"choices": [], "usage": {"prompt_tokens": "many"}}, delta("stop"))


def whole(message: Json, finish: str | None = "stop", **fields: Any) -> list[Event]:
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", **fields}
    body.setdefault(
        "choices",
        [
            {
                "index": 0,
                "message": {"role": "assistant", **message},
                "finish_reason": finish,
                "logprobs": None,
            }
        ],
    )
    return codecs.decode_whole("openai", as_json(body))


def test_whole_error_with_status_200() -> None:
    assert codecs.decode_whole(
        "openai", b'{"error":{"message":"m","code":"rate_limit_exceeded"}}'
    ) == [UpstreamFailed("rate_limit_error", "m")]


_FIELDS: list[Json] = [
    {},
    {"id": "y"},
    {"usage": None},
    {"usage": {"prompt_tokens": 3}},
    {"obfuscation": "xx"},
    {"obfuscation": "y"},
    {"unheard": 1},
    {"error": {"message": "e"}},
    {"x_groq": {"id": "1"}},
    {"moderation": {"flagged": False}},
    {"choices": []},
    {"choices": None},
]
_CALL: Json = {"index": 0, "function": {"arguments": "}"}}
_BEGIN: Json = {"index": 0, "id": "t", "function": {"name": "f", "arguments": "{"}}
_SAID: list[Json] = [
    {"content": "a"},
    {"content": "b"},
    {"content": ""},
    {"content": None},
    {"role": "assistant", "content": "c"},
    {"reasoning": "r"},
    {"content": "d", "reasoning": "r"},
    {"content": "e", "annotations": [{"type": "url_citation"}]},
    {"refusal": "no"},
    {"content": "f", "odd": 1},
    {"tool_calls": [_CALL]},
    {"content": "g", "tool_calls": [_CALL | {"id": "t"}]},
    {"tool_calls": [_BEGIN]},
]
_ABOUT: list[Json] = [
    {},
    {"index": 0},
    {"index": 1},
    {"finish_reason": "stop"},
    {"finish_reason": "length"},
    {"message": {"content": "m"}},
    {"logprobs": {"content": [{"token": "a", "logprob": -1}]}},
    {"content_filter_results": {"hate": {"filtered": False}}},
]
_mostly_text = st.lists(
    st.tuples(
        st.sampled_from([{}, {}, {}, *_FIELDS]),
        st.sampled_from([*_SAID, *_SAID[:2] * 12]),
        st.sampled_from([{}] * 8 + _ABOUT),
    )
)


@given(_mostly_text)
@example(
    [
        ({}, {"content": "a"}, {}),
        *[({}, {"content": "g", "tool_calls": [_CALL | {"id": "t"}]}, {})] * 2,
    ]
)
@example(
    [
        ({}, {"tool_calls": [_CALL]}, {}),
        *[({}, {"content": "a", "tool_calls": [_CALL]}, {})] * 4,
        ({}, {"tool_calls": [_BEGIN]}, {}),
    ]
)
@example([({}, {"content": "a"}, {}), *[({}, {"content": "b"}, {"message": {"content": "m"}})] * 2])
@example([({}, {"content": "a"}, {}), *[({"unheard": 1}, {"content": "b"}, {})] * 2])
def test_a_chunk_like_the_one_before_gives_what_it_would_alone(
    pieces: list[tuple[Json, Json, Json]],
) -> None:
    """A decoder that remembers the last chunk says what one says that forgets it."""
    told: list[list[list[Event] | str]] = []
    for forgets in (False, True):
        decoder, said = DIALECTS["openai"].decoder(), list[list[Event] | str]()
        for fields, delta, about in [*pieces, ({}, {}, {})]:
            if forgets:
                vars(decoder)["_last"] = None
            body = {
                "id": "x",
                "created": 1,
                "model": "m",
                "choices": [{"delta": delta, **about}],
                **fields,
            }
            try:
                said.append(decoder.feed(b"data: " + msgspec.json.encode(body) + b"\n\n"))
            except RemoteProtocolError as error:
                said.append(error.message)
        try:
            said.append(decoder.finish())
        except RemoteProtocolError as error:
            said.append(error.message)
        told.append(said)
    assert told[0] == told[1]
