"""Tools, their choice and the answer's form, written for Converse (docs/change/protocol.md,
Converse)."""

from typing import Any

import msgspec

from protocol.bytes.json_strict import dumps
from protocol.dialects.converse.messages_write import cache_mark
from protocol.dialects.converse.models import ModelRow
from protocol.dialects.tools_write import (
    ASK_OBJECT,
    JSON_TOOL,
    answer_tool,
    ask_call,
    closed_schema,
    compiled,
    function_of,
    offered,
    server_kind,
)
from protocol.request import ResponseFormat, Tool
from protocol.requests.fields import invalid
from protocol.requests.names import Names, called
from protocol.requests.neutral import Option, find_option
from protocol.target import RequestNotes

_SYSTEM_TOOLS = {"web_search": "nova_grounding", "code_execution": "nova_code_interpreter"}
"""By family: the tools that the provider runs."""


class ToolPart(msgspec.Struct, kw_only=True):
    """The body's tool fields, and the instruction to the model about the answer's form. `choice` is
    a name of toolChoice and its object; `has_one` lets the model make one call at a time."""

    tools: list[dict[str, Any]] = []
    choice: tuple[str, dict[str, Any]] | None = None
    has_one: bool = False
    text_format: dict[str, Any] | None = None
    instruction: str = ""
    json_tool: str = ""
    mark: tuple[str, Option] | None = None


def write_tools(draft: RequestNotes, row: ModelRow, names: Names, *, may_force: bool) -> ToolPart:
    """Write tools, tool_choice and response_format; `may_force` false: it thinks. Raises
    InvalidRequest naming what cannot be expressed."""
    request, part = draft.request, ToolPart()
    used = called(request)
    usable = offered(request)
    if request.tool_choice is not None and request.tool_choice.mode == "none" and request.tools:
        if used:
            invalid(
                "tool_choice none cannot be sent to this model's provider after tool calls; send no"
                " tools",
                "tool_choice",
            )
        usable = []
    part.tools = [_write_tool(draft, row, names, tool, part) for tool in usable]
    if not request.tools:
        # the API wants definitions for the calls of a history
        part.tools = [
            _spec(names.upstream(name), "", {"type": "object", "properties": {}}) for name in used
        ]
    _choose(draft, row, names, part, may_force=may_force)
    if request.response_format is not None:
        _write_format(draft, row, names, part, request.response_format, may_force=may_force)
    if request.web_search is not None:
        search = _system_tool(draft, row, request.web_search, "web_search_options")
        # who wants no call is not sent what the provider runs
        part.tools += (
            []
            if request.tool_choice is not None and request.tool_choice.mode == "none"
            else [search]
        )
    return part


def _write_tool(
    draft: RequestNotes, row: ModelRow, names: Names, tool: Tool, part: ToolPart
) -> dict[str, Any]:
    if tool.kind == "server":
        return _system_tool(draft, row, tool.extra, "tools")
    typed = function_of(tool)
    extra = tool.extra if tool.kind != "client" else {}
    if find_option(extra, "grammar") is not None:
        invalid("tools[].custom.format: this model's provider has no grammars", "tools")
    for name, value in extra.items():
        if name not in ("strict", "cache_control") and not (
            isinstance(value, Option) and value.meaning == "cache"
        ):
            draft.drop(f"tools[].{name[:60]}")
    part.mark = cache_mark(extra) or part.mark
    cleaned = closed_schema(typed.schema, tool.name)
    spec = _spec(names.upstream(tool.name), typed.description, cleaned)
    if extra.get("strict") is True:
        held = compiled(cleaned) if row.strict else None
        if held is None:
            draft.drop("tools[].strict")
        else:
            spec["toolSpec"] |= {"inputSchema": {"json": held}, "strict": True}
    return spec


def _spec(name: str, description: str, json_schema: dict[str, Any]) -> dict[str, Any]:
    fields = {"description": description} if description.strip() else {}
    return {"toolSpec": {"name": name, **fields, "inputSchema": {"json": json_schema}}}


def _system_tool(
    draft: RequestNotes, row: ModelRow, tool: dict[str, Any], param: str
) -> dict[str, Any]:
    kind = server_kind(draft, tool, param)
    name = _SYSTEM_TOOLS.get(kind.family)
    if name is None or not row.grounds:
        invalid(f"the tool type {kind.type!r} cannot be sent to this model's provider", param)
    for field, value in tool.items():
        if (
            field in ("allowed_domains", "blocked_domains", "user_location", "allowed_callers")
            and value
        ):
            # left out, the tool would reach what the client does not want
            invalid(
                f"{field} of the tool {kind.type!r} cannot be sent to this model's provider", param
            )
        if field not in ("type", "name") and value:
            draft.drop(f"{'tools[]' if param == 'tools' else param}.{draft.word(field)[:60]}")
    return {"systemTool": {"name": name}}


def _choose(
    draft: RequestNotes, row: ModelRow, names: Names, part: ToolPart, *, may_force: bool
) -> None:
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
            invalid(
                f"tool_choice names {choice.name[:60]!r}, which is not among the tools that the"
                " client runs",
                "tool_choice",
            )
        part.choice = "tool", {"name": names.upstream(choice.name)}
    else:
        part.choice = "any", {}


def _write_format(
    draft: RequestNotes,
    row: ModelRow,
    names: Names,
    part: ToolPart,
    answer: ResponseFormat,
    *,
    may_force: bool,
) -> None:
    if (
        answer.mode == "json_schema"
        and row.native_schema
        and (native := compiled(answer.schema)) is not None
    ):
        fields = {"name": names.form.plain(answer.name)} if answer.name else {}
        fields |= {"description": answer.description} if answer.description else {}
        part.text_format = {
            "type": "json_schema",
            "structure": {"jsonSchema": {"schema": dumps(native).decode(), **fields}},
        }
        return
    if part.choice is not None:
        return  # the answer is a call: there will be no text to give a form
    calls_possible = bool(draft.request.tools) and bool(part.tools)
    if answer.mode == "json_object" and calls_possible:
        part.instruction = ASK_OBJECT
        return
    part.json_tool = names.free(JSON_TOOL)
    part.tools.append(_spec(part.json_tool, *answer_tool(answer)))
    wanted = "any" if calls_possible else "tool"
    searches = draft.request.web_search is not None or any(
        "systemTool" in tool for tool in part.tools
    )
    # what the provider runs comes before the answer: a forced call would leave no room for it
    if may_force and not searches and wanted in row.choices:
        part.choice = ("any", {}) if calls_possible else ("tool", {"name": part.json_tool})
    else:
        part.instruction = ask_call(part.json_tool)
    part.has_one = row.family == "claude"
