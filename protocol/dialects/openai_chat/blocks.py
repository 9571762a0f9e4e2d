"""The blocks of one chat/completions message, numbered as their content comes: what a decoder
builds events with.

A text or thinking block ends where content of another kind begins; tool calls end at the finish,
because their fragments may interleave. Nothing here reads the wire: the decoder does.
"""

from typing import Any, Literal

from protocol.bounds import MAX_BLOCKS
from protocol.bytes.json_strict import dumps
from protocol.dialects.openai_chat.wire import Function, WireToolCall
from protocol.errors import RemoteProtocolError
from protocol.events import (
    ArgumentsDelta,
    AttachmentDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    Form,
    TextDelta,
)

_LEGACY = "legacy"
EXECUTED = {
    "search": "web_search",
    "visit": "web_fetch",
    "browser": "web_fetch",
    "python": "code_execution",
}
"""What policies call the tools that Groq's compound models run."""


class IncomingCall:
    """A tool call in progress. For the reader, it begins when its name is known."""

    __slots__ = ("block", "form", "id", "is_custom", "is_open", "name", "waiting")

    def __init__(self, block: int, id: str, form: Form) -> None:
        self.block, self.id, self.name, self.form = block, id, "", form
        self.is_open, self.is_custom = True, False
        self.waiting: list[str] = []


class Blocks:
    """Blocks of one message."""

    def __init__(self) -> None:
        self.has_calls = False
        self._next = 0
        self._open: tuple[int, BlockKind, str] | None = None
        self._calls: dict[int | str, IncomingCall] = {}
        self._last: IncomingCall | None = None
        self._unnumbered = self._first = 0
        """Calls that began without an index, and which of them was the first in its chunk."""
        self._open_calls: list[IncomingCall] = []
        self._executed: set[int] = set()
        """Groq's numbers of the calls that it ran."""

    def text(self, kind: BlockKind, text: str, events: list[Event], name: str = "") -> None:
        """Add text or reasoning; `name` is the field in which it came."""
        opened = self._open
        if opened is None or opened[1] is not kind or opened[2] != name:
            opened = self._begin(kind, name, events)
        events.append(TextDelta(opened[0], text))

    def _begin(self, kind: BlockKind, name: str, events: list[Event]) -> tuple[int, BlockKind, str]:
        self.close_text(events)
        opened = self._open = (self._new_index(), kind, name)
        events.append(BlockStart(opened[0], kind, "", name))
        return opened

    def _new_index(self) -> int:
        if self._next >= MAX_BLOCKS:
            raise RemoteProtocolError(f"upstream began more than {MAX_BLOCKS} blocks")
        self._next += 1
        return self._next - 1

    def attach(
        self,
        kind: BlockKind,
        name: str,
        field: Literal["citation", "logprobs"],
        value: Any,
        events: list[Event],
    ) -> bool:
        """Add what goes with the open block, if it is of that kind and name."""
        if self._open is None or self._open[1:] != (kind, name):
            return False
        events.append(AttachmentDelta(self._open[0], field, value))
        return True

    def attach_details(
        self,
        field: Literal["reasoning_details", "thinking_blocks"],
        details: list[Any],
        events: list[Event],
    ) -> None:
        """Add reasoning details. Those that show nothing (a signature, encrypted data) go with
        whatever text is open, or come alone."""
        opened = self._open or self._begin(BlockKind.THINKING, "reasoning", events)
        events.append(AttachmentDelta(opened[0], field, details))

    @property
    def open_text(self) -> int:
        """The block of text or thinking that is open, -1 for none."""
        return self._open[0] if self._open is not None else -1

    def carry(self, name: str, body: dict[str, Any], events: list[Event]) -> None:
        """Add what is carried whole, as a block of its own."""
        self.close_text(events)
        index = self._new_index()
        events += [BlockStart(index, BlockKind.OTHER, name=name, body=body), BlockStop(index)]

    def searched(self, results: int, events: list[Event]) -> None:
        """Add the search that the provider made, asked or not: a call that it ran itself, whose
        query is not known."""
        self._ran("web_search", "search_results", f'{{"results":{results}}}', events)

    def executed(self, tools: Any, events: list[Event]) -> None:
        """Add the calls that Groq's compound models ran. A stream says each of them again when it
        has a result."""
        for place, tool in enumerate(tools if isinstance(tools, list) else ()):
            if not isinstance(tool, dict):
                continue
            number = tool.get("index", place)
            if not isinstance(number, int) or number in self._executed:
                continue
            self._executed.add(number)
            kind, arguments = str(tool.get("type")), tool.get("arguments")
            self._ran(
                EXECUTED.get(kind, kind),
                "executed_tools",
                arguments if isinstance(arguments, str) else dumps(arguments).decode(),
                events,
            )

    def _ran(self, name: str, kind: str, arguments: str, events: list[Event]) -> None:
        self.close_text(events)
        index = self._new_index()
        start = BlockStart(
            index, BlockKind.SERVER_TOOL_USE, f"{name}_{index}", name, {"type": kind}
        )
        events += [start, ArgumentsDelta(index, arguments), BlockStop(index)]

    def reasoning_name(self) -> str:
        """The field of the reasoning that is open, else the one that OpenRouter's details stand
        beside."""
        return (
            self._open[2]
            if self._open is not None and self._open[1] is BlockKind.THINKING
            else "reasoning"
        )

    def close_text(self, events: list[Event]) -> None:
        """End the open text or thinking block."""
        if self._open is not None:
            events.append(BlockStop(self._open[0]))
            self._open = None

    def legacy_call(self, function: Function, events: list[Event]) -> None:
        """Add a fragment of the one function call of the time before tools."""
        call = self._calls.get(_LEGACY) or self._new_call(_LEGACY, "", "legacy", events)
        self._add(call, None, function.name, function.arguments, events)

    def call(self, position: int, fragment: WireToolCall, events: list[Event]) -> int:
        """Add a fragment of a tool call; returns its block."""
        custom, function = fragment.custom, fragment.function
        if custom is not None and function is not None:
            raise RemoteProtocolError("upstream sent a tool call of two types")
        name = (
            custom.name if custom is not None else function.name if function is not None else None
        )
        text = (
            custom.input
            if custom is not None
            else function.arguments
            if function is not None
            else None
        )
        call = self._find(position, fragment, name)
        if call is None:
            call = self._new_call(_key(position, fragment), fragment.id or "", "native", events)
            call.is_custom = custom is not None or fragment.type == "custom"
            if fragment.index is None:
                self._number(position, call)
        self._last = call
        if custom is not None and not call.name and not call.waiting:
            call.is_custom = True
        if (custom if not call.is_custom else function) is not None:
            raise RemoteProtocolError("upstream sent a tool call of two types")
        if text and call.is_custom:
            # the inside of a JSON string: pieces escaped one by one join to the whole escaped
            text = dumps(text)[1:-1].decode()
        self._add(call, fragment.id, name, text, events)
        return call.block

    def _number(self, position: int, call: IncomingCall) -> None:
        """A call began without an index: later fragments may have the one that it would have."""
        self._calls.setdefault(self._unnumbered, call)
        self._first = self._unnumbered - position
        self._unnumbered += 1

    def place(self, fragments: list[WireToolCall]) -> None:
        """Give those of several fragments in one chunk that name no call the index of the one that
        began at their position."""
        for number, fragment in enumerate(fragments, self._first):
            if (
                fragment.index is None
                and not fragment.id
                and 0 <= number < self._unnumbered
                and not _name(fragment)
            ):
                fragment.index = number

    def _new_call(self, key: int | str, id: str, form: Form, events: list[Event]) -> IncomingCall:
        self.close_text(events)
        call = self._calls[key] = IncomingCall(self._new_index(), id, form)
        self._open_calls.append(call)
        self.has_calls = True
        return call

    def _add(
        self,
        call: IncomingCall,
        id: str | None,
        name: str | None,
        text: str | None,
        events: list[Event],
    ) -> None:
        if not call.is_open:
            raise RemoteProtocolError("upstream added to a tool call after the finish")
        if name and not call.name:
            call.name = name
            call.id = call.id or id or ""
            events.append(
                BlockStart(call.block, BlockKind.TOOL_USE, call.id, name, None, call.form)
            )
            if call.is_custom:
                events.append(ArgumentsDelta(call.block, '{"input":"'))
            events.extend(ArgumentsDelta(call.block, waiting) for waiting in call.waiting)
            call.waiting = []
        elif name and name != call.name:
            raise RemoteProtocolError("upstream gave a tool call two names")
        elif id and not call.name:
            call.id = call.id or id
        if text:
            if call.name:
                events.append(ArgumentsDelta(call.block, text))
            else:
                call.waiting.append(text)

    def _find(self, position: int, fragment: WireToolCall, name: str | None) -> IncomingCall | None:
        """The call that a fragment belongs to, None for a new one: vendors repeat index 0 with new
        ids, or send no index."""
        if fragment.index is None and not fragment.id:
            return None if name else self._last
        call = self._calls.get(_key(position, fragment))
        if call is None or not fragment.id or fragment.id == call.id:
            return call
        # an id that comes after its call began without one is too late; a new call brings its own
        # name
        return call if not call.id and not (call.name and name) else None

    def close(self, events: list[Event]) -> None:
        """End everything that is open: the finish came."""
        self.close_text(events)
        for call in self._open_calls:
            if not call.name:
                raise RemoteProtocolError("upstream sent a tool call without a name")
            if call.is_custom:
                events.append(ArgumentsDelta(call.block, '"}'))
            events.append(BlockStop(call.block))
            call.is_open = False
        self._open_calls = []


def _name(fragment: WireToolCall) -> str | None:
    function = fragment.custom or fragment.function
    return function.name if function is not None else None


def _key(position: int, fragment: WireToolCall) -> int | str:
    if fragment.index is not None:
        return fragment.index
    return f"id {fragment.id}" if fragment.id else f"#{position}"
