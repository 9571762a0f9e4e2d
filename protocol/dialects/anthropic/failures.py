"""Errors of the Messages dialect: an upstream's read, ours written (docs/change/protocol.md
1.8)."""

import msgspec

from protocol.bytes.sse import escape_breaks
from protocol.errors import PipelineError
from protocol.errors_wire import (
    KIND_OF_STATUS,
    NOT_THE_CLIENTS,
    clean,
    client_view,
    failure,
    kind_of_status,
    parse_error,
)
from protocol.events import UpstreamFailed

_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 502,
    "billing_error": 502,
    "permission_error": 403,
    "not_found_error": 404,
    "conflict_error": 409,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_KINDS = KIND_OF_STATUS | {502: "api_error"}
_DETAILS = {"thread": {"error_code": "thread_unsupported_request"}}
"""By parameter: `error.details` of our refusals that the official SDKs act on. Their tool runners
ask for a stored thread first, and send the whole conversation instead where the answer says
this."""


def decode_error(status: int, body: bytes, retry_after: str | None) -> UpstreamFailed:
    """Read an upstream's error answer. Never raises."""
    payload, error = parse_error(body)
    kind = error.get("type")
    # servers of another make say in OpenAI's words that they refuse a key; the status is the same
    # everywhere
    if status == 401 or not isinstance(kind, str) or kind not in _STATUSES:
        kind = kind_of_status(status)
    return failure(kind, payload, status, retry_after)


def failed_response(failed: UpstreamFailed) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body for an upstream failure before the first byte."""
    message, headers = client_view(failed)
    status = _STATUSES.get(failed.kind, 500)
    if failed.kind == "api_error" and failed.status == 502:
        # a bad gateway is one in every dialect: it tells "out of reach" from "failed", and the SDK
        # retries both
        status = 502
    return status, headers, _failed(failed.kind, message)


def error_body(error: PipelineError) -> bytes:
    """Return our own error as a body."""
    kind = _KINDS.get(
        error.http_status, "invalid_request_error" if error.http_status < 500 else "api_error"
    )
    message = f"{error.param}: {error.message}" if error.param else error.message
    return _body(kind, message, _DETAILS.get(error.param or ""))


def error_frame(kind: str, message: str, code: str | None) -> bytes:
    """Return an error as a frame of a stream that already began. Nothing follows it; the dialect
    has no place for `code`."""
    return b"event: error\ndata: " + _failed(kind, NOT_THE_CLIENTS.get(kind, message)) + b"\n\n"


def _failed(kind: str, message: str) -> bytes:
    return _body(
        kind if kind in _STATUSES and kind not in NOT_THE_CLIENTS else "api_error", message
    )


def _body(kind: str, message: str, details: dict[str, str] | None = None) -> bytes:
    error = {"type": kind, "message": clean(message)} | ({"details": details} if details else {})
    return escape_breaks(msgspec.json.encode({"type": "error", "error": error}))
