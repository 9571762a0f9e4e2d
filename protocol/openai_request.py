"""chat/completions requests: a client's body read, and a request written for a provider of this dialect (protocol.md 1.1, 1.10)."""

from collections.abc import Sequence
from typing import Any

from protocol import fields
from protocol.fields import invalid
from protocol.json_strict import dumps, loads_body
from protocol.request import ChatRequest, OtherPart, Part, TextPart, Tool, ToolChoice, ToolResultPart, ToolUsePart, Turn

_MODELLED = frozenset(
    (
        "model",
        "messages",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "stream",
        "max_tokens",
        "temperature",
        "top_p",
        "stop",
        "user",
    )
)
_REFUSED = {
    "functions": "the legacy functions are not served; use tools",
    "function_call": "the legacy function_call is not served; use tool_choice",
    "audio": "audio is not served",
    "modalities": "only text is served",
}


def decode(body: bytes) -> ChatRequest:
    """Read a client's body. Raises InvalidRequest naming the parameter."""
    data = loads_body(body)
    fields.refuse_routing(data)
    for name, why in _REFUSED.items():
        if data.get(name) is not None and not (name == "modalities" and data[name] == ["text"]):
            invalid(why, name)
    if fields.integer(data, "n", 1) != 1:
        invalid("n must be 1: every choice would have to be decided on", "n")
    model = fields.model(data)
    system, turns = _messages(fields.array(data, "messages"))
    options = fields.mapping(data, "stream_options")
    limit = fields.integer(data, "max_tokens", None)
    return ChatRequest(
        dialect="openai",
        model=model,
        system=system,
        turns=turns,
        tools=tuple(_tool(t, i) for i, t in enumerate(fields.array(data, "tools", required=False))),
        tool_choice=_choice(data.get("tool_choice")),
        parallel_tool_calls=fields.boolean(data, "parallel_tool_calls", None),
        stream=bool(fields.boolean(data, "stream", False)),
        include_usage=bool(fields.boolean(options, "include_usage", False)),
        max_tokens=fields.integer(data, "max_completion_tokens", limit),
        temperature=fields.number(data, "temperature"),
        top_p=fields.number(data, "top_p"),
        stop=_stop(data.get("stop")),
        user=fields.string(data, "user", None),
        extra=fields.rest(data, *_MODELLED),
    )


def _stop(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
        invalid("stop must be a string or a list of strings", "stop")
    return tuple(values)


def _messages(messages: list[Any]) -> tuple[tuple[str, ...], tuple[Turn, ...]]:
    system: list[str] = []
    turns: list[Turn] = []
    after_result = False
    for position, message in enumerate(messages):
        at = f"messages[{position}]"
        if not isinstance(message, dict):
            invalid(f"{at} must be an object", "messages")
        role = message.get("role")
        match role:
            case "system" | "developer" if not turns:
                system.append(_text(message, at))
            case "system" | "developer":
                turns.append(Turn("system", (TextPart(_text(message, at)),), fields.rest(message, "role", "content")))
            case "user":
                turns.append(Turn("user", _parts(message, at), fields.rest(message, "role", "content")))
            case "assistant":
                turns.append(_assistant(message, at))
            case "tool" if after_result:
                # results that follow each other are one turn, as the other dialect wants them
                turns[-1] = Turn("user", (*turns[-1].parts, _result(message, at)))
            case "tool":
                turns.append(Turn("user", (_result(message, at),)))
            case _:
                invalid(f"{at}.role must be system, developer, user, assistant or tool", "messages")
        after_result = role == "tool"
    return tuple(system), tuple(turns)


def _text(message: dict[str, Any], at: str) -> str:
    parts = _parts(message, at)
    texts = [p.text for p in parts if isinstance(p, TextPart)]
    if len(texts) != len(parts):
        invalid(f"{at}.content must be text", "messages")
    return "".join(texts)


def _result(message: dict[str, Any], at: str) -> ToolResultPart:
    call = message.get("tool_call_id")
    if not isinstance(call, str) or not call:
        invalid(f"{at}.tool_call_id is missing", "messages")
    content = message.get("content")
    extra = fields.rest(message, "role", "tool_call_id", *(() if isinstance(content, list) else ("content",)))
    return ToolResultPart(call, _text(message, at), extra=extra)


def _parts(message: dict[str, Any], at: str) -> tuple[Part, ...]:
    content = message.get("content")
    if isinstance(content, str):
        return (TextPart(content),)
    if not isinstance(content, list):
        invalid(f"{at}.content must be a string or a list of parts", "messages")
    return tuple(_part(part, at) for part in content)


def _part(part: Any, at: str) -> Part:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        invalid(f"{at}.content has a part that is not an object with a type", "messages")
    if part["type"] != "text":
        return OtherPart(part["type"], part, "openai")
    if not isinstance(part.get("text"), str):
        invalid(f"{at}.content has a text part without a text", "messages")
    return TextPart(part["text"], fields.rest(part, "type", "text"))


def _assistant(message: dict[str, Any], at: str) -> Turn:
    if message.get("function_call") is not None:
        invalid(f"{at}.function_call is legacy and not served; use tool_calls", "messages")
    calls = message.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        invalid(f"{at}.tool_calls must be a list", "messages")
    parts = list(_parts(message, at)) if message.get("content") is not None else []
    parts += [_tool_use(call, f"{at}.tool_calls[{i}]") for i, call in enumerate(calls or ())]
    return Turn("assistant", tuple(parts), fields.rest(message, "role", "content", "tool_calls", "function_call"))


def _tool_use(call: Any, at: str) -> ToolUsePart:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        invalid(f"{at} must be a function call", "messages")
    for name, value in (("id", call.get("id")), ("function.name", function.get("name")), ("function.arguments", function.get("arguments"))):
        if not isinstance(value, str):
            invalid(f"{at}.{name} must be a string", "messages")
    return ToolUsePart(call["id"], function["name"], function["arguments"], fields.rest(call, "id", "type", "function"))


def _tool(tool: Any, position: int) -> Tool:
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict) or tool.get("type", "function") != "function":
        invalid(f"tools[{position}] must be a function", "tools")
    name, description = function.get("name"), function.get("description")
    if not isinstance(name, str) or not name:
        invalid(f"tools[{position}].function.name is missing", "tools")
    if not isinstance(description, str | None) or not isinstance(function.get("parameters"), dict | None):
        invalid(f"tools[{position}].function must have a string as description and an object as parameters", "tools")
    extra = fields.rest(function, "name", "description", "parameters")
    return Tool(name, description or "", function.get("parameters") or {}, extra)


def _choice(value: Any) -> ToolChoice | None:
    match value:
        case None:
            return None
        case "auto" | "none":
            return ToolChoice(value)
        case "required":
            return ToolChoice("any")
        case {"type": "function", "function": {"name": str(name)}}:
            return ToolChoice("tool", name)
    invalid("tool_choice must be auto, none, required or a named function", "tool_choice")


# --- writing ---


_DROPPED = frozenset(("top_k", "service_tier", "metadata", "cache_control", "system"))
"""What an Anthropic client may say and this dialect has no word for, and whose absence changes no meaning (`system` is read)."""
_REASONING_MODELS = ("o1", "o3", "o4", "gpt-5")
"""Models that take a developer message and max_completion_tokens where others take system and max_tokens."""
_MAX_STOPS = 4


def encode(request: ChatRequest) -> bytes:
    """Write the request for a chat/completions provider. Raises InvalidRequest naming what it cannot say."""
    same = request.dialect == "openai"
    if not same:
        _refuse_foreign(request)
    body: dict[str, Any] = dict(request.extra) if same else {}
    body |= {"model": request.model, "messages": _write_messages(request, same=same)}
    if request.tools:
        body["tools"] = [_write_tool(t, same=same) for t in request.tools]
        if request.tool_choice is not None:
            body["tool_choice"] = _write_choice(request.tool_choice)
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
    if request.stop:
        if len(request.stop) > _MAX_STOPS and not same:
            invalid(f"this model's provider takes at most {_MAX_STOPS} stop sequences", "stop_sequences")
        body["stop"] = list(request.stop)
    return dumps(body)


def _refuse_foreign(request: ChatRequest) -> None:
    for name, value in request.extra.items():
        if name not in _DROPPED and value not in (None, {"type": "disabled"}):
            invalid(f"{name} cannot be sent to this model's provider", name)


def _write_messages(request: ChatRequest, *, same: bool) -> list[dict[str, Any]]:
    role = "developer" if request.model.startswith(_REASONING_MODELS) else "system"
    texts = request.system if same else ["\n".join(request.system)] if request.system else []
    messages: list[dict[str, Any]] = [{"role": role, "content": text} for text in texts]
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
    message: dict[str, Any] = {"role": "tool", "tool_call_id": part.tool_call_id}
    original = part.extra.get("content")
    if same:
        unchanged = isinstance(original, list) and "".join(p.get("text", "") for p in original) == part.text
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
    calls = [_write_call(p, same=same) for p in parts if isinstance(p, ToolUsePart)]
    rest = [_write_part(p, same=same) for p in parts if not isinstance(p, ToolUsePart) and not _is_reasoning(p)]
    content: Any = _simple(rest) if same and rest else "".join(p.get("text", "") for p in rest)
    message: dict[str, Any] = {"role": "assistant", "content": content or (None if calls or extra else ""), **extra}
    if calls:
        message["tool_calls"] = calls
    return message


def _is_reasoning(part: Part) -> bool:
    # not sent to another vendor: its signature means nothing there
    return isinstance(part, OtherPart) and part.kind in ("thinking", "redacted_thinking")


def _write_call(part: ToolUsePart, *, same: bool) -> dict[str, Any]:
    function = {"name": part.name, "arguments": part.arguments or "{}"}
    return {"id": part.id, "type": "function", "function": function, **(part.extra if same else {})}


def _write_tool(tool: Tool, *, same: bool) -> dict[str, Any]:
    if not same and tool.extra.get("type", "custom") not in ("custom", None):
        invalid(f"the tool {tool.name!r} of type {tool.extra['type']!r} cannot be sent to this model's provider", "tools")
    function: dict[str, Any] = {"name": tool.name, **({"description": tool.description} if tool.description else {})}
    function["parameters"] = tool.schema or {"type": "object", "properties": {}}
    strict = {"strict": tool.extra["strict"]} if "strict" in tool.extra else {}
    return {"type": "function", "function": function | (tool.extra if same else strict)}


def _write_choice(choice: ToolChoice) -> Any:
    if choice.mode == "tool":
        return {"type": "function", "function": {"name": choice.name}}
    return "required" if choice.mode == "any" else choice.mode
