"""Errors of Bedrock: answers with an error status, and exceptions inside a stream
(docs/change/protocol.md 1.8).

The kind of an error is in a header of the answer, which the gateway writes into the body as
`__type`; in a stream it is a header of the message. What is wrong with our key or account is never
the client's.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from protocol.errors import PipelineError
from protocol.errors_wire import clean, failure, kind_of_status
from protocol.events import UpstreamFailed

_KINDS = {
    "accessdenied": "authentication_error",
    "unrecognizedclient": "authentication_error",
    "expiredtoken": "authentication_error",
    "invalidsignature": "authentication_error",
    "incompletesignature": "authentication_error",
    "missingauthenticationtoken": "authentication_error",
    "resourcenotfound": "not_found_error",
    "validation": "invalid_request_error",
    "conflict": "conflict_error",
    "throttling": "rate_limit_error",
    "servicequotaexceeded": "rate_limit_error",
    "modelnotready": "overloaded_error",
    "serviceunavailable": "overloaded_error",
    "modeltimeout": "timeout_error",
    "modelerror": "api_error",
    "modelstreamerror": "api_error",
    "internalserver": "api_error",
    "internalfailure": "api_error",
}
_STATUSES = {
    "authentication_error": 403,
    "invalid_request_error": 400,
    "rate_limit_error": 429,
    "overloaded_error": 503,
    "timeout_error": 408,
}
"""Of an exception that is an answer's first message: the head waits for that."""


_NAMES = {
    400: "ValidationException",
    404: "ResourceNotFoundException",
    413: "ValidationException",
    429: "ThrottlingException",
    503: "ServiceUnavailableException",
}


def _kind(name: Any) -> str | None:
    """Return what an error's name means, as a Messages error type: also of
    `com.amazon.x#ValidationException:http://...`."""
    if not isinstance(name, str):
        return None
    word = name[:200].partition(":")[0].rpartition("#")[2].lower()
    return _KINDS.get(word.removesuffix("exception"))


def _payload(body: bytes) -> dict[str, Any]:
    try:
        parsed = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _sentence(payload: dict[str, Any]) -> dict[str, Any]:
    """The payload in the form that all dialects' errors are read in."""
    return {"error": {"message": payload.get("message", payload.get("Message"))}}


def decode_error(status: int, body: bytes, retry_after: str | None) -> UpstreamFailed:
    """Read an upstream's error answer. Never raises."""
    payload = _payload(body)
    kind = _kind(payload.get("__type")) or (
        "authentication_error" if status in (401, 403) else kind_of_status(status)
    )
    return failure(kind, _sentence(payload), status, retry_after)


def error_body(error: PipelineError) -> bytes:
    """Return our own error as an upstream's answer, which `decode_error` reads."""
    return msgspec.json.encode(
        {
            "__type": _NAMES.get(error.http_status, "InternalServerException"),
            "message": clean(error.message),
        }
    )


def exception(headers: Mapping[str, str], payload: bytes, *, is_first: bool) -> UpstreamFailed:
    """Read a message of a stream that is an exception or an error. Never raises."""
    name = headers.get(":exception-type") or headers.get(":error-code")
    kind = _kind(name) or "api_error"
    body = _payload(payload)
    if not body and ":error-message" in headers:
        body = {"message": headers[":error-message"]}
    failed = failure(kind, _sentence(body), 0, None)
    message = (
        "the upstream reported an error" if failed.message.endswith("status 0") else failed.message
    )
    return msgspec.structs.replace(
        failed, message=message, status=_STATUSES.get(kind, 500) if is_first else 0
    )
