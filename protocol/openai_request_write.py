"""chat/completions requests written for a provider of this dialect (protocol.md 1.1, 1.10)."""

from collections.abc import Sequence
from typing import Any

from protocol import fields
from protocol.fields import invalid
from protocol.json_strict import dumps, loads_arguments
from protocol.openai_messages_read import result_text
from protocol.request import ChatRequest, OtherPart, Part, ResponseFormat, TextPart, Tool, ToolChoice, ToolResultPart, ToolUsePart
from protocol.server_tools import gate_openai
from protocol.target import Target, Translated

_DROPPED = frozenset(("top_k", "service_tier", "metadata", "cache_control", "system"))
"""What an Anthropic client may say and this dialect has no word for, and whose absence changes no meaning (`system` is read)."""
_REASONING_MODELS = ("o1", "o3", "o4", "gpt-5")
"""Models that take a developer message and max_completion_tokens where others take system and max_tokens."""
_MAX_STOPS = 4


def encode(request: ChatRequest, target: Target, *, changed: bool = True) -> Translated:
    """Write the request for a chat/completions provider. Raises InvalidRequest naming what it cannot say."""
    same = request.dialect == "openai"
    if same:
        gate_openai(request, target)
        if not changed:
            return Translated(body=None)
    else:
        _refuse_foreign(request)
    body: dict[str, Any] = dict(request.extra) if same else {}
    body |= {"model": request.model, "messages": _write_messages(request, same=same)}
    if request.tools and request.legacy_functions:
        body["functions"] = [_write_tool(t, same=same)["function"] for t in request.tools]
        if (choice := request.tool_choice) is not None:
            body["function_call"] = {"name": choice.name} if choice.mode == "tool" else choice.mode
    elif request.tools:
        body["tools"] = [_write_tool(t, same=same) for t in request.tools]
        if request.tool_choice is not None:
            body["tool_choice"] = _write_choice(request, request.tool_choice)
        if request.parallel_tool_calls is not None:
            body["parallel_tool_calls"] = request.parallel_tool_calls
    if request.stream:
        options = body.get("stream_options") or {}
        body |= {"stream": True, "stream_options": {**options, "include_usage": True}}
    if request.max_tokens is not None:
        by_completion = "max_completion_tokens" in body or (not same and request.model.startswith(_REASONING_MODELS))
        body["max_completion_tokens" if by_completion else "max_tokens"] = request.max_tokens
    for name, value in (("temperature", request.temperature), ("top_p", request.top_p), ("user", request.user)):
        if value is not None:
            body[name] = value
    if request.response_format is not None:
        body["response_format"] = _write_format(request.response_format)
    if request.reasoning is not None and request.reasoning.effort is not None:
        body["reasoning_effort"] = request.reasoning.effort
    if request.web_search is not None:
        body["web_search_options"] = request.web_search
    if request.stop:
        if len(request.stop) > _MAX_STOPS and not same:
            invalid(f"this model's provider takes at most {_MAX_STOPS} stop sequences", "stop_sequences")
        body["stop"] = list(request.stop)
    return Translated(body=dumps(body))


def _refuse_foreign(request: ChatRequest) -> None:
    for name, value in request.extra.items():
        if name not in _DROPPED and value not in (None, {"type": "disabled"}):
            invalid(f"{name} cannot be sent to this model's provider", name)


def _write_messages(request: ChatRequest, *, same: bool) -> list[dict[str, Any]]:
    role = "developer" if request.model.startswith(_REASONING_MODELS) else "system"
    texts = request.system if same else ("\n".join(request.system),) if request.system else ()
    originals = request.system_messages if len(request.system_messages) == len(texts) else ({},) * len(texts)
    messages = [_write_system(role, text, original) for text, original in zip(texts, originals, strict=True)]
    for turn in request.turns:
        extra = turn.extra if same else {}
        match turn.role:
            case "system":
                messages.append({"role": role, "content": _plain(turn.parts), **extra})
            case "user":
                _write_user(turn.parts, extra, messages, same=same)
            case _:
                messages.append(_write_assistant(turn.parts, extra, same=same))
    return messages


def _write_system(role: str, text: str, original: dict[str, Any]) -> dict[str, Any]:
    """Return the message as it came, where its text is still the same."""
    content = original.get("content")
    same = content == text or (isinstance(content, list) and "".join(p["text"] for p in content) == text)
    return original if same else {"role": original.get("role", role), "content": text}


def _plain(parts: Sequence[Part]) -> str:
    return "".join(p.text for p in parts if isinstance(p, TextPart))


def _write_user(parts: Sequence[Part], extra: dict[str, Any], messages: list[dict[str, Any]], *, same: bool) -> None:
    # the dialect wants all results before anything else of their turn
    messages += [_write_result(p, same=same) for p in parts if isinstance(p, ToolResultPart)]
    rest = [_write_part(p, same=same) for p in parts if not isinstance(p, ToolResultPart)]
    if rest:
        messages.append({"role": "user", "content": _simple(rest), **extra})


def _simple(parts: list[dict[str, Any]]) -> Any:
    return parts[0]["text"] if len(parts) == 1 and parts[0].keys() == {"type", "text"} else parts


def _write_result(part: ToolResultPart, *, same: bool) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "tool", "tool_call_id": part.tool_call_id} if part.form != "legacy" else {"role": "function"}
    original = part.extra.get("content")
    if same:
        text = result_text(original, "") if isinstance(original, list) else ""
        unchanged = "content" in part.extra and text == part.text
        return message | {"content": part.text} | (part.extra if unchanged else fields.rest(part.extra, "content"))
    if isinstance(original, list) and any(p.get("type") != "text" for p in original if isinstance(p, dict)):
        invalid("a tool_result with other content than text cannot be sent to this model's provider", "messages")
    return message | {"content": f"[error] {part.text}" if part.is_error else part.text}


def _write_part(part: Part, *, same: bool) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text, **(part.extra if same else {})}
        case OtherPart(dialect="openai"):
            return part.body
        case OtherPart():
            invalid(f"a {part.kind} block cannot be sent to this model's provider", "messages")
        case _:
            invalid(f"a {part.__struct_config__.tag} block is in a turn that cannot hold it", "messages")


def _write_assistant(parts: Sequence[Part], extra: dict[str, Any], *, same: bool) -> dict[str, Any]:
    calls = [_write_call(p, same=same) for p in parts if isinstance(p, ToolUsePart) and p.form != "legacy"]
    legacy = next((p for p in parts if isinstance(p, ToolUsePart) and p.form == "legacy"), None)
    rest = [_write_part(p, same=same) for p in parts if not isinstance(p, ToolUsePart) and not _is_reasoning(p)]
    content: Any = _simple(rest) if same and rest else "".join(p.get("text", "") for p in rest)
    message: dict[str, Any] = {"role": "assistant", "content": content or (None if calls or legacy or extra else ""), **extra}
    if legacy is not None:
        message["function_call"] = {"name": legacy.name, "arguments": legacy.arguments, **legacy.extra}
    if calls:
        message["tool_calls"] = calls
    return message


def _is_reasoning(part: Part) -> bool:
    # not sent to another vendor: its signature means nothing there
    return isinstance(part, OtherPart) and part.kind in ("thinking", "redacted_thinking")


def _write_call(part: ToolUsePart, *, same: bool) -> dict[str, Any]:
    if part.form == "custom":
        custom = {"name": part.name, "input": loads_arguments(part.arguments)["input"]}
        return {"id": part.id, "type": "custom", "custom": custom, **(part.extra if same else {})}
    function = {"name": part.name, "arguments": part.arguments or "{}"}
    return {"id": part.id, "type": "function", "function": function, **(part.extra if same else {})}


def _write_tool(tool: Tool, *, same: bool) -> dict[str, Any]:
    if same and tool.kind == "server":
        return tool.extra
    if same and tool.kind == "custom":
        described = {"description": tool.description} if tool.description else {}
        return {"type": "custom", "custom": {"name": tool.name, **described, **tool.extra}, **tool.outer}
    if not same and tool.extra.get("type", "custom") not in ("custom", None):
        invalid(f"the tool {tool.name!r} of type {tool.extra['type']!r} cannot be sent to this model's provider", "tools")
    function: dict[str, Any] = {"name": tool.name, **({"description": tool.description} if tool.description else {})}
    function["parameters"] = tool.schema or {"type": "object", "properties": {}}
    strict = {"strict": tool.extra["strict"]} if "strict" in tool.extra else {}
    return {"type": "function", "function": function | (tool.extra if same else strict), **tool.outer}


def _write_choice(request: ChatRequest, choice: ToolChoice) -> Any:
    if choice.mode == "tool":
        return _naming(request, choice.name)
    if choice.allowed:
        mode = "required" if choice.mode == "any" else "auto"
        return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [_naming(request, n) for n in choice.allowed]}}
    return "required" if choice.mode == "any" else choice.mode


def _naming(request: ChatRequest, name: str) -> dict[str, Any]:
    tool = request.tool(name)
    kind = "custom" if tool is not None and tool.kind == "custom" else "function"
    return {"type": kind, kind: {"name": name}}


def _write_format(answer: ResponseFormat) -> dict[str, Any]:
    if answer.mode == "json_object":
        return {"type": "json_object"}
    values = {"name": answer.name, "description": answer.description or None, "schema": answer.schema or None, "strict": answer.strict}
    return {"type": "json_schema", "json_schema": {k: v for k, v in values.items() if v is not None}}
