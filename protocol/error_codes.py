"""Errors with a code and a parameter as well as the message, as OpenAI's APIs have them: read and
written (docs/change/protocol.md 1.8)."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from protocol.bytes.sse import escape_breaks
from protocol.errors import PipelineError
from protocol.errors_wire import (
    clean,
    client_view,
    failure,
    kind_of_status,
    parse_error,
    upstream_sentence,
)
from protocol.events import UpstreamFailed

Meaning = tuple[int, str, str | None]
"""Status, type and code."""
STATUSES: dict[str, Meaning] = {
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
"""What the kind of a failure before the first byte becomes."""
CONTEXT_CODE = "context_length_exceeded"
OWN_CODES = frozenset(
    ("invalid_request_error", "permission_error", "not_found_error", "conflict_error")
)
"""Failures of which an upstream of the same dialect may name the code: these are about the
request."""
_CONTEXT = re.compile(
    r"context.length|context.window|context limit|maximum prompt length|(?:prompt|input|request) is"
    r" too long|maximum number of tokens",
    re.I,
)
_KEY = re.compile(r"(?:incorrect|invalid) api key|api key (?:not valid|is invalid)", re.I)
"""xAI refuses a key with the status of a bad request."""
_NAME = re.compile(r"[A-Za-z0-9_.\[\]-]{1,100}")


def decode_error(status: int, body: bytes, retry_after: str | None) -> UpstreamFailed:
    """Read an upstream's error answer. Never raises."""
    payload, error = parse_error(body)
    code, param = name_of(error.get("code")), name_of(error.get("param"))
    # OpenAI says 429 for an account without money
    kind = "billing_error" if code == "insufficient_quota" else kind_of_status(status)
    if status == 400 and _KEY.search(upstream_sentence(payload) or ""):
        kind = "authentication_error"
    return failure(kind, payload, status, retry_after, code, param)


def name_of(value: Any) -> str:
    """Return a code or a parameter that an upstream names, "" for what is no name."""
    return value if isinstance(value, str) and _NAME.fullmatch(value) else ""


def is_too_long(kind: str, message: str) -> bool:
    """Did an upstream refuse a request because the model cannot read as much?"""
    return kind == "invalid_request_error" and _CONTEXT.search(message) is not None


def meaning(
    kind: str, message: str, own_code: str, statuses: Mapping[str, Meaning] = STATUSES
) -> Meaning:
    """Return what a failure becomes; requests that upstream refused keep the code that it gave
    them."""
    status, own_kind, code = statuses.get(kind, (502, "api_error", None))
    if is_too_long(kind, message):
        return status, own_kind, CONTEXT_CODE
    return status, own_kind, own_code if own_code and kind in OWN_CODES else code


def failed_response(
    failed: UpstreamFailed, statuses: Mapping[str, Meaning] = STATUSES
) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body for an upstream failure before the first byte."""
    message, headers = client_view(failed)
    status, kind, code = meaning(failed.kind, message, failed.code, statuses)
    return (
        status,
        headers,
        written(
            kind, message, code, failed.param if failed.kind in OWN_CODES and failed.param else None
        ),
    )


def error_body(error: PipelineError) -> bytes:
    """Return our own error as a body."""
    kind = "invalid_request_error" if error.http_status < 500 else "api_error"
    if error.http_status == 429:
        kind = "rate_limit_error"
    return written(kind, error.message, error.error_code, error.param)


def written(kind: str, message: str, code: str | None, param: str | None) -> bytes:
    """Return the body for an error."""
    return escape_breaks(
        msgspec.json.encode(
            {"error": {"message": clean(message), "type": kind, "param": param, "code": code}}
        )
    )
