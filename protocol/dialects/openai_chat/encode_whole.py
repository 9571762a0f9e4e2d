"""Events to the one body of a chat/completions answer that is not streamed (docs/change/protocol.md
1.3)."""

from collections.abc import Sequence
from typing import Any

from protocol.bytes.json_strict import dumps
from protocol.bytes.sse import escape_breaks
from protocol.dialects.openai_chat import failures
from protocol.dialects.openai_chat.message import (
    MessageAssembly,
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

_MAX_MERGE = 6


class WholeEncoder:
    """The one body for a client that does not stream."""

    content_type = "application/json"

    def __init__(self, request: ChatRequest, call_id: str, created: int) -> None:
        self._message = MessageAssembly(request, call_id, created)
        self._start_extra: dict[str, Any] = {}
        self._texts: dict[str, list[list[str]]] = {}
        self._open: dict[int, list[str]] = {}
        self._lists: dict[str, list[Any]] = {}
        self._logprobs: dict[str, list[Any] | None] = {}
        self._raw: list[dict[str, Any]] = []

    def encode(self, events: Sequence[Event]) -> bytes:
        """Return the body with MessageStop, nothing before."""
        body = b""
        for event in events:
            if type(event) is TextDelta and (texts := self._open.get(event.index)) is not None:
                texts.append(event.text)
            else:
                body = self._other(event) or body
        return body

    def _other(self, event: Event) -> bytes:
        message = self._message
        message.check()
        match event:
            case TextDelta():
                raise LocalProtocolError(f"text for block {event.index}, which is not open for it")
            case ArgumentsDelta():
                if (tool := message.tool(event.index, event.text)) is not None:
                    tool.arguments.append(event.text)
            case MessageStart():
                message.start(event)
                self._start_extra = event.extra
            case BlockStart():
                message.begin(event)
                if event.kind in (BlockKind.TEXT, BlockKind.THINKING):
                    texts = self._open[event.index] = []
                    self._texts.setdefault(text_field(event), []).append(texts)
                for raw in message.waiting.pop(event.index, ()):
                    self._take_raw(raw)
            case BlockStop():
                message.end_block(event.index, sum(map(len, self._open.pop(event.index, ()))))
            case AttachmentDelta():
                self._attach(event)
            case RawDelta():
                self._take_raw(event)
            case MessageStop():
                message.end()
                self._open = {}
                return self._body(event)
            case UpstreamFailed():
                message.ended = True
                self._open = {}
                return failures.failed_response(event)[2]
            case _:
                pass
        return b""

    def _attach(self, event: AttachmentDelta) -> None:
        if event.index not in self._open:
            raise LocalProtocolError(
                f"{event.field} for block {event.index}, which is not open for it"
            )
        if event.field == "citation":
            self._message.cite(event.value)
        elif event.field == "logprobs":
            for field, entries in event.value.items():
                known = self._logprobs.setdefault(field, None)
                if entries:
                    self._logprobs[field] = known = known or []
                    known += entries
        else:
            self._lists.setdefault(event.field, []).extend(event.value)

    def _take_raw(self, event: RawDelta) -> None:
        if (piece := with_call_index(event, self._message)) is not None:
            self._raw.append(piece)

    def _body(self, stop: MessageStop) -> bytes:
        message = self._message
        full_texts = {field: "".join(map("".join, texts)) for field, texts in self._texts.items()}
        nothing = None if message.is_content_null or (message.tools and not message.is_same) else ""
        content, refused = full_texts.pop("content", ""), full_texts.pop("refusal", None)
        message_body: dict[str, Any] = {
            "role": "assistant",
            "content": content or nothing,
            "refusal": refused or refusal(message, stop),
        }
        message_body |= full_texts
        for tool in message.tools.values():
            if tool.form == "legacy":
                message_body["function_call"] = tool.whole()
            elif tool.form != "unseen":
                message_body.setdefault("tool_calls", []).append(tool.whole())
        message_body |= self._lists
        if annotations := [*message.pages, *message.vendor.annotations]:
            message_body["annotations"] = annotations
        choice = {
            "index": 0,
            "message": message_body,
            "logprobs": self._logprobs or None,
            "finish_reason": finish_word(message, stop),
        }
        body = message.head("chat.completion") | {"choices": [choice]} | message.lists()
        if message.is_same:
            for extra in (self._start_extra, stop.extra):
                choice |= extra.get("choice") or {}
                body |= extra.get("fields") or {}
            for name, value in (self._start_extra.get("message") or {}).items():
                message_body.setdefault(name, value)
        for piece in self._raw:
            _merge_piece(body, choice, message_body, piece)
        if usage := usage_object(message, stop):
            body["usage"] = usage
        if vendor_fields := message.vendor.object(stop):
            body["sluice"] = vendor_fields
        return escape_breaks(dumps(body))


def _merge_piece(
    body: dict[str, Any],
    choice: dict[str, Any],
    message_body: dict[str, Any],
    piece: dict[str, Any],
) -> None:
    """Put a piece of a chunk where it belongs in a whole answer: what is in a delta goes into the
    message."""
    for name, value in piece.items():
        if name != "choices":
            body[name] = value
            continue
        for choice_piece in value:
            choice |= {
                field: item
                for field, item in choice_piece.items()
                if field not in ("index", "delta", "finish_reason")
            }
            _merge(message_body, choice_piece["delta"], _MAX_MERGE)


def _merge(into: dict[str, Any], piece: dict[str, Any], depth: int) -> None:
    """Join deltas as the SDK does: texts end to end, lists by the index of their items."""
    for name, value in piece.items():
        known = into.get(name)
        if isinstance(known, str) and isinstance(value, str):
            into[name] = known + value
        elif isinstance(known, dict) and isinstance(value, dict) and depth:
            _merge(known, value, depth - 1)
        elif isinstance(known, list) and isinstance(value, list) and name == "tool_calls":
            for item in value:
                _merge(
                    known[item["index"]], {k: v for k, v in item.items() if k != "index"}, depth - 1
                )
        elif isinstance(known, list) and isinstance(value, list):
            into[name] = [*known, *value]
        else:
            into[name] = value
