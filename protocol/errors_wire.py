"""Errors on the wire: upstream's error answers read, ours written, in both dialects (docs/protocol.md 1.8).

Payloads are rebuilt, never forwarded. Our key's 401 is not the client's: it becomes a 502, or clients would change theirs.
"""

import re
from typing import Any

import msgspec

from protocol.errors import PipelineError
from protocol.events import UpstreamFailed
from protocol.request import Dialect
from protocol.sse import escape_breaks

_MAX_MESSAGE = 500
_MAX_HEADER = 40
_CONTEXT = re.compile(r"context.length|context.window|context limit|(?:prompt|input|request) is too long|maximum number of tokens", re.I)
_CONTEXT_CODE = "context_length_exceeded"
_NAME = re.compile(r"[A-Za-z0-9_.\[\]-]{1,100}")
_KIND_OF_STATUS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    498: "overloaded_error",
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
_OWN_CODES = frozenset(("invalid_request_error", "permission_error", "not_found_error", "conflict_error"))
"""Failures of which an upstream of the same dialect may name the code: these are about the request."""
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


def kind_of_status(status: int) -> str:
    """Return what an upstream's status means, as a Messages error type."""
    return _KIND_OF_STATUS.get(status, "invalid_request_error" if 400 <= status < 500 else "api_error")


def upstream_sentence(payload: Any) -> str | None:
    """Return the sentence of an upstream's error payload, None if it has none.

    Groq's payload carries the call that it rejected, and its sentence speaks of it: that one is told in our words.
    """
    error = payload.get("error") if isinstance(payload, dict) else None
    if not isinstance(error, dict):
        return None
    if "failed_generation" in error or "failed_generation" in payload or error.get("code") == "tool_use_failed":
        return "the upstream refused a tool call that its model wrote"
    message = error.get("message")
    return message[:_MAX_MESSAGE] if isinstance(message, str) else None


def decode_error(dialect: Dialect, status: int, body: bytes, retry_after: str | None) -> UpstreamFailed:
    """Read an upstream's error answer; a body that is not the dialect's gives a generic sentence. Never raises."""
    kind, code, param = kind_of_status(status), "", ""
    try:
        parsed = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        parsed = None
    error: Any = parsed.get("error") if isinstance(parsed, dict) else None
    if isinstance(error, dict):
        if dialect == "anthropic":
            # servers of another make say in OpenAI's words that they refuse a key; the status is the same everywhere
            if status != 401 and isinstance(error.get("type"), str) and error["type"] in _TO_ANTHROPIC:
                kind = error["type"]
        else:
            code, param = _name(error.get("code")), _name(error.get("param"))
            if code == "insufficient_quota":
                # OpenAI says 429 for an account without money
                kind = "billing_error"
    message = upstream_sentence(parsed) or f"the upstream answered with status {status}"
    return UpstreamFailed(kind, message, status, retry_after, code, param)


def _name(value: Any) -> str:
    return value if isinstance(value, str) and _NAME.fullmatch(value) else ""


_GATEWAY_FAILURES: dict[str, tuple[int, str, str]] = {
    "upstream_timeout": (504, "timeout_error", "the upstream did not answer in time"),
    "upstream_connect_timeout": (504, "timeout_error", "the upstream did not answer in time"),
    **dict.fromkeys(
        ("upstream_unreachable", "upstream_dns", "upstream_refused", "upstream_tls", "upstream_closed", "upstream_cut"),
        (502, "api_error", "the upstream cannot be reached"),
    ),
    "gateway_descriptors": (503, "overloaded_error", "the gateway has no file descriptor left to reach the upstream; try again"),
    "upstream_encoding": (0, "api_error", "the upstream's answer is compressed, which it was asked not to do"),
    "upstream_too_large": (0, "api_error", "the upstream's answer is past the limit"),
    "upstream_protocol_error": (0, "api_error", "the upstream's answer is not what its dialect allows"),
    "call_deadline": (504, "timeout_error", "the call's deadline has passed"),
}
"""What the gateway's error codes mean for the client: status (0: an answer had begun), Messages error type, sentence. Why an upstream
cannot be reached is for the operator: it is on record and in the log."""


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
        status = _TO_ANTHROPIC.get(failed.kind, 500)
        if failed.kind == "api_error" and failed.status == 502:
            # a bad gateway is one in both dialects: it tells "out of reach" from "failed", and the SDK retries both
            status = 502
        return status, headers, _anthropic(failed.kind, message)
    status, kind, code = _to_openai(failed.kind, message, failed.code)
    return status, headers, _openai(kind, message, code, failed.param if failed.kind in _OWN_CODES and failed.param else None)


def _to_openai(kind: str, message: str, own_code: str) -> tuple[int, str, str | None]:
    """Status, type and code by docs/protocol.md 1.8; requests that upstream refused keep the code that it gave them."""
    status, openai_kind, code = _TO_OPENAI.get(kind, (502, "api_error", None))
    if kind == "invalid_request_error" and _CONTEXT.search(message):
        return status, openai_kind, _CONTEXT_CODE
    return status, openai_kind, own_code if own_code and kind in _OWN_CODES else code


_DETAILS = {"thread": {"error_code": "thread_unsupported_request"}}
"""By parameter: `error.details` of our refusals that the official SDKs act on. Their tool runners ask for a stored thread first, and
send the whole conversation instead where the answer says this."""


def error_body(dialect: Dialect, error: PipelineError) -> bytes:
    """Return our own error as the dialect's body."""
    if dialect == "anthropic":
        kind = _ANTHROPIC_OF_STATUS.get(error.http_status, "invalid_request_error" if error.http_status < 500 else "api_error")
        message = f"{error.param}: {error.message}" if error.param else error.message
        return _anthropic_body(kind, message, _DETAILS.get(error.param or ""))
    kind = "invalid_request_error" if error.http_status < 500 else "api_error"
    if error.http_status == 429:
        kind = "rate_limit_error"
    return _openai(kind, error.message, error.error_code, error.param)


def error_frame(dialect: Dialect, kind: str, message: str, code: str | None) -> bytes:
    """Return an error as a frame of a stream that already began. Nothing follows it: no stop, no [DONE]."""
    message = _NOT_THE_CLIENTS.get(kind, message)
    if dialect == "anthropic":
        return b"event: error\ndata: " + _anthropic(kind, message) + b"\n\n"
    _, openai_kind, openai_code = _to_openai(kind, message, "")
    return b"data: " + _openai(openai_kind, message, code or openai_code, None) + b"\n\n"


def _anthropic(kind: str, message: str) -> bytes:
    return _anthropic_body(kind if kind in _TO_ANTHROPIC and kind not in _NOT_THE_CLIENTS else "api_error", message)


def _anthropic_body(kind: str, message: str, details: dict[str, str] | None = None) -> bytes:
    error = {"type": kind, "message": _clean(message)} | ({"details": details} if details else {})
    return escape_breaks(msgspec.json.encode({"type": "error", "error": error}))


def _openai(kind: str, message: str, code: str | None, param: str | None) -> bytes:
    return escape_breaks(msgspec.json.encode({"error": {"message": _clean(message), "type": kind, "param": param, "code": code}}))


def _clean(message: str) -> str:
    return message.encode("utf-8", "replace").decode("utf-8")
