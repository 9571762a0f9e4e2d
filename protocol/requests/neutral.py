"""A request independent of any dialect: written by the reader of one dialect for the writers of all
others.

A request that stays in its dialect is never brought into this form: it goes out with every field as
it came. `extra`, here, has what only the client's dialect knows, or words of another one that the
client used: a writer takes its own from it and notes the rest as left out.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from protocol.request import (
    NOTHING,
    ChatRequest,
    OtherPart,
    TextPart,
    ToolResultPart,
    ToolUsePart,
    Turn,
)

Effort = Literal["minimal", "low", "medium", "high", "xhigh", "max"]
EFFORTS: tuple[Effort, ...] = ("minimal", "low", "medium", "high", "xhigh", "max")
"""How much a model is to think, from the least to the most."""


class Option(msgspec.Struct, frozen=True):
    """A field of an `extra` that other dialects may have a word for, under the client's name for
    it.

    cache: the prompt up to here is worth keeping; `value` is for how long, if the client set it.
    service_tier: standard or OpenAI's word. grammar: of what a custom tool takes; form: the same,
    and it may be left out. logprobs: of the answer's text, with `value` alternatives to each token.
    summary: how the client sees thinking. harmless: left out, it changes no meaning.
    """

    meaning: Literal[
        "cache", "top_k", "service_tier", "grammar", "form", "logprobs", "summary", "harmless"
    ]
    value: Any = None


USUAL_TIERS = ("auto", "default")
"""Values of a service_tier that ask for nothing of the sort."""


def find_option(extra: dict[str, Any], meaning: str) -> tuple[str, Option] | None:
    """Return the client's name and the field of that meaning."""
    return next(
        ((n, v) for n, v in extra.items() if isinstance(v, Option) and v.meaning == meaning), None
    )


class ResultPart(ToolResultPart, frozen=True, kw_only=True, tag="result"):
    """A tool's result that came as more than its text: as `parts`."""

    parts: tuple["NeutralPart", ...]


class MediaPart(msgspec.Struct, frozen=True, kw_only=True, tag="media"):
    """An image, a document, sound or a search result. What is not None of `data` (base64), `url`,
    `file_id` (at a provider) and `text` is its content; where all are, `parts`. `media_type` is ""
    where nobody knows it."""

    media: Literal["image", "document", "audio", "search_result"]
    media_type: str = ""
    data: str | None = None
    url: str | None = None
    file_id: str | None = None
    text: str | None = None
    parts: tuple["NeutralPart", ...] = ()
    title: str = ""
    context: str = ""
    extra: dict[str, Any] = NOTHING


class RefusalPart(msgspec.Struct, frozen=True, tag="refusal"):
    """The words with which an earlier answer refused."""

    text: str


class ThinkingPart(msgspec.Struct, frozen=True, tag="thinking"):
    """Reasoning of an earlier answer. `sealed`, a signature or encrypted data, means something to a
    provider of `sealed_for` alone."""

    text: str
    sealed: str
    sealed_for: str


class ProviderCallPart(msgspec.Struct, frozen=True, kw_only=True, tag="provider_call"):
    """A call that the provider ran itself in an earlier answer. `kind`, here and below, is its type
    in the client's dialect."""

    id: str
    name: str
    input: Any
    server: str = ""
    """The MCP server that it was of."""
    kind: str


class ProviderResultPart(msgspec.Struct, frozen=True, kw_only=True, tag="provider_result"):
    """What came of such a call, as it was; it may be in a later turn than its call."""

    call_id: str
    content: Any
    is_error: bool
    kind: str


class SummaryPart(msgspec.Struct, frozen=True, tag="summary"):
    """What a provider wrote in the place of earlier turns."""

    text: str


NeutralPart = (
    TextPart
    | ToolUsePart
    | ToolResultPart
    | MediaPart
    | RefusalPart
    | ThinkingPart
    | ProviderCallPart
    | ProviderResultPart
    | SummaryPart
    | OtherPart
)
"""OtherPart stays what has no neutral form; of the target's own dialect it is from the record, and
goes out as it is."""


def result_of(
    part: ToolResultPart,
    read: Callable[[dict[str, Any]], NeutralPart],
    text_of: Callable[[Any, str], str],
) -> ToolResultPart:
    """Return a result without its `content`: as parts, where they say more than its text; one that
    a policy rewrote is its text alone."""
    content = part.extra.get("content")
    if not isinstance(content, list):
        return part
    extra = {name: value for name, value in part.extra.items() if name != "content"}
    if any(p.keys() != {"type", "text"} for p in content) and text_of(content, "") == part.text:
        return ResultPart(
            part.tool_call_id,
            part.text,
            part.is_error,
            extra,
            part.form,
            parts=tuple(map(read, content)),
        )
    return ToolResultPart(part.tool_call_id, part.text, part.is_error, extra, part.form)


class NeutralTurn(msgspec.Struct, frozen=True):
    """One turn, as `Turn`."""

    role: Literal["user", "assistant", "system"]
    parts: tuple[NeutralPart, ...]
    extra: dict[str, Any] = NOTHING


AnyTurn = Turn | NeutralTurn
"""A turn of text, calls and results with nothing beside them is neutral as it came."""


class NeutralRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that crosses. `request` has the model, the tools and the options: Options in
    `extra`, and what only the client's dialect knows; `web_search` as a tool in the words of
    `data/server_tools.json`. Its turns are still the client's.
    """

    request: ChatRequest
    system: tuple[NeutralTurn, ...]
    """What `request.system` was read from: with the extra fields of the texts."""
    turns: tuple[AnyTurn, ...]
    words: Mapping[str, str]
    """The client's names of parameters where they are not ours: they name what is left out or
    refused."""


def is_plain(turn: Turn) -> bool:
    """Is this turn nothing but text, calls and results? Nearly every one of an agent's history
    is."""
    return not turn.extra and not any(isinstance(p, OtherPart) or p.extra for p in turn.parts)


def plain(request: ChatRequest) -> NeutralRequest:
    """Return a request of a dialect that has text, calls and results alone."""
    system = tuple(NeutralTurn("system", (TextPart(text),)) for text in request.system)
    return NeutralRequest(request=request, system=system, turns=request.turns, words={})


def kind_of(part: NeutralPart) -> str:
    """Return what errors call a part: the type that its own dialect gives it, where only that one
    knows it."""
    return part.kind if isinstance(part, OtherPart) else str(part.__struct_config__.tag)
