"""Blocks of Converse answers as events: what streamed and whole answers share."""

import base64
import binascii
from collections.abc import Sequence
from typing import Any, Literal

from protocol.bytes.unknown import named
from protocol.citations import Citation
from protocol.dialects.converse.wire import ToolResult, ToolUse
from protocol.errors import RemoteProtocolError
from protocol.events import (
    AttachmentDelta,
    BlockKind,
    BlockStart,
    Event,
    Opaque,
    StopReason,
    UpstreamFailed,
)

REDACTED, RESULT = "redacted_thinking", "toolResult"
"""Names of the blocks that are carried whole."""
_REASONS = {str(r): r for r in StopReason} | {
    "guardrail_intervened": StopReason.REFUSAL,
    "content_filtered": StopReason.REFUSAL,
}
_OTHERS = frozenset((StopReason.REFUSAL, StopReason.PAUSE_TURN, StopReason.COMPACTION))
"""Words of Messages that are none here."""
_MALFORMED = frozenset(("malformed_model_output", "malformed_tool_use"))
_Kind = Literal["url", "file", "char", "page", "block", "chunk"]
_LOCATIONS: dict[str, _Kind] = {
    "web": "url",
    "documentChar": "char",
    "documentPage": "page",
    "documentChunk": "chunk",
    "searchResultLocation": "block",
}


def read_reason(word: str) -> StopReason | UpstreamFailed:
    """Return why a message ended, or that its model failed. Raises RemoteProtocolError."""
    if word in _MALFORMED:
        return UpstreamFailed(
            "api_error",
            "the upstream's model wrote an answer or a tool call that its provider cannot read",
        )
    if word not in _REASONS or word in _OTHERS:
        raise RemoteProtocolError("upstream ended its message with an unknown stop reason")
    return _REASONS[word]


def says_something(fields: Any, depth: int = 3) -> bool:
    """Does what a model added of its own say anything? Claude names the stop sequence that it did
    not meet: null, in an object."""
    if isinstance(fields, dict) and depth:
        return any(says_something(value, depth - 1) for value in fields.values())
    return fields not in (None, {})


def call_start(index: int, call: ToolUse) -> BlockStart | Opaque:
    """Return the beginning of a call: who runs it, its type says alone. Raises
    RemoteProtocolError."""
    if not call.toolUseId or not call.name:
        raise RemoteProtocolError("upstream sent a tool call without an id or a name")
    match call.type:
        case "" | "tool_use":
            return BlockStart(index, BlockKind.TOOL_USE, id=call.toolUseId, name=call.name)
        case "server_tool_use":
            return BlockStart(
                index,
                BlockKind.SERVER_TOOL_USE,
                id=call.toolUseId,
                name=call.name,
                body={"type": call.type},
            )
    return Opaque(named("block toolUse", call.type))


def result_start(index: int, result: ToolResult, content: Sequence[dict[str, Any]]) -> BlockStart:
    """Return the block of a result of the provider's."""
    fields = {
        name: value
        for name, value in (("result_type", result.type), ("status", result.status))
        if value
    }
    return BlockStart(
        index,
        BlockKind.OTHER,
        name=RESULT,
        body={"type": RESULT, "tool_use_id": result.toolUseId, **fields, "content": content},
    )


def redacted_start(index: int, pieces: Sequence[str]) -> BlockStart:
    """Return the block of sealed thinking, which may have come in pieces of base64. Raises
    RemoteProtocolError."""
    try:
        data = base64.b64encode(
            b"".join(base64.b64decode(piece, validate=True) for piece in pieces)
        ).decode()
    except (binascii.Error, ValueError) as error:
        raise RemoteProtocolError(
            "upstream sealed its thinking in something else than base64"
        ) from error
    return BlockStart(
        index, BlockKind.OTHER, name=REDACTED, body={"type": REDACTED, "redactedContent": data}
    )


def citation(index: int, source: dict[str, Any]) -> Event:
    """Return a source of the text in block `index`. The API does not say for which of its
    characters."""
    location = source.get("location")
    kind, place = (
        next(iter(location.items()), ("", None)) if isinstance(location, dict) else ("", None)
    )
    if kind not in _LOCATIONS:
        return Opaque(named("citation", kind))
    content = source.get("sourceContent")
    cited = "".join(_string(c, "text") for c in content) if isinstance(content, list) else ""
    # a search result names where it is from beside its place
    url = (
        _string(place, "url")
        if kind == "web"
        else _string(source, "source")
        if kind == "searchResultLocation"
        else ""
    )
    made = Citation(
        kind=_LOCATIONS[kind],
        url=url,
        title=_string(source, "title"),
        cited_text=cited,
        raw=source,
        dialect="converse",
    )
    return AttachmentDelta(index, "citation", made)


def _string(holder: Any, name: str) -> str:
    value = holder.get(name) if isinstance(holder, dict) else None
    return value if isinstance(value, str) else ""
