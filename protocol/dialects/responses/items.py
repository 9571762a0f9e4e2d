"""The items of Responses as data: which tools the client runs that have a type of their own, what
the model's side of a conversation is made of, who runs the call that an item is, how policies know
its tool, and how the ids that we give to items begin (docs/change/protocol.md, Responses clients).

An item may hold a call and its result. The call is then what `call_of` says, and the result all the
rest.
"""

from typing import Any, NamedTuple

from protocol.bytes.json_strict import dumps


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
    "reasoning compaction web_search_call x_search_call file_search_call code_interpreter_call"
    " image_generation_call program program_output mcp_list_tools mcp_call"
    " mcp_approval_request".split()
)
"""What an answer holds beside messages and calls of the client's tools: it stays as it came."""
CLIENT_ONLY_ITEMS = frozenset(
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


class ServerItem(NamedTuple):
    """A call that the provider runs. `input`: the field with what it was asked for; `call`: those
    beside it that are its own.

    `name`: of the tool; empty where the item has it.
    """

    name: str
    input: str = ""
    call: tuple[str, ...] = ()


SERVER_ITEMS: dict[str, ServerItem] = {
    "web_search_call": ServerItem("web_search", "action"),
    "x_search_call": ServerItem("x_search", "action"),
    "file_search_call": ServerItem("file_search", "queries"),
    "code_interpreter_call": ServerItem("code_interpreter", "code", ("container_id",)),
    "image_generation_call": ServerItem("image_generation"),
    "mcp_call": ServerItem("", "arguments", ("server_label", "approval_request_id", "name")),
    "program": ServerItem("program", "code", ("fingerprint", "caller")),
}
"""Items with a call of the provider's and, but for `program`, what came of it."""
OBJECTS: dict[str, tuple[str, ...]] = {
    **{kind: (typed.field, "actions") for kind, typed in TYPED_CALLS.items()},
    **{
        kind: (row.input,)
        for kind, row in SERVER_ITEMS.items()
        if row.input in ("action", "queries")
    },
}
"""What a call is to do, where that is no string but an object or a list, by its item's type."""
OUTPUT_ITEMS = frozenset(("program_output", "shell_call_output", "tool_search_output"))
"""Results, by `call_id`, of calls that the provider ran."""
CARRIED_ITEMS = frozenset(("mcp_list_tools", "compaction"))
"""Items that are carried whole."""
RESULT = "_result"
"""Behind the name of an item with a call of the provider's: its result's block."""
PENDING = "mcp_approval_request"
_OF_ITEM = frozenset(("type", "id", "call_id"))


def server_input(kind: str, item: dict[str, Any]) -> str:
    """Return what a call of the provider's was asked for, as the JSON text of an object."""
    row = SERVER_ITEMS[kind]
    value = item.get(row.input) if row.input else None
    if kind == "mcp_call" or value is None:
        # xAI says all of its calls so
        written = item.get("arguments")
        return written if isinstance(written, str) else "{}"
    return dumps(value if isinstance(value, dict) else {row.input: value}).decode()


def as_written(body: dict[str, Any], written: Any) -> dict[str, Any]:
    """Return an item with what it is to do as in `written`, which is the same item with its numbers
    as upstream wrote them."""
    if not isinstance(written, dict):
        return body
    return body | {
        name: written[name] for name in OBJECTS.get(str(body.get("type")), ()) if name in written
    }


def call_fields(kind: str, item: dict[str, Any]) -> dict[str, Any]:
    """Return what is of the call beside its id, name and input: the block's body."""
    fields = {
        name: item[name]
        for name in SERVER_ITEMS[kind].call
        if name != "name" and item.get(name) is not None
    }
    return {"type": kind, **fields}


def result_fields(kind: str, item: dict[str, Any]) -> dict[str, Any]:
    """Return what is not of the call: its result."""
    row = SERVER_ITEMS[kind]
    of_call = {row.input, "arguments", *row.call, *_OF_ITEM}
    return {name: value for name, value in item.items() if name not in of_call}
