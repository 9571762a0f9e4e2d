"""Tools, their choice and the answer's form of a request that crosses, written for the Messages dialect (docs/protocol.md 1.1, 1.2)."""

from typing import Any

import msgspec

from protocol import json_schema as schema
from protocol.anthropic.models import ModelRow
from protocol.fields import invalid
from protocol.names import Names, called
from protocol.neutral import find_option
from protocol.request import ResponseFormat, Tool
from protocol.target import Draft

_VENDOR = ("cache_control", "defer_loading", "allowed_callers", "input_examples", "eager_input_streaming")
"""Fields of the vendor's that clients may put on a function."""
_JSON_TOOL = "json_response"


class ToolPart(msgspec.Struct, kw_only=True):
    """What of the body has to do with tools, and what is said to the model of the answer's form."""

    tools: list[dict[str, Any]] = []
    choice: dict[str, Any] | None = None
    output_format: dict[str, Any] | None = None
    instruction: str = ""
    json_tool: str = ""


def write_tools(draft: Draft, row: ModelRow, names: Names, *, thinks_by_budget: bool) -> ToolPart:
    """Write tools, tool_choice and response_format. Raises InvalidRequest naming what cannot be said."""
    request = draft.request
    part = ToolPart()
    part.tools = [_write_tool(draft, row, names, tool, i) for i, tool in enumerate(_offered(draft))]
    part.choice = _choice(draft, names)
    if not request.tools:
        part.tools = _tools_of_history(draft, names)
        part.choice = {"type": "none"} if part.tools else None
    may_force = row.forced and not thinks_by_budget
    if request.response_format is not None:
        _write_format(draft, row, names, part, request.response_format, may_force=may_force)
    if part.choice and part.choice["type"] in ("any", "tool") and not may_force:
        part.choice = {"type": "auto"} | {k: v for k, v in part.choice.items() if k == "disable_parallel_tool_use"}
        draft.drop("tool_choice")
    if request.web_search is not None:
        if names.has("web_search"):
            invalid("web_search_options: a tool of the name web_search is there already", "web_search_options")
        part.tools.append(request.web_search)
    return part


def _offered(draft: Draft) -> list[Tool]:
    request, choice = draft.request, draft.request.tool_choice
    offered = {tool.name for tool in request.tools}
    wanted = (choice.allowed or (choice.name,)) if choice is not None and (choice.allowed or choice.mode == "tool") else ()
    if missing := [name for name in wanted if name not in offered]:
        invalid(f"tool_choice names {missing[0][:60]!r}, which is not among the tools", "tool_choice")
    if choice is not None and choice.mode == "any" and not request.tools:
        invalid("tool_choice requires a call, and there are no tools", "tool_choice")
    allowed = set(choice.allowed) if choice is not None else set()
    return [t for t in request.tools if not allowed or t.name in allowed]


def _write_tool(draft: Draft, row: ModelRow, names: Names, tool: Tool, position: int) -> dict[str, Any]:
    if tool.kind in ("server", "client"):
        return tool.extra
    body: dict[str, Any] = {"name": names.upstream(tool.name)}
    if tool.description:
        body["description"] = tool.description
    extra = dict(tool.extra)
    if find_option(extra, "grammar") is not None:
        invalid(f"tools[{position}].custom.format: this model's provider has no grammars", "tools")
    strict = extra.pop("strict", None) is True
    try:
        body["input_schema"] = schema.clean(tool.schema, "anthropic_tool")
    except schema.Unsupported as error:
        invalid(f"the parameters of the tool {tool.name[:60]!r} cannot be sent to this model's provider: {error}", "tools")
    if strict and (compiled := _compiled(body["input_schema"])) is not None and row.strict:
        body |= {"input_schema": compiled, "strict": True}
    elif strict:
        draft.drop("tools[].strict")
    body |= {name: extra[name] for name in _VENDOR if extra.get(name) is not None}
    if body.get("defer_loading") and body.pop("cache_control", None):
        # the API caches no tool that it loads later
        draft.drop("tools[].cache_control")
    for name in extra:
        if name not in _VENDOR:
            draft.drop(f"tools[].{name[:60]}")
    return body


def _compiled(tool_schema: dict[str, Any]) -> dict[str, Any] | None:
    try:
        return schema.clean(tool_schema, "anthropic_output")
    except schema.Unsupported:
        return None


def _tools_of_history(draft: Draft, names: Names) -> list[dict[str, Any]]:
    """Definitions for calls in the history of a request that offers no tools: the API wants them there."""
    return [{"name": names.upstream(name), "input_schema": {"type": "object"}} for name in called(draft.request)]


def _choice(draft: Draft, names: Names) -> dict[str, Any] | None:
    request, choice = draft.request, draft.request.tool_choice
    one = request.parallel_tool_calls is False or request.legacy_functions
    if not request.tools or (choice is None and not one):
        return None
    body: dict[str, Any] = {"type": choice.mode if choice else "auto"}
    if choice is not None and choice.mode == "tool":
        body["name"] = names.upstream(choice.name)
    if one and body["type"] != "none":
        body["disable_parallel_tool_use"] = True
    return body


def _write_format(draft: Draft, row: ModelRow, names: Names, part: ToolPart, answer: ResponseFormat, *, may_force: bool) -> None:
    request = draft.request
    if answer.mode == "json_schema" and row.native_schema and (native := _compiled(answer.schema)) is not None:
        if answer.description and "description" not in native:
            native["description"] = answer.description
        part.output_format = {"type": "json_schema", "schema": native}
        return
    if part.choice and part.choice["type"] in ("any", "tool"):
        return  # the answer is a call: there will be no text to give a form
    calls_possible = bool(request.tools) and not (part.choice and part.choice["type"] == "none")
    if answer.mode == "json_object" and calls_possible:
        part.instruction = "Unless you call a tool, answer with one JSON object and nothing else: no text around it, no code fence."
        return
    part.json_tool = names.free(_JSON_TOOL)
    part.tools.append(_json_tool(part.json_tool, answer))
    # what the provider runs comes before the answer: a forced call would leave no room for it
    searches = request.web_search is not None or bool(draft.target.added_tools)
    if may_force and not searches:
        part.choice = {"type": "any"} if calls_possible else {"type": "tool", "name": part.json_tool}
    else:
        part.choice = {"type": "auto"}
        part.instruction = f"Give your final answer by calling the tool {part.json_tool}, and only so: its arguments are the answer."
    part.choice["disable_parallel_tool_use"] = True


def _json_tool(name: str, answer: ResponseFormat) -> dict[str, Any]:
    about = "Gives the final answer to the user. Its arguments are the answer."
    if answer.mode == "json_object":
        about += " They are any JSON object that fits the request."
        return {"name": name, "description": about, "input_schema": {"type": "object", "additionalProperties": True}}
    try:
        cleaned = schema.clean(answer.schema, "anthropic_tool")
    except schema.Unsupported as error:
        invalid(f"response_format.json_schema.schema cannot be sent to this model's provider: {error}", "response_format")
    return {"name": name, "description": f"{about} {answer.description}".strip(), "input_schema": cleaned}
