"""Errors of generateContent: reading an upstream's, and writing the gateway's in its place."""

import re
from typing import Any

import msgspec

from protocol.bytes.json_strict import dumps
from protocol.bytes.sse import escape_breaks
from protocol.bytes.value_count import count_values
from protocol.errors import PipelineError
from protocol.errors_wire import clean, failure, kind_of_status
from protocol.events import UpstreamFailed

_KEY_REASONS = frozenset(
    (
        "API_KEY_INVALID",
        "API_KEY_EXPIRED",
        "ACCESS_TOKEN_EXPIRED",
        "ACCESS_TOKEN_SCOPE_INSUFFICIENT",
    )
)
"""Google says 400 for a wrong key."""
_BILLING = frozenset(("BILLING_DISABLED", "CONSUMER_SUSPENDED"))
_DELAY = re.compile(r"(\d{1,6})(?:\.(\d{1,9}))?s")
_MAX_DETAILS, _MAX_VALUES = 50, 10_000
_STATUSES = {
    "RESOURCE_EXHAUSTED": 429,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
}


def _payload(body: bytes) -> tuple[Any, dict[str, Any]]:
    """The payload and its error; errors of streams come as a list of one."""
    if count_values(body, _MAX_VALUES) > _MAX_VALUES:
        return None, {}
    try:
        parsed = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None, {}
    if isinstance(parsed, list) and parsed:
        parsed = parsed[0]
    error = parsed.get("error") if isinstance(parsed, dict) else None
    return parsed, error if isinstance(error, dict) else {}


def _details(error: dict[str, Any]) -> list[dict[str, Any]]:
    details = error.get("details")
    return (
        [detail for detail in details[:_MAX_DETAILS] if isinstance(detail, dict)]
        if isinstance(details, list)
        else []
    )


def _kind(status: int, error: dict[str, Any]) -> str:
    reasons = {
        detail.get("reason") for detail in _details(error) if isinstance(detail.get("reason"), str)
    }
    if reasons & _KEY_REASONS:
        return "authentication_error"
    return "billing_error" if reasons & _BILLING else kind_of_status(status)


def _delay(error: dict[str, Any]) -> str | None:
    """The whole seconds after which to try again, rounded up."""
    for detail in _details(error):
        delay = detail.get("retryDelay")
        if isinstance(delay, str) and (match := _DELAY.fullmatch(delay)) is not None:
            return str(int(match[1]) + bool(match[2] and match[2].strip("0")))
    return None


def decode_error(status: int, body: bytes, retry_after: str | None) -> UpstreamFailed:
    """Read an upstream's error answer. Never raises."""
    payload, error = _payload(body)
    return failure(_kind(status, error), payload, status, retry_after or _delay(error))


def failed_inside(error: Any) -> UpstreamFailed:
    """Return what an error inside an answer says."""
    fields = error if isinstance(error, dict) else {}
    code, word = fields.get("code"), fields.get("status")
    status = (
        code if isinstance(code, int) and not isinstance(code, bool) and 400 <= code < 600 else 500
    )
    if status == 500 and isinstance(word, str):
        status = _STATUSES.get(word, 500)
    message = failure(
        "api_error", {"error": fields} if isinstance(fields.get("message"), str) else None, 0, None
    ).message
    if not isinstance(fields.get("message"), str):
        message = "the upstream reported an error"
    return UpstreamFailed(_kind(status, fields), message, 0, _delay(fields))


def error_body(error: PipelineError) -> bytes:
    """Return our own error as a body: what the gateway says in an upstream's place."""
    return escape_breaks(
        dumps({"error": {"code": error.http_status, "message": clean(error.message)}})
    )
