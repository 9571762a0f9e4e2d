"""A gateway's relay through doors, on a real Valkey and a real HTTP upstream: what goes out, what
is put on the call's stream, and what is not shown. The worker's part is played."""

import base64
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.bytes import eventstream
from protocol.dialects.table import CLIENTS, DIALECTS
from protocol.errors import UpstreamTokenMissing
from protocol.errors_wire import gateway_failure
from protocol.events import MessageStop, TextDelta
from providers import google_token
from providers.doors.vertex import VertexDoor
from providers.tokens import Token
from settings.config import Upstream
from streams.layout import Dispatch, Entry
from tests.support.checks.kinds import of_kind
from tests.support.json_values import Json, as_json
from tests.support.servers.relay_place import ends, opened
from tests.support.upstreams.replay import Replay, replaying
from tests.support.upstreams.replay import Reply as Answer

BODY = b'{"model": "claude-x:0", "max_tokens": 5, "stream": true, "messages": []}'
EVENTS: list[Json] = [
    {
        "type": "message_start",
        "message": {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "c",
            "content": [],
            "usage": {"input_tokens": 3, "output_tokens": 1},
        },
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "text_delta", "text": "one\ntwo \u2028"},
    },
    {"type": "content_block_stop", "index": 0},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": 9},
    },
    {
        "type": "message_stop",
        "amazon-bedrock-invocationMetrics": {"inputTokenCount": 3},
        "amazon-bedrock-guardrailAction": "NONE",
    },
]
STREAM = eventstream.CONTENT_TYPE.decode()
KEYS = (
    "[default]\naws_access_key_id = AKIAEXAMPLE\naws_secret_access_key ="
    " its-secret\naws_session_token = {}\n"
)


def wrapped(event: Json, indent: int | None = None) -> bytes:
    packed = base64.b64encode(json.dumps(event, indent=indent).encode()).decode()
    headers = {
        ":event-type": "chunk",
        ":content-type": "application/json",
        ":message-type": "event",
    }
    return eventstream.message(headers, as_json({"bytes": packed, "p": "abc"}))


def exception(kind: str, message: str) -> bytes:
    return eventstream.message(
        {":message-type": "exception", ":exception-type": kind},
        as_json({"message": message}),
    )


@pytest.fixture
def upstream() -> Iterator[Replay]:
    with replaying() as server:
        yield server


async def told(redis_url: str, server: Replay, settings: Json, body: bytes = BODY) -> list[Entry]:
    """What is on a call's stream after one request through a door."""
    named = {
        "there": Upstream.model_validate(
            {"dialect": "anthropic", "base_url": server.url} | settings
        )
    }
    async with opened(redis_url, server, body=body, upstreams=named) as place:
        place.reply(dispatch=Dispatch("there", "anthropic", "messages", None))
        return await place.entries(ends(1))


def signs(folder: Path, token: str = "token-number-one") -> Json:
    (folder / "keys").write_text(KEYS.format(token))
    return {"door": "bedrock", "region": "eu-central-1", "credentials_file": str(folder / "keys")}


@pytest.mark.parametrize("cutting", ["whole", "random", "bytes"])
async def test_a_streamed_answer_of_invoke_is_one_of_messages(
    redis_url: str, upstream: Replay, tmp_path: Path, cutting: Any
) -> None:
    raw = b"".join(
        wrapped(event, indent)
        for event, indent in zip(EVENTS, (None, 1, None, 2, None, None), strict=True)
    )
    upstream.answer(Answer(raw, content_type=STREAM, cutting=cutting, seed=7))
    entries = await told(redis_url, upstream, signs(tmp_path))
    chunks = [chunk for entry in entries if entry.kind == "chunks" for chunk in entry.chunks]
    assert [chunk.split(b"\n")[0] for chunk in chunks] == [
        f"event: {event['type']}".encode() for event in EVENTS
    ]
    assert [json.loads(chunk.split(b"data: ")[1]) for chunk in chunks] == EVENTS and entries[
        -1
    ].kind == "eof"
    decoder = DIALECTS["anthropic"].decoder()
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    assert [one.text for one in events if isinstance(one, TextDelta)] == ["one\ntwo \u2028"]
    [stop] = of_kind(events, MessageStop)
    assert stop.stop_reason == "end_turn" and decoder.finish() == []
    [asked] = upstream.asked
    assert asked.body == {
        "max_tokens": 5,
        "messages": [],
        "anthropic_version": "bedrock-2023-05-31",
    }
    assert (
        asked.headers["x-amz-security-token"] == "token-number-one"
        and "content-type" in asked.headers["authorization"]
    )


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("throttlingException", "rate_limit_error"),
        ("internalServerException", "api_error"),
        ("x", "api_error"),
    ],
)
async def test_an_exception_in_the_stream_is_an_error_of_messages(
    redis_url: str, upstream: Replay, tmp_path: Path, kind: str, expected: str
) -> None:
    upstream.answer(Answer(exception(kind, "too much"), content_type=STREAM))
    [entry, _] = await told(redis_url, upstream, signs(tmp_path))
    [failed] = DIALECTS["anthropic"].decoder().feed(entry.chunks[0])
    assert (failed.kind, failed.message) == (expected, "too much")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "raw",
    [
        wrapped(EVENTS[0])[:-1] + b"\0",
        wrapped(EVENTS[0])[:-5],
        b"\0" * 40,
        wrapped({"type": "a\nb"}),
        wrapped({"type": ""}),
        eventstream.message({":message-type": "event", ":event-type": "other"}, b"{}"),
        eventstream.message(
            {":message-type": "event", ":event-type": "chunk"}, b'{"bytes": "%%%"}'
        ),
    ],
)
async def test_a_stream_that_is_spoilt_ends_the_call(
    redis_url: str, upstream: Replay, tmp_path: Path, raw: bytes
) -> None:
    upstream.answer(Answer(raw, content_type=STREAM))
    *_, last = await told(redis_url, upstream, signs(tmp_path))
    assert (last.kind, last.text) == ("failed", "upstream_protocol_error")


async def test_an_expired_token_is_read_again_once_and_never_shown(
    redis_url: str, upstream: Replay, tmp_path: Path
) -> None:
    settings = signs(tmp_path)
    said = b'{"message": "token-number-one, its-secret and AKIAEXAMPLE are expired"}'
    expired = Answer(said, status=403, headers={"x-amzn-errortype": "ExpiredTokenException"})
    named = {
        "there": Upstream.model_validate(
            {"dialect": "anthropic", "base_url": upstream.url} | settings
        )
    }
    upstream.answer(expired, expired, expired, Answer(b"{}"))
    async with opened(redis_url, upstream, body=BODY, upstreams=named) as place:
        # nothing newer: sent once
        place.reply(dispatch=Dispatch("there", "anthropic", "messages", BODY))
        [entry] = await place.entries(ends(1))
        assert len(upstream.asked) == 1 and entry.kind == "status" and entry.number == 403
        failed = DIALECTS["anthropic"].decode_error(403, entry.chunks[0], None)
        assert CLIENTS["anthropic"].failed_response(failed)[0] == 502
        # something newer that is expired as well: sent twice
        signs(tmp_path, "token-number-two")
        place.reply(dispatch=Dispatch("there", "anthropic", "messages", BODY))
        entries = await place.entries(ends(2))
        assert [asked.headers["x-amz-security-token"][-3:] for asked in upstream.asked] == [
            "one",
            "one",
            "two",
        ]
        shown = b"".join(chunk for entry in entries for chunk in entry.chunks)
        assert (
            b"token-number" not in shown
            and b"its-secret" not in shown
            and b"AKIA" not in shown
            and shown.count(b"[key]") == 6
        )
        signs(tmp_path, "token-number-three")
        place.reply(dispatch=Dispatch("there", "anthropic", "messages", BODY))
        *_, last = await place.entries(ends(3))
        assert last.kind == "body" and len(upstream.asked) == 4


async def test_without_a_token_nothing_is_sent_and_it_is_a_502(
    redis_url: str,
    upstream: Replay,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(google_token, "TOKEN_URL", "http://127.0.0.1:1/token")
    (tmp_path / "key.json").write_text(
        '{"type": "service_account", "client_email": "me", "private_key": "SECRET-KEY"}'
    )
    settings = {
        "door": "vertex",
        "project": "p",
        "location": "global",
        "credentials_file": str(tmp_path / "key.json"),
    }
    with caplog.at_level(logging.DEBUG):
        [entry] = await told(redis_url, upstream, settings)
    assert (entry.kind, entry.text) == (
        "failed",
        UpstreamTokenMissing.code,
    ) and upstream.asked == []
    assert gateway_failure(entry.text).status == 502
    said = (
        b"".join(entry.chunks).decode()
        + caplog.text
        + "".join(str(vars(one)) for one in caplog.records)
    )
    assert "private_key that cannot be read" in said and "SECRET" not in said


async def test_a_token_in_an_error_is_masked_and_redirects_are_not_followed(
    redis_url: str, upstream: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(_door: VertexDoor) -> Token:
        return Token("ya29.the-token", 3600.0)

    monkeypatch.setattr(VertexDoor, "ask", ask)
    settings = {
        "door": "vertex",
        "project": "p",
        "location": "global",
        "credentials_file": "/nowhere",
    }
    upstream.answer(Answer(b'{"error": {"message": "ya29.the-token is wrong"}}', status=401))
    [entry] = await told(redis_url, upstream, settings)
    assert (
        entry.chunks == [b'{"error": {"message": "[key] is wrong"}}'] and len(upstream.asked) == 1
    )
    upstream.answer(Answer(b"{}", status=307, headers={"location": upstream.url + "/v1/messages"}))
    [entry] = await told(redis_url, upstream, settings)
    assert (entry.kind, entry.number) == ("status", 307) and len(upstream.asked) == 1


async def test_a_region_that_is_not_there_is_a_look_up_that_failed(
    redis_url: str, upstream: Replay, tmp_path: Path
) -> None:
    settings = signs(tmp_path) | {"base_url": "https://bedrock-runtime.xx-nowhere-1.invalid"}
    [entry] = await told(redis_url, upstream, settings)
    assert (entry.kind, entry.text) == (
        "failed",
        "upstream_dns",
    ) and b"bedrock-runtime.xx-nowhere-1.invalid" in entry.chunks[0]
