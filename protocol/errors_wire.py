"""Errors on the wire, common to all dialects: reading upstream's error answers, and what a client
may see (docs/change/protocol.md 1.8).

Payloads are rebuilt, never forwarded. Our key's 401 is not the client's: it becomes a 502, or
clients would change theirs.
"""

from typing import Any

import msgspec

from protocol.events import UpstreamFailed

_MAX_MESSAGE = 500
_MAX_HEADER = 40
KIND_OF_STATUS = {
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
"""What an upstream's status means, as a Messages error type."""
NOT_THE_CLIENTS = {
    "authentication_error": "the upstream rejected the gateway's key",
    "billing_error": "the upstream refused for billing reasons",
}
"""Failures of our account: upstream's sentence (OpenAI's repeats a part of the key) stays here, and
a retry does not help."""


def kind_of_status(status: int) -> str:
    """Return what an upstream's status means, as a Messages error type."""
    return KIND_OF_STATUS.get(
        status, "invalid_request_error" if 400 <= status < 500 else "api_error"
    )


def upstream_sentence(payload: Any) -> str | None:
    """Return the sentence of an upstream's error payload, None if it has none.

    Groq's payload carries the call that it rejected, and its message mentions it: that one is
    reported in our words.
    """
    error = payload.get("error") if isinstance(payload, dict) else None
    if not isinstance(error, dict):
        return None
    if (
        "failed_generation" in error
        or "failed_generation" in payload
        or error.get("code") == "tool_use_failed"
    ):
        return "the upstream rejected a tool call that its model wrote"
    message = error.get("message")
    return message[:_MAX_MESSAGE] if isinstance(message, str) else None


def with_object(payload: Any) -> Any:
    """Return an error payload with an object as its `error`: xAI has a sentence there, others have
    nothing around the object."""
    if isinstance(payload, list) and len(payload) == 1:
        payload = payload[0]
    if not isinstance(payload, dict) or isinstance(payload.get("error"), dict):
        return payload
    for message in (payload.get("error"), payload.get("message"), payload.get("detail")):
        if isinstance(message, str):
            return {**payload, "error": {**payload, "message": message}}
    return payload


def parse_error(body: bytes) -> tuple[Any, dict[str, Any]]:
    """Return an upstream's error payload and the object `error` in it; None and nothing where they
    are not there."""
    try:
        parsed = with_object(msgspec.json.decode(body))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None, {}
    error = parsed.get("error") if isinstance(parsed, dict) else None
    return parsed, error if isinstance(error, dict) else {}


def failure(
    kind: str, payload: Any, status: int, retry_after: str | None, code: str = "", param: str = ""
) -> UpstreamFailed:
    """Return what an upstream's error answer says, with its own sentence or a generic one."""
    message = upstream_sentence(payload) or f"the upstream answered with status {status}"
    return UpstreamFailed(kind, message, status, retry_after, code, param)


_GATEWAY_FAILURES: dict[str, tuple[int, str, str]] = {
    "upstream_timeout": (504, "timeout_error", "the upstream did not answer in time"),
    "upstream_connect_timeout": (504, "timeout_error", "the upstream did not answer in time"),
    "proxy_connect_timeout": (504, "timeout_error", "the upstream did not answer in time"),
    **dict.fromkeys(
        (
            "upstream_unreachable",
            "upstream_dns",
            "upstream_refused",
            "upstream_tls",
            "upstream_certificates",
            "proxy_unreachable",
            "proxy_dns",
            "proxy_refused",
            "proxy_denied",
        ),
        (502, "api_error", "the upstream cannot be reached"),
    ),
    "upstream_closed": (502, "api_error", "the upstream closed the connection without an answer"),
    "upstream_cut": (502, "api_error", "the upstream's answer was cut"),
    "upstream_token": (502, "api_error", "the gateway has no credentials for the upstream"),
    "gateway_descriptors": (
        503,
        "overloaded_error",
        "this gateway has no file descriptor left to reach the upstream; try again",
    ),
    "upstream_encoding": (
        0,
        "api_error",
        "the upstream's answer is compressed in a way that cannot be opened",
    ),
    "upstream_too_large": (0, "api_error", "the upstream's answer is larger than the limit"),
    "upstream_protocol_error": (
        0,
        "api_error",
        "the upstream's answer is not valid in the format of its API",
    ),
    "call_deadline": (504, "timeout_error", "the call's deadline has passed"),
}
"""What the gateway's error codes mean for the client: status (0: an answer had begun), Messages
error type, sentence. Why an upstream cannot be reached is for the operator: it is on record and in
the log."""


REPEAT_REFUSED = "too_many_repeats"
"""The code with which a gateway does not send another attempt, as it repeats too many requests."""
SUPERSEDED = "superseded"
"""The code with which a gateway ends an answer that another attempt replaces."""


def gateway_failure(code: str) -> UpstreamFailed:
    """Return what a gateway's error code means for the client."""
    status, kind, message = _GATEWAY_FAILURES.get(code, (502, "api_error", "the upstream failed"))
    return UpstreamFailed(kind, message, status)


def client_view(failed: UpstreamFailed) -> tuple[str, dict[str, str]]:
    """Return the sentence for the client and the headers of the answer to an upstream failure
    before the first byte.

    Where a retry does not help, or the answer was already paid for, the headers tell the SDKs so.
    """
    headers = {"content-type": "application/json"}
    if (
        failed.retry_after
        and failed.retry_after.isascii()
        and failed.retry_after.isprintable()
        and len(failed.retry_after) < _MAX_HEADER
    ):
        headers["retry-after"] = failed.retry_after
    if failed.kind in NOT_THE_CLIENTS or failed.status == 0:
        headers["x-should-retry"] = "false"
    return NOT_THE_CLIENTS.get(failed.kind, failed.message), headers


def clean(message: str) -> str:
    """Return the sentence without lone surrogates, which JSON cannot hold."""
    return message.encode("utf-8", "replace").decode("utf-8")
