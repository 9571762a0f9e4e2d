"""Tools, their choice and the answer's form, written for Converse (docs/protocol.md, Converse)."""

from typing import Any

import msgspec

from protocol import json_schema as schema
from protocol.converse.models import ModelRow
from protocol.fields import invalid
from protocol.json_strict import dumps
from protocol.names import Names, called
from protocol.neutral import Option, find_option
from protocol.request import ResponseFormat, Tool
from protocol.server_tools.data import tool_type
from protocol.server_tools.families import need
from protocol.server_tools.typed import as_function
from protocol.target import Draft

_SYSTEM_TOOLS = {"web_search": "nova_grounding", "code_execution": "nova_code_interpreter"}
"""By family: the tools that the provider runs."""
_JSON_TOOL = "json_response"
_ABOUT_JSON = "Gives the final answer to the user. Its arguments are the answer."


class ToolPart(msgspec.Struct, kw_only=True):
    """What of the body has to do with tools, and what is said to the model of the answer's form. `choice` is a name of toolChoice and
    its object; `has_one` lets the model make one call at a time."""

    tools: list[dict[str, Any]] = []
    choice: tuple[str, dict[str, Any]] | None = None
    has_one: bool = False
    text_format: dict[str, Any] | None = None
    instruction: str = ""
    json_tool: str = ""
    mark: tuple[str, Option] | None = None


def write_tools(draft: Draft, row: ModelRow, names: Names, *, may_force: bool) -> ToolPart:
    """Write tools, tool_choice and response_format; `may_force` false: it thinks. Raises InvalidRequest naming what cannot be said."""
    request, part = draft.request, ToolPart()
    used = called(request)
    offered = _offered(draft)
    if request.tool_choice is not None and request.tool_choice.mode == "none" and request.tools:
        if used:
            invalid("tool_choice none cannot be said to this model's provider after tool calls; send no tools", "tool_choice")
        offered = []
    part.tools = [_write_tool(draft, row, names, tool, part) for tool in offered]
    if not request.tools:
        # the API wants definitions for the calls of a history
        part.tools = [_spec(names.upstream(name), "", {"type": "object", "properties": {}}) for name in used]
    _choose(draft, row, names, part, may_force=may_force)
    if request.response_format is not None:
        _write_format(draft, row, names, part, request.response_format, may_force=may_force)
    if request.web_search is not None:
        search = _system_tool(draft, row, request.web_search, "web_search_options")
        # who wants no call is not sent what the provider runs
        part.tools += [] if request.tool_choice is not None and request.tool_choice.mode == "none" else [search]
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


def _write_tool(draft: Draft, row: ModelRow, names: Names, tool: Tool, part: ToolPart) -> dict[str, Any]:
    if tool.kind == "server":
        return _system_tool(draft, row, tool.extra, "tools")
    typed = as_function(tool) if tool.kind == "client" else tool
    if typed is None:
        invalid(f"the tool type {str(tool.extra.get('type'))[:60]!r} cannot be sent to this model's provider", "tools")
    extra = tool.extra if tool.kind != "client" else {}
    if find_option(extra, "grammar") is not None:
        invalid("tools[].custom.format: this model's provider has no grammars", "tools")
    for name, value in extra.items():
        if name not in ("strict", "cache_control") and not (isinstance(value, Option) and value.meaning == "cache"):
            draft.drop(f"tools[].{name[:60]}")
    own = extra.get("cache_control")
    mark = find_option(extra, "cache") or (("cache_control", Option("cache", own.get("ttl"))) if isinstance(own, dict) else None)
    part.mark = mark or part.mark
    try:
        cleaned = schema.clean(typed.schema, "anthropic_tool")
    except schema.Unsupported as error:
        invalid(f"the parameters of the tool {tool.name[:60]!r} cannot be sent to this model's provider: {error}", "tools")
    spec = _spec(names.upstream(tool.name), typed.description, cleaned)
    if extra.get("strict") is True:
        compiled = _compiled(cleaned) if row.strict else None
        if compiled is None:
            draft.drop("tools[].strict")
        else:
            spec["toolSpec"] |= {"inputSchema": {"json": compiled}, "strict": True}
    return spec


def _spec(name: str, description: str, json_schema: dict[str, Any]) -> dict[str, Any]:
    said = {"description": description} if description.strip() else {}
    return {"toolSpec": {"name": name, **said, "inputSchema": {"json": json_schema}}}


def _compiled(tool_schema: dict[str, Any]) -> dict[str, Any] | None:
    try:
        return schema.clean(tool_schema, "anthropic_output")
    except schema.Unsupported:
        return None


def _system_tool(draft: Draft, row: ModelRow, tool: dict[str, Any], param: str) -> dict[str, Any]:
    kind = tool_type(tool.get("type"))
    if kind is None:
        invalid(f"a tool in tools is of a type that the gateway does not know: {str(tool.get('type'))[:80]!r}", param)
    need(draft.target, kind.family, f"the tool {kind.type}", param)
    name = _SYSTEM_TOOLS.get(kind.family)
    if name is None or not row.grounds:
        invalid(f"the tool type {kind.type!r} cannot be sent to this model's provider", param)
    for field, value in tool.items():
        if field in ("allowed_domains", "blocked_domains", "user_location", "allowed_callers") and value:
            # left out, the tool would reach what the client does not want
            invalid(f"{field} of the tool {kind.type!r} cannot be sent to this model's provider", param)
        if field not in ("type", "name") and value:
            draft.drop(f"{'tools[]' if param == 'tools' else param}.{draft.word(field)[:60]}")
    return {"systemTool": {"name": name}}


def _choose(draft: Draft, row: ModelRow, names: Names, part: ToolPart, *, may_force: bool) -> None:
    request, choice = draft.request, draft.request.tool_choice
    if not request.tools or not part.tools:
        return
    if request.parallel_tool_calls is False or request.legacy_functions:
        part.has_one = row.family == "claude"
        if not part.has_one and request.parallel_tool_calls is False:
            draft.drop(draft.word("parallel_tool_calls"))
    if choice is None or choice.mode in ("auto", "none"):
        return
    if choice.mode not in row.choices or not may_force:
        draft.drop("tool_choice")
    elif choice.mode == "tool":
        if next(t for t in request.tools if t.name == choice.name).kind == "server":
            invalid(f"tool_choice names {choice.name[:60]!r}, which is not among the tools that the client runs", "tool_choice")
        part.choice = "tool", {"name": names.upstream(choice.name)}
    else:
        part.choice = "any", {}


def _write_format(draft: Draft, row: ModelRow, names: Names, part: ToolPart, answer: ResponseFormat, *, may_force: bool) -> None:
    if answer.mode == "json_schema" and row.native_schema and (native := _compiled(answer.schema)) is not None:
        said = {"name": names.form.plain(answer.name)} if answer.name else {}
        said |= {"description": answer.description} if answer.description else {}
        part.text_format = {"type": "json_schema", "structure": {"jsonSchema": {"schema": dumps(native).decode(), **said}}}
        return
    if part.choice is not None:
        return  # the answer is a call: there will be no text to give a form
    calls_possible = bool(draft.request.tools) and bool(part.tools)
    if answer.mode == "json_object" and calls_possible:
        part.instruction = "Unless you call a tool, answer with one JSON object and nothing else: no text around it, no code fence."
        return
    part.json_tool = names.free(_JSON_TOOL)
    part.tools.append(_json_tool(part.json_tool, answer))
    wanted = "any" if calls_possible else "tool"
    searches = draft.request.web_search is not None or any("systemTool" in tool for tool in part.tools)
    # what the provider runs comes before the answer: a forced call would leave no room for it
    if may_force and not searches and wanted in row.choices:
        part.choice = ("any", {}) if calls_possible else ("tool", {"name": part.json_tool})
    else:
        part.instruction = f"Give your final answer by calling the tool {part.json_tool}, and only so: its arguments are the answer."
    part.has_one = row.family == "claude"


def _json_tool(name: str, answer: ResponseFormat) -> dict[str, Any]:
    if answer.mode == "json_object":
        about = f"{_ABOUT_JSON} They are any JSON object that fits the request."
        return _spec(name, about, {"type": "object", "additionalProperties": True})
    try:
        cleaned = schema.clean(answer.schema, "anthropic_tool")
    except schema.Unsupported as error:
        invalid(f"response_format.json_schema.schema cannot be sent to this model's provider: {error}", "response_format")
    return _spec(name, f"{_ABOUT_JSON} {answer.description}".strip(), cleaned)
