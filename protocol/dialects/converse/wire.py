"""The shape of Converse answers: typed, refusing unknown fields, with a slow path for what the fast
one refuses.

A field that nobody listed here may hold model output in another shape, so it is named, withheld and
recorded, never dropped in silence. `p`, padding of a random length in every event, says nothing.
"""

from typing import Any, TypeVar

import msgspec

from protocol.bytes.json_strict import loads_foreign
from protocol.bytes.unknown import WireStruct, named, take_unknown
from protocol.events import Count


class ReasoningPiece(WireStruct):
    """A piece of thinking, of its signature or of what seals it whole (base64)."""

    text: str = ""
    signature: str = ""
    redactedContent: str = ""


class ToolInput(WireStruct):
    """A piece of a call's arguments."""

    input: str = ""


class Delta(WireStruct):
    """More of a block: one of these."""

    text: str | None = None
    toolUse: ToolInput | None = None
    reasoningContent: ReasoningPiece | None = None
    citation: dict[str, Any] | None = None
    toolResult: list[dict[str, Any]] | None = None
    image: Any = None


class DeltaEvent(WireStruct):
    """contentBlockDelta."""

    contentBlockIndex: int
    delta: Delta
    p: Any = None


class TextDeltaBody(WireStruct):
    """More of a text, and nothing else."""

    text: str


class TextDeltaEvent(WireStruct):
    """contentBlockDelta as nearly all are."""

    contentBlockIndex: int
    delta: TextDeltaBody
    p: str = ""


class ToolUse(WireStruct):
    """A call; `input` in whole answers alone. `type` server_tool_use: the provider runs it."""

    toolUseId: str
    name: str
    type: str = ""
    input: Any = None


class ToolResult(WireStruct):
    """What came of a call that the provider ran; `content` in whole answers alone."""

    toolUseId: str
    type: str = ""
    status: str = ""
    content: list[dict[str, Any]] = []


class ContentStart(WireStruct):
    """How a block begins: one of these. Text and thinking begin with their first piece."""

    toolUse: ToolUse | None = None
    toolResult: ToolResult | None = None
    image: Any = None


class StartEvent(WireStruct):
    """contentBlockStart."""

    contentBlockIndex: int
    start: ContentStart
    p: Any = None


class StopEvent(WireStruct):
    """contentBlockStop."""

    contentBlockIndex: int
    p: Any = None


class MessageStartEvent(WireStruct):
    """messageStart."""

    role: str
    p: Any = None


class MessageStopEvent(WireStruct):
    """messageStop."""

    stopReason: str
    additionalModelResponseFields: Any = None
    p: Any = None


class MetadataEvent(WireStruct):
    """metadata, the last event. `trace` of a guardrail quotes what it masked."""

    usage: dict[str, Any] | None = None
    metrics: Any = None
    trace: Any = None
    performanceConfig: Any = None
    serviceTier: Any = None
    p: Any = None


class TokenUsage(msgspec.Struct, gc=False):
    """The token counts that are modelled."""

    inputTokens: Count | None = None
    outputTokens: Count | None = None
    cacheReadInputTokens: Count | None = None
    cacheWriteInputTokens: Count | None = None


class ReasoningText(WireStruct):
    """Thinking of a whole answer."""

    text: str = ""
    signature: str = ""


class WholeReasoning(WireStruct):
    """Thinking of a whole answer, or what seals it."""

    reasoningText: ReasoningText | None = None
    redactedContent: str = ""


class CitedText(WireStruct):
    """A piece of cited text."""

    text: str = ""


class Cited(WireStruct):
    """Text with its sources."""

    content: list[CitedText] = []
    citations: list[dict[str, Any]] = []


class WholeBlock(WireStruct):
    """A block of a whole answer: one of these."""

    text: str | None = None
    toolUse: ToolUse | None = None
    toolResult: ToolResult | None = None
    reasoningContent: WholeReasoning | None = None
    citationsContent: Cited | None = None
    image: Any = None


class Message(WireStruct):
    """The message of a whole answer; its blocks are read one by one."""

    role: str
    content: list[dict[str, Any]]


class Output(WireStruct):
    """The output of a whole answer."""

    message: Message


class WholeAnswer(WireStruct):
    """A whole answer."""

    output: Output
    stopReason: str
    usage: dict[str, Any] | None = None
    metrics: Any = None
    trace: Any = None
    performanceConfig: Any = None
    serviceTier: Any = None
    additionalModelResponseFields: Any = None


T = TypeVar("T", bound=msgspec.Struct)
_BAD = (msgspec.MsgspecError, ValueError, RecursionError)
_INSIDE: dict[type[msgspec.Struct], tuple[tuple[str, type[msgspec.Struct]], ...]] = {
    DeltaEvent: (("delta", Delta),),
    Delta: (("toolUse", ToolInput), ("reasoningContent", ReasoningPiece)),
    StartEvent: (("start", ContentStart),),
    ContentStart: (("toolUse", ToolUse), ("toolResult", ToolResult)),
    WholeBlock: (
        ("toolUse", ToolUse),
        ("toolResult", ToolResult),
        ("reasoningContent", WholeReasoning),
        ("citationsContent", Cited),
    ),
    WholeReasoning: (("reasoningText", ReasoningText),),
    WholeAnswer: (("output", Output),),
    Output: (("message", Message),),
}
"""Which fields hold which structs."""
_decoders: dict[type[msgspec.Struct], msgspec.json.Decoder[Any]] = {}


def read(data: bytes, model: type[T], what: str) -> tuple[T, list[str]]:
    """Return `data` as `model` and the names of what it has no place for; `what` is the event in
    these. Raises ValueError."""
    decoder = _decoders.get(model)
    if decoder is None:
        decoder = _decoders[model] = msgspec.json.Decoder(model)
    try:
        return decoder.decode(data), []
    except _BAD:
        pass
    try:
        return convert(loads_foreign(data), model, what)
    except _BAD as error:
        raise ValueError("not one of Converse") from error


def convert(value: Any, model: type[T], what: str) -> tuple[T, list[str]]:
    """Return a parsed object as `model`, and the names of what that has no place for. Raises
    ValueError."""
    unknown_names: list[str] = []
    _take(value, model, what, unknown_names)
    try:
        return msgspec.convert(value, model), unknown_names
    except _BAD as error:
        raise ValueError("not one of Converse") from error


def _take(value: Any, model: type[msgspec.Struct], what: str, unknown_names: list[str]) -> None:
    if isinstance(value, dict):
        unknown_names += [named(what, name) for name in take_unknown(value, model)]
        for name, inner in _INSIDE.get(model, ()):
            _take(value.get(name), inner, f"{what}.{name}", unknown_names)


def refuse_several(held: Delta | ContentStart | WholeBlock) -> None:
    """Refuse a union with more than one member: only one would be read. Raises ValueError."""
    if sum(getattr(held, name) is not None for name in held.__struct_fields__) > 1:
        raise ValueError("more than one of what there may be one of")
