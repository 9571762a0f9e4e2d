"""Errors of chat/completions: an upstream's read, ours written (docs/change/protocol.md 1.8)."""

from protocol import error_codes
from protocol.errors_wire import NOT_THE_CLIENTS

decode_error = error_codes.decode_error
failed_response = error_codes.failed_response
error_body = error_codes.error_body


def error_frame(kind: str, message: str, code: str | None) -> bytes:
    """Return an error as a frame of a stream that already began. Nothing follows it: no [DONE]."""
    message = NOT_THE_CLIENTS.get(kind, message)
    _, own_kind, own_code = error_codes.meaning(kind, message, "")
    return b"data: " + error_codes.written(own_kind, message, code or own_code, None) + b"\n\n"
