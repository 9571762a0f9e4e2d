"""Errors of chat/completions: an upstream's read, ours written (docs/change/protocol.md 1.8)."""

from typing import Any

from protocol import error_codes, errors_wire
from protocol.events import UpstreamFailed

decode_error = error_codes.decode_error
failed_response = error_codes.failed_response
error_body = error_codes.error_body


def error_frame(kind: str, message: str, code: str | None) -> bytes:
    """Return an error as a frame of a stream that already began. Nothing follows it: no [DONE]."""
    message = errors_wire.NOT_THE_CLIENTS.get(kind, message)
    _, own_kind, own_code = error_codes.meaning(kind, message, "")
    return b"data: " + error_codes.written(own_kind, message, code or own_code, None) + b"\n\n"


def failed_inside(payload: Any) -> UpstreamFailed:
    """Rebuild an error payload from its message alone."""
    payload = errors_wire.with_object(payload)
    if isinstance(payload, dict) and not isinstance(payload.get("error"), dict):
        payload = {"error": payload}
    code = payload["error"].get("code") if isinstance(payload, dict) else None
    status = payload["error"].get("status") if isinstance(payload, dict) else None
    kind = "api_error"
    if code in ("429", "rate_limit_exceeded") or (
        isinstance(payload, dict) and payload["error"].get("type") == "rate_limit_error"
    ):
        kind = "rate_limit_error"
    elif isinstance(code, int) and 400 <= code < 600:
        # a status, which came too late to be one
        kind = errors_wire.kind_of_status(code)
    elif isinstance(status, int) and 400 <= status < 500:
        # Azure's filter, in an answer that says 200
        kind = errors_wire.kind_of_status(status)
    return UpstreamFailed(
        kind, errors_wire.upstream_sentence(payload) or "the upstream reported an error"
    )
