"""The calls of one answer, streamed or whole, to events: the client's and the provider's. An item's
own type says who runs its call (`protocol.dialects.responses.items`)."""

from typing import Any

from protocol.bytes.json_strict import dumps
from protocol.bytes.strings import string_in
from protocol.dialects.responses.blocks import Blocks, Item, more_than
from protocol.dialects.responses.items import (
    PENDING,
    RESULT,
    SERVER_ITEMS,
    TYPED_CALLS,
    call_fields,
    result_fields,
    server_input,
)
from protocol.dialects.responses.withheld import EMPTY, Withheld
from protocol.errors import RemoteProtocolError
from protocol.events import BlockKind, Event

CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_OF_CALL = frozenset(("type", "id", "call_id", "status", "created_by"))
_BESIDE = frozenset(("caller", "environment", "execution", "pending_safety_checks"))
"""What a call of a type of its own may have beside what it is to do. Any other field could be a
second thing to do, and no policy reads that."""


class Calls:
    """The calls of an answer with these blocks. Raises RemoteProtocolError on a contradiction of
    earlier events."""

    def __init__(self, blocks: Blocks, withheld: Withheld) -> None:
        self._blocks, self._withheld = blocks, withheld
        self.runs_shell = False
        """Does the provider run the shell? Its items do not always say so, the request's tools
        do."""

    # --- calls of the client's ---

    def begin(self, item: Item, body: dict[str, Any], events: list[Event]) -> None:
        """A function's call, or a free-form tool's, begins."""
        fields = self._withheld.tame(
            item.kind,
            {name: body[name] for name in ("caller", "namespace") if body.get(name) is not None},
            events,
        )
        item.name, item.namespace = string_in(body, "name"), string_in(body, "namespace")
        item.id = string_in(body, "call_id")
        self._blocks.call(item, fields or None, events)

    def end(self, item: Item, body: dict[str, Any], events: list[Event]) -> None:
        """It ends, or is repeated."""
        if item.block < 0:
            if not body.get("name"):
                raise RemoteProtocolError("upstream sent a tool call without a name")
            self.begin(item, body, events)
        name = string_in(body, "name")
        if name and (name, string_in(body, "namespace")) != (item.name, item.namespace):
            raise RemoteProtocolError("upstream gave a tool call two names")
        whole = body.get(CALLS[item.kind])
        if isinstance(whole, str):
            self._blocks.input(item, more_than(item.text_so_far(), whole), events)
        self._blocks.end_call(item, events)

    def typed(self, item: Item, body: dict[str, Any], events: list[Event]) -> None:
        """A call of a type of its own: what is its action is its arguments."""
        row = TYPED_CALLS[item.kind]
        name, field = row.name, row.field
        value = body.get(field)
        if item.kind == "computer_call" and (several := body.get("actions")) not in EMPTY:
            if value not in EMPTY:
                raise RemoteProtocolError("upstream sent two actions for one computer call")
            value = {"actions": several}
        arguments = (
            value
            if isinstance(value, str)
            else dumps(value if isinstance(value, dict) else {}).decode()
        )
        known_fields = {*_OF_CALL, field, *(("actions",) if item.kind == "computer_call" else ())}
        extra_fields = self._withheld.tame(
            item.kind, {n: v for n, v in body.items() if n in _BESIDE and v not in EMPTY}, events
        )
        self._withheld.fields(body, frozenset(known_fields | _BESIDE), f"{item.kind} field", events)
        item.name, item.id = name, string_in(body, "call_id") or item.id
        if item.kind == "apply_patch_call" and item.pieces:
            diff = value.get("diff") if isinstance(value, dict) else None
            more_than(item.text_so_far(), diff if isinstance(diff, str) else "")
        if self._is_remote(item.kind, body):
            self._blocks.whole_call(
                item,
                BlockKind.SERVER_TOOL_USE,
                {"type": item.kind, **extra_fields},
                arguments,
                events,
            )
        else:
            self._blocks.has_calls = True
            self._blocks.whole_call(
                item, BlockKind.TOOL_USE, {"item": item.kind, **extra_fields}, arguments, events
            )

    def _is_remote(self, kind: str, body: dict[str, Any]) -> bool:
        if kind == "tool_search_call":
            return body.get("execution") != "client"
        place = body.get("environment")
        if kind != "shell_call":
            return False
        return self.runs_shell if not isinstance(place, dict) else place.get("type") != "local"

    def pending(self, item: Item, body: dict[str, Any], events: list[Event]) -> None:
        """The provider asks before it runs a call of an MCP server: nothing has run yet."""
        item.name, item.id = string_in(body, "name"), string_in(body, "id") or f"item_{item.number}"
        label = self._withheld.tame(
            item.kind, {"server_label": string_in(body, "server_label")}, events
        )
        fields = {"executor": "mcp_pending", "item": PENDING, **label}
        self._blocks.whole_call(
            item, BlockKind.TOOL_USE, fields, string_in(body, "arguments"), events
        )

    # --- calls of the provider's ---

    def started(self, item: Item, body: dict[str, Any], events: list[Event]) -> None:
        """What the provider's call asks for is whole: it may be decided while it runs."""
        row = SERVER_ITEMS[item.kind]
        item.name = row.name or string_in(body, "name") or item.name
        item.id = item.id or f"item_{item.number}"
        fields = self._withheld.tame(item.kind, call_fields(item.kind, body), events)
        self._blocks.whole_call(
            item, BlockKind.SERVER_TOOL_USE, fields, server_input(item.kind, body), events
        )

    def server(self, item: Item, body: dict[str, Any], events: list[Event]) -> None:
        """A call that the provider ran ends, with what came of it."""
        row = SERVER_ITEMS[item.kind]
        field = row.input
        whole = body.get(field) if field else None
        if isinstance(whole, str):
            added = more_than(item.text_so_far(), whole)
            if added and item.has_ended:
                raise RemoteProtocolError("upstream added to a tool call after its end")
        if item.has_ended and any(
            body.get(n) not in (None, item.fields.get(n))
            for n in ("name", *row.call)
            if item.fields.get(n)
        ):
            # it was decided, and is on record, as what it was called when its input was whole
            raise RemoteProtocolError("upstream gave a tool call two names")
        if not item.has_ended:
            self.started(item, body, events)
        if item.kind == "program":
            # its result is an item of its own
            return
        result = {
            "type": item.kind + RESULT,
            "tool_use_id": item.id,
            **result_fields(item.kind, body),
        }
        self._blocks.carry(item.kind + RESULT, result, events)
