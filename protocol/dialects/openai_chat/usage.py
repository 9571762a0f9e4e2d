"""The usage object of chat/completions (docs/change/protocol.md 1.7)."""

from typing import Any

from protocol.dialects.openai_chat.wire import ChunkUsage
from protocol.events import Usage, uncached


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


def usage_of(usage: ChunkUsage, cached: int | None) -> Usage:
    """Return the counts of an upstream's usage object, `cached` of them read from its cache."""
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    written = prompt.cache_write_tokens if prompt else None
    fresh = uncached(usage.prompt_tokens, cached, written)
    output_tokens, thought = (
        usage.completion_tokens,
        completion.reasoning_tokens if completion else None,
    )
    if (
        output_tokens is not None
        and thought
        and usage.total_tokens == (usage.prompt_tokens or 0) + output_tokens + thought
    ):
        # xAI counts reasoning apart; its total tells
        output_tokens += thought
    return Usage(fresh, output_tokens, cached, written, thought)
