"""Calls as items of Responses answers: of tools that the client runs, and of those that the
provider ran."""

from typing import Any

import msgspec

from protocol.bytes.json_strict import (
    AmbiguousJson,
    loads_arguments,
    loads_written,
    normal_arguments,
)
from protocol.dialects.responses.items import SERVER_ITEMS, TYPED_CALLS, TYPED_NAMES, Typed
from protocol.errors import LocalProtocolError
from protocol.events import BlockStart
from protocol.request import ChatRequest
from protocol.requests.names import namespace_of

_PENDING = "mcp_pending"
_HIDDEN = {
    "web_search_call": (("web_search_call.results", "results"),),
    "file_search_call": (("file_search_call.results", "results"),),
    "code_interpreter_call": (("code_interpreter_call.outputs", "outputs"),),
}
"""Fields that a client gets where its `include` names them. Upstream is asked for all, because
policies read them."""
_SOURCES = "web_search_call.action.sources"


def _value(text: str) -> dict[str, Any]:
    try:
        return loads_arguments(normal_arguments(text))
    except AmbiguousJson as error:
        raise LocalProtocolError("arguments that are not JSON were about to be released") from error


def _raw(text: str) -> msgspec.Raw:
    """JSON as it was decided, to the letter: a number read and written again may be another one."""
    _value(text)
    return msgspec.Raw(normal_arguments(text).encode())


def client_call(
    block: BlockStart, arguments: str, request: ChatRequest, *, same: bool
) -> dict[str, Any]:
    """Return the item of a call that waits for the client, without its id. Raises
    LocalProtocolError."""
    body = block.body or {}
    if body.get("executor") == _PENDING:
        label = body.get("server_label", "")
        return {
            "type": "mcp_approval_request",
            "name": block.name,
            "arguments": arguments,
            "server_label": label,
        }
    offered = request.tool(block.name)
    typed = TYPED_CALLS.get(str(body.get("item"))) if same else None
    if typed is None and offered is not None and offered.kind == "client":
        typed = TYPED_NAMES.get(block.name)
    if typed is not None:
        return _typed(typed, block, arguments, same=same)
    space = namespace_of(offered)
    name = block.name.removeprefix(f"{space}.") if space else block.name
    more = {"namespace": space} if space else {}
    caller = body.get("caller") if same else None
    if caller is not None:
        more["caller"] = caller
    is_waited_for = isinstance(caller, dict) and caller.get("type") == "program"
    item = {
        "status": "in_progress" if is_waited_for else "completed",
        "call_id": block.id,
        "name": name,
        **more,
    }
    if offered is not None and offered.kind == "custom":
        return {"type": "custom_tool_call", **item, "input": _custom_input(arguments)}
    return {"type": "function_call", **item, "arguments": arguments or "{}"}


def _custom_input(arguments: str) -> str:
    """The text of a free-form call; arguments of another shape are the text."""
    try:
        value = loads_arguments(arguments)
    except AmbiguousJson:
        return arguments
    text = value.get("input")
    return text if isinstance(text, str) and len(value) == 1 else arguments


def _typed(typed: Typed, block: BlockStart, arguments: str, *, same: bool) -> dict[str, Any]:
    fields = {n: v for n, v in (block.body or {}).items() if n != "item"} if same else {}
    item: dict[str, Any] = {
        "type": typed.call,
        "status": "completed",
        "call_id": block.id,
        **fields,
    }
    if typed.name == "computer":
        item.setdefault("pending_safety_checks", [])
        if _value(arguments).keys() == {"actions"}:
            return item | msgspec.json.decode(
                normal_arguments(arguments), type=dict[str, msgspec.Raw]
            )
    if typed.name == "tool_search":
        item.setdefault("execution", "client")
    return item | {typed.field: _raw(arguments)}


def server_call(block: BlockStart, arguments: str) -> dict[str, Any]:
    """Return the item of a call that the provider ran, without its id and what came of it. Raises
    LocalProtocolError."""
    item: dict[str, Any] = {**(block.body or {}), "status": "completed"}
    kind = str(item.get("type"))
    if kind == "mcp_call":
        return item | {"name": block.name, "arguments": arguments}
    if (typed := TYPED_CALLS.get(kind)) is not None:
        return item | {"call_id": block.id, typed.field: _raw(arguments)}
    row = SERVER_ITEMS.get(kind)
    if row is None:
        raise LocalProtocolError("a call of an unknown type was about to be released")
    if kind == "program":
        item["call_id"] = block.id
        del item["status"]
    _value(arguments)
    if row.input:
        value = loads_written(normal_arguments(arguments))
        item[row.input] = value if row.input == "action" else value.get(row.input)
    return item


def shown(item: dict[str, Any], include: frozenset[str]) -> dict[str, Any]:
    """Return an item of the provider's as the client asked to see it."""
    hidden: dict[str, Any] = {
        field: None
        for name, field in _HIDDEN.get(item["type"], ())
        if name not in include and field in item
    }
    if "results" in hidden and item["type"] == "web_search_call":
        item = {n: v for n, v in item.items() if n != "results"}
        hidden = {}
    action = item.get("action")
    if (
        item["type"] == "web_search_call"
        and _SOURCES not in include
        and isinstance(action, dict)
        and "sources" in action
    ):
        hidden["action"] = {n: v for n, v in action.items() if n != "sources"}
    return item | hidden
