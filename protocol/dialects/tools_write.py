"""Tools of a request that crosses: common to the writers of all dialects (docs/change/protocol.md
1.2)."""

from typing import Any

from protocol.bytes import json_schema as schema
from protocol.request import ChatRequest, ResponseFormat, Tool
from protocol.requests.fields import invalid
from protocol.server_tools.data import ToolType, tool_type
from protocol.server_tools.families import DIRECT, need
from protocol.server_tools.typed import as_function
from protocol.target import RequestNotes

_LOCATION = ("city", "country", "region", "timezone")
JSON_TOOL = "json_response"
"""The tool whose arguments are the answer, where the provider takes no form of it."""
ABOUT_JSON = "Gives the final answer to the user. Its arguments are the answer."
_ABOUT_OBJECT = f"{ABOUT_JSON} They are any JSON object that fits the request."
ASK_OBJECT = (
    "Unless you call a tool, answer with one JSON object and nothing else: no text around it, no"
    " code fence."
)


def ask_call(json_tool: str) -> str:
    """Return the instruction for a model that cannot be forced to call that tool."""
    return (
        f"Give your final answer by calling the tool {json_tool}, and only so: its arguments are"
        " the answer."
    )


def offered(request: ChatRequest) -> list[Tool]:
    """Return the tools of which the client's choice is. Raises InvalidRequest for a choice of what
    is not there."""
    choice, names = request.tool_choice, {tool.name for tool in request.tools}
    wanted = (
        (choice.allowed or (choice.name,))
        if choice is not None and (choice.allowed or choice.mode == "tool")
        else ()
    )
    if missing := [name for name in wanted if name not in names]:
        invalid(
            f"tool_choice names {missing[0][:60]!r}, which is not among the tools", "tool_choice"
        )
    if choice is not None and choice.mode == "any" and not request.tools:
        invalid("tool_choice requires a call, and there are no tools", "tool_choice")
    allowed = set(choice.allowed) if choice is not None else set()
    return [t for t in request.tools if not allowed or t.name in allowed]


def function_of(tool: Tool) -> Tool:
    """Return a tool that the client runs as the function that it is to other vendors' models.
    Raises InvalidRequest."""
    typed = as_function(tool) if tool.kind == "client" else tool
    if typed is None:
        invalid(
            f"the tool type {str(tool.extra.get('type'))[:60]!r} cannot be sent to this model's"
            " provider",
            "tools",
        )
    return typed


def server_kind(draft: RequestNotes, tool: dict[str, Any], param: str) -> ToolType:
    """Return the type of a tool that the provider runs. Raises InvalidRequest where the key may not
    use it."""
    kind = tool_type(tool.get("type"))
    if kind is None:
        invalid(
            "a tool in tools is of a type that the gateway does not know:"
            f" {str(tool.get('type'))[:80]!r}",
            param,
        )
    need(draft.target, kind.family, f"the tool {kind.type}", param)
    return kind


def check_callers(draft: RequestNotes, tool: str, extra: dict[str, Any]) -> None:
    """Refuse a tool that code alone may call, for providers whose code calls none."""
    callers = extra.get("allowed_callers")
    if callers and (not isinstance(callers, list) or DIRECT not in callers):
        invalid(
            f"the tool {tool[:60]!r} may not be called by the model itself, and this model's"
            " provider calls none from code",
            "tools",
        )
    if callers and callers != [DIRECT]:
        draft.drop("tools[].allowed_callers")


def open_schema(tool: Tool) -> dict[str, Any]:
    """Return a function's parameters for one of OpenAI's APIs. Raises InvalidRequest."""
    try:
        return schema.clean(tool.schema, "openai_tool")
    except schema.Unsupported as error:
        invalid(
            f"the input_schema of the tool {tool.name[:60]!r} cannot be sent to this model's"
            f" provider: {error}",
            "tools",
        )


def openai_function(draft: RequestNotes, tool: Tool) -> tuple[dict[str, Any], bool]:
    """Return a function's description and parameters for one of OpenAI's APIs, and whether the
    model is held to them. Raises InvalidRequest."""
    if tool.kind == "client":
        typed = function_of(tool)
        description, parameters = typed.description, typed.schema
    else:
        description, parameters = tool.description, open_schema(tool)
        draft.note("tools[]", tool.extra, "strict", "allowed_callers")
    check_callers(draft, tool.name, tool.extra)
    strict = False
    if tool.extra.get("strict") is True:
        try:
            parameters, strict = schema.clean(parameters, "openai_strict"), True
        except schema.Unsupported:
            draft.drop("tools[].strict")
    described = {"description": description} if description else {}
    return {**described, "parameters": parameters}, strict


def search_options(tool: dict[str, Any]) -> tuple[dict[str, Any] | None, str | None]:
    """Return the place of the user's and the size of the context for a web search of one of
    OpenAI's APIs."""
    location, uses = tool.get("user_location"), tool.get("max_uses")
    place: dict[str, Any] | None = None
    if isinstance(location, dict):
        place = {k: location[k] for k in _LOCATION if location.get(k) is not None}
    if not isinstance(uses, int):
        return place, None
    return place, "low" if uses <= 1 else "medium" if uses <= 5 else "high"


def closed_schema(parameters: dict[str, Any], tool: str) -> dict[str, Any]:
    """Return the parameters of the tool of that name for a provider of Anthropic's models. Raises
    InvalidRequest."""
    try:
        return schema.clean(parameters, "anthropic_tool")
    except schema.Unsupported as error:
        invalid(
            f"the parameters of the tool {tool[:60]!r} cannot be sent to this model's provider:"
            f" {error}",
            "tools",
        )


def answer_tool(answer: ResponseFormat) -> tuple[str, dict[str, Any]]:
    """Return the description and the parameters of the tool whose arguments are the answer, for
    such a provider."""
    if answer.mode == "json_object":
        return _ABOUT_OBJECT, {"type": "object", "additionalProperties": True}
    try:
        cleaned = schema.clean(answer.schema, "anthropic_tool")
    except schema.Unsupported as error:
        invalid(
            f"response_format.json_schema.schema cannot be sent to this model's provider: {error}",
            "response_format",
        )
    return f"{ABOUT_JSON} {answer.description}".strip(), cleaned


def compiled(json_schema: dict[str, Any]) -> dict[str, Any] | None:
    """Return a schema as Anthropic's models are held to it, None where they cannot be."""
    try:
        return schema.clean(json_schema, "anthropic_output")
    except schema.Unsupported:
        return None
