"""Errors on the wire, both dialects, as the official SDKs raise them; and token counts."""

import json

import anthropic
import openai
import pytest

from protocol import codecs, errors_wire
from protocol.dialects.anthropic import count_tokens
from protocol.dialects.table import CLIENTS, DIALECTS
from protocol.errors import (
    RemoteProtocolError,
)
from protocol.events import UpstreamFailed
from protocol.request import (
    DialectName,
)
from tests.support.checks.decoding import decode
from tests.support.checks.kinds import of_kind
from tests.support.clients.sdk import anthropic_answer, openai_answer
from tests.support.json_values import Json, as_json

NAMES: list[DialectName] = ["openai", "anthropic"]
KINDS = [
    ("invalid_request_error", 400, 400, None),
    ("authentication_error", 502, 502, "upstream_authentication"),
    ("billing_error", 502, 502, "upstream_billing"),
    ("permission_error", 403, 403, None),
    ("not_found_error", 404, 404, "model_not_found"),
    ("conflict_error", 409, 409, None),
    ("request_too_large", 413, 413, "request_too_large"),
    ("rate_limit_error", 429, 429, "rate_limit_exceeded"),
    ("api_error", 502, 500, None),
    ("timeout_error", 504, 504, "timeout"),
    ("overloaded_error", 503, 529, "overloaded"),
    ("surprise", 502, 500, None),
]


@pytest.mark.parametrize(("kind", "openai_status", "anthropic_status", "code"), KINDS)
def test_upstream_failures_reach_the_sdks_by_the_table(
    kind: str, openai_status: int, anthropic_status: int, code: str | None
) -> None:
    failed = UpstreamFailed(kind, "sk-secret told", 500, "7")
    status, headers, body = CLIENTS["openai"].failed_response(failed)
    assert (status, headers["retry-after"]) == (openai_status, "7")
    with pytest.raises(openai.APIStatusError) as ours:
        openai_answer(body, stream=False, status=status)
    assert (ours.value.status_code, ours.value.code) == (openai_status, code)
    status, headers, body = CLIENTS["anthropic"].failed_response(failed)
    assert status == anthropic_status
    with pytest.raises(anthropic.APIStatusError) as theirs:
        anthropic_answer(body, stream=False, status=status)
    account = kind in ("authentication_error", "billing_error")
    assert json.loads(body)["error"]["type"] == (
        "api_error" if account or kind == "surprise" else kind
    )
    assert theirs.value.status_code == anthropic_status
    assert ("sk-secret" in body.decode()) is not account
    assert headers.get("x-should-retry") == ("false" if account else None)
    for dialect in NAMES:
        assert (
            b"sk-secret" in CLIENTS[dialect].error_frame(kind, "sk-secret told", None)
        ) is not account


def test_a_refused_key_is_known_by_its_status_in_whatever_words() -> None:
    said = b'{"error": {"type": "invalid_request_error", "message": "Incorrect API key provided"}}'
    assert DIALECTS["anthropic"].decode_error(401, said, None).kind == "authentication_error"
    assert DIALECTS["anthropic"].decode_error(400, said, None).kind == "invalid_request_error"


def test_context_overflow_and_headers() -> None:
    long = UpstreamFailed("invalid_request_error", "prompt is too long: 3 tokens > 2 maximum", 400)
    assert (
        json.loads(CLIENTS["openai"].failed_response(long)[2])["error"]["code"]
        == "context_length_exceeded"
    )
    for bad in (None, "x" * 50, "7\r\nset-cookie: a", "é"):
        assert (
            "retry-after"
            not in CLIENTS["openai"].failed_response(
                UpstreamFailed("rate_limit_error", "m", 429, bad)
            )[1]
        )
    body = (
        b'{"code":"x","error":"This model\'s maximum prompt length is 131072 but the request'
        b' contains 625078 tokens."}'
    )
    told = CLIENTS["openai"].failed_response(DIALECTS["openai"].decode_error(400, body, None))[2]
    assert json.loads(told)["error"]["code"] == "context_length_exceeded"
    # within an answer of status 200: it was paid for
    assert (
        CLIENTS["openai"].failed_response(UpstreamFailed("api_error", "m"))[1]["x-should-retry"]
        == "false"
    )


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("prompt is too long: 205000 tokens > 200000 maximum", "context_length_exceeded"),
        (
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
            "context_length_exceeded",
        ),
        ("This model's maximum context length is 8192 tokens.", "context_length_exceeded"),
        ("tools.0.name: string is too long", None),
    ],
)
def test_context_overflow_has_its_code_in_answers_and_frames(
    message: str, code: str | None
) -> None:
    failed = DIALECTS["anthropic"].decode_error(
        400,
        as_json({"error": {"type": "invalid_request_error", "message": message}}),
        None,
    )
    assert json.loads(CLIENTS["openai"].failed_response(failed)[2])["error"]["code"] == code
    assert (
        json.loads(CLIENTS["openai"].error_frame(failed.kind, failed.message, None)[6:])["error"][
            "code"
        ]
        == code
    )


@pytest.mark.parametrize(
    "payload",
    [
        {"error": {"message": "call rm -rf", "failed_generation": "rm -rf"}},
        {"error": {"message": "call rm -rf"}, "failed_generation": "rm -rf"},
        {"error": {"message": "call rm -rf", "code": "tool_use_failed"}},
    ],
)
def test_a_rejected_call_never_leaks(payload: Json) -> None:
    failed = [DIALECTS["openai"].decode_error(400, as_json(payload), None)]
    failed += of_kind(decode("openai", [b"data: " + as_json(payload) + b"\n\n"]), UpstreamFailed)
    failed += of_kind(codecs.decode_whole("openai", as_json(payload)), UpstreamFailed)
    assert len(failed) == 3
    for failure in failed:
        for dialect in NAMES:
            assert b"rm -rf" not in CLIENTS[dialect].failed_response(failure)[2]
            assert b"rm -rf" not in CLIENTS[dialect].error_frame(
                failure.kind, failure.message, None
            )


def test_an_upstream_out_of_reach_is_a_bad_gateway_that_both_sdks_retry() -> None:
    failed = errors_wire.gateway_failure("upstream_unreachable")
    status, headers, body = CLIENTS["anthropic"].failed_response(failed)
    assert (status, "x-should-retry" in headers, json.loads(body)["error"]["type"]) == (
        502,
        False,
        "api_error",
    )
    with pytest.raises(anthropic.InternalServerError):
        anthropic_answer(body, stream=False, status=status)
    status, _, body = CLIENTS["openai"].failed_response(failed)
    with pytest.raises(openai.InternalServerError):
        openai_answer(body, stream=False, status=status)


def test_token_counts() -> None:
    assert count_tokens.decode_count(b'{"input_tokens":7,"x":1}') == 7
    for bad in (b"{}", b'{"input_tokens":"7"}', b"", b"\xff", b'{"input_tokens":-1}'):
        with pytest.raises(RemoteProtocolError):
            count_tokens.decode_count(bad)
    assert json.loads(count_tokens.encode_count(7, estimated=True)) == {
        "input_tokens": 7,
        "estimated": True,
    }
    assert json.loads(count_tokens.encode_count(7, estimated=False)) == {"input_tokens": 7}
