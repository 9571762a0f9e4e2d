"""Every field of chat/completions answers: in, past the decoder, out again by the SDK; and none of them is a way around a policy."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import codecs
from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.events import (
    ArgumentsDelta,
    AttachmentDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    MessageStart,
    MessageStop,
    Opaque,
    RawDelta,
    StopReason,
    TextDelta,
    Usage,
)
from protocol.request import ChatRequest, Tool
from protocol.sse import EventSplitter
from tests.support.checks.decoding import decode, texts
from tests.support.clients.sdk import openai_answer

HEAD = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
TOOLS = (Tool("patch", kind="custom"), Tool("f"))


def chunk(finish: str | None = None, logprobs: Any = None, **fields: Any) -> dict[str, Any]:
    return {**HEAD, "choices": [{"index": 0, "delta": fields, "logprobs": logprobs, "finish_reason": finish}]}


def called(**fields: Any) -> dict[str, Any]:
    return chunk(tool_calls=[{"index": 0, "id": "x", **fields}])


def body_of(*chunks: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(c).encode() + b"\n\n" for c in chunks) + b"data: [DONE]\n\n"


def stream(*chunks: dict[str, Any], unknown: frozenset[str] = frozenset()) -> list[Event]:
    splitter, decoder = EventSplitter(1 << 24), codecs.make_decoder("openai", unknown)
    return [e for c in splitter.feed(body_of(*chunks)) for e in decoder.feed(c)] + decoder.finish()


def whole(message: dict[str, Any], finish: str = "stop", unknown: frozenset[str] = frozenset(), **choice: Any) -> list[Event]:
    choices = [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish, **choice}]
    return codecs.decode_whole("openai", json.dumps({**HEAD, "object": "chat.completion", "choices": choices}).encode(), unknown)


def encode(events: list[Event], *, stream: bool = True, legacy: bool = False, usage: bool = True) -> bytes:
    request = ChatRequest(dialect="openai", model="m", stream=stream, include_usage=usage, legacy_functions=legacy, tools=TOOLS)
    return codecs.make_encoder("openai", request, call_id="id", created=7).encode(events)


def answers(events: list[Event], *, legacy: bool = False) -> list[Any]:
    """What the SDK makes of it, streamed and whole."""
    return [openai_answer(encode(events, stream=s, legacy=legacy), stream=s).choices[0] for s in (True, False)]


def opaque(events: list[Event]) -> list[str]:
    return [e.what for e in events if isinstance(e, Opaque)]


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
    (start,) = [e for e in events if isinstance(e, BlockStart)]
    assert (start.kind, start.name, start.form) == (BlockKind.TOOL_USE, "f", "legacy")
    assert not start.id and events == stream(*LEGACY)
    assert arguments(events) == '{"a":1}'
    assert isinstance(events[-1], MessageStop) and events[-1].stop_reason is StopReason.TOOL_USE
    odd = whole({"content": None, "function_call": {"name": "f", "arguments": {"a": 1}}}, "function_call")
    assert arguments(odd) == '{"a":1}'


def test_legacy_clients_get_it_as_they_know_it() -> None:
    direct = openai_answer(body_of(*LEGACY), stream=True).choices[0].model_dump()
    streamed, sent = (c.model_dump() for c in answers(stream(*LEGACY), legacy=True))
    assert streamed == direct
    assert sent["message"]["function_call"] == {"name": "f", "arguments": '{"a":1}'}
    assert (sent["finish_reason"], sent["message"]["tool_calls"], sent["message"]["content"]) == ("function_call", None, None)


def test_a_provider_that_answers_in_the_old_form_unasked_is_heard_as_directly() -> None:
    direct = openai_answer(body_of(*LEGACY), stream=True).choices[0].model_dump()
    streamed, sent = (c.model_dump() for c in answers(stream(*LEGACY)))
    assert streamed == direct
    assert (sent["finish_reason"], sent["message"]["function_call"]["name"]) == ("function_call", "f")


def test_an_answer_that_a_filter_kept_back_whole_is_one() -> None:
    body = {"id": "x", "choices": [{"index": 0, "finish_reason": "content_filter", "content_filter_results": {}}]}
    events = codecs.decode_whole("openai", json.dumps(body).encode())
    assert [type(e) for e in events] == [MessageStart, MessageStop]
    for choice in answers(events):
        assert (choice.finish_reason, choice.message.content or "") == ("content_filter", "")


def test_a_legacy_client_gets_one_call_of_many() -> None:
    calls = [{"index": n, "id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": str(n)}} for n in range(3)]
    for choice in answers(stream(chunk(tool_calls=calls), chunk("tool_calls")), legacy=True):
        assert (choice.message.function_call.arguments, choice.message.tool_calls) == ("0", None)


@pytest.mark.parametrize(
    "chunks",
    [
        [chunk(function_call={"name": "f", "arguments": "{}"}), chunk("function_call"), chunk(function_call={"arguments": "1"})],
        [chunk(function_call={"name": "f"}), chunk(function_call={"name": "g"})],
        [chunk(function_call={"arguments": "{}"}), chunk("function_call")],
        [chunk(tool_calls=[{"index": 0, "id": "a", "function": {"name": "f"}, "custom": {"name": "g"}}])],
        [
            chunk(tool_calls=[{"index": 0, "id": "a", "function": {"name": "f"}}]),
            chunk(tool_calls=[{"index": 0, "custom": {"input": "x"}}]),
        ],
        [chunk(tool_calls=[{"index": 0, "id": "a", "custom": {"name": "f"}}]), chunk(tool_calls=[{"index": 0, "function": {}}])],
        [chunk(refusal=7)],
    ],
)
def test_what_calls_may_not_be(chunks: list[dict[str, Any]]) -> None:
    with pytest.raises(RemoteProtocolError):
        stream(*chunks)


# --- free-form tools ---


def custom(*pieces: str) -> list[dict[str, Any]]:
    first = {"index": 0, "id": "call_x", "type": "custom", "custom": {"name": "patch", "input": ""}}
    return [
        chunk(role="assistant", content=None, tool_calls=[first]),
        *[chunk(tool_calls=[{"index": 0, "custom": {"input": p}}]) for p in pieces],
        chunk("tool_calls"),
    ]


ODD = ["a", '"', "\\", "\n", "\u2028", "\u0000", "😀", "\ud83d", "\ude00", "é"]


@given(st.lists(st.sampled_from(ODD), max_size=20))
def test_the_text_of_a_free_form_call_is_its_input(pieces: list[str]) -> None:
    body = b"".join(b"data: " + json.dumps(c).encode() + b"\n\n" for c in custom(*pieces))
    events = decode("openai", [body])
    assert json.loads(arguments(events)) == {"input": json.loads(json.dumps("".join(pieces)))}


def test_free_form_calls_come_out_as_they_came() -> None:
    events = stream(*custom("*** Begin\n", 'say "hi"'))
    assert arguments(events) == '{"input":"*** Begin\\nsay \\"hi\\""}'
    direct = openai_answer(body_of(*custom("*** Begin\n", 'say "hi"')), stream=True).choices[0].model_dump()
    streamed, sent = (c.model_dump() for c in answers(events))
    assert streamed == direct
    (call,) = sent["message"]["tool_calls"]
    assert call == {"id": "call_x", "type": "custom", "custom": {"name": "patch", "input": '*** Begin\nsay "hi"'}}
    message = {"tool_calls": [{"id": "call_x", "type": "custom", "custom": {"name": "patch", "input": "x"}}]}
    assert arguments(whole(message, "tool_calls")) == '{"input":"x"}'
    assert arguments(stream(*custom())) == '{"input":""}'


def test_a_free_form_call_may_say_its_type_late_or_its_name_last() -> None:
    late = [chunk(tool_calls=[{"index": 0, "id": "x"}]), chunk(tool_calls=[{"index": 0, "custom": {"input": '"a'}}])]
    late += [chunk(tool_calls=[{"index": 0, "custom": {"name": "patch", "input": "b"}}]), chunk("tool_calls")]
    assert arguments(stream(*late)) == '{"input":"\\"ab"}'


@pytest.mark.parametrize(
    ("told", "text"),
    [('{"input":"a"}', "a"), ('{"input":7}', '{"input":7}'), ('{"input":"a","b":1}', '{"input":"a","b":1}'), ("{cut", "{cut"), ("", "")],
)
def test_arguments_for_a_free_form_tool_become_text(told: str, text: str) -> None:
    events: list[Event] = [MessageStart("i", "m"), BlockStart(0, BlockKind.TOOL_USE, "x", "patch"), ArgumentsDelta(0, told), BlockStop(0)]
    for choice in answers([*events, MessageStop(StopReason.TOOL_USE)]):
        assert choice.model_dump()["message"]["tool_calls"][0]["custom"]["input"] == text


def test_escaping_free_form_text_is_linear() -> None:
    def cost(pieces: int) -> float:
        chunks = [b"data: " + json.dumps(c).encode() + b"\n\n" for c in custom(*['"\\' * 20] * pieces)]
        best = 9.0
        for _ in range(3):
            decoder, before = codecs.make_decoder("openai"), time.process_time()
            for piece in chunks:
                decoder.feed(piece)
            best = min(best, time.process_time() - before)
        return best

    assert cost(8_000) < 20 * cost(1_000)


# --- refusals ---


def test_a_refusal_is_text_that_policies_read_and_ends_as_upstream_said() -> None:
    for finish, reason in (("stop", StopReason.END_TURN), ("content_filter", StopReason.REFUSAL)):
        events = stream(chunk(role="assistant", content=""), chunk(refusal="I can"), chunk(refusal="not."), chunk(finish))
        assert [e for e in events if isinstance(e, BlockStart)] == [BlockStart(0, BlockKind.TEXT, "", "refusal")]
        assert texts(events) == {0: "I cannot."}
        assert isinstance(events[-1], MessageStop) and events[-1].stop_reason is reason
        for choice in answers(events):
            assert (choice.message.refusal, choice.finish_reason, choice.message.content) == ("I cannot.", finish, "")
    assert [e.stop_reason for e in stream(chunk(refusal="no"), chunk("length")) if isinstance(e, MessageStop)] == [StopReason.MAX_TOKENS]


@pytest.mark.parametrize(
    ("content", "explanation", "refusal"), [("", "because", "because"), ("", "", ""), ("a", "", None), ("a", "because", "because")]
)
def test_a_refusal_of_the_other_dialect(content: str, explanation: str, refusal: str | None) -> None:
    said: list[Event] = [BlockStart(0, BlockKind.TEXT), TextDelta(0, content), BlockStop(0)] if content else []
    start = MessageStart("msg_1", "m", Usage(), {"dialect": "anthropic"})
    for choice in answers([start, *said, MessageStop(StopReason.REFUSAL, explanation=explanation)]):
        assert (choice.message.refusal, choice.message.content, choice.finish_reason) == (refusal, content, "content_filter")


# --- what goes with text ---


def token(text: str, **more: Any) -> dict[str, Any]:
    return {"token": text, "logprob": -0.5, "bytes": list(text.encode()), "top_logprobs": [], **more}


def test_log_probabilities_of_exactly_the_text_come_out_in_its_chunk() -> None:
    alternatives = [{"token": "Hi", "logprob": -1, "bytes": [72, 105]}, {"token": "Yo", "logprob": -2.5, "bytes": None}]
    halves = [token("", token="\\xf0\\x9f", bytes=[240, 159]), token("", token="bytes:\\x98\\x80", bytes=[152, 128])]
    chunks = [
        chunk(role="assistant", content="", logprobs={"content": [], "refusal": None}),
        chunk(content="Hello", logprobs={"content": [token("He", top_logprobs=alternatives), token("llo")], "refusal": None}),
        chunk(content="😀", logprobs={"content": halves}),
        chunk("stop"),
    ]
    events = stream(*chunks)
    assert opaque(events) == []
    direct = openai_answer(body_of(*chunks), stream=True).choices[0].model_dump()
    streamed, sent = (c.model_dump() for c in answers(events))
    assert streamed == direct
    assert [t["token"] for t in sent["logprobs"]["content"]] == ["He", "llo", "\\xf0\\x9f", "bytes:\\x98\\x80"]
    frames = [json.loads(f[6:]) for f in encode(events).split(b"\n\n") if f.startswith(b"data: {")]
    beside = [(f["choices"][0]["delta"], "logprobs" in f["choices"][0]) for f in frames if f["choices"]]
    assert beside == [({"role": "assistant", "content": ""}, False), ({"content": "Hello"}, True), ({"content": "😀"}, True), ({}, False)]


def test_log_probabilities_of_a_refusal_and_of_a_whole_answer() -> None:
    both = {"content": [token("a")], "refusal": [token("b")]}
    events = whole({"content": "a", "refusal": "b"}, logprobs=both)
    found = [e for e in events if isinstance(e, AttachmentDelta)]
    assert [(e.index, e.value["content"] is None, e.value["refusal"] is None) for e in found] == [(0, False, True), (1, True, False)]
    for choice in answers(events):
        dumped = choice.logprobs.model_dump()
        assert ([t["token"] for t in dumped["content"]], [t["token"] for t in dumped["refusal"]]) == (["a"], ["b"])


@pytest.mark.parametrize(
    "logprobs",
    [
        {"content": [token("secret")]},
        {"content": [token("a"), token("b")]},
        {"content": [token("a", token="secret")]},
        {"content": [token("a", note="secret")]},
        {"content": [token("a", bytes=[300])]},
        {"content": [token("a", bytes="a")]},
        {"content": [token("a", logprob="secret")]},
        {"content": [token("a", token=7)]},
        {"content": [token("a", top_logprobs=[{"token": "s" * 200, "logprob": 1}])]},
        {"content": [token("a", top_logprobs=[token("x")])]},
        {"content": [token("a", top_logprobs=[{"token": "x"}] * 21)]},
        {"content": [token("a", top_logprobs=["secret"])]},
        {"content": [token("a", top_logprobs=7)]},
        {"content": "secret"},
        {"content": ["secret"]},
        {"tokens": ["secret"]},
        {"content": [token("a")], "refusal": [token("secret")]},
        "secret",
        ["secret"],
    ],
)
def test_log_probabilities_that_say_more_than_the_text_are_withheld(logprobs: Any) -> None:
    events = stream(chunk(content="a", logprobs=logprobs), chunk("stop"))
    assert opaque(events) == ["logprobs"]
    assert not [e for e in events if isinstance(e, AttachmentDelta)]
    assert opaque(stream({**HEAD, "choices": [{"index": 0, "logprobs": {"content": [token("a")]}}]}, chunk("stop"))) == ["logprobs"]


PAGE = {"start_index": 0, "end_index": 1, "title": "t", "url": "https://a"}


def test_annotations_come_once_at_the_end_of_the_text() -> None:
    one, two = ({"type": "url_citation", "url_citation": {**PAGE, "title": t}} for t in ("one", "two"))
    events = stream(chunk(content="a"), chunk(annotations=[one]), chunk(content="b"), chunk("stop", annotations=[two]))
    assert [(e.index, e.value) for e in events if isinstance(e, AttachmentDelta)] == [(0, [one]), (0, [two])]
    for choice in answers(events):
        assert [a.url_citation.title for a in choice.message.annotations] == ["one", "two"]
    frames = [json.loads(f[6:]) for f in encode(events).split(b"\n\n") if f.startswith(b"data: {")]
    assert [f["choices"][0]["delta"] for f in frames][-2:] == [{"annotations": [one, two]}, {}]


@pytest.mark.parametrize(
    "annotations",
    [
        [{"type": "file", "file": {"content": "secret"}}],
        [{"type": "url_citation", "url_citation": {**PAGE, "odd": "secret"}}],
        [{"type": "url_citation", "url_citation": {**PAGE, "title": ["secret"]}}],
        [{"type": "url_citation", "url_citation": {**PAGE, "start_index": "secret"}}],
        [{"type": "url_citation", "url_citation": PAGE, "odd": "secret"}],
        [{"type": "url_citation", "url_citation": "secret"}],
        ["secret"],
        {"secret": 1},
    ],
)
def test_annotations_that_are_not_citations_are_withheld(annotations: Any) -> None:
    events = stream(chunk(content="a", annotations=annotations), chunk("stop"))
    assert opaque(events) == ["annotations"]
    assert b"secret" not in encode(events)


# as OpenRouter writes what its own search found: no place in the text, mostly no title
ONE: dict[str, Any] = {"type": "url_citation", "url_citation": {"url": "https://a", "title": "", "start_index": 0, "end_index": 0}}
TWO: dict[str, Any] = {"type": "url_citation", "url_citation": {"url": "https://b", "title": "", "start_index": 0, "end_index": 0}}
PLACES: dict[str, list[dict[str, Any]]] = {
    "before the text": [chunk(annotations=[ONE]), chunk(annotations=[TWO]), chunk(content="a")],
    "beside nothing": [chunk(content="a"), chunk(content="", annotations=[ONE]), chunk(content="", annotations=[TWO])],
    "around the text": [chunk(annotations=[ONE]), chunk(content="a"), chunk(annotations=[TWO])],
    "after reasoning": [chunk(reasoning="r"), chunk(annotations=[ONE]), chunk(content="a"), chunk(annotations=[TWO])],
    "after an empty list": [chunk(content="", annotations=[]), chunk(content="a"), chunk(annotations=[ONE]), chunk(annotations=[TWO])],
    "after the finish": [chunk(content="a"), chunk("stop"), chunk(annotations=[ONE]), chunk(annotations=[TWO])],
    "without text": [chunk(annotations=[ONE]), chunk(annotations=[TWO])],
}


@pytest.mark.parametrize("place", PLACES)
def test_annotations_reach_the_client_wherever_they_stand(place: str) -> None:
    events = stream(*PLACES[place], chunk("stop"))
    for choice in answers(events):
        assert [a.url_citation.url for a in choice.message.annotations or ()] == [ONE["url_citation"]["url"], TWO["url_citation"]["url"]]


def test_annotations_of_another_dialect_are_beside_the_message_wherever_they_stand() -> None:
    events = stream(chunk(content="a"), chunk("stop"), chunk(annotations=[ONE]))
    request = ChatRequest(dialect="anthropic", model="m", stream=False)
    body = json.loads(codecs.make_encoder("anthropic", request, call_id="c", created=1).encode(events))
    assert body["sluice"]["annotations"] == [ONE] and [b["type"] for b in body["content"]] == ["text"]


def test_whole_answers_keep_their_empty_annotations() -> None:
    assert [c.message.annotations for c in answers(whole({"content": "a", "annotations": []}))] == [[], []]


DETAIL = {"type": "reasoning.text", "text": "hm", "format": "anthropic-claude-v1", "index": 0}
SEALED = {"type": "reasoning.encrypted", "data": "gAAAAB-_x+/=", "id": "rs_1", "index": 1}


def test_reasoning_details_go_with_the_reasoning_that_they_repeat() -> None:
    chunks = [
        chunk(role="assistant", content="", reasoning="hm", reasoning_details=[DETAIL]),
        chunk(reasoning_details=[{"type": "reasoning.text", "signature": "c2ln", "index": 0}]),
        chunk(content="a", reasoning_details=[SEALED]),
        chunk("stop"),
    ]
    events = stream(*chunks)
    assert (texts(events), opaque(events)) == ({0: "hm", 1: "a"}, [])
    direct = openai_answer(body_of(*chunks), stream=True).choices[0].model_dump()
    streamed, sent = (c.model_dump() for c in answers(events))
    assert streamed == direct
    assert len(sent["message"]["reasoning_details"]) == 3 and sent["message"]["reasoning"] == "hm"


def test_reasoning_that_is_only_in_the_details_is_read_and_shown() -> None:
    summary = {"type": "reasoning.summary", "summary": "why", "index": 1}
    events = stream(chunk(reasoning_details=[DETAIL, summary]), chunk(reasoning_details=[SEALED]), chunk(content="a"), chunk("stop"))
    assert events[1:3] == [BlockStart(0, BlockKind.THINKING, "", "reasoning"), TextDelta(0, "hmwhy")]
    for choice in answers(events):
        assert (choice.message.model_extra or {})["reasoning"] == "hmwhy"
    late = stream(chunk(content="a"), chunk(reasoning_details=[SEALED]), chunk("stop"))
    assert [e.index for e in late if isinstance(e, AttachmentDelta)] == [0]
    alone = stream(
        chunk(reasoning_details=[SEALED]), chunk(tool_calls=[{"index": 0, "id": "x", "function": {"name": "f"}}]), chunk("tool_calls")
    )
    assert [e.kind for e in alone if isinstance(e, BlockStart)] == [BlockKind.THINKING, BlockKind.TOOL_USE]


@pytest.mark.parametrize(
    "details",
    [
        [{**DETAIL, "text": "secret"}],
        [{**DETAIL, "odd": "secret"}],
        [{**DETAIL, "format": "a secret sentence"}],
        [{**DETAIL, "signature": "a secret sentence"}],
        [{**DETAIL, "index": "secret"}],
        [{**DETAIL, "text": ["secret"]}],
        [DETAIL, {"type": "reasoning.text", "text": "secret"}],
        ["secret"],
        "secret",
    ],
)
def test_reasoning_details_that_say_more_are_withheld(details: Any) -> None:
    events = stream(chunk(reasoning="hm", reasoning_details=details), chunk("stop"))
    assert opaque(events) == ["reasoning_details"]
    assert b"secret" not in encode(events)


def test_two_reasonings_that_differ_are_not_both_shown() -> None:
    assert opaque(stream(chunk(reasoning="a", reasoning_content="b"), chunk("stop"))) == ["delta field reasoning"]
    assert opaque(stream(chunk(reasoning="a", reasoning_content="a"), chunk("stop"))) == []


def test_parts_of_text_and_thinking() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}, {"type": "text", "text": "?"}], "closed": True},
        {"type": "text", "text": "a"},
    ]
    for events in (stream(chunk(content=parts), chunk("stop")), whole({"content": parts})):
        assert (texts(events), opaque(events)) == ({0: "hm?", 1: "a"}, [])
        assert [e.kind for e in events if isinstance(e, BlockStart)] == [BlockKind.THINKING, BlockKind.TEXT]
    both = stream(chunk(content=[{"type": "thinking", "thinking": "secret"}]), chunk(reasoning_content="x", content=parts), chunk("stop"))
    assert (texts(both), opaque(both)) == ({0: "xhm?", 1: "a"}, ["content part thinking"])


# --- what is said beside the answer ---


def test_moderation_and_filter_results_are_kept_where_they_are_only_words_and_numbers() -> None:
    results = {"hate": {"filtered": False, "severity": "safe"}}
    first = {**HEAD, "choices": [], "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": results}], "provider": "Groq"}
    said = chunk(content="a")
    said["choices"][0] |= {"content_filter_results": results}
    last = {**HEAD, "choices": [], "moderation": {"output": {"type": "moderation_results", "model": "omni", "results": []}}}
    end = chunk("stop")
    end["choices"][0] |= {"native_finish_reason": "end_turn"}
    events = stream(first, said, end, last)
    frames = [json.loads(f[6:]) for f in encode(events).split(b"\n\n") if f.startswith(b"data: {")]
    assert {n: frames[0][n] for n in ("prompt_filter_results", "provider")} == {n: first[n] for n in ("prompt_filter_results", "provider")}
    assert frames[0]["choices"][0]["content_filter_results"] == frames[-1]["choices"][0]["content_filter_results"] == results
    assert frames[-1]["choices"][0]["native_finish_reason"] == "end_turn"
    assert frames[-1]["moderation"] == last["moderation"]
    sent = json.loads(encode(events, stream=False))
    assert (sent["provider"], sent["moderation"]) == ("Groq", last["moderation"])
    assert sent["choices"][0]["content_filter_results"] == results
    told = json.loads(json.dumps([first, said, end]).replace("safe", "the model says hello").replace("Groq", "a whole sentence"))
    assert b"sentence" not in encode(stream(*told)) and b"hello" not in encode(stream(*told))


def test_token_ids_spell_the_answer_and_stay_out() -> None:
    said = chunk(content="a")
    said["choices"][0] |= {"token_ids": [4711]}
    assert b"4711" not in encode(stream(said, chunk("stop")))


def test_usage_comes_out_as_it_came_and_only_when_asked_for() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7, "cost": 0.25, "prompt_tokens_details": {"audio_tokens": 0}}
    events = stream(chunk(content="a"), chunk("stop"), {**HEAD, "choices": [], "usage": usage})
    for streamed in (True, False):
        answer = openai_answer(encode(events, stream=streamed), stream=streamed)
        assert answer.usage is not None and answer.usage.model_dump(exclude_unset=True) == usage
    assert b"usage" not in encode(events, usage=False)


def test_usage_that_says_more_than_numbers_is_counted_anew() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "note": "the model says hello"}
    events = stream(chunk(content="a"), chunk("stop"), {**HEAD, "choices": [], "usage": usage})
    answer = openai_answer(encode(events), stream=True)
    assert answer.usage is not None
    assert answer.usage.model_dump(exclude_none=True) == {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}


# --- what is not modelled ---

CALL = {"index": 0, "id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}
UNKNOWN: list[tuple[str, dict[str, Any]]] = [
    ("field citations", {**chunk(content="a"), "citations": ["u"]}),
    ("choice field extra", {**HEAD, "choices": [{"index": 0, "delta": {"content": "a"}, "extra": {"n": 1}}]}),
    ("delta field novelty", chunk(content="a", novelty="x")),
    ("audio", chunk(content="a", audio={"id": "x", "transcript": "hm"})),
    ("annotations", chunk(content="a", annotations=[{"type": "file", "file": {"name": "n"}}])),
    ("reasoning_details", chunk(content="a", reasoning_details=[{"type": "novel", "odd": 1}])),
    ("logprobs", chunk(content="a", logprobs={"content": [token("b")], "refusal": None})),
    ("tool call field extra_content", chunk(tool_calls=[{**CALL, "extra_content": {"google": {"thought_signature": "s"}}}])),
    ("function field odd", chunk(tool_calls=[{**CALL, "function": {"name": "f", "arguments": "{}", "odd": 1}}])),
    (
        "custom tool field odd",
        chunk(tool_calls=[{"index": 0, "id": "x", "type": "custom", "custom": {"name": "patch", "input": "i", "odd": 1}}]),
    ),
    ("function field odd", chunk(function_call={"name": "f", "arguments": "{}", "odd": 1})),
]


def bare(value: Any) -> Any:
    """Without nulls, and without what only streams or only the helper have."""
    if isinstance(value, dict):
        return {k: bare(v) for k, v in value.items() if v is not None and k not in ("index", "parsed_arguments", "parsed")}
    return [bare(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("what", "first"), UNKNOWN)
def test_a_named_field_passes_for_the_same_dialect_and_no_other_does(what: str, first: dict[str, Any]) -> None:
    first["choices"][0]["delta"] |= {"role": "assistant"}
    kind = next((k for k in ("tool_calls", "function_call") if k in first["choices"][0]["delta"]), "stop")
    chunks = [first, chunk(kind)]
    assert opaque(stream(*chunks)) == [what]
    assert not [e for e in stream(*chunks, unknown=frozenset(("field other",))) if isinstance(e, RawDelta)]
    events = stream(*chunks, unknown=frozenset((what,)))
    assert [e.what for e in events if isinstance(e, RawDelta)] == [what] and opaque(events) == []
    direct = bare(openai_answer(body_of(*chunks), stream=True).model_dump())
    whole_body = encode(events, stream=False, legacy=kind == "function_call")
    streamed = bare(openai_answer(encode(events, legacy=kind == "function_call"), stream=True).model_dump())
    sent = bare(openai_answer(whole_body, stream=False).model_dump())
    if what.startswith(("field", "choice field")):
        # the helper keeps such fields of the first chunk alone; those who iterate see them
        name = what.rpartition(" ")[2]
        piece = json.dumps({name: first.get(name) or first["choices"][0].get(name)}, separators=(",", ":")).encode()[1:-1]
        assert piece in encode(events)
        (streamed if name in direct else streamed["choices"][0])[name] = (direct if name in direct else direct["choices"][0])[name]
    for answer in (streamed, sent):
        assert answer["choices"][0].pop("message") | {"content": "a"} == direct["choices"][0]["message"] | {"content": "a"}
    direct["choices"][0].pop("message")
    assert streamed == direct and sent == direct


def test_what_comes_before_the_message_waits_for_it() -> None:
    first = {**HEAD, "choices": [], "novelty": 1}
    events = stream(first, chunk(content="a"), chunk("stop"), unknown=frozenset(("field novelty",)))
    assert isinstance(events[0], MessageStart) and isinstance(events[1], RawDelta)
    assert json.loads(encode(events, stream=False))["novelty"] == 1


def test_fields_of_a_call_follow_its_number_and_its_fate() -> None:
    calls = [{**CALL, "index": n, "id": f"x{n}", "extra_content": {"n": n}} for n in (1, 2)]
    events = stream(chunk(tool_calls=calls), chunk("tool_calls"), unknown=frozenset(("tool call field extra_content",)))
    for choice in answers(events):
        assert [c.extra_content["n"] for c in choice.message.tool_calls] == [1, 2]
    blocked = [e for e in events if getattr(e, "index", None) != 0 or isinstance(e, RawDelta)]
    for choice in answers(blocked):
        assert [c.extra_content["n"] for c in choice.message.tool_calls] == [2]
    assert b"extra_content" not in encode(events, legacy=True)
    other = {**CALL, "type": "novel", "extra_content": {"n": "secret"}}
    assert opaque(stream(chunk(tool_calls=[other]), chunk("stop"), unknown=frozenset(("tool call field extra_content",)))) == [
        "tool call of another type",
        "tool call field extra_content",
    ]


def test_fields_of_a_call_wait_for_its_verdict() -> None:
    calls = [{**CALL, "index": n, "id": f"x{n}", "extra_content": {"n": n}} for n in (1, 2)]
    events = stream(chunk(tool_calls=calls), chunk("tool_calls"), unknown=frozenset(("tool call field extra_content",)))
    first: list[Event] = [*[e for e in events if isinstance(e, MessageStart)], *[e for e in events if isinstance(e, RawDelta)]]
    rest = [e for e in events if not isinstance(e, MessageStart | RawDelta)]
    for choice in answers([*first, *rest]):
        assert [c.extra_content["n"] for c in choice.message.tool_calls] == [1, 2]
    for choice in answers([*first, *[e for e in rest if getattr(e, "index", None) != 1]]):
        assert [c.extra_content["n"] for c in choice.message.tool_calls] == [1]


def test_fields_of_another_choice_never_pass() -> None:
    other = {**HEAD, "choices": [{"index": 1, "delta": {"novelty": "secret"}, "odd": "secret"}]}
    names = frozenset(("delta field novelty", "choice field odd", "choice"))
    assert [e for e in stream(chunk(content="a"), other, chunk("stop"), unknown=names) if isinstance(e, RawDelta)] == []
    twice = {**HEAD, "choices": [{"message": {"content": t}, "finish_reason": "stop"} for t in ("a", "secret")]}
    events = codecs.decode_whole("openai", json.dumps(twice).encode())
    assert (texts(events), opaque(events)) == ({0: "a"}, ["choice"])


def test_frames_of_the_other_dialect_are_not_ours() -> None:
    raw = RawDelta("event novelty", -1, {"type": "novelty"}, "anthropic")
    start, stop = MessageStart("i", "m", Usage(), {"dialect": "anthropic"}), MessageStop(StopReason.END_TURN)
    assert b"novelty" not in encode([start, raw, stop]) + encode([start, raw, stop], stream=False)


def test_pieces_of_a_named_field_join_as_the_sdk_joins_them() -> None:
    chunks = [
        chunk(content="a", audio={"id": "x", "data": "AA", "n": {"a": 1}, "l": [1]}),
        chunk(audio={"data": "BB", "n": {"b": 2}, "l": [2]}),
    ]
    events = stream(*chunks, chunk("stop"), unknown=frozenset(("audio",)))
    for streamed in (True, False):
        body = encode(events, stream=streamed)
        audio = openai_answer(body, stream=streamed).choices[0].message.audio
        assert audio is not None
        assert audio.model_dump(exclude_none=True) == {"id": "x", "data": "AABB", "n": {"a": 1, "b": 2}, "l": [1, 2]}


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


def test_deep_fields_do_not_exhaust_the_stack() -> None:
    events: list[Event] = [MessageStart("i", "m", Usage(), {"dialect": "openai"})]
    raw = RawDelta("audio", -1, {"choices": [{"index": 0, "delta": {"audio": deep(200)}}]}, "openai")
    assert encode([*events, raw, raw, MessageStop(StopReason.END_TURN)], stream=False)


# --- vendors ---


def test_an_id_that_comes_after_its_name_is_the_same_call() -> None:
    events = stream(
        chunk(tool_calls=[{"index": 0, "function": {"name": "f", "arguments": "{"}}]),
        chunk(tool_calls=[{"index": 0, "id": "late", "function": {"arguments": "}"}}]),
        chunk("tool_calls"),
    )
    assert arguments(events) == "{}" and sum(isinstance(e, BlockStart) for e in events) == 1


def test_many_calls_cost_what_they_are() -> None:
    def cost(calls: int) -> float:
        pieces = [{"index": n, "id": f"c{n}", "function": {"name": "f", "arguments": "{}"}} for n in range(calls)]
        data = b"data: " + json.dumps(chunk(tool_calls=pieces)).encode() + b"\n\n"
        more = (
            b"data: "
            + json.dumps(chunk(tool_calls=[{"index": p["index"], "function": {"arguments": " "}} for p in pieces])).encode()
            + b"\n\n"
        )
        best = 9.0
        for _ in range(5):
            decoder, before = codecs.make_decoder("openai"), time.process_time()
            decoder.feed(data)
            decoder.feed(more)
            best = min(best, time.process_time() - before)
        return best

    assert cost(8_000) < 32 * cost(1_000)


# --- the other dialect's blocks ---

MESSAGES = MessageStart("msg_1", "m", Usage(1, 1), {"dialect": "anthropic", "usage": {"input_tokens": 1}, "container": {"id": "c1"}})
SERVER: list[Event] = [
    BlockStart(0, BlockKind.SERVER_TOOL_USE, "srv_1", "web_search", {"type": "server_tool_use", "caller": {"type": "direct"}}),
    ArgumentsDelta(0, '{"query"'),
    ArgumentsDelta(0, ':"x"}'),
    BlockStop(0),
    BlockStart(1, BlockKind.OTHER, "", "web_search_tool_result", {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}),
    BlockStop(1),
]


@pytest.mark.parametrize("reason", [StopReason.PAUSE_TURN, StopReason.COMPACTION, StopReason.CONTEXT_WINDOW])
def test_calls_of_the_provider_are_never_the_clients(reason: StopReason) -> None:
    stop = MessageStop(reason, Usage(1, 2), None, {"usage": {"output_tokens": 2, "server_tool_use": {"web_search_requests": 1}}})
    events = [MESSAGES, *SERVER, stop]
    for choice in answers(events):
        assert (choice.message.tool_calls, choice.finish_reason) == (None, "length")
    own = json.loads(encode(events, stream=False))["sluice"]
    assert own == {
        "id": "msg_1",
        "stop_reason": str(reason),
        "container": {"id": "c1"},
        "blocks": [
            {"type": "server_tool_use", "caller": {"type": "direct"}, "id": "srv_1", "name": "web_search", "input": {"query": "x"}},
            {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []},
        ],
        "usage": {"input_tokens": 1, "output_tokens": 2, "server_tool_use": {"web_search_requests": 1}},
    }
    assert [json.loads(f[6:]).get("sluice") for f in encode(events).split(b"\n\n") if b"sluice" in f] == [own]


def test_a_cut_input_of_the_providers_call_stays_text() -> None:
    events = [MESSAGES, SERVER[0], ArgumentsDelta(0, '{"query'), BlockStop(0), MessageStop(StopReason.MAX_TOKENS)]
    (block,) = json.loads(encode(events, stream=False))["sluice"]["blocks"]
    assert (block["input"], block["input_json"]) == ({}, '{"query')


def test_offsets_of_citations_count_characters_of_the_whole_content() -> None:
    def cited(index: int, text: str, *citations: dict[str, Any]) -> list[Event]:
        attached = [AttachmentDelta(index, "citation", c) for c in citations]
        return [BlockStart(index, BlockKind.TEXT), TextDelta(index, text[:1]), TextDelta(index, text[1:]), *attached, BlockStop(index)]

    page = {"type": "web_search_result_location", "url": "https://a", "title": None, "cited_text": "secret source", "encrypted_index": "x"}
    document = {"type": "char_location", "cited_text": "q", "document_index": 0}
    thinking: list[Event] = [BlockStart(0, BlockKind.THINKING), TextDelta(0, "hmmm"), BlockStop(0)]
    events = [
        MESSAGES,
        *thinking,
        *cited(1, "Grüße 😀"),
        *cited(2, "ab", page, document),
        *cited(3, "c", page),
        MessageStop(StopReason.END_TURN),
    ]
    for choice in answers(events):
        places = [a.url_citation for a in choice.message.annotations]
        assert [choice.message.content[p.start_index : p.end_index] for p in places] == ["ab", "c"]
        assert [(p.title, p.url) for p in places] == [("", "https://a")] * 2
    own = json.loads(encode(events, stream=False))["sluice"]
    assert own["citations"] == [{"start_index": 7, "end_index": 9, "citation": document}]
    assert b"secret source" not in encode(events)


@pytest.mark.parametrize("stream", [True, False])
def test_what_goes_with_text_needs_its_block_open(stream: bool) -> None:
    for field in ("citation", "annotations", "logprobs", "reasoning_details"):
        attached: Any = AttachmentDelta(0, field, {})
        with pytest.raises(LocalProtocolError):
            encode([MESSAGES, BlockStart(0, BlockKind.TEXT), BlockStop(0), attached], stream=stream)
    with pytest.raises(LocalProtocolError):
        encode([MESSAGES, BlockStart(0, BlockKind.TEXT), BlockStop(0), TextDelta(0, "a")], stream=stream)
