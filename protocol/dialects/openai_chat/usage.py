"""The usage object of chat/completions (docs/change/protocol.md 1.7)."""

from typing import Any

from protocol.events import Usage


def write_usage(usage: Usage) -> dict[str, Any]:
    """Return the object for these counts."""
    read, written = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    prompt, completion = (usage.input_tokens or 0) + read + written, usage.output_tokens or 0
    body: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    if usage.cache_read_tokens is not None or usage.cache_write_tokens is not None:
        body["prompt_tokens_details"] = {"cached_tokens": read}
        if usage.cache_write_tokens:
            body["prompt_tokens_details"]["cache_write_tokens"] = written
    if usage.thinking_tokens is not None:
        body["completion_tokens_details"] = {"reasoning_tokens": usage.thinking_tokens}
    return body
