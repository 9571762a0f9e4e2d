"""Errors of Responses: an upstream's read, ours written (docs/change/protocol.md 1.8).

Some clients send a request again after any status but 400 and 429, and a turn after any code but a
few: what cannot get better says one of these.
"""

from typing import Any

import msgspec

from protocol import error_codes
from protocol.bytes.sse import escape_breaks
from protocol.error_codes import CONTEXT_CODE, OWN_CODES, STATUSES, is_too_long, name_of
from protocol.errors_wire import NOT_THE_CLIENTS, clean, upstream_sentence
from protocol.events import UpstreamFailed

_STATUSES = STATUSES | {
    "permission_error": (400, "permission_error", None),
    "not_found_error": (400, "invalid_request_error", "model_not_found"),
}
"""What the kind of a failure before the first byte becomes."""
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
    CONTEXT_CODE: "invalid_request_error",
    "server_is_overloaded": "overloaded_error",
    "slow_down": "overloaded_error",
    "vector_store_timeout": "timeout_error",
}
"""What the code of such a response means; api_error for the others."""

decode_error = error_codes.decode_error
error_body = error_codes.error_body


def failed_event(error: Any) -> UpstreamFailed:
    """Read the error of a response that failed, or of an event `error`: the object with the code
    and the sentence. Never raises."""
    if not isinstance(error, dict):
        return UpstreamFailed("api_error", "the upstream reported an error")
    code = name_of(error.get("code")) or name_of(error.get("type"))
    message = upstream_sentence({"error": error}) or "the upstream reported an error"
    kind = _KINDS.get(code, "api_error")
    return UpstreamFailed(kind, message, code=code if kind in OWN_CODES else "")


def failed_response(failed: UpstreamFailed) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body for an upstream failure before the first byte."""
    return error_codes.failed_response(failed, _STATUSES)


def code_of(kind: str, message: str) -> str:
    """Return the code of a response that failed after it began: clients go by it whether they try
    again."""
    if is_too_long(kind, message):
        return CONTEXT_CODE
    return _CODES.get(kind, "server_error")


def error_frame(kind: str, message: str, code: str | None) -> bytes:
    """Return an error as frames of a stream that already began. Nothing follows them.

    SDKs raise at the first, agents read the second. `code` is ours, which no client of the dialect
    knows: it is in the first alone.
    """
    message = clean(NOT_THE_CLIENTS.get(kind, message))
    known = code_of(kind, message)
    error = {"type": "error", "code": code or known, "message": message, "param": None}
    failed = {
        "object": "response",
        "status": "failed",
        "error": {"code": known, "message": message},
        "output": [],
    }
    return escape_breaks(
        b"event: error\ndata: %s\n\nevent: response.failed\ndata: %s\n\n"
        % (
            msgspec.json.encode(error),
            msgspec.json.encode({"type": "response.failed", "response": failed}),
        )
    )
