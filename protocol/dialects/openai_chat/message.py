"""One chat/completions message as it is written, streamed or whole: its head, its tool calls, how
it ends.

Tool calls are those that the client executes, numbered from 0. Clients of the time before tools get
the first one as `function_call`; free-form tools get their text back.
"""

from typing import Any, Literal

from protocol.bytes.json_strict import AmbiguousJson, loads_arguments
from protocol.citations import Citation
from protocol.dialects.openai_chat.finish import WORDS
from protocol.dialects.openai_chat.sluice_object import Vendor
from protocol.dialects.openai_chat.usage import write_usage
from protocol.errors import LocalProtocolError
from protocol.events import (
    BlockKind,
    BlockStart,
    MessageStart,
    MessageStop,
    RawDelta,
    StopReason,
    Usage,
)
from protocol.request import ChatRequest

_OWN = ("created", "system_fingerprint", "service_tier")
_REASONING_FIELDS = ("reasoning_content", "reasoning")


class MessageTool:
    """A tool call as the client gets it. `form` unseen: one more than a client of legacy functions
    can take."""

    __slots__ = ("arguments", "block", "form", "has_arguments", "number")

    def __init__(
        self,
        block: BlockStart,
        number: int,
        form: Literal["function", "custom", "legacy", "unseen"],
    ) -> None:
        self.block, self.number, self.form = block, number, form
        self.arguments: list[str] = []
        self.has_arguments = False

    def opening(self) -> dict[str, Any]:
        """The first delta: id and name, which come once."""
        match self.form:
            case "legacy":
                return {"function_call": {"name": self.block.name, "arguments": ""}}
            case "custom":
                custom = {"name": self.block.name, "input": ""}
                return {
                    "tool_calls": [
                        {
                            "index": self.number,
                            "id": self.block.id,
                            "type": "custom",
                            "custom": custom,
                        }
                    ]
                }
            case _:
                function = {"name": self.block.name, "arguments": ""}
                return {
                    "tool_calls": [
                        {
                            "index": self.number,
                            "id": self.block.id,
                            "type": "function",
                            "function": function,
                        }
                    ]
                }

    @property
    def prefix(self) -> bytes:
        """What stands before the text of the arguments in a delta."""
        if self.form == "legacy":
            return b'"function_call":{"arguments":'
        field = b'"custom":{"input":' if self.form == "custom" else b'"function":{"arguments":'
        return b'"tool_calls":[{"index":%d,%s' % (self.number, field)

    @property
    def suffix(self) -> bytes:
        """What stands after it."""
        return b"}" if self.form == "legacy" else b"}}]"

    def whole(self) -> dict[str, Any]:
        """The call in a whole answer."""
        arguments = "".join(self.arguments)
        if self.form == "custom":
            return {
                "id": self.block.id,
                "type": "custom",
                "custom": {"name": self.block.name, "input": custom_input(arguments)},
            }
        function = {"name": self.block.name, "arguments": arguments or "{}"}
        return (
            function
            if self.form == "legacy"
            else {"id": self.block.id, "type": "function", "function": function}
        )


class MessageAssembly:
    """What both encoders know of the message: raises LocalProtocolError on a sequence that the
    dialect does not allow."""

    def __init__(self, request: ChatRequest, call_id: str, created: int) -> None:
        self.request = request
        self._id, self._model = f"chatcmpl-{call_id}", request.model
        self._head_fields: dict[str, Any] = {"created": created}
        self._blocks: dict[int, BlockStart] = {}
        self.tools: dict[int, MessageTool] = {}
        self.is_content_null = self.is_same = self.ended = self.has_refusal = False
        self.started = False
        self.waiting: dict[int, list[RawDelta]] = {}
        """Unmodelled fields of tool calls that are not released yet."""
        self.length = 0
        """Characters of the content whose blocks have ended."""
        self.pages: list[Any] = []
        """Annotations, which are sent once, at the end: a second list in a delta breaks the SDK's
        helper."""
        self._listed: list[Citation] = []
        self.vendor = Vendor(MessageStart("", ""))

    def check(self) -> None:
        """Nothing follows the end."""
        if self.ended:
            raise LocalProtocolError("an event after the end of the message")

    def start(self, event: MessageStart) -> None:
        """The message begins."""
        if self.started:
            raise LocalProtocolError("a message began twice")
        self.started = True
        self._model = event.model or self.request.model
        self.vendor = Vendor(event)
        self.is_same = event.extra.get("dialect") == "openai"
        if self.is_same:
            self._id = event.id or self._id
            self._head_fields |= {k: event.extra[k] for k in _OWN if k in event.extra}
            self.is_content_null = event.extra.get("content_null", False)

    def begin(self, event: BlockStart) -> MessageTool | None:
        """A block begins; returns the tool call that it is for the client."""
        if not self.started or event.index in self._blocks:
            raise LocalProtocolError(f"block {event.index} began twice or before its message")
        if event.kind is BlockKind.OPAQUE:
            raise LocalProtocolError("an opaque block was about to be released")
        self._blocks[event.index] = event
        if event.kind is BlockKind.TOOL_USE:
            # a legacy call has no place in the list
            number = sum(tool.form in ("function", "custom") for tool in self.tools.values())
            tool = self.tools[event.index] = MessageTool(event, number, self._form(event))
            return tool if tool.form != "unseen" else None
        if event.kind is BlockKind.TEXT:
            self.has_refusal = self.has_refusal or event.name == "refusal"
        self.vendor.begin(event)
        if event.kind is BlockKind.OTHER and event.name == "annotations" and self.is_same:
            self.pages += (event.body or {}).get("annotations", [])
        return None

    def _form(self, event: BlockStart) -> Literal["function", "custom", "legacy", "unseen"]:
        # a provider of this dialect may answer in the older form though the request did not use it
        if self.request.legacy_functions or (event.form == "legacy" and self.is_same):
            return "unseen" if self.tools else "legacy"
        offered = self.request.tool(event.name)
        return "custom" if offered is not None and offered.kind == "custom" else "function"

    def cite(self, citation: Citation) -> None:
        """Take a citation of the open text block."""
        if self.is_same:
            self.pages.append(citation.raw)
            self._listed += [citation] if citation.is_listed else []
        else:
            self.vendor.cite(citation)

    def lists(self) -> dict[str, Any]:
        """The lists of pages that xAI and Perplexity have beside the choices, where the upstream
        had one."""
        results = [{"title": page.title, "url": page.url} for page in self._listed if page.title]
        lists = {"citations": [page.url for page in self._listed], "search_results": results}
        return {name: value for name, value in lists.items() if value}

    def has_begun(self, index: int) -> bool:
        """Did the block begin?"""
        return index in self._blocks

    def block(self, index: int) -> BlockStart:
        """Return the block that began at `index`."""
        if index not in self._blocks:
            raise LocalProtocolError(f"content for block {index}, which did not begin")
        return self._blocks[index]

    def tool(self, index: int, text: str) -> MessageTool | None:
        """Return the tool call that arguments are for; None if the client sees none of them."""
        if index in self.tools:
            tool = self.tools[index]
            return tool if tool.form != "unseen" else None
        if self.block(index).kind is not BlockKind.SERVER_TOOL_USE:
            raise LocalProtocolError(f"arguments for block {index}, which is no tool call")
        self.vendor.arguments(index, text)
        return None

    def end_block(self, index: int, length: int) -> MessageTool | None:
        """A block ended; `length` is what it had of text. Returns the tool call that it is for the
        client."""
        block = self.block(index)
        if block.kind is BlockKind.TEXT and block.name != "refusal":
            self.vendor.place(self.length, self.length + length)
            self.length += length
        tool = self.tools.get(index)
        return tool if tool is not None and tool.form != "unseen" else None

    def end(self) -> None:
        """The message ends."""
        if not self.started:
            raise LocalProtocolError("a message ended before it began")
        self.ended = True

    def head(self, kind: str) -> dict[str, Any]:
        """What every chunk and the body begin with."""
        return {"id": self._id, "object": kind, "model": self._model, **self._head_fields}


def text_field(block: BlockStart) -> str:
    """The field in which the text of a block goes out."""
    if block.kind is BlockKind.TEXT:
        return "refusal" if block.name == "refusal" else "content"
    return block.name if block.name in _REASONING_FIELDS else "reasoning_content"


def custom_input(arguments: str) -> str:
    """The text of a free-form call; arguments of another shape are the text."""
    try:
        value = loads_arguments(arguments)
    except AmbiguousJson:
        return arguments
    text = value.get("input")
    return text if isinstance(text, str) and len(value) == 1 else arguments


def finish_word(message: MessageAssembly, stop: MessageStop) -> str:
    """The finish reason; a legacy call has its own."""
    if stop.stop_reason is StopReason.TOOL_USE and any(
        tool.form == "legacy" for tool in message.tools.values()
    ):
        return "function_call"
    if (
        stop.stop_reason is StopReason.TOOL_USE
        and message.is_same
        and stop.extra.get("finish_reason") == "stop"
    ):
        return "stop"
    return WORDS[stop.stop_reason]


def refusal(message: MessageAssembly, stop: MessageStop) -> str | None:
    """What the message's `refusal` says where no text did: the explanation, or "" where nothing
    else was written."""
    if stop.stop_reason is not StopReason.REFUSAL or message.is_same or message.has_refusal:
        return None
    return stop.explanation or (None if message.length or message.tools else "")


def usage_object(message: MessageAssembly, stop: MessageStop) -> dict[str, Any] | None:
    """The usage: upstream's own in the same dialect, else by docs/change/protocol.md 1.7."""
    if message.is_same and stop.extra.get("usage"):
        usage: dict[str, Any] = stop.extra["usage"]
        return usage
    if stop.usage == Usage():
        return None
    total = stop.extra.get("total_tokens")
    return write_usage(stop.usage) | ({} if total is None else {"total_tokens": total})


def with_call_index(event: RawDelta, message: MessageAssembly) -> dict[str, Any] | None:
    """The piece of a chunk that an unmodelled frame is, its tool call renumbered; None if this
    client does not get it."""
    if event.dialect != "openai" or not message.started:
        return None
    if event.index < 0:
        return (
            {"choices": [], **event.body}
            if event.body.get("choices") is None
            else _with_delta(event.body)
        )
    if not message.has_begun(event.index):
        # the call waits for its verdict, and they with it
        message.waiting.setdefault(event.index, []).append(event)
    elif message.block(event.index).kind in (BlockKind.TEXT, BlockKind.THINKING):
        return _with_delta(event.body)
    tool = message.tools.get(event.index)
    if tool is None or tool.form not in ("function", "custom"):
        return None
    [call] = event.body["choices"][0]["delta"]["tool_calls"]
    # the SDK's helper wants a function in every delta of a function's call
    function = {"function": {"arguments": ""}} if tool.form == "function" else {}
    return _with_delta(
        {
            "choices": [
                {"index": 0, "delta": {"tool_calls": [{**function, **call, "index": tool.number}]}}
            ]
        }
    )


def _with_delta(body: dict[str, Any]) -> dict[str, Any]:
    """The SDK's helper wants a delta in every choice."""
    return {
        **body,
        "choices": [{"delta": {}, "finish_reason": None, **choice} for choice in body["choices"]],
    }
