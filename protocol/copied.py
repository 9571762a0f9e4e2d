"""Copies of what a policy is given: it may change them as it likes, and nobody else sees it.

Only what can change is copied, so text, which is nearly all of a request, is shared. Recursion is bounded: JSON that comes
in is nested 128 deep at most.
"""

from typing import Any

import msgspec

from protocol.request import ChatRequest, OtherPart, Part, TextPart, Tool, ToolResultPart, ToolUsePart, Turn


def copied_json(value: Any) -> Any:
    """Return a copy of decoded JSON."""
    if type(value) is dict:
        return {key: copied_json(item) for key, item in value.items()}
    if type(value) is list:
        return [copied_json(item) for item in value]
    return value


def copied(request: ChatRequest) -> ChatRequest:
    """Return a copy of a request."""
    form = request.response_format
    changes: dict[str, Any] = {
        "turns": tuple(map(_turn, request.turns)),
        "tools": tuple(map(copied_tool, request.tools)),
        "extra": copied_json(request.extra),
        "system_messages": tuple(map(copied_json, request.system_messages)),
        "web_search": copied_json(request.web_search),
        "response_format": None if form is None else msgspec.structs.replace(form, schema=copied_json(form.schema)),
    }
    return msgspec.structs.replace(request, **changes)


def copied_tool(tool: Tool) -> Tool:
    """Return a copy of a tool."""
    return Tool(tool.name, tool.description, copied_json(tool.schema), copied_json(tool.extra), tool.kind, copied_json(tool.outer))


def _turn(turn: Turn) -> Turn:
    return Turn(turn.role, tuple(map(_part, turn.parts)), copied_json(turn.extra))


def _part(part: Part) -> Part:
    match part:
        case TextPart():
            return TextPart(part.text, copied_json(part.extra))
        case ToolUsePart():
            return ToolUsePart(part.id, part.name, part.arguments, copied_json(part.extra), part.form)
        case ToolResultPart():
            return ToolResultPart(part.tool_call_id, part.text, part.is_error, copied_json(part.extra), part.form)
        case OtherPart():
            return OtherPart(part.kind, copied_json(part.body), part.dialect)
