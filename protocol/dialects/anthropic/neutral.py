"""A Messages request in neutral parts, for a provider of another dialect (docs/change/protocol.md
1.10)."""

from collections.abc import Callable
from typing import Any

import msgspec

from protocol.dialects.anthropic.read import result_text
from protocol.request import (
    METADATA,
    NOTHING,
    ChatRequest,
    OtherPart,
    Part,
    TextPart,
    Tool,
    ToolResultPart,
    ToolUsePart,
    Turn,
    without_metadata,
)
from protocol.requests.fields import invalid
from protocol.requests.neutral import (
    AnyTurn,
    MediaPart,
    NeutralPart,
    NeutralRequest,
    NeutralTurn,
    Option,
    ProviderCallPart,
    ProviderResultPart,
    SummaryPart,
    ThinkingPart,
    is_plain,
    result_of,
)

_HARMLESS = frozenset(("diagnostics", "fallback_credit_token"))
"""Left out, they change no meaning."""
_READ = frozenset(("system", "thinking", "output_format", "betas", "anthropic_beta"))
"""What is read elsewhere. What the names of betas switch on is in the body, and noted there."""
_THINKING = ("enabled", "adaptive", "between_tools", "disabled")
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_WORDS = {
    "effort": "output_config.effort",
    "stop": "stop_sequences",
    "user": "metadata.user_id",
    "response_format": "output_config.format",
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
}


def neutral(request: ChatRequest) -> NeutralRequest:
    """Return the request without what only this dialect has. Raises InvalidRequest naming what
    cannot be read."""
    system, turns = _system(request), tuple(map(_turn, request.turns))
    extra, effort = (
        _options(request.extra),
        (request.reasoning.effort if request.reasoning is not None else None),
    )
    thinking = request.extra.get("thinking")
    if isinstance(thinking, dict) and thinking.get("type") not in _THINKING:
        invalid(f"thinking.type must be one of {', '.join(_THINKING)}", "thinking")
    if effort not in (None, *_EFFORTS):
        invalid(f"output_config.effort must be one of {', '.join(_EFFORTS)}", "output_config")
    prompt = tuple(filter(None, map(without_metadata, request.system)))
    written = msgspec.structs.replace(
        request, extra=extra, tools=tuple(map(_tool, request.tools)), system=prompt
    )
    return NeutralRequest(request=written, system=system, turns=turns, words=_WORDS)


def _options(extra: dict[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, value in extra.items():
        if value in (None, "", [], {}) or name in _READ or (name, value) == ("speed", "standard"):
            continue
        match name:
            case "metadata":
                if len(value) > ("user_id" in value):
                    options[name] = Option("harmless")
            case "service_tier":
                if value not in ("auto", "standard_only"):
                    invalid("service_tier must be auto or standard_only", "service_tier")
                options[name] = Option("service_tier", "auto" if value == "auto" else "standard")
            case "output_config":
                options |= _output_config(value)
            case "context_management":
                _check_edits(value)
                options[name] = Option("harmless")
            case "cache_control":
                options[name] = _mark(value)
            case "top_k":
                options[name] = Option("top_k", value)
            case _:
                options[name] = (
                    Option("harmless")
                    if name in _HARMLESS or (name, value) == ("speed", "fast")
                    else value
                )
    return options


def _output_config(value: dict[str, Any]) -> dict[str, Any]:
    if unknown := [name for name in value if name not in ("effort", "format", "task_budget")]:
        invalid(
            f"output_config.{unknown[0][:60]} cannot be sent to this model's provider",
            "output_config",
        )
    return (
        {"output_config.task_budget": Option("harmless")}
        if value.get("task_budget") is not None
        else {}
    )


def _check_edits(value: Any) -> None:
    """Earlier thinking is not sent anyway; edits of anything else change what the model reads, and
    nobody here would make them."""
    edits = value.get("edits") if isinstance(value, dict) else None
    if not isinstance(edits, list) or not all(
        isinstance(e, dict) and str(e.get("type")).startswith("clear_thinking_") for e in edits
    ):
        invalid(
            "context_management with other edits than of thinking cannot be sent to this model's"
            " provider",
            "context_management",
        )


def _tool(tool: Tool) -> Tool:
    if tool.kind in ("server", "client") or not tool.extra:
        return tool
    return msgspec.structs.replace(
        tool,
        extra=_beside(
            {n: v for n, v in tool.extra.items() if n != "type" and v not in (None, False)}
        ),
    )


def _system(request: ChatRequest) -> tuple[NeutralTurn, ...]:
    system = request.extra.get("system")
    blocks = [b for b in system if isinstance(b, dict)] if isinstance(system, list) else []
    extras = [_beside({n: v for n, v in b.items() if n not in ("type", "text")}) for b in blocks]
    texts = list(map(without_metadata, request.system))
    gone = {METADATA: True} if texts != list(request.system) else NOTHING
    if [b.get("text") for b in blocks] == list(request.system):
        return (
            NeutralTurn(
                "system",
                tuple(TextPart(*fields) for fields in zip(texts, extras, strict=True) if fields[0]),
                gone,
            ),
        )
    return (
        NeutralTurn(
            "system",
            tuple(map(TextPart, filter(None, texts))),
            gone | {n: v for fields in extras for n, v in fields.items()},
        ),
    )


def _mark(value: Any) -> Option:
    return Option("cache", value.get("ttl") if isinstance(value, dict) else None)


def _beside(extra: dict[str, Any]) -> dict[str, Any]:
    """The extra fields of a text, call or result."""
    if not extra:
        return NOTHING
    return {n: _mark(v) if n == "cache_control" else v for n, v in extra.items() if v is not None}


def _turn(turn: Turn) -> AnyTurn:
    if is_plain(turn):
        return turn
    read = _OF_ROLE.get(turn.role)
    return NeutralTurn(turn.role, tuple(_part(p, read) for p in turn.parts), _beside(turn.extra))


def _part(part: Part, read: Callable[[dict[str, Any]], NeutralPart] | None) -> NeutralPart:
    match part:
        case ToolResultPart():
            tool_result = result_of(part, _block, result_text)
            return (
                msgspec.structs.replace(tool_result, extra=_beside(tool_result.extra))
                if tool_result.extra
                else tool_result
            )
        case OtherPart(dialect="anthropic") if read is not None:
            return read(part.body)
        case TextPart(extra=extra) | ToolUsePart(extra=extra) if extra:
            # of an answer: no sources, or called by the model itself, say nothing
            silent: dict[str, Any] = (
                {"citations": [[]], "caller": [{"type": "direct"}]} if read is _answered else {}
            )
            return msgspec.structs.replace(
                part, extra=_beside({n: v for n, v in extra.items() if v not in silent.get(n, ())})
            )
        case _:
            return part


def _block(block: dict[str, Any]) -> NeutralPart:
    mark = (
        {"cache_control": _mark(value)}
        if (value := block.get("cache_control")) is not None
        else NOTHING
    )
    match block.get("type"):
        case "text":
            return TextPart(_string(block, "text"), mark)
        case "image":
            return _image(block, mark)
        case "document":
            return _document(block, mark)
        case "search_result":
            title, source, parts = (
                _string(block, "title"),
                _string(block, "source"),
                _content(block.get("content")),
            )
            return MediaPart(
                media="search_result",
                title=title,
                url=source,
                parts=parts,
                extra=mark | _cited(block),
            )
        case "tool_reference":
            return TextPart(f"[tool {_string(block, 'tool_name')}]", mark)
        case kind:
            return OtherPart(str(kind), block, "anthropic")


def _string(block: dict[str, Any], name: str) -> str:
    value = block.get(name)
    if not isinstance(value, str):
        invalid(
            f"a {str(block.get('type'))[:60]} block in messages must have a string as {name}",
            "messages",
        )
    return value


def _source(block: dict[str, Any]) -> dict[str, Any]:
    source = block.get("source")
    if not isinstance(source, dict):
        invalid(f"a {block['type']} block in messages must have an object as source", "messages")
    return source


def _image(block: dict[str, Any], mark: dict[str, Any]) -> MediaPart:
    source = _source(block)
    extra = (
        mark
        if block.get("transformations") is None
        else {**mark, "transformations": block["transformations"]}
    )
    match source.get("type"):
        case "base64":
            return MediaPart(
                media="image",
                media_type=_string(source, "media_type"),
                data=_string(source, "data"),
                extra=extra,
            )
        case "url":
            return MediaPart(media="image", url=_string(source, "url"), extra=extra)
    return MediaPart(media="image", file_id=str(source.get("file_id")), extra=extra)


def _cited(block: dict[str, Any]) -> dict[str, Any]:
    """Whether an answer is to say what it has from here."""
    citations = block.get("citations")
    return (
        {"citations": citations} if isinstance(citations, dict) and citations.get("enabled") else {}
    )


def _document(block: dict[str, Any], mark: dict[str, Any]) -> MediaPart:
    source, extra = _source(block), mark | _cited(block)
    title, context = (
        v if isinstance(v := block.get(name), str) else "" for name in ("title", "context")
    )
    part = MediaPart(
        media="document",
        media_type=str(source.get("media_type") or ""),
        title=title,
        context=context,
        extra=extra,
    )
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
    if not isinstance(content, list) or not all(
        isinstance(b, dict) and b.get("type") in ("text", "image") for b in content
    ):
        invalid("the content of a document or search result must be text and images", "messages")
    return tuple(map(_block, content))


def _answered(block: dict[str, Any]) -> NeutralPart:
    """A block of an earlier answer."""
    match block["type"]:
        case "thinking":
            text, sealed = (
                v if isinstance(v := block.get(name), str) else ""
                for name in ("thinking", "signature")
            )
            return ThinkingPart(text, sealed, "anthropic")
        case "redacted_thinking":
            return ThinkingPart("", str(block.get("data")), "anthropic")
        case "server_tool_use" | "mcp_tool_use" as kind:
            identity, server = (
                v if isinstance(v := block.get(name), str) else "" for name in ("id", "server_name")
            )
            return ProviderCallPart(
                id=identity,
                name=str(block.get("name")),
                input=block.get("input", {}),
                server=server,
                kind=kind,
            )
        case str(kind) if kind.endswith("_tool_result"):
            call = v if isinstance(v := block.get("tool_use_id"), str) else ""
            return ProviderResultPart(
                call_id=call,
                content=block.get("content"),
                is_error=block.get("is_error") is True,
                kind=kind,
            )
        case "compaction":
            return SummaryPart(v if isinstance(v := block.get("content"), str) else "")
        case "mcp_tool_listing" | "fallback" as kind:
            # bookkeeping of the provider's own
            return TextPart("", {kind: True})
        case kind:
            return OtherPart(kind, block, "anthropic")


_OF_ROLE = {"user": _block, "assistant": _answered}
"""What reads the blocks of a turn that are no text, call or result."""
