"""The toy's errors."""

import json

from protocol.errors import PipelineError
from protocol.events import UpstreamFailed


def decode_error(status: int, body: bytes, retry_after: str | None) -> UpstreamFailed:
    """Read an upstream's error answer."""
    kind, why = json.loads(body).values()
    return UpstreamFailed(kind, why, status, retry_after)


def failed_response(failed: UpstreamFailed) -> tuple[int, dict[str, str], bytes]:
    """Return the answer to an upstream failure."""
    return (
        failed.status or 502,
        {"content-type": "application/json"},
        _body(failed.kind, failed.message),
    )


def error_body(error: PipelineError) -> bytes:
    """Return our own error."""
    return _body(error.error_code, error.message)


def error_frame(kind: str, message: str, code: str | None) -> bytes:
    """Return an error as a frame."""
    return b"data: " + _body(kind, message) + b"\n\n"


def _body(kind: str, message: str) -> bytes:
    return json.dumps({"wrong": kind, "why": message}).encode()
