"""Tools, their choice and the answer's form of a request that crosses, written for the Messages
dialect (docs/change/protocol.md 1.1, 1.2)."""

from typing import Any

import msgspec

from protocol.dialects.anthropic.models import ModelRow
from protocol.dialects.tools_write import (
    ASK_OBJECT,
    JSON_TOOL,
    answer_tool,
    ask_call,
    closed_schema,
    compiled,
    offered,
)
from protocol.request import ResponseFormat, Tool
from protocol.requests.fields import invalid
from protocol.requests.names import Names, called
from protocol.requests.neutral import find_option
from protocol.target import RequestNotes

_VENDOR = (
    "cache_control",
    "defer_loading",
    "allowed_callers",
    "input_examples",
    "eager_input_streaming",
)
"""Fields of the vendor's that clients may put on a function."""


class ToolPart(msgspec.Struct, kw_only=True):
    """The body's tool fields, and the instruction to the model about the answer's form."""

    tools: list[dict[str, Any]] = []
    choice: dict[str, Any] | None = None
    output_format: dict[str, Any] | None = None
    instruction: str = ""
    json_tool: str = ""


def write_tools(
    draft: RequestNotes, row: ModelRow, names: Names, *, thinks_by_budget: bool
) -> ToolPart:
    """Write tools, tool_choice and response_format. Raises InvalidRequest naming what cannot be
    expressed."""
    request = draft.request
    part = ToolPart()
    part.tools = [
        _write_tool(draft, row, names, tool, i) for i, tool in enumerate(offered(request))
    ]
    part.choice = _choice(draft, names)
    if not request.tools:
        part.tools = _tools_of_history(draft, names)
        part.choice = {"type": "none"} if part.tools else None
    may_force = row.forced and not thinks_by_budget
    if request.response_format is not None:
        _write_format(draft, row, names, part, request.response_format, may_force=may_force)
    if part.choice and part.choice["type"] in ("any", "tool") and not may_force:
        part.choice = {"type": "auto"} | {
            k: v for k, v in part.choice.items() if k == "disable_parallel_tool_use"
        }
        draft.drop("tool_choice")
    if request.web_search is not None:
        if names.has("web_search"):
            invalid(
                "web_search_options: a tool of the name web_search is there already",
                "web_search_options",
            )
        part.tools.append(request.web_search)
    return part


def _write_tool(
    draft: RequestNotes, row: ModelRow, names: Names, tool: Tool, position: int
) -> dict[str, Any]:
    if tool.kind in ("server", "client"):
        return tool.extra
    body: dict[str, Any] = {"name": names.upstream(tool.name)}
    if tool.description:
        body["description"] = tool.description
    extra = dict(tool.extra)
    if find_option(extra, "grammar") is not None:
        invalid(f"tools[{position}].custom.format: this model's provider has no grammars", "tools")
    strict = extra.pop("strict", None) is True
    body["input_schema"] = closed_schema(tool.schema, tool.name)
    if strict and (held := compiled(body["input_schema"])) is not None and row.strict:
        body |= {"input_schema": held, "strict": True}
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


def _tools_of_history(draft: RequestNotes, names: Names) -> list[dict[str, Any]]:
    """Definitions for calls in the history of a request that offers no tools: the API wants them
    there."""
    return [
        {"name": names.upstream(name), "input_schema": {"type": "object"}}
        for name in called(draft.request)
    ]


def _choice(draft: RequestNotes, names: Names) -> dict[str, Any] | None:
    request, choice = draft.request, draft.request.tool_choice
    single_call = request.parallel_tool_calls is False or request.legacy_functions
    if not request.tools or (choice is None and not single_call):
        return None
    body: dict[str, Any] = {"type": choice.mode if choice else "auto"}
    if choice is not None and choice.mode == "tool":
        body["name"] = names.upstream(choice.name)
    if single_call and body["type"] != "none":
        body["disable_parallel_tool_use"] = True
    return body


def _write_format(
    draft: RequestNotes,
    row: ModelRow,
    names: Names,
    part: ToolPart,
    answer: ResponseFormat,
    *,
    may_force: bool,
) -> None:
    request = draft.request
    if (
        answer.mode == "json_schema"
        and row.native_schema
        and (native := compiled(answer.schema)) is not None
    ):
        if answer.description and "description" not in native:
            native["description"] = answer.description
        part.output_format = {"type": "json_schema", "schema": native}
        return
    if part.choice and part.choice["type"] in ("any", "tool"):
        return  # the answer is a call: there will be no text to give a form
    calls_possible = bool(request.tools) and not (part.choice and part.choice["type"] == "none")
    if answer.mode == "json_object" and calls_possible:
        part.instruction = ASK_OBJECT
        return
    part.json_tool = names.free(JSON_TOOL)
    about, form = answer_tool(answer)
    part.tools.append({"name": part.json_tool, "description": about, "input_schema": form})
    # what the provider runs comes before the answer: a forced call would leave no room for it
    searches = request.web_search is not None or bool(draft.target.added_tools)
    if may_force and not searches:
        part.choice = (
            {"type": "any"} if calls_possible else {"type": "tool", "name": part.json_tool}
        )
    else:
        part.choice = {"type": "auto"}
        part.instruction = ask_call(part.json_tool)
    part.choice["disable_parallel_tool_use"] = True
