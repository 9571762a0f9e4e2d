"""Events to streamed chat/completions answers (docs/change/protocol.md 1.3, 1.4). Whole bodies:
`protocol.dialects.openai_chat.encode_whole`.

The SDK's helper wants tool indices dense from 0, id, name and role exactly once, lists in a delta
at most once, and nothing after the usage chunk. What upstream sent in this same dialect (id, time
of creation, usage, the name of the reasoning field) comes out again.
"""

from collections.abc import Sequence
from typing import Any

from protocol.bytes.json_strict import dumps
from protocol.bytes.sse import escape_breaks
from protocol.dialects.openai_chat import failures
from protocol.dialects.openai_chat.encode_whole import WholeEncoder
from protocol.dialects.openai_chat.message import (
    MessageAssembly,
    MessageTool,
    custom_input,
    finish_word,
    refusal,
    text_field,
    usage_object,
    with_call_index,
)
from protocol.errors import LocalProtocolError
from protocol.events import (
    ArgumentsDelta,
    AttachmentDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    MessageStart,
    MessageStop,
    RawDelta,
    TextDelta,
    UpstreamFailed,
)
from protocol.request import ChatRequest

_NOT_FINISHED = b',"finish_reason":null}]}\n\n'
_SUFFIX = b"}" + _NOT_FINISHED


class _Text:
    """An open text or thinking block: what stands before its text in a frame, and how long it is
    (-1: not counted)."""

    __slots__ = ("length", "prefix")

    def __init__(self, prefix: bytes) -> None:
        self.prefix, self.length = prefix, 0


class StreamEncoder:
    """Frames for a client that streams."""

    content_type = "text/event-stream; charset=utf-8"

    def __init__(self, request: ChatRequest, call_id: str, created: int) -> None:
        self._message = MessageAssembly(request, call_id, created)
        self._include_usage = request.include_usage
        self._frame = self._delta = b""
        self._open: dict[int, _Text] = {}
        self._has_annotations = False
        """Upstream sent a list, perhaps an empty one."""

    def encode(self, events: Sequence[Event]) -> bytes:
        """Return the frames for `events`."""
        out: list[bytes] = []
        for event in events:
            if type(event) is TextDelta and (opened := self._open.get(event.index)) is not None:
                opened.length += len(event.text)
                out += (opened.prefix, dumps(event.text), _SUFFIX)
            else:
                self._other(event, out)
        return escape_breaks(b"".join(out))

    def _other(self, event: Event, out: list[bytes]) -> None:
        message = self._message
        message.check()
        match event:
            case MessageStart():
                self._start(event, out)
            case BlockStart():
                self._block_start(event, out)
            case TextDelta():
                raise LocalProtocolError(f"text for block {event.index}, which is not open for it")
            case ArgumentsDelta():
                self._arguments(event, out)
            case AttachmentDelta():
                self._attachment(event, out)
            case RawDelta():
                self._raw(event, out)
            case BlockStop():
                self._block_stop(event, out)
            case MessageStop():
                self._stop(event, out)
            case UpstreamFailed():
                self._close()
                out.append(failures.error_frame(event.kind, event.message, None))
            case _:
                # signatures have no place in this dialect
                pass

    def _close(self) -> None:
        self._message.ended = True
        self._open = {}

    def _put(self, delta: dict[str, Any], out: list[bytes]) -> None:
        out += (self._delta, dumps(delta)[1:-1], _SUFFIX)

    def _start(self, event: MessageStart, out: list[bytes]) -> None:
        message = self._message
        message.start(event)
        self._frame = b"data: " + dumps(message.head("chat.completion.chunk"))[:-1]
        self._delta = self._frame + b',"choices":[{"index":0,"delta":{'
        delta: dict[str, Any] = {
            "role": "assistant",
            "content": None if message.is_content_null else "",
        }
        choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": None}
        body: dict[str, Any] = {"choices": [choice]}
        if message.is_same:
            delta |= event.extra.get("message") or {}
            self._has_annotations = delta.pop("annotations", None) is not None
            choice |= event.extra.get("choice") or {}
            body |= event.extra.get("fields") or {}
        out += (self._frame, b",", dumps(body)[1:], b"\n\n")

    def _block_start(self, event: BlockStart, out: list[bytes]) -> None:
        tool = self._message.begin(event)
        if event.kind in (BlockKind.TEXT, BlockKind.THINKING):
            self._open[event.index] = _Text(self._delta + b'"%s":' % text_field(event).encode())
        elif tool is not None:
            self._put(tool.opening(), out)
            for raw in self._message.waiting.pop(event.index, ()):
                self._raw(raw, out)

    def _arguments(self, event: ArgumentsDelta, out: list[bytes]) -> None:
        tool = self._message.tool(event.index, event.text)
        if tool is None or not event.text:
            return
        tool.has_arguments = True
        if tool.form == "custom":
            tool.arguments.append(event.text)
        else:
            self._tool_text(tool, event.text, out)

    def _tool_text(self, tool: MessageTool, text: str, out: list[bytes]) -> None:
        out += (self._delta, tool.prefix, dumps(text), tool.suffix, _SUFFIX)

    def _block_stop(self, event: BlockStop, out: list[bytes]) -> None:
        opened = self._open.pop(event.index, None)
        tool = self._message.end_block(event.index, opened.length if opened is not None else 0)
        if tool is None:
            return
        if tool.form == "custom":
            self._tool_text(tool, custom_input("".join(tool.arguments)), out)
        elif not tool.has_arguments:
            self._tool_text(tool, "{}", out)

    def _attachment(self, event: AttachmentDelta, out: list[bytes]) -> None:
        opened = self._open.get(event.index)
        if opened is None:
            raise LocalProtocolError(
                f"{event.field} for block {event.index}, which is not open for it"
            )
        if event.field == "citation":
            self._message.cite(event.value)
        else:
            self._beside(opened, event, out)

    def _beside(self, opened: _Text, event: AttachmentDelta, out: list[bytes]) -> None:
        """Put it into the chunk of its text, where that was written just now."""
        piece = b'"%s":%s' % (event.field.encode(), dumps(event.value))
        is_beside = len(out) > 2 and out[-1] is _SUFFIX and out[-3] is opened.prefix
        if is_beside:
            out.pop()
        else:
            out.append(self._delta)
        if event.field == "logprobs":
            out += (b"},", piece, _NOT_FINISHED)
        else:
            out += (b",", piece, _SUFFIX) if is_beside else (piece, _SUFFIX)

    def _raw(self, event: RawDelta, out: list[bytes]) -> None:
        if (body := with_call_index(event, self._message)) is not None:
            out += (self._frame, b",", dumps(body)[1:], b"\n\n")

    def _stop(self, event: MessageStop, out: list[bytes]) -> None:
        message = self._message
        message.end()
        if (refusal_text := refusal(message, event)) is not None:
            self._put({"refusal": refusal_text}, out)
        if (annotations := [*message.pages, *message.vendor.annotations]) or self._has_annotations:
            self._put({"annotations": annotations}, out)
        choice: dict[str, Any] = {
            "index": 0,
            "delta": {},
            "finish_reason": finish_word(message, event),
        }
        body: dict[str, Any] = {"choices": [choice]}
        if message.is_same:
            choice |= event.extra.get("choice") or {}
            body |= message.lists() | (event.extra.get("fields") or {})
        if vendor_fields := message.vendor.object(event):
            body["sluice"] = vendor_fields
        out += (self._frame, b",", dumps(body)[1:], b"\n\n")
        if self._include_usage and (usage := usage_object(message, event)):
            out += (self._frame, b',"choices":[],"usage":', dumps(usage), b"}\n\n")
        out.append(b"data: [DONE]\n\n")
        self._close()


def make(request: ChatRequest, *, call_id: str, created: int) -> StreamEncoder | WholeEncoder:
    """Return the encoder that `request` asks for."""
    return (StreamEncoder if request.stream else WholeEncoder)(request, call_id, created)
