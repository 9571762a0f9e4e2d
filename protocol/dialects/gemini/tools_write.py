"""Tools, their choice and the answer's form of a request that crosses, written for Gemini
(docs/change/protocol.md 1.15)."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from protocol.bytes import json_schema
from protocol.dialects.gemini import schema
from protocol.dialects.gemini.models import ModelRow
from protocol.dialects.gemini.turn import CALL
from protocol.dialects.tools_write import (
    ABOUT_JSON,
    ASK_OBJECT,
    JSON_TOOL,
    check_callers,
    function_of,
)
from protocol.request import OtherPart, ResponseFormat, Tool
from protocol.requests.fields import invalid
from protocol.requests.names import NameForm, Names, called
from protocol.requests.neutral import find_option
from protocol.server_tools.data import tool_type
from protocol.server_tools.families import need
from protocol.target import RequestNotes

_SERVER = {
    "web_search": "googleSearch",
    "web_fetch": "urlContext",
    "code_execution": "codeExecution",
}
"""Families of the provider's tools, by what they are called here."""
NAMES = NameForm(foreign=re.compile(r"[^A-Za-z0-9_.:-]|^(?![A-Za-z_])"))
"""The beginning, too, where that is no letter: what is put there is in front of it."""
_JSON = "application/json"


class ToolPart(msgspec.Struct, kw_only=True):
    """The body's fields for tools and the answer's form, and the instructions to the model about
    them."""

    functions: list[dict[str, Any]] = []
    server: dict[str, dict[str, Any]] = {}
    calling: dict[str, Any] = {}
    form: dict[str, Any] = {}
    instruction: str = ""
    json_tool: str = ""

    def body(self, row: ModelRow) -> dict[str, Any]:
        """Return the fields of the request."""
        tools: list[dict[str, Any]] = (
            [{"functionDeclarations": self.functions}] if self.functions else []
        )
        tools += [{name: value} for name, value in self.server.items()]
        config: dict[str, Any] = {"functionCallingConfig": self.calling} if self.calling else {}
        if self.server and row.mixed:
            # a call that is not shown cannot be recorded
            config["includeServerSideToolInvocations"] = True
        return ({"tools": tools} if tools else {}) | ({"toolConfig": config} if config else {})


def names_of(draft: RequestNotes) -> Names:
    """Return the names of the functions: offered, and called earlier."""
    request = draft.request
    recorded = [
        p.body["call"]["name"]
        for t in request.turns
        for p in t.parts
        if isinstance(p, OtherPart) and _is_recorded(p)
    ]
    return Names(
        (*(t.name for t in request.tools if t.kind != "server"), *called(request), *recorded), NAMES
    )


def _is_recorded(part: OtherPart) -> bool:
    return part.dialect == "gemini" and part.kind == CALL


def write_tools(draft: RequestNotes, row: ModelRow, names: Names) -> ToolPart:
    """Write tools, tool_choice and response_format. Raises InvalidRequest naming what cannot be
    expressed or is not allowed."""
    request, part = draft.request, ToolPart()
    functions = [t for t in request.tools if t.kind != "server"]
    part.functions = [_function(draft, row, names, tool) for tool in functions]
    allowed = request.tool_choice.allowed if request.tool_choice is not None else ()
    for tool in request.tools:
        if tool.kind == "server":
            field = _server(draft, tool, f"the tool {tool.name[:60]!r}", "tools")
            if not allowed or tool.name in allowed:
                part.server[field] = {}
    if (search := request.web_search) is not None:
        part.server[
            _server(
                draft,
                Tool("web_search", extra=search, kind="server"),
                "web_search_options",
                "web_search_options",
            )
        ] = {}
    if (choice := request.tool_choice) is not None and choice.mode == "none":
        # the mode is of functions alone: who wants no call is not sent what the provider runs
        part.server = {}
    if part.functions and part.server and not row.mixed:
        invalid("this model takes no tools that its provider runs together with functions", "tools")
    part.calling = _calling(draft, names, functions)
    if functions and (request.parallel_tool_calls is False or request.legacy_functions):
        draft.drop(draft.word("parallel_tool_calls"))
    if request.response_format is not None:
        _write_form(draft, row, names, part, request.response_format)
    return part


def _function(draft: RequestNotes, row: ModelRow, names: Names, tool: Tool) -> dict[str, Any]:
    typed = function_of(tool)
    if tool.kind != "client":
        if find_option(tool.extra, "grammar") is not None:
            invalid(
                f"the tool {tool.name[:60]!r} has a grammar, which this model's provider does not"
                " take",
                "tools",
            )
        draft.note("tools[]", tool.extra, "strict", "allowed_callers")
    check_callers(draft, tool.name, tool.extra)
    written: dict[str, Any] = {
        "name": names.upstream(tool.name),
        **({"description": typed.description} if typed.description else {}),
    }
    try:
        cleaned = json_schema.clean(typed.schema, "openai_tool")
        if row.json_schema:
            return written | {"parametersJsonSchema": cleaned}
        older = schema.openapi(cleaned)
    except json_schema.Unsupported as error:
        invalid(
            f"the parameters of the tool {tool.name[:60]!r} cannot be sent to this model's"
            f" provider: {error}",
            "tools",
        )
    return written | ({"parameters": older} if older is not None else {})


def _server(draft: RequestNotes, tool: Tool, what: str, param: str) -> str:
    """Return the field for a tool that the provider runs, noting what of it is left out."""
    kind = tool_type(tool.extra.get("type"))
    if kind is None:
        invalid(
            f"{what} is of a type that the gateway does not know:"
            f" {str(tool.extra.get('type'))[:80]!r}",
            param,
        )
    need(draft.target, kind.family, what, param)
    if kind.family not in _SERVER:
        invalid(f"{what} of type {kind.type!r} cannot be sent to this model's provider", param)
    for name in ("allowed_domains", "blocked_domains"):
        if tool.extra.get(name):
            # left out, the tool would reach where the client does not want it
            invalid(f"the {name} of {what} cannot be sent to this model's provider", param)
    for name, value in tool.extra.items():
        if name not in ("type", "name") and value not in (None, "", [], {}, False):
            draft.drop(f"{'tools[]' if param == 'tools' else param}.{draft.word(name)[:60]}")
    return _SERVER[kind.family]


def _calling(draft: RequestNotes, names: Names, functions: Sequence[Tool]) -> dict[str, Any]:
    choice = draft.request.tool_choice
    is_strict = any(tool.extra.get("strict") is True for tool in functions)
    if choice is None:
        return {"mode": "VALIDATED"} if is_strict else {}
    offered = {tool.name for tool in functions}
    wanted = choice.allowed or ((choice.name,) if choice.mode == "tool" else ())
    if missing := [name for name in wanted if name not in offered]:
        invalid(
            f"tool_choice names {missing[0][:60]!r}, which is not among the tools that the client"
            " runs",
            "tool_choice",
        )
    if choice.mode == "any" and not functions:
        invalid(
            "tool_choice requires a call, and there are no tools that the client runs",
            "tool_choice",
        )
    if not functions:
        return {}
    mode = {
        "auto": "VALIDATED" if is_strict or choice.allowed else "AUTO",
        "none": "NONE",
        "any": "ANY",
        "tool": "ANY",
    }[choice.mode]
    only = (choice.name,) if choice.mode == "tool" else choice.allowed
    return {"mode": mode} | (
        {"allowedFunctionNames": [names.upstream(name) for name in only]}
        if only and mode != "NONE"
        else {}
    )


def _write_form(
    draft: RequestNotes, row: ModelRow, names: Names, part: ToolPart, answer: ResponseFormat
) -> None:
    if part.calling.get("mode") == "ANY":
        return  # the answer is a call: there will be no text to give a form
    if ((part.functions and part.calling.get("mode") != "NONE") or part.server) and not row.mixed:
        _write_json_tool(draft, row, names, part, answer)
        return
    part.form = {"responseMimeType": _JSON}
    if answer.mode == "json_schema":
        try:
            part.form |= (
                {"responseJsonSchema": answer.schema}
                if row.json_schema
                else {"responseSchema": schema.answer(answer.schema)}
            )
        except json_schema.Unsupported as error:
            invalid(
                "response_format.json_schema.schema cannot be sent to this model's provider:"
                f" {error}",
                "response_format",
            )
    if answer.description:
        part.instruction = f"About the form of your answer: {answer.description}"


def _write_json_tool(
    draft: RequestNotes, row: ModelRow, names: Names, part: ToolPart, answer: ResponseFormat
) -> None:
    """A tool whose arguments are the answer, for models that take no form beside functions."""
    if part.server:
        invalid(
            "this model takes no form of the answer together with tools that its provider runs",
            "response_format",
        )
    if answer.mode == "json_object":
        part.instruction = ASK_OBJECT
        return
    part.json_tool = names.free(JSON_TOOL)
    about = f"{ABOUT_JSON} {answer.description}".strip()
    tool = Tool(part.json_tool, about, answer.schema)
    try:
        cleaned = json_schema.clean(answer.schema, "openai_tool")
        form = (
            {"parametersJsonSchema": cleaned}
            if row.json_schema
            else {"parameters": schema.openapi(cleaned)}
        )
    except json_schema.Unsupported as error:
        invalid(
            f"response_format.json_schema.schema cannot be sent to this model's provider: {error}",
            "response_format",
        )
    part.functions.append({"name": tool.name, "description": about, **form})
    allowed = part.calling.get("allowedFunctionNames")
    part.calling = {"mode": "ANY"} | (
        {"allowedFunctionNames": [*allowed, tool.name]} if allowed else {}
    )
