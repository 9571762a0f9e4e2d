"""Errors of Responses: an upstream's read, ours written (docs/protocol.md 1.8).

Some clients send a request again after any status but 400 and 429, and a turn after any code but a few: what cannot get better says one of
these.
"""

import re
from typing import Any

import msgspec

from protocol.errors import PipelineError
from protocol.errors_wire import NOT_THE_CLIENTS, clean, client_view, failure, kind_of_status, parse_error, upstream_sentence
from protocol.events import UpstreamFailed
from protocol.sse import escape_breaks

_CONTEXT = re.compile(r"context.length|context.window|context limit|(?:prompt|input|request) is too long|maximum number of tokens", re.I)
_CONTEXT_CODE = "context_length_exceeded"
_NAME = re.compile(r"[A-Za-z0-9_.\[\]-]{1,100}")
_STATUSES: dict[str, tuple[int, str, str | None]] = {
    "invalid_request_error": (400, "invalid_request_error", None),
    "authentication_error": (502, "api_error", "upstream_authentication"),
    "billing_error": (502, "api_error", "upstream_billing"),
    "permission_error": (400, "permission_error", None),
    "not_found_error": (400, "invalid_request_error", "model_not_found"),
    "conflict_error": (409, "conflict_error", None),
    "request_too_large": (413, "invalid_request_error", "request_too_large"),
    "rate_limit_error": (429, "rate_limit_error", "rate_limit_exceeded"),
    "api_error": (502, "api_error", None),
    "timeout_error": (504, "api_error", "timeout"),
    "overloaded_error": (429, "rate_limit_error", "overloaded"),
}
"""Status, type and code by the kind of a failure before the first byte."""
_CODES = {
    "invalid_request_error": "invalid_prompt",
    "permission_error": "invalid_prompt",
    "not_found_error": "invalid_prompt",
    "conflict_error": "invalid_prompt",
    "request_too_large": "invalid_prompt",
    "billing_error": "insufficient_quota",
    "rate_limit_error": "rate_limit_exceeded",
    "overloaded_error": "server_is_overloaded",
}
"""The code of a response that failed after it began; server_error for the others."""
_KINDS = {
    "rate_limit_exceeded": "rate_limit_error",
    "insufficient_quota": "billing_error",
    "invalid_prompt": "invalid_request_error",
    "bio_policy": "invalid_request_error",
    "misalignment_policy_violation": "invalid_request_error",
    _CONTEXT_CODE: "invalid_request_error",
    "server_is_overloaded": "overloaded_error",
    "slow_down": "overloaded_error",
    "vector_store_timeout": "timeout_error",
}
"""What the code of such a response means; api_error for the others."""
_OWN_CODES = frozenset(("invalid_request_error", "permission_error", "not_found_error", "conflict_error"))
"""Failures of which an upstream of the same dialect may name the code: these are about the request."""


def decode_error(status: int, body: bytes, retry_after: str | None) -> UpstreamFailed:
    """Read an upstream's error answer. Never raises."""
    payload, error = parse_error(body)
    code, param = _name(error.get("code")), _name(error.get("param"))
    # OpenAI says 429 for an account without money
    kind = "billing_error" if code == "insufficient_quota" else kind_of_status(status)
    return failure(kind, payload, status, retry_after, code, param)


def failed_event(error: Any) -> UpstreamFailed:
    """Read the error of a response that failed, or of an event `error`: the object with the code and the sentence. Never raises."""
    if not isinstance(error, dict):
        return UpstreamFailed("api_error", "the upstream reported an error")
    code = _name(error.get("code")) or _name(error.get("type"))
    message = upstream_sentence({"error": error}) or "the upstream reported an error"
    kind = _KINDS.get(code, "api_error")
    return UpstreamFailed(kind, message, code=code if kind in _OWN_CODES else "")


def _name(value: Any) -> str:
    return value if isinstance(value, str) and _NAME.fullmatch(value) else ""


def failed_response(failed: UpstreamFailed) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body for an upstream failure before the first byte."""
    message, headers = client_view(failed)
    status, kind, code = _STATUSES.get(failed.kind, (502, "api_error", None))
    if failed.kind == "invalid_request_error" and _CONTEXT.search(message):
        code = _CONTEXT_CODE
    elif failed.code and failed.kind in _OWN_CODES:
        code = failed.code
    return status, headers, _body(kind, message, code, failed.param if failed.kind in _OWN_CODES and failed.param else None)


def error_body(error: PipelineError) -> bytes:
    """Return our own error as a body."""
    kind = "invalid_request_error" if error.http_status < 500 else "api_error"
    if error.http_status == 429:
        kind = "rate_limit_error"
    return _body(kind, error.message, error.error_code, error.param)


def code_of(kind: str, message: str) -> str:
    """Return the code of a response that failed after it began: clients go by it whether they try again."""
    if kind == "invalid_request_error" and _CONTEXT.search(message):
        return _CONTEXT_CODE
    return _CODES.get(kind, "server_error")


def error_frame(kind: str, message: str, code: str | None) -> bytes:
    """Return an error as frames of a stream that already began. Nothing follows them.

    SDKs raise at the first, agents read the second. `code` is ours, which no client of the dialect knows: it is in the first alone.
    """
    message = clean(NOT_THE_CLIENTS.get(kind, message))
    known = code_of(kind, message)
    error = {"type": "error", "code": code or known, "message": message, "param": None}
    failed = {"object": "response", "status": "failed", "error": {"code": known, "message": message}, "output": []}
    return escape_breaks(
        b"event: error\ndata: %s\n\nevent: response.failed\ndata: %s\n\n"
        % (msgspec.json.encode(error), msgspec.json.encode({"type": "response.failed", "response": failed}))
    )


def _body(kind: str, message: str, code: str | None, param: str | None) -> bytes:
    return escape_breaks(msgspec.json.encode({"error": {"message": clean(message), "type": kind, "param": param, "code": code}}))
