"""The items of one Responses answer as blocks: what a decoder builds events with. Nothing here
reads the wire: the decoder does.

Theory. A stream sends everything up to five times: in deltas, at the end of a part, of its content,
of the item, and in the last event. The deltas are the truth, because they went through the
policies. A repetition is only compared: the same, or the same with more text behind it, which is
one more delta. Anything else is refused: nobody decided on another text.
"""

from typing import Any

from protocol.bounds import MAX_BLOCKS
from protocol.bytes.json_strict import dumps
from protocol.dialects.responses.cited import read_citation
from protocol.errors import RemoteProtocolError
from protocol.events import (
    ArgumentsDelta,
    AttachmentDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    Opaque,
    SignatureDelta,
    TextDelta,
)

PartKey = tuple[str, int]
"""`content` or `summary`, and its number in the item."""
_CHANGED = "upstream's final content differs from what it sent before"


def joined(pieces: list[str]) -> str:
    """Return pieces as one text, in which the two halves of a character are one as clients read
    them."""
    text = "".join(pieces)
    return (
        text
        if text.isascii()
        else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    )


def more_than(prefix: str, whole: str) -> str:
    """Return what `whole` has behind `prefix`. Raises RemoteProtocolError where it does not begin
    so."""
    if not whole.startswith(prefix):
        raise RemoteProtocolError(_CHANGED)
    return whole[len(prefix) :]


class ItemPart:
    """A part of a message or of reasoning: one block, or several where more came after its end."""

    __slots__ = ("block", "cited", "is_open", "name", "pieces")

    def __init__(self, block: int, name: str) -> None:
        self.block, self.name, self.is_open = block, name, True
        self.pieces: list[str] = []
        self.cited = 0

    def text_so_far(self) -> str:
        """What it has so far."""
        if len(self.pieces) > 1:
            self.pieces = [joined(self.pieces)]
        return self.pieces[0] if self.pieces else ""


class Item:
    """An item of the answer. `pieces`: of a call's input, as it was sent. `block` -1: it has no
    block (yet)."""

    __slots__ = (
        "block",
        "fields",
        "has_ended",
        "id",
        "is_done",
        "kind",
        "last",
        "name",
        "namespace",
        "number",
        "parts",
        "pieces",
    )

    def __init__(self, number: int, kind: str) -> None:
        self.number, self.kind, self.id, self.name = number, kind, "", ""
        self.namespace = ""
        self.fields: dict[str, Any] = {}
        self.parts: dict[PartKey, ItemPart] = {}
        self.pieces: list[str] = []
        self.last: ItemPart | None = None
        self.block = -1
        self.is_done = self.has_ended = False

    def text_so_far(self) -> str:
        """What came of a call's input."""
        if len(self.pieces) > 1:
            self.pieces = [joined(self.pieces)]
        return self.pieces[0] if self.pieces else ""


class Blocks:
    """Numbers the blocks of one answer as they begin."""

    def __init__(self) -> None:
        self._next = 0
        self.has_calls = False

    def new(self) -> int:
        """Return the number of the next block. Raises RemoteProtocolError past the bound."""
        if self._next >= MAX_BLOCKS:
            raise RemoteProtocolError(f"upstream began more than {MAX_BLOCKS} blocks")
        self._next += 1
        return self._next - 1

    # --- messages and reasoning ---

    def part(self, item: Item, key: PartKey, name: str, events: list[Event]) -> ItemPart:
        """Return the part, which begins where it is new; the one before it has ended then."""
        part = item.parts.get(key)
        if part is None:
            self.end_part(item, events)
            part = item.parts[key] = item.last = ItemPart(self.new(), name)
            events.append(self._start(item, part))
        elif part.name != name:
            raise RemoteProtocolError("upstream gave a part two types")
        return part

    def _start(self, item: Item, part: ItemPart) -> BlockStart:
        if item.kind == "reasoning":
            return BlockStart(
                part.block, BlockKind.THINKING, body={"item": item.number, "part": part.name}
            )
        body = {"item": item.number, **item.fields}
        return BlockStart(
            part.block, BlockKind.TEXT, "", "refusal" if part.name == "refusal" else "", body
        )

    def add(self, item: Item, part: ItemPart, text: str, events: list[Event]) -> None:
        """Add text; behind the end of the part's block, in another one."""
        if not text:
            return
        if not part.is_open:
            self.end_part(item, events)
            part.block, part.is_open, item.last = self.new(), True, part
            events.append(self._start(item, part))
        part.pieces.append(text)
        events.append(TextDelta(part.block, text))

    def agree(self, item: Item, part: ItemPart, whole: str, events: list[Event]) -> None:
        """Take the repeated whole text of a part. Raises RemoteProtocolError where it differs."""
        self.add(item, part, more_than(part.text_so_far(), whole), events)

    def cite(self, part: ItemPart, annotations: Any, events: list[Event]) -> None:
        """Take all annotations of a part: those that were not emitted yet."""
        if not isinstance(annotations, list) or len(annotations) <= part.cited:
            return
        for value in annotations[part.cited :]:
            self.annotate(part, value, events)

    def annotate(self, part: ItemPart, value: Any, events: list[Event]) -> None:
        """Add an annotation, where its text is still open."""
        part.cited += 1
        citation = read_citation(value) if part.is_open else None
        events.append(
            Opaque("annotation")
            if citation is None
            else AttachmentDelta(part.block, "citation", citation)
        )

    def seal(self, item: Item, sealed: str, events: list[Event]) -> None:
        """Add what only the provider can read of reasoning: behind its last part, or of a part
        without a text."""
        if item.last is None or not item.last.is_open:
            self.end_part(item, events)
            item.last = ItemPart(self.new(), "summary_text")
            events.append(self._start(item, item.last))
        if sealed:
            events.append(SignatureDelta(item.last.block, sealed))

    def end_part(self, item: Item, events: list[Event]) -> None:
        """End the item's open part."""
        if item.last is not None and item.last.is_open:
            item.last.is_open = False
            events.append(BlockStop(item.last.block))

    # --- calls ---

    def call(self, item: Item, body: dict[str, Any] | None, events: list[Event]) -> None:
        """Begin a call that the client runs."""
        item.block = self.new()
        self.has_calls = True
        events.append(BlockStart(item.block, BlockKind.TOOL_USE, item.id, item.name, body))
        if item.kind == "custom_tool_call":
            events.append(ArgumentsDelta(item.block, '{"input":"'))

    def input(self, item: Item, text: str, events: list[Event]) -> None:
        """Add to the arguments of a call that has begun; a custom tool's text becomes the inside of
        a JSON string."""
        if not text:
            return
        if item.has_ended:
            raise RemoteProtocolError("upstream added to a tool call after its end")
        item.pieces.append(text)
        # pieces escaped one by one join to the whole escaped
        escaped = dumps(text)[1:-1].decode() if item.kind == "custom_tool_call" else text
        events.append(ArgumentsDelta(item.block, escaped))

    def end_call(self, item: Item, events: list[Event]) -> None:
        """End a call that has begun."""
        if not item.has_ended:
            item.has_ended = True
            if item.kind == "custom_tool_call":
                events.append(ArgumentsDelta(item.block, '"}'))
            events.append(BlockStop(item.block))

    def whole_call(
        self, item: Item, kind: BlockKind, body: dict[str, Any], arguments: str, events: list[Event]
    ) -> None:
        """Add a call that came whole."""
        item.block, item.has_ended = self.new(), True
        start = BlockStart(item.block, kind, item.id, item.name, body)
        events += [
            start,
            *([ArgumentsDelta(item.block, arguments)] if arguments else []),
            BlockStop(item.block),
        ]

    def carry(self, name: str, body: dict[str, Any], events: list[Event]) -> None:
        """Add what is carried whole."""
        index = self.new()
        events += [BlockStart(index, BlockKind.OTHER, name=name, body=body), BlockStop(index)]
