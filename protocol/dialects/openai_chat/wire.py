"""The shape of chat/completions answers: typed, refusing unknown fields, with a slow path for what
the fast one refuses.

Fields that name no content (filters, fingerprints, timing) are known and left out. A field that
nobody listed here may hold model output in another shape, so it is named, withheld and recorded,
never dropped in silence.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from protocol.bytes.json_strict import dumps, loads_foreign
from protocol.bytes.unknown import WireStruct, named, take_unknown
from protocol.events import Count


class Unknown(msgspec.Struct, frozen=True):
    """A field that nobody listed here, by the name that the setting `unknown` has for it.

    `body` is the piece of a chunk that holds it, None where it has no place of its own (a part of
    the text); `call` is the position of the tool call in the chunk that it belongs to, -1 for none.
    """

    what: str
    body: dict[str, Any] | None = None
    call: int = -1


class Function(WireStruct):
    """The function of a tool call, or a fragment of it."""

    name: str | None = None
    arguments: str | None = None


class Custom(WireStruct):
    """The free-form tool of a tool call, or a fragment of it."""

    name: str | None = None
    input: str | None = None


class WireToolCall(WireStruct):
    """A tool call, or a fragment of it."""

    index: int | None = None
    id: str | None = None
    type: str | None = None
    function: Function | None = None
    custom: Custom | None = None


class Delta(WireStruct):
    """A delta of a stream, or the message of a whole answer."""

    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[WireToolCall] | None = None
    refusal: str | None = None
    function_call: Function | None = None
    annotations: Any = None
    audio: Any = None
    reasoning_details: Any = None
    thinking_blocks: Any = None
    channel: Any = None


class Choice(WireStruct):
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

    cached_tokens: Count | None = None
    cache_write_tokens: Count | None = None


class CompletionDetails(msgspec.Struct, gc=False):
    """What the answer's tokens were."""

    reasoning_tokens: Count | None = None


class ChunkUsage(msgspec.Struct, gc=False):
    """Token counts; vendors add their own."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    total_tokens: Count | None = None
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None


class Chunk(WireStruct):
    """One chunk of a stream, or a whole answer."""

    id: str | None = None
    object: Any = None
    created: Any = None
    model: str | None = None
    choices: list[Choice] | None = None
    usage: Any = None
    system_fingerprint: str | None = None
    service_tier: str | None = None
    obfuscation: Any = None
    error: Any = None
    provider: Any = None
    moderation: Any = None
    prompt_filter_results: Any = None
    prompt_token_ids: Any = None
    kv_transfer_params: Any = None
    x_groq: Any = None
    usage_breakdown: Any = None


class OddChoice(Choice, gc=False, forbid_unknown_fields=True):
    """A choice with what few vendors send."""

    usage: Any = None


class OddChunk(Chunk, gc=False, forbid_unknown_fields=True):
    """A chunk with what few vendors send: it is read at the second try, so that the others pay
    nothing for it."""

    choices: list[OddChoice] | None = None  # type: ignore[assignment]
    citations: Any = None
    search_results: Any = None
    p: Any = None
    time_info: Any = None
    timings: Any = None
    request_id: Any = None
    generationId: Any = None
    metadata: Any = None


_MAX_NAME = 60
_decoder, _odd_decoder = msgspec.json.Decoder(Chunk), msgspec.json.Decoder(OddChunk)


def read_usage(value: Any) -> tuple[ChunkUsage, int | None]:
    """Return the counts of a usage object, and the cached tokens of the prompt. Raises
    ValueError."""
    try:
        usage = msgspec.convert(value, ChunkUsage)
        if usage.prompt_tokens_details and usage.prompt_tokens_details.cached_tokens is not None:
            return usage, usage.prompt_tokens_details.cached_tokens
        # beside the details: as DeepSeek says it, and as Moonshot does
        cached = value.get("prompt_cache_hit_tokens")
        if cached is None and (cached := value.get("cached_tokens")) is None:
            return usage, None
        return usage, msgspec.convert(cached, Count)
    except msgspec.ValidationError as error:
        raise ValueError("not the usage of chat/completions") from error


def read_chunk(data: bytes) -> tuple[Chunk, list[Unknown]]:
    """Return the chunk and what of it is not modelled. Raises ValueError."""
    try:
        return _decoder.decode(data), []
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    try:
        return _odd_decoder.decode(data), []
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _read_slowly(data)


def _read_slowly(data: bytes) -> tuple[Chunk, list[Unknown]]:
    try:
        value = loads_foreign(data)
        if isinstance(value, dict) and value.get("object") == "error":
            # Mistral's, vLLM's: without another object around it
            return OddChunk(error=value.get("error") or value), []
        unknown_fields = [
            Unknown(what, {name: item}) for what, name, item in _take(value, OddChunk, "field")
        ]
        choices = value.get("choices") if isinstance(value, dict) else None
        for choice in choices if isinstance(choices, list) else ():
            of_choice = _strip_choice(choice)
            # another choice is withheld as a whole
            if isinstance(choice, dict) and choice.get("index", 0) == 0:
                unknown_fields += of_choice
        return msgspec.convert(value, OddChunk), unknown_fields
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError("not a chunk of chat/completions") from error


def _take(value: Any, model: type[msgspec.Struct], at: str) -> list[tuple[str, str, Any]]:
    """Take out what `model` lacks; full name, key and value of each."""
    return [(named(at, name), name, item) for name, item in take_unknown(value, model).items()]


def _choice_of(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, **fields}]}


def _strip_choice(choice: Any) -> list[Unknown]:
    if isinstance(choice, dict) and isinstance(delta := choice.get("delta"), dict):
        # Together's: each token's number, and its text again as completions have it
        delta.pop("token_id", None)
        if choice.get("text") == delta.get("content"):
            choice.pop("text", None)
    unknown_fields = [
        Unknown(what, _choice_of(**{name: item}))
        for what, name, item in _take(choice, OddChoice, "choice field")
    ]
    if isinstance(choice, dict):
        unknown_fields += _strip_delta(choice.get("delta")) + _strip_delta(choice.get("message"))
    return unknown_fields


def _strip_delta(delta: Any) -> list[Unknown]:
    unknown_fields = [
        Unknown(what, _choice_of(delta={name: item}))
        for what, name, item in _take(delta, Delta, "delta field")
    ]
    if not isinstance(delta, dict):
        return unknown_fields
    if isinstance(delta.get("content"), list):
        unknown_fields += _join_parts(delta, delta["content"])
    for position, call in enumerate(
        delta["tool_calls"] if isinstance(delta.get("tool_calls"), list) else ()
    ):
        unknown_fields += _strip_call(call, position)
    unknown_fields += _strip_function(
        delta.get("function_call"), lambda fields: {"function_call": fields}, -1
    )
    return unknown_fields


def _strip_call(call: Any, position: int) -> list[Unknown]:
    def at(fields: dict[str, Any]) -> dict[str, Any]:
        return {"tool_calls": [{"index": 0, **fields}]}

    taken = _take(call, WireToolCall, "tool call field")
    unknown_fields = [
        Unknown(what, _choice_of(delta=at({name: item})), position) for what, name, item in taken
    ]
    if isinstance(call, dict):
        unknown_fields += _strip_function(
            call.get("function"), lambda fields: at({"function": fields}), position
        )
        taken = _take(call.get("custom"), Custom, "custom tool field")
        unknown_fields += [
            Unknown(what, _choice_of(delta=at({"custom": {name: item}})), position)
            for what, name, item in taken
        ]
    return unknown_fields


def _strip_function(
    function: Any, at: Callable[[dict[str, Any]], dict[str, Any]], position: int
) -> list[Unknown]:
    taken = _take(function, Function, "function field")
    if isinstance(function, dict) and isinstance(function.get("arguments"), dict):
        # some vendors send the object itself
        function["arguments"] = dumps(function["arguments"]).decode()
    return [
        Unknown(what, _choice_of(delta=at({name: item})), position) for what, name, item in taken
    ]


def _join_parts(delta: dict[str, Any], parts: list[Any]) -> list[Unknown]:
    """Put Mistral's parts into the fields that others have: text into the content, thinking into
    the reasoning."""
    texts: list[str] = []
    thoughts: list[str] = []
    unknown_fields: list[Unknown] = []
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "thinking" and isinstance(part.get("thinking"), list):
            unknown_fields += _odd_fields(part, ("type", "thinking", "closed"))
            for inner in part["thinking"]:
                unknown_fields += _text_part(inner, thoughts)
        else:
            unknown_fields += _text_part(part, texts)
    delta["content"] = _joined(texts)
    if thoughts:
        reasoning = delta.get("reasoning_content")
        delta["reasoning_content"] = _joined(
            [reasoning if isinstance(reasoning, str) else "", *thoughts]
        )
    return unknown_fields


def _joined(texts: list[str]) -> str:
    """The texts as one, in which the two halves of a character are one as clients read them."""
    text = "".join(texts)
    return (
        text
        if text.isascii()
        else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    )


def _text_part(part: Any, texts: list[str]) -> list[Unknown]:
    if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
        texts.append(part["text"])
        return _odd_fields(part, ("type", "text"))
    kind = part.get("type") if isinstance(part, dict) else None
    return [
        Unknown(f"content part {kind[:_MAX_NAME]}" if isinstance(kind, str) else "content part")
    ]


def _odd_fields(part: dict[str, Any], known: tuple[str, ...]) -> list[Unknown]:
    return [
        Unknown(f"content part field {name[:_MAX_NAME]}")
        for name, item in part.items()
        if name not in known and item
    ]
