"""The usage object of Responses (docs/change/protocol.md 1.7)."""

from typing import Any

from protocol.events import Usage


def write_usage(usage: Usage) -> dict[str, Any]:
    """Return the object for these counts: none of its numbers may be missing."""
    read, written = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    prompt, answer = (usage.input_tokens or 0) + read + written, usage.output_tokens or 0
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": read, "cache_write_tokens": written},
        "output_tokens": answer,
        "output_tokens_details": {"reasoning_tokens": usage.thinking_tokens or 0},
        "total_tokens": prompt + answer,
    }
