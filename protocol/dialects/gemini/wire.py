"""The shape of generateContent answers: typed, refusing unknown fields, with a slow way for what
the fast one refuses.

Source: ai.google.dev/api/generate-content. Fields that hold none of the model's words (ratings,
versions, times) are known and left out. A field that nobody listed here may hold model output in
another shape, so it is named, withheld and recorded.
"""

from typing import Any, Literal

import msgspec

from protocol.bytes.json_strict import dumps, loads_foreign
from protocol.bytes.unknown import WireStruct, named, take_unknown
from protocol.events import Count


class FunctionCall(WireStruct, rename="camel"):
    """A call that the client executes, whole, or a piece of one whose arguments are streamed."""

    name: str | None = None
    args: msgspec.Raw = msgspec.Raw()
    id: str | None = None
    partial_args: list[Any] | None = None
    will_continue: bool | None = None


class Part(WireStruct, rename="camel"):
    """One part of a content: exactly one of its contents, and what seals it."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: FunctionCall | None = None
    executable_code: dict[str, Any] | None = None
    code_execution_result: dict[str, Any] | None = None
    tool_call: dict[str, Any] | None = None
    tool_response: dict[str, Any] | None = None
    inline_data: dict[str, Any] | None = None
    file_data: dict[str, Any] | None = None
    part_metadata: Any = None
    video_metadata: Any = None
    media_resolution: Any = None


class Content(WireStruct):
    """The model's output."""

    parts: list[Part] | None = None
    role: str | None = None


class Candidate(WireStruct, rename="camel"):
    """One of the answers; we ask for one."""

    content: Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None
    index: int = 0
    grounding_metadata: dict[str, Any] | None = None
    citation_metadata: Any = None
    logprobs_result: Any = None
    safety_ratings: Any = None
    avg_logprobs: Any = None
    token_count: Any = None
    url_context_metadata: Any = None
    grounding_attributions: Any = None


class PromptFeedback(msgspec.Struct, gc=False, rename="camel"):
    """Why a prompt was refused."""

    block_reason: str | None = None
    block_reason_message: str | None = None


class UsageMetadata(msgspec.Struct, gc=False, rename="camel"):
    """Token counts; cumulative, the last ones count."""

    prompt_token_count: Count | None = None
    cached_content_token_count: Count | None = None
    candidates_token_count: Count | None = None
    thoughts_token_count: Count | None = None
    tool_use_prompt_token_count: Count | None = None


class Chunk(WireStruct, rename="camel"):
    """One chunk of a stream, which holds new parts, or a whole answer."""

    candidates: list[Candidate] | None = None
    usage_metadata: UsageMetadata | None = None
    model_version: str | None = None
    response_id: str | None = None
    prompt_feedback: PromptFeedback | None = None
    create_time: Any = None
    model_status: Any = None
    error: Any = None


class _TextPart(WireStruct):
    text: str
    thought: bool = False


class _TextContent(WireStruct):
    parts: tuple[_TextPart]
    role: msgspec.Raw = msgspec.Raw()


class _TextCandidate(WireStruct):
    content: _TextContent
    index: Literal[0] = 0


class _TextChunk(WireStruct, rename="camel"):
    """What nearly every chunk of a stream is: one more piece of a text. A chunk that is not refused
    is nothing else."""

    candidates: tuple[_TextCandidate]
    usage_metadata: msgspec.Raw = msgspec.Raw()
    model_version: msgspec.Raw = msgspec.Raw()
    response_id: msgspec.Raw = msgspec.Raw()
    create_time: msgspec.Raw = msgspec.Raw()


CONTENTS = tuple(
    "function_call executable_code code_execution_result tool_call tool_response"
    " inline_data file_data".split()
)
"""The contents of a part beside its text."""
_decoder = msgspec.json.Decoder(Chunk)


_text_decoder = msgspec.json.Decoder(_TextChunk)
_usage_decoder = msgspec.json.Decoder(UsageMetadata | None)


def read_text(data: bytes) -> tuple[_TextPart, msgspec.Raw] | None:
    """Return the text of a chunk that holds one and nothing else, and its counts as they came; None
    for any other."""
    try:
        chunk = _text_decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return chunk.candidates[0].content.parts[0], chunk.usage_metadata


def read_counts(raw: msgspec.Raw) -> UsageMetadata | None:
    """Return the counts of such a chunk. Raises ValueError."""
    try:
        return _usage_decoder.decode(raw) if raw else None
    except msgspec.MsgspecError as error:
        raise ValueError("not the counts of generateContent") from error


def read_chunk(data: bytes) -> tuple[Chunk, list[str]]:
    """Return the chunk and the names of what of it is not modelled. Raises ValueError."""
    try:
        return _decoder.decode(data), []
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _read_slowly(data)


def _read_slowly(data: bytes) -> tuple[Chunk, list[str]]:
    try:
        value = loads_foreign(data)
        if isinstance(value, list) and len(value) == 1:
            # errors of streams come as a list of one
            value = value[0]
        unknown_names = _take(value, Chunk, "field")
        for candidate in _list(value, "candidates"):
            of_candidate = _take(candidate, Candidate, "candidate field")
            content = candidate.get("content") if isinstance(candidate, dict) else None
            of_candidate += _take(content, Content, "content field")
            for part in _list(content, "parts"):
                of_candidate += _take(part, Part, "part field")
                call = part.get("functionCall") if isinstance(part, dict) else None
                of_candidate += _take(call, FunctionCall, "function call field")
                if isinstance(call, dict) and call.get("args") is not None:
                    call["args"] = msgspec.Raw(dumps(call["args"]))
            # another candidate is withheld as a whole
            if isinstance(candidate, dict) and candidate.get("index", 0) == 0:
                unknown_names += of_candidate
        return msgspec.convert(value, Chunk), unknown_names
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError("not a chunk of generateContent") from error


def _list(holder: Any, name: str) -> list[Any]:
    value = holder.get(name) if isinstance(holder, dict) else None
    return value if isinstance(value, list) else []


def _take(value: Any, model: type[msgspec.Struct], at: str) -> list[str]:
    """Take out what `model` lacks, by the names of the wire; returns how the record names each with
    content."""
    if not isinstance(value, dict):
        return []
    known = {name: value.pop(name) for name in model.__struct_encode_fields__ if name in value}
    unknown_names = [named(at, name) for name in take_unknown(value, model)]
    value.clear()
    value |= known
    return unknown_names
