"""Errors on the wire: upstream's error answers read, ours written, in both dialects (protocol.md, table 1.8).

Payloads are rebuilt, never forwarded. Our key's 401 is not the client's: it becomes a 502, or clients would change theirs.
"""

import re
from typing import Any

import msgspec

from protocol.errors import PipelineError
from protocol.events import UpstreamFailed
from protocol.request import Dialect

_MAX_MESSAGE = 500
_MAX_HEADER = 40
_CONTEXT = re.compile(r"context.length|context window|too long", re.IGNORECASE)
_KIND_OF_STATUS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_TO_OPENAI: dict[str, tuple[int, str, str | None]] = {
    "invalid_request_error": (400, "invalid_request_error", None),
    "authentication_error": (502, "api_error", "upstream_authentication"),
    "billing_error": (502, "api_error", "upstream_billing"),
    "permission_error": (403, "permission_error", None),
    "not_found_error": (404, "invalid_request_error", "model_not_found"),
    "conflict_error": (409, "conflict_error", None),
    "request_too_large": (413, "invalid_request_error", "request_too_large"),
    "rate_limit_error": (429, "rate_limit_error", "rate_limit_exceeded"),
    "api_error": (502, "api_error", None),
    "timeout_error": (504, "api_error", "timeout"),
    "overloaded_error": (503, "api_error", "overloaded"),
}
_TO_ANTHROPIC = {
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
_NOT_THE_CLIENTS = {
    "authentication_error": "the gateway's key was refused by the upstream",
    "billing_error": "the upstream refused for billing reasons",
}
"""Failures of our account: upstream's sentence (OpenAI's repeats a part of the key) stays here, and a retry does not help."""
_ANTHROPIC_OF_STATUS = _KIND_OF_STATUS | {502: "api_error"}


def _kind(status: int) -> str:
    return _KIND_OF_STATUS.get(status, "invalid_request_error" if 400 <= status < 500 else "api_error")


def decode_error(dialect: Dialect, status: int, body: bytes, retry_after: str | None) -> UpstreamFailed:
    """Read an upstream's error answer; a body that is not the dialect's gives a generic sentence. Never raises."""
    kind, message = _kind(status), f"the upstream answered with status {status}"
    try:
        parsed = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        parsed = None
    error: Any = parsed.get("error") if isinstance(parsed, dict) else None
    if isinstance(error, dict) and "failed_generation" not in error:
        if isinstance(error.get("message"), str):
            message = error["message"][:_MAX_MESSAGE]
        if dialect == "anthropic" and isinstance(error.get("type"), str) and error["type"] in _TO_ANTHROPIC:
            kind = error["type"]
        elif dialect == "openai" and error.get("code") == "insufficient_quota":
            # OpenAI says 429 for an account without money
            kind = "billing_error"
    return UpstreamFailed(kind, message, status, retry_after)


_GATEWAY_FAILURES: dict[str, tuple[int, str, str]] = {
    "upstream_timeout": (504, "timeout_error", "the upstream did not answer in time"),
    "upstream_unreachable": (502, "api_error", "the upstream cannot be reached"),
    "upstream_too_large": (0, "api_error", "the upstream's answer is past the limit"),
    "upstream_protocol_error": (0, "api_error", "the upstream's answer is not what its dialect allows"),
    "call_deadline": (504, "timeout_error", "the call's deadline has passed"),
}
"""What the gateway's error codes mean for the client: status (0: an answer had begun), Messages error type, sentence."""


def gateway_failure(code: str) -> UpstreamFailed:
    """Return what a gateway's error code means for the client."""
    status, kind, message = _GATEWAY_FAILURES.get(code, (502, "api_error", "the upstream failed"))
    return UpstreamFailed(kind, message, status)


def failed_response(dialect: Dialect, failed: UpstreamFailed) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body for an upstream failure before the first byte.

    Where a retry does not help, or the answer was already paid for, the headers tell the SDKs so.
    """
    message = _NOT_THE_CLIENTS.get(failed.kind, failed.message)
    headers = {"content-type": "application/json"}
    if failed.retry_after and failed.retry_after.isascii() and failed.retry_after.isprintable() and len(failed.retry_after) < _MAX_HEADER:
        headers["retry-after"] = failed.retry_after
    if failed.kind in _NOT_THE_CLIENTS or failed.status == 0:
        headers["x-should-retry"] = "false"
    if dialect == "anthropic":
        return _TO_ANTHROPIC.get(failed.kind, 500), headers, _anthropic(failed.kind, message)
    status, kind, code = _TO_OPENAI.get(failed.kind, (502, "api_error", None))
    if failed.kind == "invalid_request_error" and _CONTEXT.search(message):
        code = "context_length_exceeded"
    return status, headers, _openai(kind, message, code, None)


def error_body(dialect: Dialect, error: PipelineError) -> bytes:
    """Return our own error as the dialect's body."""
    if dialect == "anthropic":
        kind = _ANTHROPIC_OF_STATUS.get(error.http_status, "invalid_request_error" if error.http_status < 500 else "api_error")
        message = f"{error.param}: {error.message}" if error.param else error.message
        return _anthropic_body(kind, message)
    kind = "invalid_request_error" if error.http_status < 500 else "api_error"
    if error.http_status == 429:
        kind = "rate_limit_error"
    return _openai(kind, error.message, error.error_code, error.param)


def error_frame(dialect: Dialect, kind: str, message: str, code: str | None) -> bytes:
    """Return an error as a frame of a stream that already began. Nothing follows it: no stop, no [DONE]."""
    message = _NOT_THE_CLIENTS.get(kind, message)
    if dialect == "anthropic":
        return b"event: error\ndata: " + _anthropic(kind, message) + b"\n\n"
    _, openai_kind, openai_code = _TO_OPENAI.get(kind, (502, "api_error", None))
    return b"data: " + _openai(openai_kind, message, code or openai_code, None) + b"\n\n"


def _anthropic(kind: str, message: str) -> bytes:
    return _anthropic_body(kind if kind in _TO_ANTHROPIC and kind not in _NOT_THE_CLIENTS else "api_error", message)


def _anthropic_body(kind: str, message: str) -> bytes:
    return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": _clean(message)}})


def _openai(kind: str, message: str, code: str | None, param: str | None) -> bytes:
    return msgspec.json.encode({"error": {"message": _clean(message), "type": kind, "param": param, "code": code}})


def _clean(message: str) -> str:
    return message.encode("utf-8", "replace").decode("utf-8")
