"""What recordings have beside text and calls, as clients of chat/completions get it; that they get
the answer itself is a matter of tests/e2e/test_conformance.py."""

import json
from typing import Any

import httpx2
import openai
import pytest

from protocol.bytes.json_strict import AmbiguousJson, loads_arguments
from protocol.dialects.table import CLIENTS
from protocol.events import (
    BlockKind,
    BlockStart,
    Event,
    UpstreamFailed,
)
from protocol.request import ChatRequest
from tests.support.checks.decoding import events_of
from tests.support.clients.sdk import openai_answer
from tests.support.json_values import Json
from tests.support.upstreams.recordings import need_recordings, recordings

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


def helped(body: bytes) -> Json:
    """What the SDK's `.stream` helper holds at the end."""
    with client(body).chat.completions.stream(
        model="m", messages=[{"role": "user", "content": "x"}]
    ) as events:
        for _ in events:
            pass
        # its last call raises on the finish reasons length and content_filter, as it does directly
        return events.current_completion_snapshot.model_dump()


def iterated(body: bytes) -> Json:
    """What an application that iterates over chunks makes of them."""
    said: Json = {
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


def test_azures_filter_results_are_kept() -> None:
    need_recordings()
    body = ALL["openai/azure-first-chunk-no-choices"].body
    through = helped(encoded(events_of(ALL["openai/azure-first-chunk-no-choices"]), stream=True))
    messages: Any = [{"role": "user", "content": "x"}]
    first = next(
        iter(client(body).chat.completions.create(model="m", messages=messages, stream=True))
    )
    assert through["prompt_filter_results"] == (first.model_extra or {})["prompt_filter_results"]


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
