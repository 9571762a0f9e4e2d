"""Errors of the audit API on the wire: the same from the process that serves it and from a gateway
that cannot reach it."""

import json

from protocol.errors import PipelineError

RETRY_AFTER_S = 5
SAFE = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'",
}
"""Headers of every answer."""


def error_body(error: PipelineError) -> bytes:
    """Return the JSON of an error."""
    kind = "server_error" if error.http_status >= 500 else "invalid_request_error"
    item = {"message": error.message, "type": kind, "code": error.error_code, "param": error.param}
    return json.dumps({"error": item}, separators=(",", ":")).encode()


def error_headers(status: int) -> dict[str, str]:
    """Return the headers of an error with this status."""
    return SAFE | ({"retry-after": str(RETRY_AFTER_S)} if status == 503 else {})
