"""Every recording through decoder and encoder to clients of chat/completions: iterated, with the
helper, and whole."""

import json
from typing import Any

import httpx2
import openai
import pytest

from protocol import codecs
from protocol.bytes.json_strict import AmbiguousJson, loads_arguments
from protocol.dialects.table import CLIENTS
from protocol.events import (
    AttachmentDelta,
    BlockKind,
    BlockStart,
    Event,
    MessageStart,
    MessageStop,
    UpstreamFailed,
)
from protocol.request import ChatRequest
from tests.support.checks.decoding import decode, digest, texts
from tests.support.clients.sdk import openai_answer
from tests.support.upstreams.recordings import Recording, need_recordings, recordings

CALL = "01990000-0000-7000-8000-00000000abcd"
ALL = {r.name: r for r in recordings()}
MESSAGES = [
    n
    for n, r in ALL.items()
    if r.dialect == "anthropic"
    and "error_type" not in r.facts
    and not n.endswith("spliced-message-start")
]
COMPLETIONS = [n for n, r in ALL.items() if r.dialect == "openai" and not r.facts.get("error")]


def events_of(recording: Recording) -> list[Event]:
    return (
        decode(recording.dialect, [recording.body])
        if recording.is_stream
        else codecs.decode_whole(recording.dialect, recording.body)
    )


def encoded(events: list[Event], *, stream: bool, usage: bool = True) -> bytes:
    request = ChatRequest(dialect="openai", model="m", stream=stream, include_usage=usage)
    return CLIENTS["openai"].encoder(request, call_id=CALL, created=1).encode(events)


def client(body: bytes) -> openai.OpenAI:
    kind = {"content-type": "text/event-stream"}
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, headers=kind, content=body))
    return openai.OpenAI(
        api_key="k",
        base_url="http://upstream/v1",
        http_client=httpx2.Client(transport=transport),
        max_retries=0,
    )


def helped(body: bytes) -> dict[str, Any]:
    """What the SDK's `.stream` helper holds at the end."""
    with client(body).chat.completions.stream(
        model="m", messages=[{"role": "user", "content": "x"}]
    ) as events:
        for _ in events:
            pass
        # its last call raises on the finish reasons length and content_filter, as it does directly
        return events.current_completion_snapshot.model_dump()


def iterated(body: bytes) -> dict[str, Any]:
    """What an application that iterates over chunks makes of them."""
    said: dict[str, Any] = {
        "content": "",
        "reasoning": "",
        "refusal": None,
        "calls": {},
        "finish": [],
        "usage": None,
        "annotations": [],
    }
    after_usage = 0
    for chunk in client(body).chat.completions.create(
        model="m", messages=[{"role": "user", "content": "x"}], stream=True
    ):
        after_usage += said["usage"] is not None
        said["usage"] = chunk.usage or said["usage"]
        for choice in chunk.choices:
            extra = choice.delta.model_extra or {}
            said["content"] += choice.delta.content or ""
            said["reasoning"] += extra.get("reasoning_content") or extra.get("reasoning") or ""
            said["annotations"] += extra.get("annotations") or []
            if choice.delta.refusal is not None:
                said["refusal"] = (said["refusal"] or "") + choice.delta.refusal
            for call in choice.delta.tool_calls or ():
                assert call.index <= len(said["calls"])
                known = said["calls"].setdefault(
                    call.index, [call.id, call.function and call.function.name, ""]
                )
                assert known[0] and known[1]
                known[2] += (call.function and call.function.arguments) or ""
            said["finish"] += [choice.finish_reason] if choice.finish_reason else []
    assert not after_usage
    return said


def arguments(text: str) -> Any:
    try:
        return loads_arguments(text)
    except AmbiguousJson:
        return None


def wanted(recording: Recording) -> dict[str, Any]:
    """The expectation that comes with the recording; a whole answer's has the facts alone."""
    facts = recording.facts
    if "expected_openai" in facts:
        return dict(facts["expected_openai"])
    calls = [
        {"index": k, "id": c["id"], "name": c["name"], "arguments": c["input"]}
        for k, c in enumerate(facts["tool_use"])
    ]
    usage = {
        "prompt_tokens": facts["usage"]["input_tokens"],
        "completion_tokens": facts["usage"]["output_tokens"],
        "cached_tokens": 0,
    }
    return {
        "content_chars": facts["text_chars"],
        "tool_calls": calls,
        "finish_reason": "tool_calls",
        "usage": usage,
    }


@pytest.mark.parametrize("mode", ["iterate", "helper", "whole"])
@pytest.mark.parametrize("name", MESSAGES or ["none"])
def test_every_messages_answer_is_what_the_recordings_expect(name: str, mode: str) -> None:
    need_recordings()
    recording = ALL[name]
    want = wanted(recording)
    body = encoded(events_of(recording), stream=mode != "whole")
    if mode == "iterate":
        said = iterated(body)
        content, reasoning, finish, usage = (
            said["content"],
            said["reasoning"],
            said["finish"],
            said["usage"].model_dump(),
        )
        calls = [
            {"index": k, "id": i, "name": n, "arguments": arguments(a)}
            for k, (i, n, a) in said["calls"].items()
        ]
    else:
        answer = (
            helped(body) if mode == "helper" else openai_answer(body, stream=False).model_dump()
        )
        choice = answer["choices"][0]
        message, usage, finish = choice["message"], answer["usage"], [choice["finish_reason"]]
        content, reasoning = message["content"] or "", message.get("reasoning_content") or ""
        calls = [
            {
                "index": k,
                "id": c["id"],
                "name": c["function"]["name"],
                "arguments": arguments(c["function"]["arguments"]),
            }
            for k, c in enumerate(message["tool_calls"] or ())
        ]
    assert (len(content), digest(content)) == (want["content_chars"], recording.facts["text_sha"])
    assert len(reasoning) == recording.facts.get("thinking_chars", 0)
    assert (calls, finish) == (want["tool_calls"], [want["finish_reason"]])
    details = usage["prompt_tokens_details"] or {}
    assert (
        usage["prompt_tokens"],
        usage["completion_tokens"],
        details.get("cached_tokens", 0),
    ) == tuple(want["usage"].values())


@pytest.mark.parametrize("name", MESSAGES or ["none"])
def test_streamed_and_whole_answers_say_the_same(name: str) -> None:
    need_recordings()
    events = events_of(ALL[name])
    streamed, whole = (
        helped(encoded(events, stream=True)),
        openai_answer(encoded(events, stream=False), stream=False).model_dump(),
    )
    for answer in (streamed, whole):
        message = answer["choices"][0]["message"]
        for call in message["tool_calls"] or ():
            # only streams number calls; only the helper parses arguments
            call.pop("index", None), call["function"].pop("parsed_arguments", None)
        message.pop("parsed", None)
        # the helper keeps unknown fields of the first chunk alone
        answer.pop("sluice", None)
        # a stream began with "" before anything was known of the calls
        message["content"] = message["content"] or None
    assert streamed == whole


def vendor_objects(events: list[Event]) -> list[Any]:
    chunks = [
        json.loads(f[6:])
        for f in encoded(events, stream=True).split(b"\n\n")
        if f.startswith(b"data: {")
    ]
    whole = json.loads(encoded(events, stream=False))
    assert [c["choices"][0]["finish_reason"] is not None for c in chunks if "sluice" in c] == [
        True
    ] * ("sluice" in whole)
    return [c["sluice"] for c in chunks if "sluice" in c] + (
        [whole["sluice"]] if "sluice" in whole else []
    )


@pytest.mark.parametrize("name", MESSAGES or ["none"])
def test_what_the_dialect_has_no_place_for_is_in_one_object(name: str) -> None:
    need_recordings()
    recording = ALL[name]
    facts = recording.facts
    first, second = vendor_objects(events_of(recording))
    assert first == second
    assert (first["id"], first["stop_reason"]) == (
        facts.get("message_id") or first["id"],
        facts["stop_reason"],
    )
    counted = {k: v for k, v in facts["usage"].items() if k != "server_tool_use"}
    assert {k: first["usage"].get(k) for k in counted} == counted
    seen = {"text", "thinking", "tool_use", "redacted_thinking"}
    kinds = [b["type"] for b in facts.get("blocks", ()) if b["type"] not in seen]
    assert [b["type"] for b in first.get("blocks", ())] == kinds
    calls = [
        (b["id"], b["name"], b["input"])
        for b in facts.get("blocks", ())
        if b["type"] in ("server_tool_use", "mcp_tool_use") and "input" in b
    ]
    found = {b["id"]: b for b in first.get("blocks", ()) if "id" in b}
    assert [(i, found[i]["name"], found[i]["input"]) for i, _, _ in calls] == calls
    cited = [c["citation"]["type"] for c in first.get("citations", ())]
    assert {t: cited.count(t) for t in cited} == {
        t: n for t, n in (facts.get("citations") or {}).items() if t != "web_search_result_location"
    }


CITED = [
    n for n in MESSAGES if "web_search_result_location" in (ALL[n].facts.get("citations") or {})
]


@pytest.mark.parametrize("name", CITED or ["none"])
def test_citations_of_pages_are_annotations_of_the_cited_text(name: str) -> None:
    need_recordings()
    events = events_of(ALL[name])
    cited = [e for e in events if isinstance(e, AttachmentDelta) and e.field == "citation"]
    streamed, whole = (
        helped(encoded(events, stream=True)),
        openai_answer(encoded(events, stream=False), stream=False).model_dump(),
    )
    message = whole["choices"][0]["message"]
    annotations = message["annotations"]
    assert (
        streamed["choices"][0]["message"]["annotations"]
        == annotations
        == iterated(encoded(events, stream=True))["annotations"]
    )
    assert (
        len(annotations) == len(cited) == ALL[name].facts["citations"]["web_search_result_location"]
    )
    by_block = texts(events)
    for event, annotation in zip(cited, annotations, strict=True):
        at = annotation["url_citation"]
        assert (at["title"], at["url"]) == (event.value.title, event.value.url)
        assert message["content"][at["start_index"] : at["end_index"]] == by_block[event.index]
        assert annotation.keys() == {"type", "url_citation"} and at.keys() == {
            "title",
            "url",
            "start_index",
            "end_index",
        }


def test_a_refusal_says_why() -> None:
    need_recordings()
    recording = ALL["anthropic/refusal"]
    events = events_of(recording)
    why = recording.facts["stop_details"]["explanation"]
    for answer in (
        helped(encoded(events, stream=True)),
        openai_answer(encoded(events, stream=False), stream=False).model_dump(),
    ):
        choice = answer["choices"][0]
        assert (
            choice["finish_reason"],
            choice["message"]["refusal"],
            choice["message"]["content"],
        ) == ("content_filter", why, "")
    said = iterated(encoded(events, stream=True))
    assert (said["refusal"], said["finish"]) == (why, ["content_filter"])
    assert vendor_objects(events)[0]["stop_details"]["category"] == "cyber"


def same_dialect(answer: dict[str, Any]) -> dict[str, Any]:
    """The completion without what cannot be the same."""
    # padding against eavesdroppers is made for each connection
    answer.pop("obfuscation", None)
    # a name with a blank is not taken for a name
    answer.pop("provider", None)
    choice = answer["choices"][0]
    for field in ("native_finish_reason", "content_filter_results"):
        # the helper keeps the first chunk's null or {}, which say nothing
        if not choice.get(field):
            choice.pop(field, None)
    message = choice["message"]
    # OpenRouter repeats the role in every chunk, and the helper joins it
    message["role"] = "assistant"
    # a vendor says "" in a later chunk where it first said null
    message["content"] = message["content"] or None
    message["reasoning_content"] = message.get("reasoning_content") or None
    for call in message["tool_calls"] or ():
        call.pop("index", None), call["function"].pop("parsed_arguments", None)
    return answer


HELPED = [
    n
    for n in COMPLETIONS
    if isinstance(ALL[n].facts.get("sdk"), dict) or n == "openai/length-usage"
]


@pytest.mark.parametrize("name", HELPED or ["none"])
def test_every_completion_is_the_same_as_directly(name: str) -> None:
    need_recordings()
    events = events_of(ALL[name])
    direct, through = helped(ALL[name].body), helped(encoded(events, stream=True))
    if not direct["id"]:
        # Azure's first chunk has neither id nor model nor time, and the helper keeps that; the next
        # one has them
        direct |= {field: through[field] for field in ("id", "model", "created")}
    # the helper passes over Azure's first chunk, because it says of itself that it is none; those
    # who iterate see it
    direct |= {field: through[field] for field in ("prompt_filter_results",) if field in through}
    assert same_dialect(through) == same_dialect(direct)
    if ALL[name].facts["usage"]:
        assert through["usage"] == direct["usage"] is not None


@pytest.mark.parametrize("name", [n for n in COMPLETIONS if not ALL[n].is_stream] or ["none"])
def test_every_whole_completion_is_the_same_as_directly(name: str) -> None:
    need_recordings()
    direct = openai_answer(ALL[name].body, stream=False).model_dump()
    through = openai_answer(encoded(events_of(ALL[name]), stream=False), stream=False).model_dump()
    assert through == direct


def test_azures_filter_results_are_kept() -> None:
    need_recordings()
    body = ALL["openai/azure-first-chunk-no-choices"].body
    through = helped(encoded(events_of(ALL["openai/azure-first-chunk-no-choices"]), stream=True))
    messages: Any = [{"role": "user", "content": "x"}]
    first = next(
        iter(client(body).chat.completions.create(model="m", messages=messages, stream=True))
    )
    assert through["prompt_filter_results"] == (first.model_extra or {})["prompt_filter_results"]


def test_the_setting_lets_a_vendors_field_through() -> None:
    need_recordings()
    recording = ALL["openai/tool-calls-without-id-json"]
    names = frozenset(("delta field extra_content", "delta field thought_signature"))
    direct = openai_answer(recording.body, stream=False).choices[0].message.model_extra or {}
    events = codecs.decode_whole("openai", recording.body, names)
    for answer in (
        helped(encoded(events, stream=True)),
        openai_answer(encoded(events, stream=False), stream=False).model_dump(),
    ):
        message = answer["choices"][0]["message"]
        assert {n: message[n] for n in direct} == direct


REPAIRED = [n for n in COMPLETIONS if ALL[n].is_stream and n not in HELPED]


@pytest.mark.parametrize("name", REPAIRED or ["none"])
def test_what_breaks_the_helper_directly_works_through_us(name: str) -> None:
    need_recordings()
    recording = ALL[name]
    with pytest.raises((IndexError, TypeError)):
        helped(recording.body)
    facts = recording.facts
    answer = helped(encoded(events_of(recording), stream=True))
    choice = answer["choices"][0]
    assert len(choice["message"]["content"] or "") == facts["content_chars"]
    calls = [
        (c["function"]["name"], json.loads(c["function"]["arguments"]))
        for c in choice["message"]["tool_calls"]
    ]
    assert calls == [(c["name"], c["arguments"]) for c in facts["tool_calls"]]
    assert choice["finish_reason"] == facts["finish_reasons"][-1]
    if facts["usage"]:
        assert {k: answer["usage"][k] for k in facts["usage"]} == facts["usage"]


@pytest.mark.parametrize(
    "name",
    [n for n, r in ALL.items() if r.dialect == "openai" and r.facts.get("error")] or ["none"],
)
@pytest.mark.parametrize("stream", [True, False])
def test_an_error_inside_a_stream_raises_and_keeps_its_payload(name: str, stream: bool) -> None:
    need_recordings()
    events = events_of(ALL[name])
    assert isinstance(events[-1], UpstreamFailed)
    body = encoded(events, stream=stream)
    assert b"invalid_value" not in body and b"failed_generation" not in body
    if stream:
        with pytest.raises(openai.APIError) as raised:
            helped(body)
        assert raised.value.message == events[-1].message


def test_usage_comes_only_when_asked_for() -> None:
    need_recordings()
    for name in [*MESSAGES, *COMPLETIONS]:
        events = events_of(ALL[name])
        assert b'"usage":{"prompt_tokens"' not in encoded(events, stream=True, usage=False)


def test_sealed_thoughts_are_not_visible() -> None:
    need_recordings()
    events = events_of(ALL["anthropic/thinking-redacted"])
    sealed = [
        e.body["data"]
        for e in events
        if isinstance(e, BlockStart) and e.kind is BlockKind.OTHER and e.body
    ]
    assert len(sealed) == 2
    for stream in (True, False):
        assert not [s for s in sealed if s.encode() in encoded(events, stream=stream)]


def test_facts_are_about_messages_that_began_and_ended() -> None:
    need_recordings()
    for name in [*MESSAGES, *COMPLETIONS]:
        events = events_of(ALL[name])
        assert (
            sum(isinstance(e, MessageStart) for e in events)
            == sum(isinstance(e, MessageStop) for e in events)
            == 1
        )
