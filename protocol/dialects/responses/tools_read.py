"""Tools, their choice and the answer's form in Responses requests, read (docs/change/protocol.md,
Responses clients)."""

from typing import Any

import msgspec

from protocol.dialects.openai_tools import read_custom, read_function, read_name
from protocol.dialects.responses.items import TYPED_TOOLS
from protocol.request import ResponseFormat, Tool, ToolChoice
from protocol.requests import fields
from protocol.requests.fields import invalid
from protocol.requests.names import qualified
from protocol.server_tools.data import table

_OF_TOOLS = tuple(
    "type name description parameters format tools execution environment server_label"
    " server_url".split()
)


def tools(items: list[Any], at: str = "tools", *, item: int = -1) -> tuple[Tool, ...]:
    """Return the tools of a list; `item` numbers the item of the input that brings them, -1 for the
    request. Raises InvalidRequest."""
    param = at.partition("[")[0]
    read = tuple(
        parsed for i, tool in enumerate(items) for parsed in _tools(tool, f"{at}[{i}]", param)
    )
    return (
        read
        if item < 0
        else tuple(msgspec.structs.replace(t, outer=t.outer | {"item": item}) for t in read)
    )


def discovered_tools(items: list[Any], at: str) -> tuple[Tool, ...]:
    """Return the tools of a list that a provider found which it runs itself; they stand in the item
    alone. Raises InvalidRequest."""
    return tuple(
        msgspec.structs.replace(t, outer={"found": True})
        for t in tools(items, at)
        if t.kind == "server"
    )


def _tools(tool: Any, at: str, param: str) -> tuple[Tool, ...]:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if not isinstance(kind, str):
        invalid(f"{at} must be an object with a type", param)
    if kind != "namespace":
        return (_one(tool, kind, at, param),)
    name, description = read_name(tool, at, param)
    if not isinstance(inner := tool.get("tools"), list) or not inner:
        invalid(f"{at}.tools must be a non-empty list", param)
    about = {
        "namespace": {
            "name": name,
            "description": description,
            **fields.exclude_known(tool, "type", "name", "description", "tools"),
        }
    }
    read = []
    for i, inner_tool in enumerate(inner):
        if not isinstance(inner_tool, dict) or inner_tool.get("type") not in ("function", "custom"):
            invalid(f"{at}.tools[{i}] must be a function or a custom tool", param)
        made = _one(inner_tool, inner_tool["type"], f"{at}.tools[{i}]", param)
        read.append(msgspec.structs.replace(made, name=qualified(name, made.name), outer=about))
    return tuple(read)


def _one(tool: dict[str, Any], kind: str, at: str, param: str) -> Tool:
    if kind in ("function", "custom"):
        read = read_function if kind == "function" else read_custom
        return read(tool, at, param, "type")
    fields.refuse_lookalikes(tool, _OF_TOOLS)
    if kind in TYPED_TOOLS and not runs_at_provider(tool):
        shape = isinstance(tool.get("description"), str | None) and isinstance(
            tool.get("parameters"), dict | None
        )
        if kind == "tool_search" and not shape:
            invalid(f"{at} must have an object as parameters and a string as description", param)
        return Tool(TYPED_TOOLS[kind], extra=tool, kind="client")
    if kind not in table().responses_tools:
        invalid(f"{at} is of a type that the gateway does not know: {kind[:80]!r}", param)
    if kind == "mcp":
        label = tool.get("server_label")
        if not isinstance(label, str) or not label:
            invalid(f"{at}.server_label is missing", param)
        return Tool(f"mcp_{label}", extra=tool, kind="server")
    return Tool(kind, extra=tool, kind="server")


def runs_at_provider(tool: dict[str, Any]) -> bool:
    """Is a tool that either side may run here one of the provider's?"""
    if tool["type"] == "tool_search":
        return tool.get("execution") != "client"
    environment = tool.get("environment")
    return (
        tool["type"] == "shell"
        and environment is not None
        and not (isinstance(environment, dict) and environment.get("type") == "local")
    )


def read_tool(tool: Any, position: int) -> Tool:
    """Return the one tool of an object. Raises InvalidRequest."""
    read = _tools(tool, f"tools[{position}]", "tools")
    return read[0]


def tool_choice(value: Any) -> ToolChoice | None:
    """Return the choice. Raises InvalidRequest."""
    match value:
        case None:
            return None
        case "auto" | "none":
            return ToolChoice(value)
        case "required":
            return ToolChoice("any")
        case {"type": "allowed_tools", "mode": "auto" | "required" as mode, "tools": [*entries]}:
            return fields.allowed_tools(mode, map(_name, entries))
        case {"type": str()}:
            return ToolChoice("tool", _name(value))
    invalid(
        "tool_choice must be auto, none, required, a tool, or allowed_tools with a mode and tools",
        "tool_choice",
    )


def _name(choice: Any) -> str:
    """The name that policies have for a tool of a choice."""
    match choice:
        case {"type": "function" | "custom", "name": str(name), **more} if name:
            namespace = more.get("namespace")
            return qualified(namespace if isinstance(namespace, str) else "", name)
        case {"type": "mcp", "server_label": str(label), **more} if label:
            tool_name = more.get("name")
            return (
                f"mcp_{label}.{tool_name}"
                if isinstance(tool_name, str) and tool_name
                else f"mcp_{label}"
            )
        case {"type": str(kind)} if kind in TYPED_TOOLS:
            return TYPED_TOOLS[kind]
        case {"type": str(kind)} if kind in table().responses_tools and kind != "mcp":
            return kind
    invalid(
        "tool_choice must name a function, a custom tool, an MCP server or a type of tool that the"
        " gateway knows",
        "tool_choice",
    )


def response_format(text: dict[str, Any]) -> ResponseFormat | None:
    """Return the answer's form, of the field `text`; None for text. Raises InvalidRequest."""
    spec = text.get("format")
    match spec:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return ResponseFormat("json_object")
        case {"type": "json_schema", **more}:
            name, schema = more.get("name"), more.get("schema")
            description, strict = more.get("description"), more.get("strict")
            if (
                not isinstance(name, str)
                or not isinstance(schema, dict)
                or not isinstance(description, str | None)
            ):
                invalid(
                    "text.format needs a name and an object as schema, and has a string as"
                    " description",
                    "text",
                )
            if not isinstance(strict, bool | None) or not more.keys() <= {
                "name",
                "schema",
                "description",
                "strict",
            }:
                invalid(
                    "text.format has name, schema, description, and true or false as strict", "text"
                )
            return ResponseFormat("json_schema", name, schema, strict, description or "")
    invalid("text.format.type must be text, json_object or json_schema", "text")
