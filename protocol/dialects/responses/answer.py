"""The items of one answer, streamed or whole, to events: what came in deltas, and what an item has
at its end.

An item's own type says who runs its call (`protocol.dialects.responses.items`). What is not
modelled is withheld by its name."""

import re
from collections.abc import Callable
from typing import Any

from protocol.bounds import MAX_BLOCKS
from protocol.bytes.json_strict import dumps
from protocol.bytes.tame import is_tame
from protocol.bytes.unknown import named
from protocol.dialects.responses.blocks import Blocks, Item, ItemPart, more_than
from protocol.dialects.responses.items import (
    CARRIED_ITEMS,
    CLIENT_ITEMS,
    OBJECTS,
    OUTPUT_ITEMS,
    PENDING,
    RESULT,
    SERVER_ITEMS,
    as_written,
    call_fields,
    result_fields,
    server_input,
)
from protocol.errors import RemoteProtocolError
from protocol.events import AttachmentDelta, BlockKind, Event, Opaque
from protocol.logprobs import are_of

_EMPTY: tuple[Any, ...] = (None, "", [], {}, False)
_FIELDS = {
    "message": frozenset(("type", "id", "role", "status", "content", "phase")),
    "reasoning": frozenset(("type", "id", "status", "summary", "content", "encrypted_content")),
    "function_call": frozenset(
        (
            "type",
            "id",
            "call_id",
            "status",
            "name",
            "arguments",
            "caller",
            "namespace",
            "created_by",
        )
    ),
    "custom_tool_call": frozenset(
        ("type", "id", "call_id", "status", "name", "input", "caller", "namespace", "created_by")
    ),
    PENDING: frozenset(("type", "id", "name", "arguments", "server_label")),
}
_PART_FIELDS = {
    "output_text": frozenset(("type", "text", "annotations", "logprobs")),
    "refusal": frozenset(("type", "refusal")),
    "reasoning_text": frozenset(("type", "text")),
    "summary_text": frozenset(("type", "text")),
}
_TEXT_FIELD = {"refusal": "refusal"}
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_PHASES = ("commentary", "final_answer")
_SEALED = re.compile(r"[A-Za-z0-9+/=_-]*")
"""Encrypted data: base64 in its two alphabets."""
_OF_CALL = frozenset(("type", "id", "call_id", "status", "created_by"))
_BESIDE = frozenset(("caller", "environment", "execution", "pending_safety_checks"))
"""What a call of a type of its own may have beside what it is to do. Any other field could be a
second thing to do, and no policy reads that."""
CONTENT, SUMMARY = "content", "summary"
PART_NAMES = {
    "message": frozenset(("output_text", "refusal")),
    "reasoning": frozenset(("reasoning_text", "summary_text")),
}
"""The types of parts by their item's."""


class OutputItems:
    """The items so far, by `output_index`. Raises RemoteProtocolError on a contradiction of earlier
    events."""

    def __init__(self) -> None:
        self.items: dict[int, Item] = {}
        self.blocks = Blocks()
        self.runs_shell = False
        """Does the provider run the shell? Its items do not always say so, the request's tools
        do."""
        self._named = set[str]()

    # --- items ---

    def item(self, number: int, kind: str) -> Item:
        """Return the open item of that number and type."""
        item = self.items.get(number)
        if item is None or item.is_done:
            raise RemoteProtocolError(
                f"upstream sent content for item {number:,}, which is not open"
            )
        if item.kind != kind:
            raise RemoteProtocolError(f"upstream sent content of another type for item {number:,}")
        return item

    def add(self, number: int, body: dict[str, Any], events: list[Event]) -> Item:
        """An item begins. Its content is taken where it ends."""
        if number in self.items or number < 0:
            raise RemoteProtocolError("upstream began an item twice")
        item = self.items[number] = Item(number, _word(body, "type"))
        if len(self.items) > MAX_BLOCKS:
            raise RemoteProtocolError(f"upstream began more than {MAX_BLOCKS} items")
        item.id = _word(body, "call_id") or _word(body, "id")
        if item.kind == "message":
            self._take_phase(item, body, events)
        elif item.kind in SERVER_ITEMS:
            # the call is emitted before its item ends, and this names its tool
            item.fields = body
        elif item.kind in _CALLS and body.get("name"):
            self._begin_call(item, body, events)
        return item

    def done(self, number: int, body: dict[str, Any], events: list[Event]) -> None:
        """An item ends, or is repeated."""
        item = self.items.get(number)
        if item is None:
            item = self.add(number, body, events)
        kind = _word(body, "type")
        if item.kind != kind:
            raise RemoteProtocolError("upstream gave an item two types")
        match kind:
            case "message" | "reasoning":
                self._texts(item, body, events)
            case "function_call" | "custom_tool_call":
                self._call(item, body, events)
            case _ if item.is_done:
                # carried whole the first time
                return
            case _ if kind == PENDING:
                self._pending(item, body, events)
            case _ if kind in CLIENT_ITEMS:
                self._typed(item, body, events)
            case _ if kind in SERVER_ITEMS:
                self._server(item, body, events)
            case _ if kind in OUTPUT_ITEMS:
                name = {**body, "tool_use_id": _word(body, "call_id")}
                self.blocks.carry(
                    kind, {n: v for n, v in name.items() if n not in ("id", "created_by")}, events
                )
            case _ if kind in CARRIED_ITEMS:
                self.blocks.carry(kind, body, events)
            case _:
                self.withhold(named("item", kind), events)
        if not item.is_done:
            self._odd(body, _FIELDS.get(kind), f"{kind} field", events)
        item.is_done = True

    def withhold(self, what: str, events: list[Event]) -> None:
        """Name what is left out, once."""
        if what not in self._named:
            self._named.add(what)
            events.append(Opaque(what))

    def _odd(
        self, body: dict[str, Any], known: frozenset[str] | None, at: str, events: list[Event]
    ) -> None:
        if known is not None and not known.issuperset(body):
            for name, value in body.items():
                if name not in known and value not in _EMPTY:
                    self.withhold(named(at, name), events)

    def _tame(self, kind: str, fields: dict[str, Any], events: list[Event]) -> dict[str, Any]:
        """Return what of a call's other fields is words and numbers: no policy reads it as text."""
        allowed: dict[str, Any] = {}
        for name, value in fields.items():
            if is_tame({name: value}) or (
                name == "fingerprint" and isinstance(value, str) and _SEALED.fullmatch(value)
            ):
                allowed[name] = value
            else:
                self.withhold(named(f"{kind} field", name), events)
        return allowed

    # --- messages and reasoning ---

    def _take_phase(self, item: Item, body: dict[str, Any], events: list[Event]) -> None:
        phase = body.get("phase")
        if phase in _PHASES:
            item.fields["phase"] = phase
        elif phase is not None:
            self.withhold("message field phase", events)

    def part(self, item: Item, field: str, number: int, name: str, events: list[Event]) -> ItemPart:
        """Return a part of a message or of reasoning; `number` is its place in `field`."""
        if number < 0:
            raise RemoteProtocolError("upstream sent a part without its number")
        return self.blocks.part(item, (field, number), name, events)

    def agree(self, item: Item, part: ItemPart, body: dict[str, Any], events: list[Event]) -> None:
        """Take a part that is sent whole."""
        kind = _word(body, "type") or part.name
        if kind != part.name:
            raise RemoteProtocolError("upstream gave a part two types")
        text = body.get(_TEXT_FIELD.get(kind, "text"))
        if text is None:
            return
        if not isinstance(text, str):
            raise RemoteProtocolError("upstream sent something else where its dialect has a string")
        is_new = bool(text) and not part.text_so_far()
        self.blocks.agree(item, part, text, events)
        if kind == "output_text" and is_new:
            self.logprobs(part, body.get("logprobs"), text, events)
        if kind == "output_text":
            self.blocks.cite(part, body.get("annotations"), events)
        self._odd(body, _PART_FIELDS.get(kind), "part field", events)

    def _texts(self, item: Item, body: dict[str, Any], events: list[Event]) -> None:
        fields = (CONTENT,) if item.kind == "message" else (SUMMARY, CONTENT)
        if item.kind == "message":
            self._take_phase(item, body, events)
        for field in fields:
            self._parts(item, field, body.get(field), events)
        if item.is_done:
            self.blocks.end_part(item, events)
            return
        sealed = body.get("encrypted_content") if item.kind == "reasoning" else None
        if item.kind == "reasoning" and (not item.parts or sealed):
            self.blocks.seal(item, sealed if isinstance(sealed, str) else "", events)
        self.blocks.end_part(item, events)

    def _parts(self, item: Item, field: str, content: Any, events: list[Event]) -> None:
        parts = content if isinstance(content, list) else []
        seen = sorted(number for at, number in item.parts if at == field)
        if not parts:
            return
        if len(parts) < len(seen):
            raise RemoteProtocolError(
                "upstream's final content leaves out a part that it sent before"
            )
        # numbers may have gaps: the list has none
        numbers = [
            *seen,
            *range(
                seen[-1] + 1 if seen else 0, (seen[-1] + 1 if seen else 0) + len(parts) - len(seen)
            ),
        ]
        for number, body in zip(numbers, parts, strict=True):
            if not isinstance(body, dict):
                raise RemoteProtocolError("upstream sent a part that is no object")
            kind = _word(body, "type")
            known = item.parts.get((field, number))
            if known is None and kind not in PART_NAMES[item.kind]:
                self.withhold(named("part", kind), events)
                continue
            part = known or self.blocks.part(item, (field, number), kind, events)
            self.agree(item, part, body, events)
            if part.is_open and number != numbers[-1]:
                self.blocks.end_part(item, events)

    # --- calls of the client's ---

    def _begin_call(self, item: Item, body: dict[str, Any], events: list[Event]) -> None:
        fields = self._tame(
            item.kind,
            {name: body[name] for name in ("caller", "namespace") if body.get(name) is not None},
            events,
        )
        item.name, item.namespace = _word(body, "name"), _word(body, "namespace")
        item.id = _word(body, "call_id")
        self.blocks.call(item, fields or None, events)

    def _call(self, item: Item, body: dict[str, Any], events: list[Event]) -> None:
        if item.block < 0:
            if not body.get("name"):
                raise RemoteProtocolError("upstream sent a tool call without a name")
            self._begin_call(item, body, events)
        name = _word(body, "name")
        if name and (name, _word(body, "namespace")) != (item.name, item.namespace):
            raise RemoteProtocolError("upstream gave a tool call two names")
        whole = body.get(_CALLS[item.kind])
        if isinstance(whole, str):
            self.blocks.input(item, more_than(item.text_so_far(), whole), events)
        self.blocks.end_call(item, events)

    def _typed(self, item: Item, body: dict[str, Any], events: list[Event]) -> None:
        """A call of a type of its own: what is its action is its arguments."""
        name, field = CLIENT_ITEMS[item.kind]
        value = body.get(field)
        if item.kind == "computer_call" and (several := body.get("actions")) not in _EMPTY:
            if value not in _EMPTY:
                raise RemoteProtocolError("upstream sent two actions for one computer call")
            value = {"actions": several}
        arguments = (
            value
            if isinstance(value, str)
            else dumps(value if isinstance(value, dict) else {}).decode()
        )
        known_fields = {*_OF_CALL, field, *(("actions",) if item.kind == "computer_call" else ())}
        extra_fields = self._tame(
            item.kind, {n: v for n, v in body.items() if n in _BESIDE and v not in _EMPTY}, events
        )
        self._odd(body, frozenset(known_fields | _BESIDE), f"{item.kind} field", events)
        item.name, item.id = name, _word(body, "call_id") or item.id
        if item.kind == "apply_patch_call" and item.pieces:
            diff = value.get("diff") if isinstance(value, dict) else None
            more_than(item.text_so_far(), diff if isinstance(diff, str) else "")
        if self._is_remote(item.kind, body):
            self.blocks.whole_call(
                item,
                BlockKind.SERVER_TOOL_USE,
                {"type": item.kind, **extra_fields},
                arguments,
                events,
            )
        else:
            self.blocks.has_calls = True
            self.blocks.whole_call(
                item, BlockKind.TOOL_USE, {"item": item.kind, **extra_fields}, arguments, events
            )

    def _is_remote(self, kind: str, body: dict[str, Any]) -> bool:
        if kind == "tool_search_call":
            return body.get("execution") != "client"
        place = body.get("environment")
        if kind != "shell_call":
            return False
        return self.runs_shell if not isinstance(place, dict) else place.get("type") != "local"

    def _pending(self, item: Item, body: dict[str, Any], events: list[Event]) -> None:
        """The provider asks before it runs a call of an MCP server: nothing has run yet."""
        item.name, item.id = _word(body, "name"), _word(body, "id") or f"item_{item.number}"
        label = self._tame(item.kind, {"server_label": _word(body, "server_label")}, events)
        fields = {"executor": "mcp_pending", "item": PENDING, **label}
        self.blocks.whole_call(item, BlockKind.TOOL_USE, fields, _word(body, "arguments"), events)

    # --- calls of the provider's ---

    def started(self, item: Item, body: dict[str, Any], events: list[Event]) -> None:
        """What the provider's call asks for is whole: it may be decided while it runs."""
        row = SERVER_ITEMS[item.kind]
        item.name = row.name or _word(body, "name") or item.name
        item.id = item.id or f"item_{item.number}"
        fields = self._tame(item.kind, call_fields(item.kind, body), events)
        self.blocks.whole_call(
            item, BlockKind.SERVER_TOOL_USE, fields, server_input(item.kind, body), events
        )

    def _server(self, item: Item, body: dict[str, Any], events: list[Event]) -> None:
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
        self.blocks.carry(item.kind + RESULT, result, events)

    # --- the end ---

    def end(self, output: Any, events: list[Event], written: Callable[[], dict[str, Any]]) -> None:
        """The last event: compare what it says of all items; those that are only there come now, as
        the response is `written`."""
        bodies = _objects(output)
        seen = sorted(self.items)
        is_new = len(bodies) > len(seen) or not all(item.is_done for item in self.items.values())
        if is_new and any(str(body.get("type")) in OBJECTS for body in bodies):
            again = _objects(written().get("output"))
            bodies = (
                [
                    as_written(body, written_body)
                    for body, written_body in zip(bodies, again, strict=True)
                ]
                if again
                else bodies
            )
        if len(bodies) >= len(seen):
            first = seen[-1] + 1 if seen else 0
            for number, body in zip(
                [*seen, *range(first, first + len(bodies) - len(seen))], bodies, strict=True
            ):
                self.done(number, body, events)
        else:
            self._compare(seen, bodies, events)
        for item in self.items.values():
            if item.is_done:
                continue
            if item.kind not in PART_NAMES:
                raise RemoteProtocolError("upstream ended its answer with a tool call open")
            self.blocks.end_part(item, events)

    def _compare(self, seen: list[int], bodies: list[dict[str, Any]], events: list[Event]) -> None:
        """Fewer than came: each is the next one of its type."""
        place = 0
        for body in bodies:
            while place < len(seen) and self.items[seen[place]].kind != body.get("type"):
                place += 1
            if place == len(seen):
                raise RemoteProtocolError("upstream's last event has other items than its stream")
            self.done(seen[place], body, events)
            place += 1

    def logprobs(self, part: ItemPart, entries: Any, text: str, events: list[Event]) -> None:
        """Add the log probabilities of the `text` that came just before; what else they hold is
        withheld."""
        if entries and not are_of(entries, text):
            self.withhold("logprobs", events)
        elif entries:
            events.append(AttachmentDelta(part.block, "logprobs", {"content": entries}))


def _objects(value: Any) -> list[dict[str, Any]]:
    return (
        [element for element in value if isinstance(element, dict)]
        if isinstance(value, list)
        else []
    )


def _word(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise RemoteProtocolError("upstream sent something else where its dialect has a string")
    return value
