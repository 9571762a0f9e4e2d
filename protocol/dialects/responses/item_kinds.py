"""The items of Responses as data: which tools the client runs that have a type of their own, what
the model's side of a conversation is made of, and how the ids that we give to items begin
(docs/change/protocol.md, Responses clients)."""

from typing import NamedTuple


class Typed(NamedTuple):
    """A tool that has a type of its own and is run by the client. `name` is what policies call it,
    `call` and `output` are its items, `field` holds what is to be done."""

    name: str
    call: str
    output: str
    field: str
    prefix: str


TYPED = (
    Typed("local_shell", "local_shell_call", "local_shell_call_output", "action", "lsh"),
    Typed("shell", "shell_call", "shell_call_output", "action", "sh"),
    Typed("apply_patch", "apply_patch_call", "apply_patch_call_output", "operation", "apc"),
    Typed("computer", "computer_call", "computer_call_output", "action", "cu"),
    Typed("tool_search", "tool_search_call", "tool_search_output", "arguments", "tsc"),
)
TYPED_CALLS = {typed.call: typed for typed in TYPED}
TYPED_OUTPUTS = {typed.output: typed for typed in TYPED}
TYPED_NAMES = {typed.name: typed for typed in TYPED}
TYPED_TOOLS = {typed.name: typed.name for typed in TYPED} | {
    "computer_use_preview": "computer",
    "computer_use_preview_2025_03_11": "computer",
}
"""Types of tools, and what policies call them."""
MODEL_ITEMS = frozenset(
    (
        "reasoning",
        "compaction",
        "web_search_call",
        "x_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "program",
        "program_output",
        "mcp_list_tools",
        "mcp_call",
        "mcp_approval_request",
    )
)
"""What an answer holds beside messages and calls of the client's tools: it stays as it came."""
CLIENT_ITEMS = frozenset(
    ("mcp_approval_response", "additional_tools", "configuration_update", "compaction_trigger")
)
"""What only clients say, beside messages and outputs."""
WITH_TOOLS = ("additional_tools", "tool_search_output")
"""Items that offer tools in the middle of a conversation."""
PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "web_search_call": "ws",
    "x_search_call": "xs",
    "file_search_call": "fs",
    "code_interpreter_call": "ci",
    "image_generation_call": "ig",
    "mcp_call": "mcp",
    "mcp_list_tools": "mcpl",
    "mcp_approval_request": "mcpr",
    "program": "cm",
    "program_output": "cmo",
    "compaction": "cmp",
    **{typed.call: typed.prefix for typed in TYPED},
    **{typed.output: f"{typed.prefix}o" for typed in TYPED},
}
"""How the ids of items begin."""
