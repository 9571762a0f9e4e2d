"""The usage object of Messages (docs/change/protocol.md 1.7)."""

from typing import Any

from protocol.events import Usage


def write_usage(usage: Usage) -> dict[str, Any]:
    """Return the object for these counts."""
    body: dict[str, Any] = {
        "input_tokens": usage.input_tokens or 0,
        "output_tokens": usage.output_tokens or 0,
    }
    if usage.cache_write_tokens is not None:
        body["cache_creation_input_tokens"] = usage.cache_write_tokens
    if usage.cache_read_tokens is not None:
        body["cache_read_input_tokens"] = usage.cache_read_tokens
    if usage.thinking_tokens is not None:
        body["output_tokens_details"] = {"thinking_tokens": usage.thinking_tokens}
    return body
