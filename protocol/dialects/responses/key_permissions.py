"""What a key may ask of a provider in a Responses request, whatever the provider's dialect
(docs/change/protocol.md, Responses clients).

A provider runs its own tools before anybody here sees the call, so what a key has no family for is
refused in the client's own words. Must not know: how the request is written.
"""

from typing import Any

from protocol.errors import InvalidRequest
from protocol.request import ChatRequest, OtherPart, Tool, ToolResultPart
from protocol.requests.fields import invalid
from protocol.server_tools.data import table
from protocol.server_tools.families import DIRECT, allows, check_parameters, need, objects
from protocol.target import Target

_CODEX = '; in Codex, web_search = "disabled" in config.toml leaves it out'
_HISTORY = {
    "mcp_list_tools": "mcp",
    "mcp_call": "mcp",
    "mcp_approval_request": "mcp",
    "mcp_approval_response": "mcp",
    "compaction": "context_management",
    "compaction_trigger": "context_management",
}
"""Items that say something of the provider's own, and the family that they need."""


def check(request: ChatRequest, target: Target) -> None:
    """Refuse what the key has no family for. Raises InvalidRequest naming the parameter."""
    if request.state is not None and request.state.previous:
        # whoever puts the earlier conversation in front takes this away: no provider may be asked
        # with half of it
        message = (
            "previous_response_id names no response that can be continued: send the whole input"
        )
        raise InvalidRequest(
            message, code="previous_response_not_found", param="previous_response_id"
        )
    check_parameters(target, request.extra, "responses")
    for tool in request.tools:
        if tool.kind == "server":
            _check_tool(tool, target)
        elif any(caller != DIRECT for caller in _callers(tool)):
            need(target, "code_execution", "allowed_callers of a tool", "tools")
    for turn in request.turns:
        for part in turn.parts:
            if isinstance(part, OtherPart):
                _check_part(part, target)
            elif type(part) is ToolResultPart and part.extra:
                _check_files(part.extra.get("content"), target)


def _check_tool(tool: Tool, target: Target) -> None:
    kind = str(tool.extra.get("type"))
    family = table().responses_tools.get(kind)
    if family is None:
        invalid(f"a tool is of a type that the gateway does not know: {kind[:80]!r}", "tools")
    if family == "web_search" and not allows(target, family):
        needs = "it needs 'web_search' under `server_tools` of the key, which the operator sets"
        invalid(f"the tool {kind!r} is not allowed with this key: {needs}{_CODEX}", "tools")
    need(target, family, f"the tool {kind!r}", "tools")
    if kind == "mcp" and tool.extra.get("connector_id") is not None:
        need(target, "account", "an MCP server with a connector_id", "tools")
    environment = tool.extra.get("environment")
    if isinstance(environment, dict) and environment.get("skills"):
        need(target, "skills", "skills of a shell", "tools")
    container = tool.extra.get("container")
    if isinstance(container, dict) and container.get("file_ids"):
        need(target, "files", "files of a code_interpreter", "tools")


def _callers(tool: Tool) -> list[Any]:
    callers = tool.extra.get("allowed_callers")
    if callers is not None and not isinstance(callers, list):
        invalid("allowed_callers of a tool must be a list of strings", "tools")
    return callers or []


def _check_part(part: OtherPart, target: Target) -> None:
    if (family := _HISTORY.get(part.kind)) is not None:
        need(target, family, f"an item of type {part.kind!r}", "input")
    if part.kind in ("input_image", "input_file"):
        _check_files(part.body, target)


def _check_files(held: Any, target: Target) -> None:
    if isinstance(held, (dict, list)) and any(
        block.get("file_id") is not None for block in objects(held)
    ):
        need(target, "files", "a file_id", "input")
