"""Recorded provider answers through decoder, encoder and the official SDK, same dialect and
crossed: the recorded facts come out."""

import json
from typing import Any

import pytest

from protocol.bytes.json_strict import AmbiguousJson, loads_arguments
from protocol.dialects import table as dialects
from protocol.errors import LocalProtocolError
from protocol.events import ArgumentsDelta, MessageStop
from protocol.request import ChatRequest, DialectName
from tests.support.checks.decoding import by_block, decode, digest, events_of
from tests.support.checks.order import check_messages_frames
from tests.support.clients.sdk import anthropic_answer, openai_answer
from tests.support.upstreams.recordings import Recording, expected, need_recordings, recordings

CALL = "01990000-0000-7000-8000-00000000abcd"
CLIENT_BLOCKS = {"text", "tool_use", "thinking", "redacted_thinking"}
ALL = {r.name: r for r in recordings()}


def modelled(recording: Recording) -> bool:
    if recording.must or "error_type" in recording.facts:
        return False
    if recording.dialect == "openai":
        return not recording.facts.get("error")
    kinds = recording.facts.get("block_types") or [b["type"] for b in recording.facts["blocks"]]
    return recording.name != "anthropic/refusal" and set(kinds) <= CLIENT_BLOCKS


PLAIN = [n for n, r in ALL.items() if modelled(r)]
CLIENTS: list[DialectName] = ["openai", "anthropic"]


def encoded(recording: Recording, client: DialectName, *, stream: bool) -> bytes:
    request = ChatRequest(dialect=client, model="m", stream=stream, include_usage=True)
    encoder = dialects.CLIENTS[client].encoder(request, call_id=CALL, created=1)
    return encoder.encode(by_block(events_of(recording)))


FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
}
STOP = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("name", PLAIN or ["none"])
def test_openai_sdk_sees_the_recorded_facts(name: str, stream: bool) -> None:
    need_recordings()
    recording = ALL[name]
    want = expected(recording)
    answer = openai_answer(encoded(recording, "openai", stream=stream), stream=stream)
    choice = answer.choices[0]
    content = choice.message.content or ""
    assert len(content) == want["chars"]
    assert want["sha"] in (None, digest(content))
    extra = choice.message.model_extra or {}
    assert len(extra.get("reasoning_content") or extra.get("reasoning") or "") == want["thinking"]
    calls: list[Any] = list(choice.message.tool_calls or ())
    assert [(c.function.name, json.loads(c.function.arguments)) for c in calls] == want["calls"]
    assert choice.finish_reason == FINISH.get(want["stop"], want["stop"])
    if want["tokens"]:
        assert answer.usage is not None
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == want["tokens"]
    if recording.dialect == "openai" and recording.facts["usage"]:
        assert answer.usage is not None
        assert answer.usage.total_tokens == recording.facts["usage"]["total_tokens"]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("name", PLAIN or ["none"])
def test_anthropic_sdk_sees_the_recorded_facts(name: str, stream: bool) -> None:
    need_recordings()
    recording = ALL[name]
    want = expected(recording)
    answer = anthropic_answer(encoded(recording, "anthropic", stream=stream), stream=stream)
    content = "".join(b.text for b in answer.content if b.type == "text")
    assert len(content) == want["chars"]
    assert want["sha"] in (None, digest(content))
    assert sum(len(b.thinking) for b in answer.content if b.type == "thinking") == want["thinking"]
    assert [(b.name, b.input) for b in answer.content if b.type == "tool_use"] == want["calls"]
    assert answer.stop_reason == STOP.get(want["stop"], want["stop"])
    usage = answer.usage
    prompt = (
        usage.input_tokens
        + (usage.cache_read_input_tokens or 0)
        + (usage.cache_creation_input_tokens or 0)
    )
    assert (prompt, usage.output_tokens) == (want["tokens"] or (0, 0))


MESSAGES = [
    n
    for n, r in ALL.items()
    if r.dialect == "anthropic"
    and "error_type" not in r.facts
    and not n.endswith("spliced-message-start")
]


@pytest.mark.parametrize("name", MESSAGES or ["none"])
def test_frames_for_messages_clients_are_in_order(name: str) -> None:
    need_recordings()
    check_messages_frames(encoded(ALL[name], "anthropic", stream=True))


def test_arguments_cut_by_max_tokens_stay_cut_and_never_become_a_whole_answer() -> None:
    need_recordings()
    recording = ALL["anthropic/tool-input-truncated"]
    events = events_of(recording)
    text = "".join(e.text for e in events if isinstance(e, ArgumentsDelta))
    with pytest.raises(AmbiguousJson):
        loads_arguments(text)
    assert isinstance(events[-1], MessageStop)
    assert events[-1].stop_reason == "max_tokens"
    with pytest.raises(LocalProtocolError):
        encoded(recording, "anthropic", stream=False)


WELL_FORMED = [n for n, r in ALL.items() if r.is_stream and not n.endswith("spliced-message-start")]


@pytest.mark.parametrize("name", WELL_FORMED or ["none"])
def test_any_split_gives_the_same_events(name: str) -> None:
    need_recordings()
    recording = ALL[name]
    body = recording.body
    whole = decode(recording.dialect, [body])
    assert (
        decode(
            recording.dialect,
            [body[i : i + 1] for i in range(len(body))] if len(body) < 10_000 else [body],
        )
        == whole
    )
    assert decode(recording.dialect, [body[i : i + 777] for i in range(0, len(body), 777)]) == whole
