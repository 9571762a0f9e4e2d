"""Errors on the wire, both dialects, as the official SDKs raise them; and token counts."""

import json
from typing import Any

import anthropic
import openai
import pytest

from protocol import codecs, errors_wire
from protocol.anthropic import count_tokens
from protocol.dialects import CLIENTS, DIALECTS
from protocol.errors import (
    Forbidden,
    InvalidRequest,
    NotFound,
    Overloaded,
    PipelineError,
    RemoteProtocolError,
    TooLarge,
    Unauthenticated,
)
from protocol.estimates import estimate_tokens
from protocol.events import UpstreamFailed
from protocol.request import (
    ChatRequest,
    DialectName,
    OtherPart,
    TextPart,
    Tool,
    ToolResultPart,
    ToolUsePart,
    Turn,
)
from tests.support.checks.decoding import decode
from tests.support.clients.sdk import anthropic_answer, openai_answer

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
    ("dialect", "status", "body", "expected"),
    [
        (
            "openai",
            429,
            b'{"error":{"message":"slow","type":"x","code":"rate_limit_exceeded"}}',
            ("rate_limit_error", "slow"),
        ),
        (
            "openai",
            429,
            b'{"error":{"message":"money","code":"insufficient_quota"}}',
            ("billing_error", "money"),
        ),
        ("openai", 401, b'{"error":{"message":"key sk-x"}}', ("authentication_error", "key sk-x")),
        (
            "openai",
            418,
            b"<html>",
            ("invalid_request_error", "the upstream answered with status 418"),
        ),
        ("openai", 502, b"\xff", ("api_error", "the upstream answered with status 502")),
        (
            "openai",
            400,
            b'{"error":{"message":"m","failed_generation":"rm"}}',
            ("invalid_request_error", "the upstream rejected a tool call that its model wrote"),
        ),
        (
            "openai",
            400,
            b'{"error":{"message":7}}',
            ("invalid_request_error", "the upstream answered with status 400"),
        ),
        (
            "openai",
            400,
            b'{"code":"Client specified an invalid argument","error":"the prompt"}',
            ("invalid_request_error", "the prompt"),
        ),
        (
            "openai",
            500,
            b'{"object":"error","message":"busy","type":"internal_server_error","code":"1000"}',
            ("api_error", "busy"),
        ),
        (
            "openai",
            401,
            b'{"code":401,"reason":"Unauthorized","message":"bad key"}',
            ("authentication_error", "bad key"),
        ),
        ("openai", 404, b'{"detail":"Not Found"}', ("not_found_error", "Not Found")),
        (
            "openai",
            400,
            b'[{"error":{"message":"in a list"}}]',
            ("invalid_request_error", "in a list"),
        ),
        (
            "openai",
            400,
            b'{"error":"m","failed_generation":"rm"}',
            ("invalid_request_error", "the upstream rejected a tool call that its model wrote"),
        ),
        (
            "openai",
            400,
            b'{"code":"x","error":"Incorrect API key provided: in***ey."}',
            ("authentication_error", "Incorrect API key provided: in***ey."),
        ),
        (
            "openai",
            422,
            b'{"object":"error","message":{"detail":[{"msg":"m"}]}}',
            ("invalid_request_error", "the upstream answered with status 422"),
        ),
        ("openai", 400, b"[1]", ("invalid_request_error", "the upstream answered with status 400")),
        (
            "anthropic",
            529,
            b'{"type":"error","error":{"type":"overloaded_error","message":"busy"}}',
            ("overloaded_error", "busy"),
        ),
        (
            "anthropic",
            500,
            b'{"type":"error","error":{"type":"timeout_error","message":"busy"}}',
            ("timeout_error", "busy"),
        ),
        (
            "anthropic",
            500,
            b'{"type":"error","error":{"type":"odd","message":"busy"}}',
            ("api_error", "busy"),
        ),
        (
            "anthropic",
            500,
            b'{"type":"error","error":{"type":7,"message":"' + b"x" * 900 + b'"}}',
            ("api_error", "x" * 500),
        ),
    ],
)
def test_upstream_error_bodies(
    dialect: DialectName, status: int, body: bytes, expected: tuple[str, str]
) -> None:
    failed = DIALECTS[dialect].decode_error(status, body, "3")
    assert (failed.kind, failed.message, failed.status, failed.retry_after) == (
        *expected,
        status,
        "3",
    )


TABLE: list[
    tuple[DialectName, int, dict[str, Any], tuple[int, str, str | None], tuple[int, str]]
] = [
    # upstream, its status and error; what a client gets: status, type, code in chat/completions;
    # status, type in Messages
    (
        "anthropic",
        400,
        {"type": "invalid_request_error"},
        (400, "invalid_request_error", None),
        (400, "invalid_request_error"),
    ),
    (
        "anthropic",
        401,
        {"type": "authentication_error"},
        (502, "api_error", "upstream_authentication"),
        (502, "api_error"),
    ),
    (
        "anthropic",
        402,
        {"type": "billing_error"},
        (502, "api_error", "upstream_billing"),
        (502, "api_error"),
    ),
    (
        "anthropic",
        403,
        {"type": "permission_error"},
        (403, "permission_error", None),
        (403, "permission_error"),
    ),
    (
        "anthropic",
        404,
        {"type": "not_found_error"},
        (404, "invalid_request_error", "model_not_found"),
        (404, "not_found_error"),
    ),
    (
        "anthropic",
        409,
        {"type": "conflict_error"},
        (409, "conflict_error", None),
        (409, "conflict_error"),
    ),
    (
        "anthropic",
        413,
        {"type": "request_too_large"},
        (413, "invalid_request_error", "request_too_large"),
        (413, "request_too_large"),
    ),
    (
        "anthropic",
        429,
        {"type": "rate_limit_error"},
        (429, "rate_limit_error", "rate_limit_exceeded"),
        (429, "rate_limit_error"),
    ),
    ("anthropic", 500, {"type": "api_error"}, (502, "api_error", None), (500, "api_error")),
    ("anthropic", 502, {}, (502, "api_error", None), (502, "api_error")),
    (
        "anthropic",
        504,
        {"type": "timeout_error"},
        (504, "api_error", "timeout"),
        (504, "timeout_error"),
    ),
    (
        "anthropic",
        529,
        {"type": "overloaded_error"},
        (503, "api_error", "overloaded"),
        (529, "overloaded_error"),
    ),
    (
        "openai",
        400,
        {"code": "content_filter"},
        (400, "invalid_request_error", "content_filter"),
        (400, "invalid_request_error"),
    ),
    (
        "openai",
        400,
        {"code": "a sentence, not a code"},
        (400, "invalid_request_error", None),
        (400, "invalid_request_error"),
    ),
    (
        "openai",
        401,
        {"code": "invalid_api_key"},
        (502, "api_error", "upstream_authentication"),
        (502, "api_error"),
    ),
    (
        "openai",
        403,
        {"code": "unsupported_country"},
        (403, "permission_error", "unsupported_country"),
        (403, "permission_error"),
    ),
    (
        "openai",
        404,
        {"code": "model_not_found"},
        (404, "invalid_request_error", "model_not_found"),
        (404, "not_found_error"),
    ),
    ("openai", 408, {}, (504, "api_error", "timeout"), (504, "timeout_error")),
    ("openai", 409, {}, (409, "conflict_error", None), (409, "conflict_error")),
    (
        "openai",
        413,
        {},
        (413, "invalid_request_error", "request_too_large"),
        (413, "request_too_large"),
    ),
    ("openai", 422, {}, (400, "invalid_request_error", None), (400, "invalid_request_error")),
    (
        "openai",
        429,
        {"code": "rate_limit_exceeded"},
        (429, "rate_limit_error", "rate_limit_exceeded"),
        (429, "rate_limit_error"),
    ),
    (
        "openai",
        429,
        {"code": "insufficient_quota"},
        (502, "api_error", "upstream_billing"),
        (502, "api_error"),
    ),
    ("openai", 498, {}, (503, "api_error", "overloaded"), (529, "overloaded_error")),
    ("openai", 500, {"code": "server_error"}, (502, "api_error", None), (500, "api_error")),
    ("openai", 502, {}, (502, "api_error", None), (502, "api_error")),
    ("openai", 503, {}, (503, "api_error", "overloaded"), (529, "overloaded_error")),
    ("openai", 504, {}, (504, "api_error", "timeout"), (504, "timeout_error")),
]


@pytest.mark.parametrize(("upstream", "status", "error", "for_openai", "for_anthropic"), TABLE)
def test_upstream_errors_in_both_directions(
    upstream: DialectName,
    status: int,
    error: dict[str, Any],
    for_openai: tuple[int, str, str | None],
    for_anthropic: tuple[int, str],
) -> None:
    body = json.dumps(
        {"type": "error", "error": {"message": "it says sk-secret", "param": None, **error}}
    ).encode()
    failed = DIALECTS[upstream].decode_error(status, body, "9")
    account = for_anthropic == (502, "api_error") and status != 502
    got, headers, answer = CLIENTS["openai"].failed_response(failed)
    told = json.loads(answer)["error"]
    assert (got, told["type"], told["code"]) == for_openai
    with pytest.raises(openai.APIStatusError) as raised:
        openai_answer(answer, stream=False, status=got)
    assert raised.value.code == for_openai[2]
    other, other_headers, answer = CLIENTS["anthropic"].failed_response(failed)
    assert (other, json.loads(answer)["error"]["type"]) == for_anthropic
    with pytest.raises(anthropic.APIStatusError) as theirs:
        anthropic_answer(answer, stream=False, status=other)
    assert theirs.value.status_code == other
    for name, value in (("retry-after", "9"), ("x-should-retry", "false" if account else None)):
        assert (headers.get(name), other_headers.get(name)) == (value, value)
    assert (told["message"], json.loads(answer)["error"]["message"]) == ((told["message"],) * 2)
    assert ("sk-secret" in told["message"]) is not account


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
        json.dumps({"error": {"type": "invalid_request_error", "message": message}}).encode(),
        None,
    )
    assert json.loads(CLIENTS["openai"].failed_response(failed)[2])["error"]["code"] == code
    assert (
        json.loads(CLIENTS["openai"].error_frame(failed.kind, failed.message, None)[6:])["error"][
            "code"
        ]
        == code
    )


def test_an_openai_error_keeps_its_code_and_parameter_for_openai_clients() -> None:
    error = {
        "message": "m",
        "type": "invalid_request_error",
        "code": "invalid_function_parameters",
        "param": "tools[0].function.parameters",
    }
    failed = DIALECTS["openai"].decode_error(400, json.dumps({"error": error}).encode(), None)
    assert json.loads(CLIENTS["openai"].failed_response(failed)[2])["error"] == error
    for odd in (7, "no name at all", "x" * 200):
        failed = DIALECTS["openai"].decode_error(
            400, json.dumps({"error": error | {"param": odd}}).encode(), None
        )
        assert json.loads(CLIENTS["openai"].failed_response(failed)[2])["error"]["param"] is None


@pytest.mark.parametrize(
    "payload",
    [
        {"error": {"message": "call rm -rf", "failed_generation": "rm -rf"}},
        {"error": {"message": "call rm -rf"}, "failed_generation": "rm -rf"},
        {"error": {"message": "call rm -rf", "code": "tool_use_failed"}},
    ],
)
def test_a_rejected_call_never_leaks(payload: dict[str, Any]) -> None:
    failed = [DIALECTS["openai"].decode_error(400, json.dumps(payload).encode(), None)]
    failed += [
        e
        for e in decode("openai", [b"data: " + json.dumps(payload).encode() + b"\n\n"])
        if isinstance(e, UpstreamFailed)
    ]
    failed += [
        e
        for e in codecs.decode_whole("openai", json.dumps(payload).encode())
        if isinstance(e, UpstreamFailed)
    ]
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
    body = json.loads(DIALECTS["openai"].error_body(error))["error"]
    assert body == {
        "message": error.message,
        "type": openai_kind,
        "param": error.param,
        "code": error.error_code,
    }
    other = json.loads(DIALECTS["anthropic"].error_body(error))
    assert (other["type"], other["error"]["type"]) == ("error", anthropic_kind)
    assert other["error"]["message"] == (
        f"tools: {error.message}" if error.param else error.message
    )


def test_other_statuses_of_our_own() -> None:
    class Limited(PipelineError):
        http_status = 429

    class Teapot(PipelineError):
        http_status = 418

    assert (
        json.loads(DIALECTS["openai"].error_body(Limited("m")))["error"]["type"]
        == "rate_limit_error"
    )
    assert (
        json.loads(DIALECTS["anthropic"].error_body(Limited("m")))["error"]["type"]
        == "rate_limit_error"
    )
    assert (
        json.loads(DIALECTS["anthropic"].error_body(Teapot("m")))["error"]["type"]
        == "invalid_request_error"
    )


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("upstream_timeout", 504),
        ("upstream_unreachable", 502),
        ("upstream_too_large", 502),
        ("call_deadline", 504),
        ("x", 502),
    ],
)
def test_what_gateways_report(code: str, status: int) -> None:
    seen, headers, _ = CLIENTS["openai"].failed_response(errors_wire.gateway_failure(code))
    assert seen == status
    # an answer that had begun was paid for
    assert ("x-should-retry" in headers) == (code == "upstream_too_large")


def test_error_frames_raise_in_the_sdks() -> None:
    with pytest.raises(openai.APIError, match="busy"):
        openai_answer(CLIENTS["openai"].error_frame("overloaded_error", "busy", None), stream=True)
    with pytest.raises(anthropic.APIStatusError, match="busy"):
        anthropic_answer(
            CLIENTS["anthropic"].error_frame("overloaded_error", "busy", None), stream=True
        )
    assert b'"code":"mine"' in CLIENTS["openai"].error_frame("odd", "lone \ud800", "mine")


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


def test_estimates_grow_with_the_request() -> None:
    empty = ChatRequest(dialect="anthropic", model="m")
    assert estimate_tokens(empty) == 1
    parts = (
        TextPart("x" * 350),
        ToolUsePart("t", "f", "y" * 349),
        ToolResultPart("t", "z" * 350),
        OtherPart("image", {}, "anthropic"),
    )
    full = ChatRequest(
        dialect="anthropic",
        model="m",
        system=("s" * 350,),
        turns=(Turn("user", parts),),
        tools=(Tool("f", "d", {"a": 1}),),
    )
    assert 2250 < estimate_tokens(full) < 2350


def test_a_refused_thread_is_said_as_the_sdks_know_it() -> None:
    body = json.loads(DIALECTS["anthropic"].error_body(InvalidRequest("no", param="thread")))
    assert body["error"]["details"] == {"error_code": "thread_unsupported_request"}
    assert (
        "details"
        not in json.loads(DIALECTS["anthropic"].error_body(InvalidRequest("no", param="tools")))[
            "error"
        ]
    )
