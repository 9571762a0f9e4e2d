"""The items of one answer, streamed or whole, to events: what came in deltas, and what an item has
at its end. What is not modelled is withheld by its name."""

from collections.abc import Callable
from typing import Any

from protocol.bounds import MAX_BLOCKS
from protocol.bytes.strings import string_in
from protocol.bytes.unknown import named
from protocol.dialects.responses.blocks import Blocks, Item, ItemPart
from protocol.dialects.responses.calls import CALLS, Calls
from protocol.dialects.responses.items import (
    CARRIED_ITEMS,
    OBJECTS,
    OUTPUT_ITEMS,
    PENDING,
    SERVER_ITEMS,
    TYPED_CALLS,
    as_written,
)
from protocol.dialects.responses.withheld import Withheld
from protocol.errors import RemoteProtocolError
from protocol.events import AttachmentDelta, Event
from protocol.logprobs import are_of

_FIELDS = {
    "message": frozenset(("type", "id", "role", "status", "content", "phase")),
    "reasoning": frozenset(("type", "id", "status", "summary", "content", "encrypted_content")),
    "function_call": frozenset(
        "type id call_id status name arguments caller namespace created_by".split()
    ),
    "custom_tool_call": frozenset(
        "type id call_id status name input caller namespace created_by".split()
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
_PHASES = ("commentary", "final_answer")
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
        self.withheld = Withheld()
        self.calls = Calls(self.blocks, self.withheld)

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
        item = self.items[number] = Item(number, string_in(body, "type"))
        if len(self.items) > MAX_BLOCKS:
            raise RemoteProtocolError(f"upstream began more than {MAX_BLOCKS} items")
        item.id = string_in(body, "call_id") or string_in(body, "id")
        if item.kind == "message":
            self._take_phase(item, body, events)
        elif item.kind in SERVER_ITEMS:
            # the call is emitted before its item ends, and this names its tool
            item.fields = body
        elif item.kind in CALLS and body.get("name"):
            self.calls.begin(item, body, events)
        return item

    def done(self, number: int, body: dict[str, Any], events: list[Event]) -> None:
        """An item ends, or is repeated."""
        item = self.items.get(number)
        if item is None:
            item = self.add(number, body, events)
        kind = string_in(body, "type")
        if item.kind != kind:
            raise RemoteProtocolError("upstream gave an item two types")
        match kind:
            case "message" | "reasoning":
                self._texts(item, body, events)
            case "function_call" | "custom_tool_call":
                self.calls.end(item, body, events)
            case _ if item.is_done:
                # carried whole the first time
                return
            case _ if kind == PENDING:
                self.calls.pending(item, body, events)
            case _ if kind in TYPED_CALLS:
                self.calls.typed(item, body, events)
            case _ if kind in SERVER_ITEMS:
                self.calls.server(item, body, events)
            case _ if kind in OUTPUT_ITEMS:
                name = {**body, "tool_use_id": string_in(body, "call_id")}
                self.blocks.carry(
                    kind, {n: v for n, v in name.items() if n not in ("id", "created_by")}, events
                )
            case _ if kind in CARRIED_ITEMS:
                self.blocks.carry(kind, body, events)
            case _:
                self.withheld.add(named("item", kind), events)
        if not item.is_done:
            self.withheld.fields(body, _FIELDS.get(kind), f"{kind} field", events)
        item.is_done = True

    # --- messages and reasoning ---

    def _take_phase(self, item: Item, body: dict[str, Any], events: list[Event]) -> None:
        phase = body.get("phase")
        if phase in _PHASES:
            item.fields["phase"] = phase
        elif phase is not None:
            self.withheld.add("message field phase", events)

    def part(self, item: Item, field: str, number: int, name: str, events: list[Event]) -> ItemPart:
        """Return a part of a message or of reasoning; `number` is its place in `field`."""
        if number < 0:
            raise RemoteProtocolError("upstream sent a part without its number")
        return self.blocks.part(item, (field, number), name, events)

    def agree(self, item: Item, part: ItemPart, body: dict[str, Any], events: list[Event]) -> None:
        """Take a part that is sent whole."""
        kind = string_in(body, "type") or part.name
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
        self.withheld.fields(body, _PART_FIELDS.get(kind), "part field", events)

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
            kind = string_in(body, "type")
            known = item.parts.get((field, number))
            if known is None and kind not in PART_NAMES[item.kind]:
                self.withheld.add(named("part", kind), events)
                continue
            part = known or self.blocks.part(item, (field, number), kind, events)
            self.agree(item, part, body, events)
            if part.is_open and number != numbers[-1]:
                self.blocks.end_part(item, events)

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
            self.withheld.add("logprobs", events)
        elif entries:
            events.append(AttachmentDelta(part.block, "logprobs", {"content": entries}))


def _objects(value: Any) -> list[dict[str, Any]]:
    return (
        [element for element in value if isinstance(element, dict)]
        if isinstance(value, list)
        else []
    )
