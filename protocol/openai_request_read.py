"""chat/completions requests read: a client's body as a ChatRequest (protocol.md 1.1)."""

from typing import Any

from protocol import fields
from protocol.fields import invalid
from protocol.json_strict import loads_body
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
