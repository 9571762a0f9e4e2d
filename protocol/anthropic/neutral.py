"""A Messages request in neutral parts, for a provider of another dialect (protocol.md 1.10)."""

from collections.abc import Callable
from typing import Any

import msgspec

from protocol.anthropic.read import result_text
from protocol.fields import invalid
from protocol.neutral import (
    MediaPart,
    NeutralPart,
    NeutralRequest,
    NeutralTurn,
    ProviderCallPart,
    ProviderResultPart,
    ResultPart,
    SummaryPart,
    ThinkingPart,
)
from protocol.request import NOTHING, ChatRequest, OtherPart, Part, TextPart, ToolResultPart, Turn


def neutral(request: ChatRequest) -> NeutralRequest:
    """Return the request without what only this dialect has. Raises InvalidRequest naming what cannot be read."""
    return NeutralRequest(request=request, turns=tuple(map(_turn, request.turns)))


def _turn(turn: Turn) -> NeutralTurn:
    read = _OF_ROLE.get(turn.role)
    return NeutralTurn(turn.role, tuple(_part(p, read) for p in turn.parts), turn.extra)


def _part(part: Part, read: Callable[[dict[str, Any]], NeutralPart] | None) -> NeutralPart:
    match part:
        case ToolResultPart():
            return _result(part)
        case OtherPart(dialect="anthropic") if read is not None:
            return read(part.body)
        case _:
            return part


def _result(part: ToolResultPart) -> ResultPart:
    extra, parts = part.extra, list[NeutralPart]()
    if isinstance(original := extra.get("content"), list):
        extra = {name: value for name, value in extra.items() if name != "content"}
        # a result that a policy rewrote is its text alone
        if any(b.keys() != {"type", "text"} for b in original) and result_text(original, "") == part.text:
            parts = [_block(b) for b in original]
    return ResultPart(call_id=part.tool_call_id, text=part.text, is_error=part.is_error, parts=tuple(parts), extra=extra)


def _block(block: dict[str, Any]) -> NeutralPart:
    mark = {"cache_control": block["cache_control"]} if block.get("cache_control") is not None else NOTHING
    match block.get("type"):
        case "text":
            return TextPart(_string(block, "text"), mark)
        case "image":
            return _image(block, mark)
        case "document":
            return _document(block, mark)
        case "search_result":
            title, source, parts = _string(block, "title"), _string(block, "source"), _content(block.get("content"))
            return MediaPart(media="search_result", title=title, url=source, parts=parts, extra=mark)
        case "tool_reference":
            return TextPart(f"[tool {_string(block, 'tool_name')}]", mark)
        case kind:
            return OtherPart(str(kind), block, "anthropic")


def _string(block: dict[str, Any], name: str) -> str:
    value = block.get(name)
    if not isinstance(value, str):
        invalid(f"a {str(block.get('type'))[:60]} block in messages must have a string as {name}", "messages")
    return value


def _source(block: dict[str, Any]) -> dict[str, Any]:
    source = block.get("source")
    if not isinstance(source, dict):
        invalid(f"a {block['type']} block in messages must have an object as source", "messages")
    return source


def _image(block: dict[str, Any], mark: dict[str, Any]) -> MediaPart:
    source = _source(block)
    extra = mark if block.get("transformations") is None else {**mark, "transformations": block["transformations"]}
    match source.get("type"):
        case "base64":
            return MediaPart(media="image", media_type=_string(source, "media_type"), data=_string(source, "data"), extra=extra)
        case "url":
            return MediaPart(media="image", url=_string(source, "url"), extra=extra)
    return MediaPart(media="image", file_id=str(source.get("file_id")), extra=extra)


def _document(block: dict[str, Any], mark: dict[str, Any]) -> MediaPart:
    source, citations = _source(block), block.get("citations")
    extra = {**mark, "citations": citations} if isinstance(citations, dict) and citations.get("enabled") else mark
    title, context = (v if isinstance(v := block.get(name), str) else "" for name in ("title", "context"))
    part = MediaPart(media="document", media_type=str(source.get("media_type") or ""), title=title, context=context, extra=extra)
    match source.get("type"):
        case "base64":
            return msgspec.structs.replace(part, data=_string(source, "data"))
        case "text":
            return msgspec.structs.replace(part, text=_string(source, "data"))
        case "content":
            return msgspec.structs.replace(part, parts=_content(source.get("content")))
        case "url":
            return msgspec.structs.replace(part, url=str(source.get("url")))
    return msgspec.structs.replace(part, file_id=str(source.get("file_id")))


def _content(content: Any) -> tuple[NeutralPart, ...]:
    if isinstance(content, str):
        return (TextPart(content),)
    if not isinstance(content, list) or not all(isinstance(b, dict) and b.get("type") in ("text", "image") for b in content):
        invalid("the content of a document or search result must be text and images", "messages")
    return tuple(map(_block, content))


def _answered(block: dict[str, Any]) -> NeutralPart:
    """A block of an earlier answer."""
    match block["type"]:
        case "thinking":
            text, sealed = (v if isinstance(v := block.get(name), str) else "" for name in ("thinking", "signature"))
            return ThinkingPart(text, sealed, "anthropic")
        case "redacted_thinking":
            return ThinkingPart("", str(block.get("data")), "anthropic")
        case "server_tool_use" | "mcp_tool_use" as kind:
            identity, server = (v if isinstance(v := block.get(name), str) else "" for name in ("id", "server_name"))
            return ProviderCallPart(id=identity, name=str(block.get("name")), input=block.get("input", {}), server=server, kind=kind)
        case str(kind) if kind.endswith("_tool_result"):
            call = v if isinstance(v := block.get("tool_use_id"), str) else ""
            return ProviderResultPart(call_id=call, content=block.get("content"), is_error=block.get("is_error") is True, kind=kind)
        case "compaction":
            return SummaryPart(v if isinstance(v := block.get("content"), str) else "")
        case "mcp_tool_listing" | "fallback" as kind:
            # bookkeeping of the provider's own
            return TextPart("", {kind: True})
        case kind:
            return OtherPart(kind, block, "anthropic")


_OF_ROLE = {"user": _block, "assistant": _answered}
"""What reads the blocks of a turn that are no text, call or result."""
