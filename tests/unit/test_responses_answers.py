"""Answers of every kind of upstream, written for a client of Responses: the official accumulator takes them, and the facts come out."""

import json
import os
from hashlib import sha256
from typing import Any

import pytest

from protocol.dialects import DIALECTS
from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.events import Event, MessageStart, UpstreamFailed
from protocol.request import ChatRequest, Tool
from protocol.responses.encode_items import Answer
from protocol.sse import EventSplitter
from tests.support.checks.decoding import by_block, decode
from tests.support.clients.sdk import responses_answer
from tests.support.upstreams.recordings import ROOT, Recording, expected, own_recordings, recordings

CALL = "01990000-0000-7000-8000-00000000abcd"
SHARED = ROOT.parent / "shared"
INCLUDE = ["reasoning.encrypted_content", "code_interpreter_call.outputs", "file_search_call.results", "message.output_text.logprobs"]


def need_shared() -> None:
    if not (SHARED / "dialect-streams" / "expected.json").exists():
        if os.environ.get("CI"):
            pytest.fail("../shared/dialect-streams is missing")
        pytest.skip("../shared/dialect-streams is missing")


def of_responses() -> dict[str, tuple[bytes, bool, dict[str, Any]]]:
    """The recorded Responses answers that are no errors: bytes, is it a stream, and what expected.json says."""
    folder = SHARED / "dialect-streams"
    if not (folder / "expected.json").exists():
        return {}
    found = {}
    for entry in json.loads((folder / "expected.json").read_text())["entries"]:
        if entry["api"] != "openai-responses" or "stop_reason_neutral" not in entry.get("facts", {}):
            continue
        body = (folder / entry["file"]).read_bytes() if "file" in entry else next(folder.glob(f"{entry['name']}.*[ens]")).read_bytes()
        if entry["kind"] == "chunks":
            lines = [line for line in body.decode().split("\n") if line.strip()]
            body = "".join(f"event: {json.loads(line)['type']}\ndata: {line}\n\n" for line in lines).encode()
        found[entry["name"]] = (body, entry["kind"] != "json", entry)
    return found


RESPONSES = of_responses()
OLD = {r.name: r for r in [*recordings(), *own_recordings()]}


def request(*, stream: bool, tools: tuple[Tool, ...] = ()) -> ChatRequest:
    return ChatRequest(dialect="responses", model="m", stream=stream, tools=tools, echo={"include": INCLUDE})


def encoded(events: list[Event], *, stream: bool, tools: tuple[Tool, ...] = (), piece: int = 1) -> bytes:
    """What the client gets, encoded in calls of `piece` events: each is encoded as it is released."""
    encoder = DIALECTS["responses"].encoder(request(stream=stream, tools=tools), call_id=CALL, created=1)
    return b"".join(encoder.encode(events[at : at + piece]) for at in range(0, len(events), piece))


def json_of(arguments: str) -> Any:
    """A call's arguments; those that were cut, as they are."""
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def facts(response: Any) -> dict[str, Any]:
    """Text, reasoning, calls and status of a response as the SDK has it."""
    items = response.output
    said = [p for i in items if i.type == "message" for p in i.content]
    thoughts = [p.text for i in items if i.type == "reasoning" for p in [*i.summary, *(i.content or [])]]
    calls = [(i.name, json_of(i.arguments)) for i in items if i.type == "function_call"]
    return {
        "text": "".join(p.text for p in said if p.type == "output_text"), "thinking": "".join(thoughts), "calls": calls,
        "refusal": "".join(p.refusal for p in said if p.type == "refusal"), "status": response.status,
    }  # fmt: skip


def check_frames(body: bytes) -> list[dict[str, Any]]:
    """The frames of a stream: named as they are, numbered without a gap; what the last one repeats was said before."""
    splitter = EventSplitter(1 << 24)
    frames = []
    for chunk in splitter.feed(body) + splitter.finish():
        head, _, data = chunk.decode().partition("\n")
        frame = json.loads(data.removeprefix("data: "))
        assert head == f"event: {frame['type']}"
        frames.append(frame)
    assert [f["sequence_number"] for f in frames] == list(range(len(frames)))
    assert [f["type"] for f in frames[:2]] == ["response.created", "response.in_progress"]
    done = [f["item"] for f in frames if f["type"] == "response.output_item.done"]
    assert frames[-1]["response"]["output"] == done
    assert [f["output_index"] for f in frames if f["type"] == "response.output_item.added"][: len(done)] == list(range(len(done)))
    texts: dict[tuple[str, int], str] = {}
    for frame in frames:
        if frame["type"] == "response.output_text.delta":
            at = frame["item_id"], frame["content_index"]
            texts[at] = texts.get(at, "") + frame["delta"]
    whole = {(i["id"], n): p["text"] for i in done if i["type"] == "message" for n, p in enumerate(i["content"]) if p.get("text")}
    assert frames[-1]["type"] == "response.failed" or {at: text for at, text in texts.items() if text} == whole
    return frames


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("name", list(RESPONSES) or ["none"])
def test_a_recorded_response_comes_out_with_its_facts(name: str, stream: bool) -> None:
    need_shared()
    body, is_stream, entry = RESPONSES[name]
    own = DIALECTS["responses"]
    events = by_block(decode("responses", [body]) if is_stream else own.decode_whole(body, frozenset()))
    want = entry["facts"]
    if any(isinstance(e, UpstreamFailed) for e in events):
        assert want["stop_reason_neutral"] == "failed"
        return
    typed = {"apply_patch", "shell", "local_shell", "computer", "tool_search"}
    custom = {c["name"] for c in want["calls"] if c["type"] == "custom"}
    tools = tuple(
        Tool(c["name"], kind="custom" if c["name"] in custom else "client" if c["name"] in typed else "function")
        for c in {c["name"]: c for c in want["calls"] if c["executor"] == "client"}.values()
    )
    out = encoded(events, stream=stream, tools=tools)
    if stream:
        check_frames(out)
    got = responses_answer(out, stream=stream)
    found = facts(got)
    assert len(found["text"]) + len(found["refusal"]) == want["text_chars"]
    assert found["refusal"] or digest(found["text"]) == want["text_sha"]
    assert len(found["thinking"]) == want["thinking_chars"]
    functions = [(c["name"], c["arguments"]) for c in want["calls"] if c["executor"] == "client" and c["type"] == "function"]
    assert found["calls"] == functions
    own_items = [i.type for i in got.output if i.type.endswith("_call") or i.type == "mcp_approval_request" or i.type == "program"]
    assert len(own_items) == len(want["calls"])
    if (usage := want.get("usage")) and got.usage:
        assert got.usage.input_tokens == usage["input_tokens"] and got.usage.output_tokens == usage["output_tokens"]


STATUS = {
    "stop": "completed", "tool_calls": "completed", "end_turn": "completed", "tool_use": "completed", "stop_sequence": "completed",
    "function_call": "completed", "length": "incomplete", "max_tokens": "incomplete",
}  # fmt: skip


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("name", list(OLD))
def test_an_answer_of_another_dialect_comes_out_with_its_facts(name: str, stream: bool) -> None:
    recording: Recording = OLD[name]
    own = DIALECTS[recording.dialect]
    try:
        events = by_block(
            decode(recording.dialect, [recording.body]) if recording.is_stream else own.decode_whole(recording.body, frozenset())
        )
    except RemoteProtocolError:
        pytest.skip("this one does not decode: its own test says why")
    if not any(isinstance(e, MessageStart) for e in events) or (not stream and any(isinstance(e, UpstreamFailed) for e in events)):
        return
    out = encoded(events, stream=stream)
    if stream:
        check_frames(out)
    found = facts(responses_answer(out, stream=stream))
    if not recording.facts or recording.must or recording.facts.get("error") or "error_type" in recording.facts:
        return
    want = expected(recording)
    assert len(found["text"]) == want["chars"] and want["sha"] in (None, digest(found["text"]))
    assert len(found["thinking"]) == want["thinking"]
    assert found["calls"] == want["calls"]
    assert found["status"] == STATUS.get(want["stop"], found["status"])


def test_the_encoder_refuses_what_the_dialect_does_not_allow() -> None:
    answer = Answer(request(stream=True), CALL, 1)
    answer.take(MessageStart("", "m"))
    with pytest.raises(LocalProtocolError):
        answer.take(MessageStart("", "m"))
