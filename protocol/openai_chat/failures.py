"""Errors of chat/completions: an upstream's read, ours written (docs/protocol.md 1.8)."""

import re
from typing import Any

import msgspec

from protocol.errors import PipelineError
from protocol.errors_wire import NOT_THE_CLIENTS, clean, client_view, failure, kind_of_status, parse_error, upstream_sentence
from protocol.events import UpstreamFailed
from protocol.sse import escape_breaks

_CONTEXT = re.compile(
    r"context.length|context.window|context limit|maximum prompt length|(?:prompt|input|request) is too long|maximum number of tokens", re.I
)
_KEY = re.compile(r"(?:incorrect|invalid) api key|api key (?:not valid|is invalid)", re.I)
"""xAI refuses a key with the status of a bad request."""
_CONTEXT_CODE = "context_length_exceeded"
_NAME = re.compile(r"[A-Za-z0-9_.\[\]-]{1,100}")
_STATUSES: dict[str, tuple[int, str, str | None]] = {
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


def decode_error(status: int, body: bytes, retry_after: str | None) -> UpstreamFailed:
    """Read an upstream's error answer. Never raises."""
    payload, error = parse_error(body)
    code, param = _name(error.get("code")), _name(error.get("param"))
    # OpenAI says 429 for an account without money
    kind = "billing_error" if code == "insufficient_quota" else kind_of_status(status)
    if status == 400 and _KEY.search(upstream_sentence(payload) or ""):
        kind = "authentication_error"
    return failure(kind, payload, status, retry_after, code, param)


def _name(value: Any) -> str:
    return value if isinstance(value, str) and _NAME.fullmatch(value) else ""


def failed_response(failed: UpstreamFailed) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body for an upstream failure before the first byte."""
    message, headers = client_view(failed)
    status, kind, code = _meaning(failed.kind, message, failed.code)
    return status, headers, _body(kind, message, code, failed.param if failed.kind in _OWN_CODES and failed.param else None)


def _meaning(kind: str, message: str, own_code: str) -> tuple[int, str, str | None]:
    """Status, type and code by docs/protocol.md 1.8; requests that upstream refused keep the code that it gave them."""
    status, own_kind, code = _STATUSES.get(kind, (502, "api_error", None))
    if kind == "invalid_request_error" and _CONTEXT.search(message):
        return status, own_kind, _CONTEXT_CODE
    return status, own_kind, own_code if own_code and kind in _OWN_CODES else code


def error_body(error: PipelineError) -> bytes:
    """Return our own error as a body."""
    kind = "invalid_request_error" if error.http_status < 500 else "api_error"
    if error.http_status == 429:
        kind = "rate_limit_error"
    return _body(kind, error.message, error.error_code, error.param)


def error_frame(kind: str, message: str, code: str | None) -> bytes:
    """Return an error as a frame of a stream that already began. Nothing follows it: no [DONE]."""
    message = NOT_THE_CLIENTS.get(kind, message)
    _, own_kind, own_code = _meaning(kind, message, "")
    return b"data: " + _body(own_kind, message, code or own_code, None) + b"\n\n"


def _body(kind: str, message: str, code: str | None, param: str | None) -> bytes:
    return escape_breaks(msgspec.json.encode({"error": {"message": clean(message), "type": kind, "param": param, "code": code}}))
