"""Events to Messages answers, streamed and whole (docs/change/protocol.md 1.5).

Measured on the SDK: every frame needs its `event:` line, block indices are dense, message_delta has
usage. Blocks that policies dropped leave no gap: the encoder numbers blocks as they begin. One
block is open at a time. What only this dialect has (`extra`, `body`, attachments, raw frames) is
written when the upstream speaks it too.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from protocol.bytes.json_strict import AmbiguousJson, dumps, loads_arguments, normal_arguments
from protocol.bytes.sse import escape_breaks
from protocol.dialects.anthropic import failures
from protocol.dialects.anthropic.metadata import later_usage
from protocol.dialects.anthropic.usage import write_usage
from protocol.dialects.anthropic.wire import UNSIGNED
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
    SignatureDelta,
    TextDelta,
    UpstreamFailed,
)
from protocol.request import ChatRequest

_DELTA = (
    b"event: content_block_delta\ndata:"
    b' {"type":"content_block_delta","index":%d,"delta":{"type":"%s":'
)
_END = b"}}\n\n"
_CALLS = (BlockKind.TOOL_USE, BlockKind.SERVER_TOOL_USE)
_START_EXTRAS = ("container", "context_management", "input_transformations", "diagnostics")
_STOP_EXTRAS = ("context_management", "input_transformations")


def _stop(event: MessageStop) -> dict[str, Any]:
    body: dict[str, Any] = {
        "stop_reason": str(event.stop_reason),
        "stop_sequence": event.stop_sequence,
    }
    details = dict(event.extra.get("stop_details") or {})
    if event.explanation:
        details = {"type": "refusal", **details, "explanation": event.explanation}
    return {**body, "stop_details": details} if details else body


def _fields(extra: dict[str, Any], at: str) -> dict[str, Any]:
    fields: dict[str, Any] = extra.get("fields", {}).get(at, {})
    return fields


def _frame(kind: str, body: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), dumps({"type": kind, **body}))


def _block(event: BlockStart, *, same: bool) -> dict[str, Any]:
    body = event.body or {} if same else {}
    match event.kind:
        case BlockKind.TEXT:
            return {"type": "text", "text": "", **body}
        case BlockKind.THINKING:
            return {"type": "thinking", "thinking": "", "signature": "", **body}
        case BlockKind.TOOL_USE:
            return {"type": "tool_use", "id": event.id, "name": event.name, "input": {}, **body}
        case BlockKind.SERVER_TOOL_USE:
            return {
                "type": "server_tool_use",
                "id": event.id,
                "name": event.name,
                "input": {},
                **body,
            }
        case BlockKind.OTHER:
            return dict(event.body or {})
        case _:
            raise LocalProtocolError("an opaque block was about to be released")


def _input(text: str) -> msgspec.Raw:
    """The arguments as they were decided, to the letter: a number read and written again may be
    another one."""
    try:
        loads_arguments(text := normal_arguments(text))
    except AmbiguousJson as error:
        raise LocalProtocolError("arguments that are not JSON were about to be released") from error
    return msgspec.Raw(text.encode())


class _Encoder:
    def __init__(self, request: ChatRequest, call_id: str) -> None:
        self._request = request
        self._id = f"msg_{call_id.replace('-', '')}"
        self._open: BlockStart | None = None
        self._count = 0
        self._same = self._other_dialect = self._started = self._ended = False
        self._annotations: list[Any] = []
        self._calls: list[dict[str, Any]] = []
        """Calls that a provider of another dialect ran: no client of this one could send them
        back."""

    def _message(self, start: MessageStart) -> dict[str, Any]:
        if self._started:
            raise LocalProtocolError("a message began twice")
        self._started = True
        self._same = start.extra.get("dialect") == "anthropic"
        self._other_dialect = not self._same and start.extra.get("dialect") is not None
        extra = start.extra if self._same else {}
        return {
            "id": start.id if self._same and start.id else self._id,
            "type": "message",
            "role": "assistant",
            "model": start.model or self._request.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": extra.get("usage") or write_usage(start.usage),
            **{name: extra[name] for name in _START_EXTRAS if name in extra},
            **_fields(extra, "message field"),
        }

    def _stop_usage(self, event: MessageStop) -> dict[str, Any]:
        usage = event.extra.get("usage") if self._same else None
        return (
            {"output_tokens": event.usage.output_tokens or 0, **usage}
            if usage
            else write_usage(event.usage)
        )

    def _stop_extras(self, event: MessageStop) -> dict[str, Any]:
        extra = event.extra if self._same else {}
        extras = {name: extra[name] for name in _STOP_EXTRAS if name in extra} | _fields(
            extra, "field"
        )
        if self._annotations or self._calls:
            sluice_fields = {
                "annotations": self._annotations,
                "provider_calls": [{**c, "input": "".join(c["input"])} for c in self._calls],
            }
            extras["sluice"] = {name: value for name, value in sluice_fields.items() if value}
        return extras

    def _attach(self, event: AttachmentDelta) -> bool:
        """Is it a citation to be written? Annotations are kept for the end: a citation needs what
        only its provider has."""
        self._in(event.index)
        if event.field != "citation":
            return False
        if not self._same:
            self._annotations.append(event.value.source_object)
        return self._same

    def _begin(self, event: BlockStart) -> int:
        if not self._started or self._open is not None:
            raise LocalProtocolError("a block began inside an open one or before its message")
        self._open = event
        if event.name == "annotations" and self._is_foreign(event):
            self._annotations += (event.body or {}).get("annotations", [])
        if event.kind is BlockKind.SERVER_TOOL_USE and self._is_foreign(event):
            self._calls.append({"id": event.id, "name": event.name, "input": []})
        self._count += not self._is_foreign(event)
        return self._count - 1

    def _is_foreign(self, block: BlockStart) -> bool:
        """Is it an object of another dialect, which no client of this one can read?"""
        if block.kind is BlockKind.SERVER_TOOL_USE:
            return self._other_dialect
        return block.kind is BlockKind.OTHER and not self._same

    def _takes(self, event: ArgumentsDelta) -> bool:
        """Are these arguments of a call that the client sees?"""
        block = self._in(event.index, *_CALLS)
        if block.kind is BlockKind.SERVER_TOOL_USE and self._is_foreign(block):
            self._calls[-1]["input"].append(event.text)
            return False
        return True

    def _in(self, index: int, *kinds: BlockKind) -> BlockStart:
        block = self._open
        if block is None or block.index != index or (kinds and block.kind not in kinds):
            raise LocalProtocolError(f"content for block {index}, which is not open for it")
        return block

    def _signs(self, event: SignatureDelta) -> bool:
        """Is this a signature that the client can send back? Other dialects seal more than
        thinking, and none for this one."""
        self._in(event.index, *(() if self._other_dialect else (BlockKind.THINKING,)))
        return not self._other_dialect

    def _check(self) -> None:
        if self._ended:
            raise LocalProtocolError("an event after the end of the message")

    def _end(self) -> None:
        if not self._started or self._open is not None:
            raise LocalProtocolError("a message ended inside a block or before it began")
        self._ended = True


class StreamEncoder(_Encoder):
    """Frames for a client that streams."""

    content_type = "text/event-stream; charset=utf-8"

    def __init__(self, request: ChatRequest, call_id: str) -> None:
        super().__init__(request, call_id)
        self._text_index = -1
        self._prefix = b""

    def encode(self, events: Sequence[Event]) -> bytes:
        """Return the frames for `events`."""
        out: list[bytes] = []
        for event in events:
            self._check()
            if type(event) is TextDelta and event.index == self._text_index:
                out += (self._prefix, dumps(event.text), _END)
            else:
                self._other(event, out)
        return escape_breaks(b"".join(out))

    def _other(self, event: Event, out: list[bytes]) -> None:
        match event:
            case MessageStart():
                message = self._message(event)
                out.append(
                    _frame(
                        "message_start",
                        {"message": message, **_fields(event.extra if self._same else {}, "field")},
                    )
                )
            case BlockStart():
                self._block_start(event, out)
            case TextDelta():
                raise LocalProtocolError(f"text for block {event.index}, which is not open for it")
            case ArgumentsDelta():
                if self._takes(event):
                    out += (
                        _DELTA % (self._count - 1, b'input_json_delta","partial_json'),
                        dumps(event.text),
                        _END,
                    )
            case SignatureDelta():
                if self._signs(event):
                    out += (
                        _DELTA % (self._count - 1, b'signature_delta","signature'),
                        dumps(event.signature),
                        _END,
                    )
            case BlockStop():
                block = self._in(event.index)
                if block.kind is BlockKind.THINKING and self._other_dialect:
                    out.append(self._delta({"type": "signature_delta", "signature": UNSIGNED}))
                self._open, self._text_index = None, -1
                if not self._is_foreign(block):
                    out.append(_frame("content_block_stop", {"index": self._count - 1}))
            case AttachmentDelta():
                if self._attach(event):
                    out.append(
                        self._delta({"type": "citations_delta", "citation": event.value.raw})
                    )
            case RawDelta():
                self._raw(event, out)
            case MessageStop():
                self._end()
                extra = event.extra if self._same else {}
                container = {"container": extra["container"]} if "container" in extra else {}
                delta = {**_stop(event), **container, **_fields(extra, "delta field")}
                out.append(
                    _frame(
                        "message_delta",
                        {
                            "delta": delta,
                            "usage": self._stop_usage(event),
                            **self._stop_extras(event),
                        },
                    )
                )
                out.append(_frame("message_stop", _fields(extra, "last field")))
            case UpstreamFailed():
                self._ended = True
                out.append(failures.error_frame(event.kind, event.message, None))
            case _:
                pass

    def _block_start(self, event: BlockStart, out: list[bytes]) -> None:
        index, block = self._begin(event), _block(event, same=self._same)
        if self._is_foreign(event):
            return
        if event.kind in (BlockKind.TEXT, BlockKind.THINKING):
            field = (
                b'text_delta","text'
                if event.kind is BlockKind.TEXT
                else b'thinking_delta","thinking'
            )
            self._text_index, self._prefix = event.index, _DELTA % (index, field)
        late: dict[str, Any] = (
            {name: block[name] for name in ("content", "encrypted_content") if name in block}
            if event.name == "compaction"
            else {}
        )
        # the API begins a compaction empty and sends it as one delta
        out.append(
            _frame(
                "content_block_start",
                {"index": index, "content_block": {**block, **dict.fromkeys(late)}},
            )
        )
        if any(value is not None for value in late.values()):
            out.append(self._delta({"type": "compaction_delta", **late}))

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return _frame("content_block_delta", {"index": self._count - 1, "delta": delta})

    def _raw(self, event: RawDelta, out: list[bytes]) -> None:
        if event.dialect != "anthropic" or not self._same:
            return
        body = dict(event.body)
        if event.index >= 0:
            self._in(event.index)
            body["index"] = self._count - 1
        out.append(_frame(str(body.pop("type")), body))


class WholeEncoder(_Encoder):
    """The one body for a client that does not stream."""

    content_type = "application/json"

    def __init__(self, request: ChatRequest, call_id: str) -> None:
        super().__init__(request, call_id)
        self._body: dict[str, Any] = {}
        self._parts: list[str] = []
        self._signature = ""
        self._citations: list[Any] = []

    def encode(self, events: Sequence[Event]) -> bytes:
        """Return the body with MessageStop, nothing before."""
        out = b""
        for event in events:
            self._check()
            match event:
                case TextDelta():
                    self._in(event.index, BlockKind.TEXT, BlockKind.THINKING)
                    self._parts.append(event.text)
                case ArgumentsDelta():
                    if self._takes(event):
                        self._parts.append(event.text)
                case SignatureDelta():
                    if self._signs(event):
                        self._signature = event.signature
                case AttachmentDelta():
                    if self._attach(event):
                        self._citations.append(event.value.raw)
                case MessageStart():
                    self._body = self._message(event)
                case BlockStart():
                    self._begin(event)
                    self._parts, self._signature, self._citations = [], "", []
                    block = _block(event, same=self._same)
                    if not self._is_foreign(event):
                        self._body["content"].append(block)
                case BlockStop():
                    self._block_stop(self._in(event.index))
                case MessageStop():
                    self._end()
                    self._message_stop(event)
                    out = escape_breaks(dumps(self._body))
                case UpstreamFailed():
                    self._ended = True
                    out = failures.failed_response(event)[2]
                case _:
                    pass
        return out

    def _block_stop(self, block: BlockStart) -> None:
        self._open = None
        if self._is_foreign(block):
            return
        body, text = self._body["content"][-1], "".join(self._parts)
        match block.kind:
            case BlockKind.TEXT:
                body["text"] = text
                if self._citations:
                    body["citations"] = self._citations
            case BlockKind.THINKING:
                body["thinking"], body["signature"] = (
                    text,
                    (UNSIGNED if self._other_dialect else self._signature),
                )
            case BlockKind.TOOL_USE | BlockKind.SERVER_TOOL_USE:
                body["input"] = _input(text)
            case BlockKind.OTHER if block.name == "fallback":
                # a streamed message begins with the model that was asked; a whole one names the
                # model that answered
                match body.get("to"):
                    case {"model": str(model)}:
                        self._body["model"] = model
            case _:
                pass

    def _message_stop(self, event: MessageStop) -> None:
        extra = event.extra if self._same else {}
        usage = self._stop_usage(event)
        if self._same:
            usage = later_usage(self._body["usage"], usage)
        self._body |= {**_stop(event), "usage": usage, **self._stop_extras(event)}
        self._body |= _fields(extra, "delta field") | _fields(extra, "last field")
        if extra.get("container") is not None:
            self._body["container"] = extra["container"]


def make(request: ChatRequest, *, call_id: str, created: int) -> StreamEncoder | WholeEncoder:
    """Return the encoder that `request` asks for. The dialect has no time of creation."""
    return (StreamEncoder if request.stream else WholeEncoder)(request, call_id)
