"""Recorded Gemini answers: decoder, official SDK and facts say the same, and so do the clients of
the other dialects."""

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from policy.session.effects import CallInfo, Respond, SendUpstream
from policy.session.session import Session
from protocol import codecs
from protocol.dialects.anthropic.wire import UNSIGNED
from protocol.dialects.table import CLIENTS, DIALECTS
from protocol.events import BlockKind, Event, MessageStop, SignatureDelta, UpstreamFailed
from protocol.request import ChatRequest, DialectName
from settings.config import Config
from tests.support.checks.decoding import by_block, decode, digest, turns_of
from tests.support.clients.sdk import anthropic_answer, openai_answer
from tests.support.upstreams.gemini import calls_in, opaque, said, sdk_answer

SHARED = Path(__file__).parents[3] / "shared" / "dialect-streams"
ENTRIES: dict[str, Any] = {}
if (SHARED / "expected.json").exists():
    ENTRIES = {
        e["name"]: e
        for e in json.loads((SHARED / "expected.json").read_text())["entries"]
        if e["api"] == "gemini"
    }
ANSWERS = [name for name, entry in ENTRIES.items() if "error" not in entry["facts"]] or ["none"]
CLIENT_NAMES: list[DialectName] = [name for name in CLIENTS if name in ("openai", "anthropic")]
FINISH = {
    "end_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "refusal": "content_filter",
}


def entry_of(name: str) -> dict[str, Any]:
    if not ENTRIES:
        if os.environ.get("CI"):
            pytest.fail("../shared/dialect-streams is missing")
        pytest.skip("../shared/dialect-streams is missing")
    found: dict[str, Any] = ENTRIES[name]
    return found


def body_of(entry: dict[str, Any]) -> bytes:
    raw = (SHARED / str(entry["file"])).read_bytes()
    if entry["kind"] == "chunks":
        return b"".join(b"data: " + line + b"\n\n" for line in raw.split(b"\n") if line.strip())
    return raw


def events_of(entry: dict[str, Any]) -> list[Event]:
    body = body_of(entry)
    return (
        codecs.decode_whole("gemini", body) if entry["kind"] == "json" else decode("gemini", [body])
    )


@pytest.mark.parametrize("name", ANSWERS)
def test_the_decoder_says_what_the_facts_say(name: str) -> None:
    entry = entry_of(name)
    facts, events = entry["facts"], events_of(entry)
    texts, thoughts = (
        "".join(t for kind, _, t in said(events) if kind == k)
        for k in (BlockKind.TEXT, BlockKind.THINKING)
    )
    assert (len(texts), digest(texts), len(thoughts)) == (
        facts["text_chars"],
        facts["text_sha"],
        facts["thinking_chars"],
    )
    wanted = [(c["name"], c["arguments"]) for c in facts["calls"] if c["executor"] == "client"]
    assert calls_in(events) == wanted
    stop = events[-1]
    assert isinstance(stop, MessageStop) and str(stop.stop_reason) == facts["stop_reason_neutral"]
    counts = facts["usage_neutral"]
    usage = stop.usage
    assert (
        (usage.input_tokens or 0),
        (usage.output_tokens or 0),
        usage.cache_read_tokens or 0,
    ) == (
        counts["input_tokens"],
        counts["output_tokens"],
        counts["cache_read_tokens"],
    )
    assert usage.thinking_tokens == counts["thinking_tokens"]
    assert sum(isinstance(e, SignatureDelta) for e in events) == facts["thought_signatures"]
    assert opaque(events) == []


@pytest.mark.parametrize("name", ANSWERS)
def test_the_official_sdk_says_the_same(name: str) -> None:
    entry = entry_of(name)
    events = events_of(entry)
    answers = sdk_answer(body_of(entry), is_stream=entry["kind"] != "json")
    parts = [
        p
        for a in answers
        for c in a.candidates or ()
        for p in (c.content.parts if c.content else None) or ()
    ]
    for kind, thought in ((BlockKind.TEXT, False), (BlockKind.THINKING, True)):
        theirs = "".join(p.text or "" for p in parts if bool(p.thought) == thought)
        assert "".join(t for k, _, t in said(events) if k == kind) == theirs
    named = [p.function_call for p in parts if p.function_call is not None and p.function_call.name]
    assert [name for name, _ in calls_in(events)] == [c.name for c in named]
    if not any(p.function_call is not None and p.function_call.partial_args for p in parts):
        assert [args for _, args in calls_in(events)] == [c.args or {} for c in named]
    usage = next(
        (a.usage_metadata for a in reversed(answers) if a.usage_metadata is not None), None
    )
    assert isinstance(stop := events[-1], MessageStop) and usage is not None
    prompt = (usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0)
    assert (stop.usage.input_tokens or 0) + (stop.usage.cache_read_tokens or 0) == prompt
    assert (stop.usage.output_tokens or 0) == (usage.candidates_token_count or 0) + (
        usage.thoughts_token_count or 0
    )


@pytest.mark.parametrize(
    "name", [n for n in ANSWERS if n == "none" or ENTRIES[n]["kind"] != "json"]
)
def test_it_says_the_same_however_it_is_cut(name: str) -> None:
    body = body_of(entry_of(name))
    whole = decode("gemini", [body])
    for seed in range(5):
        chance = random.Random(f"{name} {seed}")
        places = sorted(chance.randrange(len(body) + 1) for _ in range(chance.randrange(1, 60)))
        pieces = [body[a:b] for a, b in zip([0, *places], [*places, len(body)], strict=True)]
        assert decode("gemini", pieces) == whole, f"seed {seed}"


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("client", CLIENT_NAMES)
@pytest.mark.parametrize("name", ANSWERS)
def test_clients_of_the_other_dialects_get_the_facts(
    name: str, client: DialectName, stream: bool
) -> None:
    entry = entry_of(name)
    want = entry["facts"]["expected_openai"]
    encoder = CLIENTS[client].encoder(
        ChatRequest(dialect=client, model="m", stream=stream, include_usage=True),
        call_id="c-1",
        created=1,
    )
    data = encoder.encode(by_block(events_of(entry)))
    calls: list[Any]
    if client == "openai":
        answer = openai_answer(data, stream=stream)
        choice = answer.choices[0]
        calls = list(choice.message.tool_calls or ())
        assert (
            len(choice.message.content or "") == want["content_chars"]
            and choice.finish_reason == want["finish_reason"]
        )
        assert [(c.function.name, json.loads(c.function.arguments)) for c in calls] == wanted_calls(
            want
        )
        assert answer.usage is not None
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (
            want["usage"]["prompt_tokens"],
            want["usage"]["completion_tokens"],
        )
        return
    message = anthropic_answer(data, stream=stream)
    assert sum(len(b.text) for b in message.content if b.type == "text") == want["content_chars"]
    assert all(b.text for b in message.content if b.type == "text"), "no empty text"
    assert [(b.name, b.input) for b in message.content if b.type == "tool_use"] == wanted_calls(
        want
    )
    assert FINISH[message.stop_reason or ""] == want["finish_reason"]
    assert all(b.signature == UNSIGNED for b in message.content if b.type == "thinking"), (
        "no signature of another provider"
    )


def wanted_calls(want: dict[str, Any]) -> list[tuple[str, Any]]:
    found = []
    for one in want["tool_calls"]:
        arguments = one.get("arguments", {})
        found.append(
            (one["name"], json.loads(arguments) if isinstance(arguments, str) else arguments)
        )
    return found


@pytest.mark.parametrize("client", CLIENT_NAMES)
@pytest.mark.parametrize("name", ANSWERS)
def test_a_session_lets_it_pass_and_the_record_has_the_turn(name: str, client: DialectName) -> None:
    entry = entry_of(name)
    stream, body = entry["kind"] != "json", body_of(entry)
    upstream = {"dialect": "gemini", "base_url": "http://127.0.0.1:1", "api_key_env": "X"}
    config = Config.model_validate(
        {"upstreams": {"up": upstream}, "models": [{"match": "gemini-*", "upstream": "up"}]}
    )
    endpoint = CLIENTS[client].answers
    call = "01990000-0000-7000-8000-00000000abcd"
    session = Session(
        CallInfo(call, 1, client, endpoint, "k", "", "nonce", "g", "p", "r", False, 1 << 20),
        [],
        config,
    )
    asked = {
        "model": "gemini-3-pro",
        "max_tokens": 5,
        "stream": stream,
        "messages": [{"role": "user", "content": "x"}],
    }
    session.begin(json.dumps(asked).encode())
    turn = turns_of("gemini").TurnBuilder()
    if stream:
        chunks = [
            chunk + b"\n\n"
            for chunk in body.replace(b"\r\n", b"\n").split(b"\n\n")
            if chunk.strip()
        ]
        session.chunks(1, chunks)
        session.eof()
        for chunk in chunks:
            turn.take(chunk)
    else:
        session.body(1, body)
        turn.take(body)
    outputs = session.drain().outputs
    events = [o for o in outputs if not isinstance(o, SendUpstream | Respond)]
    assert (
        session.request is not None
        and sum(isinstance(o, MessageStop | UpstreamFailed | Respond) for o in outputs) == 1
    )
    data = CLIENTS[client].encoder(session.request, call_id=call, created=1).encode(events)
    wanted = [name for name, _ in wanted_calls(entry["facts"]["expected_openai"])]
    if client == "openai":
        called = openai_answer(data, stream=stream).choices[0].message.tool_calls or ()
        assert [c.function.name for c in called if c.type == "function"] == wanted
        ids = [c.id for c in called]
    else:
        blocks = [b for b in anthropic_answer(data, stream=stream).content if b.type == "tool_use"]
        assert [b.name for b in blocks] == wanted
        ids = [b.id for b in blocks]
    assert len(set(ids)) == len(ids) and all(one.startswith("call_") for one in ids)
    assert turn.complete == (entry["facts"]["finish_reason"] is not None or entry["kind"] == "json")


@pytest.mark.parametrize(
    "name", [n for n, e in ENTRIES.items() if "error" in e["facts"]] or ["none"]
)
def test_errors_are_read(name: str) -> None:
    entry = entry_of(name)
    status = entry["facts"]["error"]["code"]
    failed = DIALECTS["gemini"].decode_error(status, body_of(entry), None)
    assert failed.message == entry["facts"]["error"]["message"]
    assert failed.kind == ("rate_limit_error" if status == 429 else "authentication_error")
    assert failed.retry_after == ("35" if entry["facts"]["retry_delay"] else None)
