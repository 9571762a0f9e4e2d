"""Responses answers, streamed and whole, to events. Blocks are found by their item's number and
their own, never by ids.

A stream without its last event was cut: never a made-up stop. What the events repeat is compared:
`protocol.dialects.responses.blocks`.
"""

from collections.abc import Callable
from typing import Any

from protocol.bytes.bookkeeping import is_tame
from protocol.bytes.json_strict import loads_foreign
from protocol.bytes.sse import parse_event
from protocol.bytes.strings import string_in, string_of
from protocol.bytes.unknown import named
from protocol.dialects.responses.answer import CONTENT, SUMMARY, OutputItems
from protocol.dialects.responses.blocks import Item, ItemPart, more_than
from protocol.dialects.responses.failures import failed_event
from protocol.dialects.responses.items import OBJECTS, SERVER_ITEMS, as_written
from protocol.dialects.responses.wire import (
    TEXT_DELTA,
    Frame,
    TextEvent,
    read_frame,
    read_object,
    read_text,
    read_usage,
    read_written,
)
from protocol.errors import RemoteProtocolError
from protocol.events import (
    Event,
    MessageStart,
    MessageStop,
    RawDelta,
    StopReason,
    TextDelta,
    UpstreamFailed,
    Usage,
    uncached,
)

_CUT = "the upstream ended its answer without finishing it"
_MAX_DONE = 20
_LIFE = frozenset(("response.created", "response.queued", "response.in_progress"))
_LAST = frozenset(("response.completed", "response.incomplete"))
_FAILED = frozenset(("response.failed", "response.cancelled"))
_PROGRESS = tuple(
    "response.web_search_call. response.x_search_call. response.file_search_call."
    " response.code_interpreter_call. response.image_generation_call."
    " response.mcp_list_tools. response.mcp_call. response.compaction."
    " response.shell_call_output_content.".split()
)
"""Events that say how far a call of the provider's is: its item says all of it at its end."""
_TEXTS = {
    "output_text": ("message", "output_text", CONTENT),
    "refusal": ("message", "refusal", CONTENT),
    "reasoning_text": ("reasoning", "reasoning_text", CONTENT),
    "reasoning_summary_text": ("reasoning", "summary_text", SUMMARY),
}
"""Of texts that grow: the type of the item, that of the part, and the part's field."""
_COLLECTED = {
    "apply_patch_call_operation_diff": ("apply_patch_call", "diff", None),
    "code_interpreter_call_code": ("code_interpreter_call", "code", "code"),
    "mcp_call_arguments": ("mcp_call", "arguments", "arguments"),
}
"""Of calls whose item says at its end what they are to do: the item's type, the event's field with
the whole of it, and the item's."""
_REASONS = {"max_output_tokens": StopReason.MAX_TOKENS, "content_filter": StopReason.REFUSAL}
_FIELDS = frozenset(
    "id object created_at completed_at status background error incomplete_details instructions"
    " max_output_tokens max_tool_calls model output parallel_tool_calls previous_response_id"
    " prompt prompt_cache_key prompt_cache_retention prompt_cache_options reasoning"
    " safety_identifier service_tier store temperature text tool_choice tools top_logprobs top_p"
    " truncation usage user metadata billing frequency_penalty presence_penalty moderation"
    " tool_usage content_filters conversation context_management output_text access_programs"
    " background_options client_metadata".split()
)
"""Of the response object: what names no content, or repeats the request."""


def _usage(value: Any) -> Usage:
    try:
        counts = read_usage(value)
    except ValueError as error:
        raise RemoteProtocolError("upstream sent usage that is not one of its dialect") from error
    before, after = counts.input_tokens_details, counts.output_tokens_details
    cached = before.cached_tokens if before else None
    written = before.cache_write_tokens if before else None
    fresh = uncached(counts.input_tokens, cached, written)
    return Usage(
        fresh, counts.output_tokens, cached, written, after.reasoning_tokens if after else None
    )


class _Message:
    """One answer: its items, and the fields of the answer as a whole."""

    def __init__(self, unknown: frozenset[str]) -> None:
        self._unknown = unknown
        self.answer = OutputItems()
        self._started = False

    def start(self, response: dict[str, Any], events: list[Event]) -> None:
        """Take a response object, of which the first begins the message: ids may change, and no
        later one says more."""
        if self._started:
            return
        self._started = True
        tools = response.get("tools")
        for tool in tools if isinstance(tools, list) else ():
            place = (
                tool.get("environment")
                if isinstance(tool, dict) and tool.get("type") == "shell"
                else None
            )
            self.answer.calls.runs_shell = self.answer.calls.runs_shell or (
                isinstance(place, dict) and place.get("type") != "local"
            )
        extra: dict[str, Any] = {"dialect": "responses"}
        if isinstance(created := response.get("created_at"), int):
            extra["created"] = created
        events.append(
            MessageStart(string_in(response, "id"), string_in(response, "model"), Usage(), extra)
        )

    def end(
        self, response: dict[str, Any], events: list[Event], written: Callable[[], dict[str, Any]]
    ) -> None:
        """Take the finished response object; `written` reads it again, with its numbers as they
        came."""
        self.start(response, events)
        status = response.get("status")
        details = response.get("incomplete_details")
        if response.get("error") or status in ("failed", "cancelled"):
            events.append(failed_event(response.get("error")))
            return
        self.answer.end(response.get("output"), events, written)
        for name, value in response.items():
            if name not in _FIELDS and value not in (None, "", [], {}, False, 0):
                self.answer.withheld.add(named("response field", name), events)
        reason = details.get("reason") if isinstance(details, dict) else None
        if status == "incomplete":
            # the newer reasons (steered, max_messages) stop an answer before it has ended, too
            stop, word = _REASONS.get(str(reason), StopReason.MAX_TOKENS), str(reason)
        elif status == "completed":
            stop, word = (
                (StopReason.TOOL_USE if self.answer.blocks.has_calls else StopReason.END_TURN),
                "completed",
            )
        else:
            raise RemoteProtocolError("upstream ended its answer with an unknown status")
        extra: dict[str, Any] = {
            "native_stop": word,
            "usage": response.get("usage"),
            "service_tier": response.get("service_tier"),
        }
        extra = {
            name: value for name, value in extra.items() if value is not None and is_tame(value)
        }
        usage = _usage(response["usage"]) if response.get("usage") else Usage()
        events.append(MessageStop(stop, usage, None, extra))

    # --- events of a stream ---

    def take(self, frame: Frame, data: bytes, events: list[Event]) -> None:
        """Take an event of the answer."""
        kind = frame.type
        if kind == "keepalive":
            return
        if not self._started and not kind.startswith("response."):
            self._unmodelled(kind, data, events)
            return
        if not self._started:
            self.start({}, events)
        event = kind.removeprefix("response.")
        name, _, step = event.rpartition(".")
        if step in ("delta", "done") and self._more(name, frame, events):
            return
        match event:
            case "output_item.added":
                self.answer.add(frame.output_index, frame.item or {}, events)
            case "output_item.done":
                body = frame.item or {}
                if str(body.get("type")) in OBJECTS:
                    body = as_written(body, read_written(data).get("item"))
                self.answer.done(frame.output_index, body, events)
            case (
                "content_part.added"
                | "content_part.done"
                | "reasoning_summary_part.added"
                | "reasoning_summary_part.done" as name
            ):
                self._part(
                    frame, name.endswith("done"), SUMMARY if "summary" in name else CONTENT, events
                )
            case "output_text.annotation.added":
                item = self.answer.item(frame.output_index, "message")
                part = self.answer.part(item, CONTENT, frame.content_index, "output_text", events)
                self.answer.blocks.annotate(part, frame.annotation, events)
            case (
                "shell_call_command.added" | "shell_call_command.delta" | "shell_call_command.done"
            ):
                # its commands are in the item's action, which is decided whole
                self.answer.item(frame.output_index, "shell_call")
            case _:
                if not kind.startswith(_PROGRESS):
                    self._unmodelled(kind, data, events)

    def _more(self, name: str, frame: Frame, events: list[Event]) -> bool:
        """Take more of a text or of what a call is to do, if that is what came."""
        if (text := _TEXTS.get(name)) is not None:
            whole = frame.refusal if name == "refusal" else frame.text
            self._text(frame, *text, whole, events)
        elif name == "function_call_arguments":
            self._input(self._call(frame, "function_call"), frame.delta, frame.arguments, events)
        elif name == "custom_tool_call_input":
            self._input(self._call(frame, "custom_tool_call"), frame.delta, frame.input, events)
        elif (collected := _COLLECTED.get(name)) is not None:
            kind, whole_name, field = collected
            item = self.answer.item(frame.output_index, kind)
            self._collect(item, frame.delta, getattr(frame, whole_name), field, events)
        else:
            return False
        return True

    def _unmodelled(self, kind: str, data: bytes, events: list[Event]) -> None:
        what = named("event", kind)
        if what in self._unknown and self._started:
            events.append(RawDelta(what, -1, loads_foreign(data), "responses"))
        else:
            self.answer.withheld.add(what, events)

    def _call(self, frame: Frame, kind: str) -> Item:
        item = self.answer.item(frame.output_index, kind)
        if item.block < 0:
            raise RemoteProtocolError("upstream sent arguments of a tool call without a name")
        return item

    def _part(self, frame: Frame, is_done: bool, field: str, events: list[Event]) -> None:
        item = self.answer.items.get(frame.output_index)
        if item is None or item.is_done or item.kind not in ("message", "reasoning"):
            raise RemoteProtocolError(
                f"upstream sent content for item {frame.output_index:,}, which is not open"
            )
        body = frame.part or {}
        kind = string_in(body, "type")
        names = (
            ("summary_text",)
            if field == SUMMARY
            else ("output_text", "refusal")
            if item.kind == "message"
            else ("reasoning_text",)
        )
        if kind not in names:
            self.answer.withheld.add(named("part", kind), events)
            return
        number = frame.summary_index if field == SUMMARY else frame.content_index
        part = self.answer.part(item, field, number, kind, events)
        if is_done:
            self.answer.agree(item, part, body, events)

    def _text(
        self, frame: Frame, kind: str, name: str, field: str, whole: str | None, events: list[Event]
    ) -> None:
        item = self.answer.item(frame.output_index, kind)
        part = self.answer.part(
            item,
            field,
            frame.summary_index if field == SUMMARY else frame.content_index,
            name,
            events,
        )
        if frame.delta is not None:
            self.answer.blocks.add(item, part, string_of(frame.delta), events)
            self.answer.logprobs(part, frame.logprobs, frame.delta, events)
        elif whole is not None:
            self.answer.blocks.agree(item, part, whole, events)

    def _input(self, item: Item, delta: Any, whole: str | None, events: list[Event]) -> None:
        if delta is not None:
            self.answer.blocks.input(item, string_of(delta), events)
        elif whole is not None:
            self.answer.blocks.input(item, more_than(item.text_so_far(), whole), events)

    def _collect(
        self, item: Item, delta: Any, whole: Any, field: str | None, events: list[Event]
    ) -> None:
        """Take the input of a call whose item says it whole at its end; a call of the provider's
        runs once its input is there."""
        if delta is not None:
            item.pieces.append(string_of(delta))
        elif whole is not None:
            item.pieces.append(more_than(item.text_so_far(), string_of(whole)))
            if field is not None and item.kind in SERVER_ITEMS and not item.has_ended:
                self.answer.calls.started(item, {**item.fields, field: item.text_so_far()}, events)


class StreamDecoder:
    """Streamed events to events."""

    def __init__(self, unknown: frozenset[str] = frozenset()) -> None:
        self._message = _Message(unknown)
        self._done = self._has_failed = False
        self._part: ItemPart | None = None
        """The part of the last piece of text, and its numbers: nearly every event goes on with
        it."""
        self._place = (-1, -1)

    def feed(self, chunk: bytes) -> list[Event]:
        """Decode one SSE event. Raises RemoteProtocolError; what comes after that, or after the
        end, is withheld."""
        name, data = parse_event(chunk)
        if not data:
            return []
        part = self._part
        if part is not None and (name == TEXT_DELTA or not name):
            event = read_text(data)
            if (
                event is not None
                and event.output_index == self._place[0]
                and event.content_index == self._place[1]
                and not event.logprobs
            ):
                if not event.delta:
                    return []
                part.pieces.append(event.delta)
                return [TextDelta(part.block, event.delta)]
        self._part = None
        return self._slowly(name, data)

    def _slowly(self, name: str, data: bytes) -> list[Event]:
        is_end = len(data) < _MAX_DONE and data.strip() == b"[DONE]"
        if self._done and is_end:
            return []
        events: list[Event] = []
        try:
            if is_end:
                return self.finish()
            frame, unknown_fields = read_frame(data)
        except ValueError as error:
            self._done = True
            if name == "error":
                return [failed_event(None)]
            raise RemoteProtocolError(
                "upstream sent an event that is not one of its dialect"
            ) from error
        if self._done:
            if not (self._has_failed and frame.type in _FAILED):
                self._message.answer.withheld.add("data after the end", events)
            return events
        try:
            self._take(frame, data, events)
        except RemoteProtocolError:
            self._done = True
            raise
        if not frame.type.startswith(_PROGRESS):
            for at, fields in unknown_fields.items():
                for field in fields:
                    self._message.answer.withheld.add(named(at, field), events)
        return events

    def _take(self, frame: Frame, data: bytes, events: list[Event]) -> None:
        kind = frame.type
        if kind in _LIFE:
            self._message.start(frame.response or {}, events)
        elif kind in _LAST:
            self._done = True
            response = {"status": kind.removeprefix("response."), **(frame.response or {})}
            self._message.end(response, events, lambda: read_written(data).get("response") or {})
        elif kind in _FAILED or kind == "error":
            self._done = self._has_failed = True
            flat = {"code": frame.code, "message": frame.message}
            error = frame.error if kind == "error" else (frame.response or {}).get("error")
            events.append(failed_event(error or (flat if kind == "error" else None)))
        else:
            self._message.take(frame, data, events)
            if kind == TEXT_DELTA:
                self._remember(frame)

    def _remember(self, frame: Frame | TextEvent) -> None:
        item = self._message.answer.items[frame.output_index]
        part = item.parts[(CONTENT, frame.content_index)]
        if part.is_open:
            self._part, self._place = part, (frame.output_index, frame.content_index)

    def finish(self) -> list[Event]:
        """The stream is over. Without its last event it was cut."""
        if self._done:
            return []
        self._done = True
        return [UpstreamFailed("api_error", _CUT)]


def decode_whole(body: bytes, unknown: frozenset[str] = frozenset()) -> list[Event]:
    """Decode a whole answer. Raises RemoteProtocolError."""
    try:
        response = read_object(body)
    except ValueError as error:
        raise RemoteProtocolError("upstream's answer is not one of its dialect") from error
    if response.get("error") and "output" not in response:
        return [failed_event(response["error"])]
    if not isinstance(response.get("output"), list):
        raise RemoteProtocolError("upstream's answer has no output")
    events: list[Event] = []
    _Message(unknown).end(response, events, lambda: read_written(body))
    return events
