"""Events to one Responses answer, streamed or whole: which items they begin, fill and end. How an
item is written: `encode_items`.

A call is written in one burst after its end, because nothing of it may be seen before it was
decided.
"""

from typing import Any

from protocol.citations import Citation
from protocol.dialects.responses.encoding.encode_calls import client_call, server_call
from protocol.dialects.responses.encoding.encode_head import head
from protocol.dialects.responses.encoding.encode_items import PARTS, ItemWriter
from protocol.dialects.responses.failures import code_of
from protocol.dialects.responses.items import PREFIXES, RESULT
from protocol.dialects.responses.read import LOGPROBS, SEALED
from protocol.dialects.responses.usage import write_usage
from protocol.errors import LocalProtocolError
from protocol.errors_wire import NOT_THE_CLIENTS, clean
from protocol.events import (
    ArgumentsDelta,
    AttachmentDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    MessageStart,
    MessageStop,
    Ping,
    RawDelta,
    SignatureDelta,
    StopReason,
    TextDelta,
    UpstreamFailed,
    Usage,
)
from protocol.request import ChatRequest

_TEXTS = (BlockKind.TEXT, BlockKind.THINKING)
_CALLS = (BlockKind.TOOL_USE, BlockKind.SERVER_TOOL_USE)
_CUT = frozenset(
    (StopReason.MAX_TOKENS, StopReason.CONTEXT_WINDOW, StopReason.PAUSE_TURN, StopReason.COMPACTION)
)


class AnswerEncoder(ItemWriter):
    """What both encoders know of the answer. Raises LocalProtocolError on a sequence that the
    dialect does not allow."""

    def __init__(self, request: ChatRequest, call_id: str, created: int) -> None:
        super().__init__(request, call_id, created)
        self._request = request
        self._begun = head(request, call_id, created, {})
        """What a keepalive repeats: not the request, which may be long."""
        self._same = self.started = self.ended = self._has_head = False
        self._block: BlockStart | None = None
        self._pieces: list[str] = []
        self._signature = ""
        self._waiting: tuple[str, dict[str, Any]] | None = None
        """A call that the provider ran, by its id, until what came of it is there."""

    def take(self, event: Event) -> None:
        """Take any event."""
        if self.ended:
            raise LocalProtocolError("an event after the end of the message")
        match event:
            case MessageStart():
                self._start(event)
            case Ping():
                self._keep_alive()
            case BlockStart():
                self._begin(event)
            case TextDelta():
                self._text(event)
            case ArgumentsDelta():
                self._in(event.index, *_CALLS)
                self._pieces.append(event.text)
            case SignatureDelta():
                self._signature = (
                    event.signature
                    if self._in(event.index).kind is BlockKind.THINKING
                    else self._signature
                )
            case AttachmentDelta():
                self._attach(event)
            case RawDelta():
                if (
                    event.is_for("responses")
                    and self._same
                    and event.index < 0
                    and "output_index" not in event.body
                ):
                    self.put(
                        str(event.body.get("type")),
                        {
                            n: v
                            for n, v in event.body.items()
                            if n not in ("type", "sequence_number")
                        },
                    )
            case BlockStop():
                self._end_block(self._in(event.index))
            case MessageStop():
                self._stop(event)
            case UpstreamFailed():
                self._fail(event)
            case _:
                pass

    def _in(self, index: int, *kinds: BlockKind) -> BlockStart:
        block = self._block
        if block is None or block.index != index or (kinds and block.kind not in kinds):
            raise LocalProtocolError(f"content for block {index}, which is not open for it")
        return block

    def _start(self, event: MessageStart) -> None:
        if self.started:
            raise LocalProtocolError("a message began twice")
        self.started = True
        self._same = event.extra.get("dialect") == "responses"
        self._vendor.start = event
        self.response["model"] = event.model or self._request.model
        self._put_head()

    def _put_head(self) -> None:
        """Begin the response, unless a keepalive had to begin it."""
        if not self._has_head:
            self._has_head = True
            self.put("response.created", {"response": self.response})
            self.put("response.in_progress", {"response": self.response})

    def _keep_alive(self) -> None:
        if self._has_head:
            self.put("response.in_progress", {"response": self._begun})
        else:
            self._put_head()

    def _begin(self, event: BlockStart) -> None:
        if not self.started or self._block is not None:
            raise LocalProtocolError("a block began inside an open one or before its message")
        if event.kind is BlockKind.OPAQUE:
            raise LocalProtocolError("an opaque block was about to be released")
        is_result = event.kind is BlockKind.OTHER and event.name.endswith(RESULT) and self._same
        if self._waiting is not None and not (
            is_result and (event.body or {}).get("tool_use_id") == self._waiting[0]
        ):
            self._flush()
        self._block, self._pieces, self._signature = event, [], ""
        of = (event.body or {}).get("item") if self._same else None
        if event.kind is BlockKind.TEXT:
            self._begin_text(event, of)
        elif event.kind is BlockKind.THINKING:
            if (
                self._item is None
                or self._item["type"] != "reasoning"
                or of is None
                or of != self._of
            ):
                self._close()
            self._of = of
            if self._same and self._item is None:
                self._open({"type": "reasoning", "summary": []})
        elif self._same or event.kind is BlockKind.TOOL_USE:
            self._close()

    def _begin_text(self, event: BlockStart, of: Any) -> None:
        is_other = self._item is not None and (
            self._item["type"] != "message" or (of is not None and of != self._of)
        )
        if is_other:
            self._close()
        if self._item is None:
            phase = (event.body or {}).get("phase") if self._same else None
            self._open(
                {
                    "type": "message",
                    "status": "in_progress",
                    "role": "assistant",
                    "content": [],
                    **({"phase": phase} if phase else {}),
                }
            )
        self._of = of
        self._open_part("refusal" if event.name == "refusal" else "output_text")

    def _text(self, event: TextDelta) -> None:
        block = self._in(event.index, *_TEXTS)
        if block.kind is BlockKind.THINKING and self._part is None and event.text:
            if self._item is None:
                self._open({"type": "reasoning", "summary": []})
            is_raw = self._same and (block.body or {}).get("part") == "reasoning_text"
            self._open_part("reasoning_text" if is_raw else "summary_text")
        if self._part is None:
            return
        self._part.pieces.append(event.text)
        _, name, number, _ = PARTS[self._part.kind]
        more: dict[str, Any] = {"logprobs": []} if self._part.kind == "output_text" else {}
        self._put_part(f"response.{name}.delta", {"delta": event.text, **more}, number)

    def _attach(self, event: AttachmentDelta) -> None:
        self._in(event.index, *_TEXTS)
        part, value = self._part, event.value
        if part is None or part.kind != "output_text":
            return
        if event.field == "logprobs" and LOGPROBS in self._include and isinstance(value, dict):
            entries = value.get("content") or []
            part.entries += entries
            self.logprobs(entries)
        elif event.field == "citation" and isinstance(value, Citation):
            if value.dialect == "responses" and value.raw:
                self._annotate(value.raw, part)
            else:
                part.cited.append(value)

    def _end_block(self, block: BlockStart) -> None:
        self._block = None
        text = "".join(self._pieces)
        match block.kind:
            case BlockKind.TEXT | BlockKind.THINKING:
                self._end_part()
                if block.kind is BlockKind.THINKING:
                    self._end_thinking()
            case BlockKind.TOOL_USE:
                self._client_call(
                    self._with_id(client_call(block, text, self._request, same=self._same))
                )
            case BlockKind.SERVER_TOOL_USE if self._same:
                self._waiting = block.id, server_call(block, text)
                if self._waiting[1]["type"] == "program":
                    self._flush()
            case BlockKind.OTHER if self._same:
                self._other(block)
            case _:
                self._vendor.take(block, text)

    def _end_thinking(self) -> None:
        item = self._item
        if item is not None and self._signature and self._same and SEALED in self._include:
            item["encrypted_content"] = self._signature
        if self._of is None:
            self._close()

    def _other(self, block: BlockStart) -> None:
        body = {n: v for n, v in (block.body or {}).items() if n != "tool_use_id"}
        if self._waiting is not None:
            # what came of the call that waits
            self._waiting = (
                self._waiting[0],
                {
                    **self._waiting[1],
                    **{n: v for n, v in body.items() if n != "type"},
                },
            )
            self._flush()
        elif block.name in PREFIXES:
            self._server_item({"type": block.name, **body})

    def _flush(self) -> None:
        if self._waiting is not None:
            self._close()
            item, self._waiting = self._waiting[1], None
            self._server_item(item)

    def _stop(self, event: MessageStop) -> None:
        if not self.started or self._block is not None:
            raise LocalProtocolError("a message ended inside a block or before it began")
        self._flush()
        reason = self._reason(event)
        if (
            reason is None
            and event.stop_reason is StopReason.REFUSAL
            and event.explanation
            and not self._refused
        ):
            self._refuse(event.explanation)
        self._close("incomplete" if reason is not None else "completed")
        response = self.response
        response["status"] = "incomplete" if reason is not None else "completed"
        response["incomplete_details"] = None if reason is None else {"reason": reason}
        response["usage"] = self._usage(event)
        if self._same and isinstance(tier := event.extra.get("service_tier"), str):
            response["service_tier"] = tier
        if vendor_fields := self._vendor.object(event):
            response["sluice"] = vendor_fields
        self.ended = True
        self.put(f"response.{response['status']}", {"response": response})

    def _reason(self, event: MessageStop) -> str | None:
        """Why the answer is not whole; None where it is. A refusal in words is whole."""
        if event.stop_reason in _CUT:
            native = event.extra.get("native_stop") if self._same else None
            return (
                native
                if isinstance(native, str) and native not in ("completed", "None")
                else "max_output_tokens"
            )
        if event.stop_reason is StopReason.REFUSAL and not (event.explanation or self._refused):
            return "content_filter"
        return None

    def _usage(self, event: MessageStop) -> dict[str, Any] | None:
        usage = event.extra.get("usage") if self._same else None
        if isinstance(usage, dict):
            return write_usage(event.usage) | usage
        return None if event.usage == Usage() else write_usage(event.usage)

    def _fail(self, event: UpstreamFailed) -> None:
        if not self.started:
            self._start(MessageStart("", ""))
        self.ended = True
        self.response |= {
            "status": "failed",
            "error": {
                "code": code_of(event.kind, event.message),
                "message": self._error_message(event),
            },
        }
        self.put("response.failed", {"response": self.response})

    def _error_message(self, event: UpstreamFailed) -> str:
        return clean(NOT_THE_CLIENTS.get(event.kind, event.message))
