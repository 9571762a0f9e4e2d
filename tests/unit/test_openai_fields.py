"""Every field of chat/completions answers: in, past the decoder, out again by the SDK; and none of
them is a way around a policy."""

import json
from typing import Any, Literal

import pytest

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
    StopReason,
    TextDelta,
    Usage,
)
from protocol.request import ChatRequest
from tests.support.checks.decoding import texts
from tests.support.checks.kinds import of_kind
from tests.support.json_values import Json
from tests.support.upstreams.completions import (
    HEAD,
    answers,
    chunk,
    encode,
    opaque,
    stream,
    token,
    whole,
)


def test_log_probabilities_of_a_refusal_and_of_a_whole_answer() -> None:
    both = {"content": [token("a")], "refusal": [token("b")]}
    events = whole({"content": "a", "refusal": "b"}, logprobs=both)
    found = of_kind(events, AttachmentDelta)
    assert [(e.index, e.value["content"] is None, e.value["refusal"] is None) for e in found] == [
        (0, False, True),
        (1, True, False),
    ]
    for choice in answers(events):
        dumped = choice.logprobs.model_dump()
        assert (
            [t["token"] for t in dumped["content"]],
            [t["token"] for t in dumped["refusal"]],
        ) == (["a"], ["b"])


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
    assert not of_kind(events, AttachmentDelta)
    assert opaque(
        stream(
            {**HEAD, "choices": [{"index": 0, "logprobs": {"content": [token("a")]}}]},
            chunk("stop"),
        )
    ) == ["logprobs"]


PAGE = {"start_index": 0, "end_index": 1, "title": "t", "url": "https://a"}


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
ONE: Json = {
    "type": "url_citation",
    "url_citation": {"url": "https://a", "title": "", "start_index": 0, "end_index": 0},
}
TWO: Json = {
    "type": "url_citation",
    "url_citation": {"url": "https://b", "title": "", "start_index": 0, "end_index": 0},
}
PLACES: dict[str, list[Json]] = {
    "before the text": [chunk(annotations=[ONE]), chunk(annotations=[TWO]), chunk(content="a")],
    "beside nothing": [
        chunk(content="a"),
        chunk(content="", annotations=[ONE]),
        chunk(content="", annotations=[TWO]),
    ],
    "around the text": [chunk(annotations=[ONE]), chunk(content="a"), chunk(annotations=[TWO])],
    "after reasoning": [
        chunk(reasoning="r"),
        chunk(annotations=[ONE]),
        chunk(content="a"),
        chunk(annotations=[TWO]),
    ],
    "after an empty list": [
        chunk(content="", annotations=[]),
        chunk(content="a"),
        chunk(annotations=[ONE]),
        chunk(annotations=[TWO]),
    ],
    "after the finish": [
        chunk(content="a"),
        chunk("stop"),
        chunk(annotations=[ONE]),
        chunk(annotations=[TWO]),
    ],
    "without text": [chunk(annotations=[ONE]), chunk(annotations=[TWO])],
}


@pytest.mark.parametrize("place", PLACES)
def test_annotations_reach_the_client_wherever_they_stand(place: str) -> None:
    events = stream(*PLACES[place], chunk("stop"))
    for choice in answers(events):
        assert [a.url_citation.url for a in choice.message.annotations or ()] == [
            ONE["url_citation"]["url"],
            TWO["url_citation"]["url"],
        ]


def test_annotations_of_another_dialect_are_beside_the_message_wherever_they_stand() -> None:
    events = stream(chunk(content="a"), chunk("stop"), chunk(annotations=[ONE]))
    request = ChatRequest(dialect="anthropic", model="m", stream=False)
    body = json.loads(CLIENTS["anthropic"].encoder(request, call_id="c", created=1).encode(events))
    assert body["sluice"]["annotations"] == [ONE] and [b["type"] for b in body["content"]] == [
        "text"
    ]


def test_whole_answers_keep_their_empty_annotations() -> None:
    assert [c.message.annotations for c in answers(whole({"content": "a", "annotations": []}))] == [
        [],
        [],
    ]


DETAIL = {"type": "reasoning.text", "text": "hm", "format": "anthropic-claude-v1", "index": 0}
SEALED = {"type": "reasoning.encrypted", "data": "gAAAAB-_x+/=", "id": "rs_1", "index": 1}


def test_reasoning_that_is_only_in_the_details_is_read_and_shown() -> None:
    summary = {"type": "reasoning.summary", "summary": "why", "index": 1}
    events = stream(
        chunk(reasoning_details=[DETAIL, summary]),
        chunk(reasoning_details=[SEALED]),
        chunk(content="a"),
        chunk("stop"),
    )
    assert events[1:3] == [
        BlockStart(0, BlockKind.THINKING, "", "reasoning"),
        TextDelta(0, "hmwhy"),
    ]
    for choice in answers(events):
        assert (choice.message.model_extra or {})["reasoning"] == "hmwhy"
    late = stream(chunk(content="a"), chunk(reasoning_details=[SEALED]), chunk("stop"))
    assert [e.index for e in late if isinstance(e, AttachmentDelta)] == [0]
    alone = stream(
        chunk(reasoning_details=[SEALED]),
        chunk(tool_calls=[{"index": 0, "id": "x", "function": {"name": "f"}}]),
        chunk("tool_calls"),
    )
    assert [e.kind for e in alone if isinstance(e, BlockStart)] == [
        BlockKind.THINKING,
        BlockKind.TOOL_USE,
    ]


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
    assert opaque(stream(chunk(reasoning="a", reasoning_content="b"), chunk("stop"))) == [
        "delta field reasoning"
    ]
    assert opaque(stream(chunk(reasoning="a", reasoning_content="a"), chunk("stop"))) == []


def test_parts_of_text_and_thinking() -> None:
    parts = [
        {
            "type": "thinking",
            "thinking": [{"type": "text", "text": "hm"}, {"type": "text", "text": "?"}],
            "closed": True,
        },
        {"type": "text", "text": "a"},
    ]
    for events in (stream(chunk(content=parts), chunk("stop")), whole({"content": parts})):
        assert (texts(events), opaque(events)) == ({0: "hm?", 1: "a"}, [])
        assert [e.kind for e in events if isinstance(e, BlockStart)] == [
            BlockKind.THINKING,
            BlockKind.TEXT,
        ]
    both = stream(
        chunk(content=[{"type": "thinking", "thinking": "secret"}]),
        chunk(reasoning_content="x", content=parts),
        chunk("stop"),
    )
    assert (texts(both), opaque(both)) == ({0: "xhm?", 1: "a"}, ["content part thinking"])


# --- what is said beside the answer ---


def test_moderation_and_filter_results_are_kept_where_they_are_only_words_and_numbers() -> None:
    results = {"hate": {"filtered": False, "severity": "safe"}}
    first = {
        **HEAD,
        "choices": [],
        "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": results}],
        "provider": "Groq",
    }
    said = chunk(content="a")
    said["choices"][0] |= {"content_filter_results": results}
    last = {
        **HEAD,
        "choices": [],
        "moderation": {"output": {"type": "moderation_results", "model": "omni", "results": []}},
    }
    end = chunk("stop")
    end["choices"][0] |= {"native_finish_reason": "end_turn"}
    events = stream(first, said, end, last)
    frames = [json.loads(f[6:]) for f in encode(events).split(b"\n\n") if f.startswith(b"data: {")]
    assert {n: frames[0][n] for n in ("prompt_filter_results", "provider")} == {
        n: first[n] for n in ("prompt_filter_results", "provider")
    }
    assert (
        frames[0]["choices"][0]["content_filter_results"]
        == frames[-1]["choices"][0]["content_filter_results"]
        == results
    )
    assert frames[-1]["choices"][0]["native_finish_reason"] == "end_turn"
    assert frames[-1]["moderation"] == last["moderation"]
    sent = json.loads(encode(events, stream=False))
    assert (sent["provider"], sent["moderation"]) == ("Groq", last["moderation"])
    assert sent["choices"][0]["content_filter_results"] == results
    told = json.loads(
        json.dumps([first, said, end])
        .replace("safe", "the model says hello")
        .replace("Groq", "a whole sentence")
    )
    assert b"sentence" not in encode(stream(*told)) and b"hello" not in encode(stream(*told))


def test_token_ids_spell_the_answer_and_stay_out() -> None:
    said = chunk(content="a")
    said["choices"][0] |= {"token_ids": [4711]}
    assert b"4711" not in encode(stream(said, chunk("stop")))


# --- the other dialect's blocks ---


MESSAGES = MessageStart(
    "msg_1",
    "m",
    Usage(1, 1),
    {"dialect": "anthropic", "usage": {"input_tokens": 1}, "container": {"id": "c1"}},
)
SERVER: list[Event] = [
    BlockStart(
        0,
        BlockKind.SERVER_TOOL_USE,
        "srv_1",
        "web_search",
        {"type": "server_tool_use", "caller": {"type": "direct"}},
    ),
    ArgumentsDelta(0, '{"query"'),
    ArgumentsDelta(0, ':"x"}'),
    BlockStop(0),
    BlockStart(
        1,
        BlockKind.OTHER,
        "",
        "web_search_tool_result",
        {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []},
    ),
    BlockStop(1),
]


@pytest.mark.parametrize(
    "reason", [StopReason.PAUSE_TURN, StopReason.COMPACTION, StopReason.CONTEXT_WINDOW]
)
def test_calls_of_the_provider_are_never_the_clients(reason: StopReason) -> None:
    stop = MessageStop(
        reason,
        Usage(1, 2),
        None,
        {"usage": {"output_tokens": 2, "server_tool_use": {"web_search_requests": 1}}},
    )
    events = [MESSAGES, *SERVER, stop]
    for choice in answers(events):
        assert (choice.message.tool_calls, choice.finish_reason) == (None, "length")
    own = json.loads(encode(events, stream=False))["sluice"]
    assert own == {
        "id": "msg_1",
        "stop_reason": str(reason),
        "container": {"id": "c1"},
        "blocks": [
            {
                "type": "server_tool_use",
                "caller": {"type": "direct"},
                "id": "srv_1",
                "name": "web_search",
                "input": {"query": "x"},
            },
            {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []},
        ],
        "usage": {
            "input_tokens": 1,
            "output_tokens": 2,
            "server_tool_use": {"web_search_requests": 1},
        },
    }
    assert [
        json.loads(f[6:]).get("sluice") for f in encode(events).split(b"\n\n") if b"sluice" in f
    ] == [own]


def test_a_cut_input_of_the_providers_call_stays_text() -> None:
    events = [
        MESSAGES,
        SERVER[0],
        ArgumentsDelta(0, '{"query'),
        BlockStop(0),
        MessageStop(StopReason.MAX_TOKENS),
    ]
    (block,) = json.loads(encode(events, stream=False))["sluice"]["blocks"]
    assert (block["input"], block["input_json"]) == ({}, '{"query')


@pytest.mark.parametrize("stream", [True, False])
def test_what_goes_with_text_needs_its_block_open(stream: bool) -> None:
    fields: tuple[Literal["citation", "logprobs", "reasoning_details"], ...] = (
        "citation",
        "logprobs",
        "reasoning_details",
    )
    for field in fields:
        attached: Any = AttachmentDelta(0, field, {})
        with pytest.raises(LocalProtocolError):
            encode([MESSAGES, BlockStart(0, BlockKind.TEXT), BlockStop(0), attached], stream=stream)
    with pytest.raises(LocalProtocolError):
        encode(
            [MESSAGES, BlockStart(0, BlockKind.TEXT), BlockStop(0), TextDelta(0, "a")],
            stream=stream,
        )
