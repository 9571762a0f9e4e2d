"""Tools, their choice and the answer's form in chat/completions requests, read
(docs/change/protocol.md 1.1, 1.2)."""

from typing import Any, TypeGuard

import msgspec

from protocol.dialects.openai_tools import read_custom, read_function
from protocol.request import ResponseFormat, Tool, ToolChoice, ToolKind
from protocol.requests import fields
from protocol.requests.fields import invalid
from protocol.server_tools.data import tool_type

_PLAIN = ("function", "custom")


def nested(data: dict[str, Any]) -> dict[str, Any]:
    """Return a body whose tools and choice may have their fields beside the type, as Responses has
    them, in the form of this dialect; the same object where nothing is in that form."""
    offered, choice = data.get("tools"), data.get("tool_choice")
    made: dict[str, Any] = {}
    if isinstance(offered, list) and any(map(_is_flat, offered)):
        made["tools"] = [_nested(tool) if _is_flat(tool) else tool for tool in offered]
    if _is_flat(choice):
        made["tool_choice"] = _nested(choice)
    return {**data, **made} if made else data


def _is_flat(value: Any) -> TypeGuard[dict[str, Any]]:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return False
    kind = value.get("type", "function")
    return kind in _PLAIN and kind not in value


def _nested(value: dict[str, Any]) -> dict[str, Any]:
    kind, inner = value.get("type", "function"), fields.exclude_known(value, "type")
    if "input_schema" in inner:
        # as Messages has it
        inner.setdefault("parameters", inner.pop("input_schema"))
    form = inner.get("format")
    if isinstance(form, dict) and form.get("type") == "grammar" and "grammar" not in form:
        inner["format"] = {"type": "grammar", "grammar": fields.exclude_known(form, "type")}
    return {"type": kind, kind: inner}


def tools(data: dict[str, Any]) -> tuple[Tool, ...]:
    """Return the offered tools, the older `functions` among them. Raises InvalidRequest."""
    offered = fields.refuse_twins(
        tuple(_tool(t, i) for i, t in enumerate(fields.array(data, "tools", required=False)))
    )
    if data.get("functions") is None:
        return offered
    if offered:
        invalid("functions and tools cannot be used together", "functions")
    return fields.refuse_twins(
        tuple(
            read_function(f, f"functions[{i}]", "functions")
            for i, f in enumerate(fields.array(data, "functions"))
        )
    )


def _tool(tool: Any, position: int) -> Tool:
    at = f"tools[{position}]"
    kind = tool.get("type", "function") if isinstance(tool, dict) else None
    if not isinstance(kind, str):
        invalid(f"{at} must be an object with a type", "tools")
    if kind not in _PLAIN:
        # a provider's own tool: whether the key may use it is decided where the request is written
        fields.refuse_lookalikes(tool, ("type", "name", "function", "custom"))
        name, row = tool.get("name"), tool_type(kind)
        runs: ToolKind = "client" if row is not None and row.executor == "client" else "server"
        return Tool(name if isinstance(name, str) and name else kind, extra=tool, kind=runs)
    if not isinstance(tool.get(kind), dict):
        invalid(f"{at}.{kind} must be an object", "tools")
    outer = fields.exclude_known(tool, "type", kind)
    read = read_function if kind == "function" else read_custom
    made = read(tool[kind], f"{at}.{kind}", "tools")
    return msgspec.structs.replace(made, outer=outer) if outer else made


def tool_choice(data: dict[str, Any]) -> ToolChoice | None:
    """Return the choice, or the older `function_call`. Raises InvalidRequest."""
    if data.get("functions") is not None and data.get("tool_choice") is not None:
        invalid("tool_choice goes with tools; with functions use function_call", "tool_choice")
    call = data.get("function_call")
    if call is None:
        return _choice(data.get("tool_choice"))
    if data.get("functions") is None:
        invalid("function_call goes with functions; with tools use tool_choice", "function_call")
    match call:
        case "auto" | "none":
            return ToolChoice(call)
        case {"name": str(name)} if name:
            return ToolChoice("tool", name)
    invalid("function_call must be auto, none or an object with a name", "function_call")


def _choice(value: Any) -> ToolChoice | None:
    match value:
        case None:
            return None
        case "auto" | "none":
            return ToolChoice(value)
        case "required":
            return ToolChoice("any")
        case {"type": "function", "function": {"name": str(name)}} | {
            "type": "custom",
            "custom": {"name": str(name)},
        }:
            return ToolChoice("tool", name)
        case {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto" | "required" as mode, "tools": [*entries]},
        }:
            return _allowed(mode, entries)
    invalid(
        "tool_choice must be auto, none, required, a named tool or allowed_tools with a mode and"
        " tools",
        "tool_choice",
    )


def _allowed(mode: str, entries: list[Any]) -> ToolChoice:
    names = []
    for entry in entries:
        match entry:
            case (
                {"function": {"name": str(name)}}
                | {"custom": {"name": str(name)}}
                | {"name": str(name)}
            ) if name and entry.get("type") in ("function", "custom", None):
                names.append(name)
            case _:
                invalid("tool_choice.allowed_tools.tools must name tools", "tool_choice")
    return fields.allowed_tools(mode, names)


def response_format(data: dict[str, Any]) -> ResponseFormat | None:
    """Return the answer's form; None for text and for forms that only some providers know. Raises
    InvalidRequest."""
    value = fields.mapping(data, "response_format")
    if value.get("type") == "json_object":
        return ResponseFormat("json_object")
    if value.get("type") != "json_schema":
        return None
    spec = value.get("json_schema")
    if not isinstance(spec, dict) or not isinstance(spec.get("schema"), dict | None):
        invalid("response_format.json_schema must be an object with a schema", "response_format")
    name, description, strict = spec.get("name"), spec.get("description"), spec.get("strict")
    if (
        not isinstance(name, str)
        or not isinstance(description, str | None)
        or not isinstance(strict, bool | None)
    ):
        invalid(
            "response_format.json_schema needs a name, and has a string as description and true or"
            " false as strict",
            "response_format",
        )
    return ResponseFormat("json_schema", name, spec.get("schema") or {}, strict, description or "")


# Read again where a policy changed a tool.
read_tool = _tool
