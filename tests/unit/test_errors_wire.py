"""Errors on the wire, both dialects, as the official SDKs raise them; and token counts."""

import json

import anthropic
import openai
import pytest

from protocol import codecs, count_tokens, errors_wire
from protocol.errors import Forbidden, InvalidRequest, NotFound, Overloaded, PipelineError, RemoteProtocolError, TooLarge, Unauthenticated
from protocol.events import UpstreamFailed
from protocol.request import ChatRequest, Dialect, OtherPart, TextPart, Tool, ToolResultPart, ToolUsePart, Turn
from tests.support.sdk import anthropic_answer, openai_answer

DIALECTS: list[Dialect] = ["openai", "anthropic"]
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
def test_upstream_failures_reach_the_sdks_by_the_table(kind: str, openai_status: int, anthropic_status: int, code: str | None) -> None:
    failed = UpstreamFailed(kind, "sk-secret told", 500, "7")
    status, headers, body = errors_wire.failed_response("openai", failed)
    assert (status, headers["retry-after"]) == (openai_status, "7")
    with pytest.raises(openai.APIStatusError) as ours:
        openai_answer(body, stream=False, status=status)
    assert (ours.value.status_code, ours.value.code) == (openai_status, code)
    status, headers, body = errors_wire.failed_response("anthropic", failed)
    assert status == anthropic_status
    with pytest.raises(anthropic.APIStatusError) as theirs:
        anthropic_answer(body, stream=False, status=status)
    account = kind in ("authentication_error", "billing_error")
    assert json.loads(body)["error"]["type"] == ("api_error" if account or kind == "surprise" else kind)
    assert theirs.value.status_code == anthropic_status
    assert ("sk-secret" in body.decode()) is not account
    assert headers.get("x-should-retry") == ("false" if account else None)
    for dialect in DIALECTS:
        assert (b"sk-secret" in errors_wire.error_frame(dialect, kind, "sk-secret told", None)) is not account


def test_context_overflow_and_headers() -> None:
    long = UpstreamFailed("invalid_request_error", "prompt is too long: 3 tokens > 2 maximum", 400)
    assert json.loads(errors_wire.failed_response("openai", long)[2])["error"]["code"] == "context_length_exceeded"
    for bad in (None, "x" * 50, "7\r\nset-cookie: a", "é"):
        assert "retry-after" not in errors_wire.failed_response("openai", UpstreamFailed("rate_limit_error", "m", 429, bad))[1]
    # within an answer of status 200: it was paid for
    assert errors_wire.failed_response("openai", UpstreamFailed("api_error", "m"))[1]["x-should-retry"] == "false"


@pytest.mark.parametrize(
    ("dialect", "status", "body", "expected"),
    [
        ("openai", 429, b'{"error":{"message":"slow","type":"x","code":"rate_limit_exceeded"}}', ("rate_limit_error", "slow")),
        ("openai", 429, b'{"error":{"message":"money","code":"insufficient_quota"}}', ("billing_error", "money")),
        ("openai", 401, b'{"error":{"message":"key sk-x"}}', ("authentication_error", "key sk-x")),
        ("openai", 418, b"<html>", ("invalid_request_error", "the upstream answered with status 418")),
        ("openai", 502, b"\xff", ("api_error", "the upstream answered with status 502")),
        (
            "openai",
            400,
            b'{"error":{"message":"m","failed_generation":"rm"}}',
            ("invalid_request_error", "the upstream answered with status 400"),
        ),
        ("openai", 400, b'{"error":{"message":7}}', ("invalid_request_error", "the upstream answered with status 400")),
        ("openai", 400, b"[1]", ("invalid_request_error", "the upstream answered with status 400")),
        ("anthropic", 529, b'{"type":"error","error":{"type":"overloaded_error","message":"busy"}}', ("overloaded_error", "busy")),
        ("anthropic", 500, b'{"type":"error","error":{"type":"timeout_error","message":"busy"}}', ("timeout_error", "busy")),
        ("anthropic", 500, b'{"type":"error","error":{"type":"odd","message":"busy"}}', ("api_error", "busy")),
        ("anthropic", 500, b'{"type":"error","error":{"type":7,"message":"' + b"x" * 900 + b'"}}', ("api_error", "x" * 500)),
    ],
)
def test_upstream_error_bodies(dialect: Dialect, status: int, body: bytes, expected: tuple[str, str]) -> None:
    assert codecs.decode_error(dialect, status, body, "3") == UpstreamFailed(*expected, status, "3")


@pytest.mark.parametrize(
    ("error", "openai_kind", "anthropic_kind"),
    [
        (InvalidRequest("bad", param="tools"), "invalid_request_error", "invalid_request_error"),
        (Unauthenticated("no"), "invalid_request_error", "authentication_error"),
        (Forbidden("no"), "invalid_request_error", "permission_error"),
        (NotFound("no"), "invalid_request_error", "not_found_error"),
        (TooLarge("big"), "invalid_request_error", "request_too_large"),
        (Overloaded("full"), "api_error", "overloaded_error"),
        (RemoteProtocolError("odd"), "api_error", "api_error"),
        (PipelineError("odd"), "api_error", "api_error"),
    ],
)
def test_our_own_errors(error: PipelineError, openai_kind: str, anthropic_kind: str) -> None:
    body = json.loads(errors_wire.error_body("openai", error))["error"]
    assert body == {"message": error.message, "type": openai_kind, "param": error.param, "code": error.error_code}
    other = json.loads(errors_wire.error_body("anthropic", error))
    assert (other["type"], other["error"]["type"]) == ("error", anthropic_kind)
    assert other["error"]["message"] == (f"tools: {error.message}" if error.param else error.message)


def test_other_statuses_of_our_own() -> None:
    class Limited(PipelineError):
        http_status = 429

    class Teapot(PipelineError):
        http_status = 418

    assert json.loads(errors_wire.error_body("openai", Limited("m")))["error"]["type"] == "rate_limit_error"
    assert json.loads(errors_wire.error_body("anthropic", Limited("m")))["error"]["type"] == "rate_limit_error"
    assert json.loads(errors_wire.error_body("anthropic", Teapot("m")))["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("code", "status"),
    [("upstream_timeout", 504), ("upstream_unreachable", 502), ("upstream_too_large", 502), ("call_deadline", 504), ("x", 502)],
)
def test_what_gateways_report(code: str, status: int) -> None:
    seen, headers, _ = errors_wire.failed_response("openai", errors_wire.gateway_failure(code))
    assert seen == status
    # an answer that had begun was paid for
    assert ("x-should-retry" in headers) == (code == "upstream_too_large")


def test_error_frames_raise_in_the_sdks() -> None:
    with pytest.raises(openai.APIError, match="busy"):
        openai_answer(errors_wire.error_frame("openai", "overloaded_error", "busy", None), stream=True)
    with pytest.raises(anthropic.APIStatusError, match="busy"):
        anthropic_answer(errors_wire.error_frame("anthropic", "overloaded_error", "busy", None), stream=True)
    assert b'"code":"mine"' in errors_wire.error_frame("openai", "odd", "lone \ud800", "mine")


def test_token_counts() -> None:
    assert count_tokens.decode_count(b'{"input_tokens":7,"x":1}') == 7
    for bad in (b"{}", b'{"input_tokens":"7"}', b"", b"\xff", b'{"input_tokens":-1}'):
        with pytest.raises(RemoteProtocolError):
            count_tokens.decode_count(bad)
    assert json.loads(count_tokens.encode_count(7, estimated=True)) == {"input_tokens": 7, "estimated": True}
    assert json.loads(count_tokens.encode_count(7, estimated=False)) == {"input_tokens": 7}


def test_estimates_grow_with_the_request() -> None:
    empty = ChatRequest(dialect="anthropic", model="m")
    assert count_tokens.estimate_tokens(empty) == 1
    parts = (TextPart("x" * 350), ToolUsePart("t", "f", "y" * 349), ToolResultPart("t", "z" * 350), OtherPart("image", {}, "anthropic"))
    full = ChatRequest(dialect="anthropic", model="m", system=("s" * 350,), turns=(Turn("user", parts),), tools=(Tool("f", "d", {"a": 1}),))
    assert 1900 < count_tokens.estimate_tokens(full) < 2000
