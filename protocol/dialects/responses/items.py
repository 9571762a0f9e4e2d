"""The items of Responses answers: who runs the call that an item is, how policies know its tool,
and what of it is the call.

An item may hold a call and its result. The call is then what `call_of` says, and the result all the
rest.
"""

from typing import Any, NamedTuple

from protocol.bytes.json_strict import dumps


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
CLIENT_ITEMS: dict[str, tuple[str, str]] = {
    "apply_patch_call": ("apply_patch", "operation"),
    "computer_call": ("computer", "action"),
    "local_shell_call": ("local_shell", "action"),
    "shell_call": ("shell", "action"),
    "tool_search_call": ("tool_search", "arguments"),
}
"""Calls with a type of their own that the client runs: the tool's name, and the field that is its
arguments."""
OBJECTS: dict[str, tuple[str, ...]] = {
    **{kind: (field, "actions") for kind, (_, field) in CLIENT_ITEMS.items()},
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
