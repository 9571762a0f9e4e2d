"""A tool call by the name that counts: that of the tool which another one calls, where it does.

Must not know: which effects anything has.
"""

from typing import Any

import msgspec

from policy.base import ToolCall
from policy.effects.argument_names import key_of
from policy.effects.argument_values import unpacked
from policy.effects.tools.table import KnownTool, known_tool

_CALLERS = frozenset(
    "use_mcp_tool call_mcp_tool call_tool mcp_call_tool run_mcp_tool invoke_tool execute_tool mcp".split()
)
_NAMES, _SERVERS = (
    ("tool_name", "tool", "name", "toolname"),
    ("server_name", "server", "servername"),
)
_ARGUMENTS = ("arguments", "args", "tool_input", "input", "params", "tool_args", "parameters")


class NamedCall(msgspec.Struct, frozen=True):
    """A call as it is read: tool, server, arguments, and `within`, the top-level argument that
    holds these in a call that calls another tool."""

    name: str
    server: str
    value: dict[str, Any]
    within: str
    known: KnownTool | None


def named_call(call: ToolCall) -> NamedCall:
    """Return the call, or that which it makes of another tool by name."""
    if key_of(call.name.rpartition("__")[2]) in _CALLERS:
        keys = {key_of(name): name for name in call.value}
        tool = next((call.value[keys[key]] for key in _NAMES if key in keys), None)
        server = next((call.value[keys[key]] for key in _SERVERS if key in keys), "")
        within = next((keys[key] for key in _ARGUMENTS if key in keys), "")
        inner = unpacked(call.value.get(within))
        if isinstance(tool, str) and isinstance(server, str) and isinstance(inner, dict):
            return NamedCall(tool, server, inner, within, known_tool(tool, server))
    return NamedCall(call.name, call.server, call.value, "", known_tool(call.name, call.server))
