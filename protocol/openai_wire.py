"""The shape of chat/completions answers: typed, refusing unknown fields, with a slow way for what the fast one refuses.

Fields that name no content (filters, fingerprints, timing) are known and left out. A field that nobody listed here may
hold model output in another shape, so it is named, withheld and recorded, never dropped in silence.
"""

from typing import Any

import msgspec

from protocol.json_strict import dumps, loads_foreign
from protocol.unknown import strip_unknown


class Function(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The function of a tool call, or a fragment of it."""

    name: str | None = None
    arguments: str | None = None


class ToolCall(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A tool call, or a fragment of it."""

    index: int | None = None
    id: str | None = None
    type: str | None = None
    function: Function | None = None
    custom: Any = None


class Delta(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A delta of a stream, or the message of a whole answer."""

    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCall] | None = None
    refusal: Any = None
    function_call: Any = None
    annotations: Any = None
    audio: Any = None
    reasoning_details: Any = None
    channel: Any = None


class Choice(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """One of the answers; we ask for one."""

    index: int = 0
    delta: Delta | None = None
    finish_reason: str | None = None
    message: Delta | None = None
    logprobs: Any = None
    native_finish_reason: Any = None
    content_filter_results: Any = None
    content_filter_result: Any = None
    content_filter_offsets: Any = None
    matched_stop: Any = None
    stop_reason: Any = None
    token_ids: Any = None
    seed: Any = None


class PromptDetails(msgspec.Struct, gc=False):
    """What the prompt's tokens were."""

    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class CompletionDetails(msgspec.Struct, gc=False):
    """What the answer's tokens were."""

    reasoning_tokens: int | None = None


class ChunkUsage(msgspec.Struct, gc=False):
    """Token counts; vendors add their own beside them."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None


class Chunk(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """One chunk of a stream, or a whole answer."""

    id: str | None = None
    object: Any = None
    created: Any = None
    model: str | None = None
    choices: list[Choice] | None = None
    usage: ChunkUsage | None = None
    system_fingerprint: str | None = None
    service_tier: str | None = None
    obfuscation: Any = None
    error: Any = None
    provider: Any = None
    prompt_filter_results: Any = None
    prompt_token_ids: Any = None
    kv_transfer_params: Any = None
    x_groq: Any = None


_decoder = msgspec.json.Decoder(Chunk)


def read_chunk(data: bytes) -> tuple[Chunk, list[str]]:
    """Return the chunk and the names of its unknown fields. Raises ValueError."""
    try:
        return _decoder.decode(data), []
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _read_slowly(data)


def _read_slowly(data: bytes) -> tuple[Chunk, list[str]]:
    try:
        value = loads_foreign(data)
        found = strip_unknown(value, Chunk, "field")
        choices = value.get("choices") if isinstance(value, dict) else None
        for choice in choices if isinstance(choices, list) else ():
            found += strip_unknown(choice, Choice, "choice field")
            if isinstance(choice, dict):
                found += _strip_delta(choice.get("delta")) + _strip_delta(choice.get("message"))
        return msgspec.convert(value, Chunk), found
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError("not a chunk of chat/completions") from error


def _strip_delta(delta: Any) -> list[str]:
    found = strip_unknown(delta, Delta, "delta field")
    if not isinstance(delta, dict):
        return found
    if isinstance(delta.get("content"), list):
        # Mistral: parts; only their text is modelled
        texts = [p["text"] for p in delta["content"] if isinstance(p, dict) and p.get("type") == "text" and isinstance(p.get("text"), str)]
        if len(texts) != len(delta["content"]):
            found.append("content part")
        delta["content"] = "".join(texts)
    for call in delta["tool_calls"] if isinstance(delta.get("tool_calls"), list) else ():
        found += strip_unknown(call, ToolCall, "tool call field")
        function = call.get("function") if isinstance(call, dict) else None
        found += strip_unknown(function, Function, "function field")
        if isinstance(function, dict) and isinstance(function.get("arguments"), dict):
            # some vendors send the object itself
            function["arguments"] = dumps(function["arguments"]).decode()
    return found
