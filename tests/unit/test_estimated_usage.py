"""What a call came to whose upstream did not get to count it: estimated by what was streamed, and
said to be so."""

from hashlib import sha256
from typing import Any

import msgspec
import pytest

from policy.session.session import Session
from protocol.dialects.table import DIALECTS
from protocol.events import MessageStop, uncached
from protocol.records import EndRecord, EventRecord
from protocol.request import DialectName
from settings.config import Config
from tests.support.checks.owned_calls import START
from tests.support.json_values import Json, as_json
from tests.support.worker_calls import call_info, owned

WORDS = "word " * 20
ASKED = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "please " * 50}]}


def sse(**frame: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (
        str(frame.get("type")).encode(),
        as_json(frame),
    )


def text(dialect: str) -> bytes:
    if dialect == "anthropic":
        return sse(type="content_block_delta", index=0, delta={"type": "text_delta", "text": WORDS})
    if dialect == "responses":
        return sse(
            type="response.output_text.delta",
            item_id="i",
            output_index=0,
            content_index=0,
            delta=WORDS,
            logprobs=[],
        )
    if dialect == "gemini":
        return (
            b"data: "
            + as_json({"candidates": [{"content": {"role": "model", "parts": [{"text": WORDS}]}}]})
            + b"\n\n"
        )
    return (
        b"data: "
        + as_json({"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"content": WORDS}}]})
        + b"\n\n"
    )


BEGINNINGS = {
    "anthropic": [
        sse(
            type="message_start",
            message={
                "id": "m",
                "type": "message",
                "role": "assistant",
                "model": "m",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": {"input_tokens": 45, "output_tokens": 1},
            },
        ),
        sse(type="content_block_start", index=0, content_block={"type": "text", "text": ""}),
    ],
    "responses": [
        sse(
            type="response.created",
            response={
                "id": "r",
                "object": "response",
                "model": "m",
                "status": "in_progress",
                "output": [],
            },
        ),
        sse(
            type="response.output_item.added",
            output_index=0,
            item={
                "id": "i",
                "type": "message",
                "role": "assistant",
                "status": "in_progress",
                "content": [],
            },
        ),
        sse(
            type="response.content_part.added",
            item_id="i",
            output_index=0,
            content_index=0,
            part={"type": "output_text", "text": "", "annotations": []},
        ),
    ],
}


def ended(dialect: DialectName, *chunks: bytes) -> tuple[EndRecord, list[str]]:
    given = {
        "upstreams": {"u": {"dialect": dialect, "base_url": "http://127.0.0.1:1"}},
        "models": [{"match": "*", "upstream": "u"}],
    }
    info = call_info(START.call_id, durable=True, max_arguments_bytes=1000)
    session = Session(info, [], Config.model_validate(given))
    body = as_json(ASKED)
    start = msgspec.structs.replace(START, body_sha256=sha256(body).digest())
    call = owned(start, session, policy_header="")
    call.begin(body)
    call.session.chunks(1, chunks)
    records = call.end_records("client_gone", 1, 5)
    end = records[-1]
    assert isinstance(end, EndRecord)
    return end, [
        r.detail for r in records if isinstance(r, EventRecord) and r.kind == "usage_estimated"
    ]


@pytest.mark.parametrize("dialect", ["anthropic", "openai", "responses", "gemini"])
def test_an_aborted_stream_is_counted_by_what_came(dialect: DialectName) -> None:
    end, noted = ended(dialect, *BEGINNINGS.get(dialect, []), *[text(dialect)] * 15)
    assert 300 <= (end.output_tokens or 0) <= 600, "for 300 words"
    assert (
        end.input_tokens == 45 if dialect == "anthropic" else 50 <= (end.input_tokens or 0) <= 150
    )
    [detail] = noted
    assert "estimated" in detail and ("1 out" if dialect == "anthropic" else "none out") in detail


def test_a_call_without_an_answer_or_with_all_of_it_is_not_estimated() -> None:
    assert ended("openai")[1] == [] and ended("openai")[0].input_tokens is None
    usage = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    last = {
        "id": "c",
        "model": "m",
        "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
        "usage": usage,
    }
    end, noted = ended(
        "openai",
        text("openai"),
        b"data: " + as_json(last) + b"\n\n",
        b"data: [DONE]\n\n",
    )
    assert (end.input_tokens, end.output_tokens, noted) == (7, 2, [])


@pytest.mark.parametrize(
    ("dialect", "usage"),
    [
        (
            "openai",
            {
                "prompt_tokens": 10,
                "completion_tokens": 1,
                "prompt_tokens_details": {"cached_tokens": 400},
            },
        ),
        (
            "responses",
            {
                "input_tokens": 10,
                "output_tokens": 1,
                "input_tokens_details": {"cached_tokens": 400},
            },
        ),
        (
            "gemini",
            {"promptTokenCount": 10, "candidatesTokenCount": 1, "cachedContentTokenCount": 400},
        ),
    ],
)
def test_more_cached_than_asked_is_counted_beside_it(dialect: DialectName, usage: Json) -> None:
    wholes: dict[str, Json] = {
        "openai": {
            "id": "c",
            "model": "m",
            "choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}],
            "usage": usage,
        },
        "responses": {
            "id": "r",
            "object": "response",
            "model": "m",
            "status": "completed",
            "output": [],
            "usage": usage,
        },
        "gemini": {
            "candidates": [{"content": {"parts": [{"text": "x"}]}, "finishReason": "STOP"}],
            "usageMetadata": usage,
        },
    }
    last = DIALECTS[dialect].decode_whole(as_json(wholes[dialect]), frozenset())[-1]
    assert isinstance(last, MessageStop) and (
        last.usage.input_tokens,
        last.usage.cache_read_tokens,
    ) == (10, 400)
    assert uncached(410, 400) == 10 and uncached(None, 4) is None
