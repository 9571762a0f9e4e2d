"""chat/completions requests: a client's body read, and a request written for a provider of this dialect (protocol.md 1.1, 1.10)."""

from collections.abc import Sequence
from typing import Any, NoReturn

import msgspec

from protocol import fields
from protocol.errors import InvalidRequest
from protocol.fields import invalid
from protocol.json_strict import loads_body
from protocol.request import ChatRequest, OtherPart, Part, TextPart, Tool, ToolChoice, ToolResultPart, ToolUsePart, Turn

_MODELLED = frozenset(
    "model messages tools tool_choice parallel_tool_calls stream stream_options max_tokens max_completion_tokens temperature top_p stop user".split()
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
    system, turns = _messages(fields.array(data, "messages"))
    options = fields.mapping(data, "stream_options")
    return ChatRequest(
        dialect="openai", model=fields.model(data), system=system, turns=turns, tools=_tools(fields.array(data, "tools", required=False)),
        tool_choice=_choice(data.get("tool_choice")), parallel_tool_calls=fields.boolean(data, "parallel_tool_calls", None),
        stream=bool(fields.boolean(data, "stream", False)), include_usage=bool(options.get("include_usage")),
        max_tokens=fields.integer(data, "max_completion_tokens", None) or fields.integer(data, "max_tokens", None),
        temperature=fields.number(data, "temperature"), top_p=fields.number(data, "top_p"), stop=_stop(data.get("stop")),
        user=fields.string(data, "user", None), extra={k: v for k, v in data.items() if k not in _MODELLED},
    )  # fmt: skip


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
    for position, message in enumerate(messages):
        at = f"messages[{position}]"
        if not isinstance(message, dict):
            invalid(f"{at} must be an object", "messages")
        role = message.get("role")
        if role in ("system", "developer"):
            text = "".join(p.text for p in _parts(message.get("content"), at) if isinstance(p, TextPart))
            if turns:
                turns.append(Turn("system", (TextPart(text),)))
            else:
                system.append(text)
        elif role == "user":
            turns.append(Turn("user", _parts(message.get("content"), at)))
        elif role == "assistant":
            turns.append(Turn("assistant", _assistant(message, at)))
        elif role == "tool":
            text = "".join(p.text for p in _parts(message.get("content"), at) if isinstance(p, TextPart))
            result = ToolResultPart(fields.string(message, "tool_call_id", ""), text)
            # results that follow each other are one turn, as the other dialect wants them
            if turns and turns[-1].role == "user" and turns[-1].parts and isinstance(turns[-1].parts[0], ToolResultPart):
                turns[-1] = Turn("user", (*turns[-1].parts, result))
            else:
                turns.append(Turn("user", (result,)))
        else:
            invalid(f"{at}.role must be system, developer, user, assistant or tool", "messages")
    return tuple(system), tuple(turns)


def _parts(content: Any, at: str) -> tuple[Part, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (TextPart(content),)
    if not isinstance(content, list):
        invalid(f"{at}.content must be a string or a list of parts", "messages")
    parts: list[Part] = []
    for part in content:
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            invalid(f"{at}.content has a part that is not an object with a type", "messages")
        if part["type"] == "text":
            parts.append(TextPart(fields.string(part, "text", "") or ""))
        else:
            parts.append(OtherPart(part["type"], part, "openai"))
    return tuple(parts)


def _assistant(message: dict[str, Any], at: str) -> tuple[Part, ...]:
    parts = list(_parts(message.get("content"), at))
    if isinstance(message.get("refusal"), str):
        parts.append(TextPart(message["refusal"]))
    for call in message.get("tool_calls") or ():
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            invalid(f"{at}.tool_calls has an entry without a function", "messages")
        parts.append(
            ToolUsePart(
                fields.string(call, "id", "") or "",
                fields.string(function, "name", "") or "",
                fields.string(function, "arguments", "") or "",
            )
        )
    return tuple(parts)


def _tools(tools: list[Any]) -> tuple[Tool, ...]:
    found = []
    for position, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or tool.get("type", "function") != "function":
            invalid(f"tools[{position}] must be a function", "tools")
        name = function.get("name")
        if not isinstance(name, str) or not name:
            invalid(f"tools[{position}].function.name is missing", "tools")
        extra = {k: v for k, v in function.items() if k not in ("name", "description", "parameters")}
        found.append(Tool(name, fields.string(function, "description", "") or "", fields.mapping(function, "parameters"), extra))
    return tuple(found)


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


def encode(request: ChatRequest) -> bytes:
    """Write the request for a chat/completions provider. Raises InvalidRequest naming what it cannot say."""
    body: dict[str, Any] = dict(request.extra) if request.dialect == "openai" else {}
    if request.dialect == "anthropic":
        _refuse_foreign(request)
    body |= {"model": request.model, "messages": _write_messages(request)}
    if request.tools:
        body["tools"] = [_write_tool(t, same=request.dialect == "openai") for t in request.tools]
    if request.tool_choice is not None:
        body["tool_choice"] = _write_choice(request.tool_choice)
    if request.parallel_tool_calls is not None and request.tools:
        body["parallel_tool_calls"] = request.parallel_tool_calls
    if request.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    if request.max_tokens is not None:
        body["max_completion_tokens" if request.model.startswith(("o1", "o3", "o4", "gpt-5")) else "max_tokens"] = request.max_tokens
    for name, value in (("temperature", request.temperature), ("top_p", request.top_p), ("user", request.user)):
        if value is not None:
            body[name] = value
    if request.stop:
        if len(request.stop) > 4:
            invalid("this model takes at most 4 stop sequences", "stop_sequences")
        body["stop"] = list(request.stop)
    return msgspec.json.encode(body)


_DROPPED = frozenset({"top_k", "service_tier", "metadata"})


def _refuse_foreign(request: ChatRequest) -> None:
    for name in request.extra:
        if name not in _DROPPED:
            invalid(f"{name} cannot be sent to this model's provider", name)


def _write_messages(request: ChatRequest) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if request.system:
        messages.append({"role": "system", "content": "\n".join(request.system)} if request.dialect == "anthropic" else {})
        if request.dialect == "openai":
            messages = [{"role": "system", "content": text} for text in request.system]
    for turn in request.turns:
        match turn.role:
            case "system":
                messages.append({"role": "system", "content": _plain(turn.parts)})
            case "user":
                _write_user(turn.parts, messages)
            case "assistant":
                messages.append(_write_assistant(turn.parts))
    return messages


def _plain(parts: Sequence[Part]) -> str:
    return "".join(p.text for p in parts if isinstance(p, TextPart))


def _write_user(parts: Sequence[Part], messages: list[dict[str, Any]]) -> None:
    rest: list[dict[str, Any]] = []
    for part in parts:
        match part:
            case ToolResultPart():
                text = f"[error] {part.text}" if part.is_error else part.text
                messages.append({"role": "tool", "tool_call_id": part.tool_call_id, "content": text})
            case TextPart():
                rest.append({"type": "text", "text": part.text})
            case OtherPart(dialect="openai"):
                rest.append(part.body)
            case OtherPart():
                _foreign(part)
            case ToolUsePart():
                invalid("a user turn cannot hold a tool call", "messages")
    if len(rest) == 1 and rest[0]["type"] == "text":
        messages.append({"role": "user", "content": rest[0]["text"]})
    elif rest:
        messages.append({"role": "user", "content": rest})


def _foreign(part: OtherPart) -> NoReturn:
    raise InvalidRequest(f"a {part.kind} part cannot be sent to this model's provider", param="messages")


def _write_assistant(parts: Sequence[Part]) -> dict[str, Any]:
    calls = [
        {"id": p.id, "type": "function", "function": {"name": p.name, "arguments": p.arguments or "{}"}}
        for p in parts
        if isinstance(p, ToolUsePart)
    ]
    for part in parts:
        if isinstance(part, OtherPart) and part.kind not in ("thinking", "redacted_thinking"):
            _foreign(part)
    text = _plain(parts)
    message: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None}
    if calls:
        message["tool_calls"] = calls
    return message


def _write_tool(tool: Tool, *, same: bool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name, **({"description": tool.description} if tool.description else {})}
    function["parameters"] = tool.schema or {"type": "object", "properties": {}}
    strict = {"strict": tool.extra["strict"]} if "strict" in tool.extra else {}
    return {"type": "function", "function": function | (tool.extra if same else strict)}


def _write_choice(choice: ToolChoice) -> Any:
    if choice.mode == "tool":
        return {"type": "function", "function": {"name": choice.name}}
    return "required" if choice.mode == "any" else choice.mode
