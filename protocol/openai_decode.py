"""chat/completions answers, streamed and whole, to events (protocol.md 1.5).

Theory. chat/completions has no block boundaries, so blocks are numbered as their first content comes: a text or
thinking block ends where content of another kind begins, tool calls end at the finish (their fragments may
interleave). The finish reason may come twice, with content beside it, and usage may follow it; so the message ends at
[DONE] or at the end of the stream, with what was said last. A stream without a finish reason was cut: never a made-up stop.
"""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from protocol.errors import RemoteProtocolError
from protocol.events import (
    ArgumentsDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    MessageStart,
    MessageStop,
    Opaque,
    StopReason,
    TextDelta,
    UpstreamFailed,
    Usage,
)
from protocol.sse import parse_event

_FINISH = {
    "stop": StopReason.END_TURN,
    "length": StopReason.MAX_TOKENS,
    "tool_calls": StopReason.TOOL_USE,
    "function_call": StopReason.TOOL_USE,
    "content_filter": StopReason.REFUSAL,
}


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    type: str | None = None
    function: _Function | None = None
    custom: Any = UNSET


class _Delta(msgspec.Struct):
    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_ToolCall] | None = None
    refusal: Any = None
    function_call: Any = None
    annotations: Any = None
    audio: Any = None
    reasoning_details: Any = None


class _Choice(msgspec.Struct):
    index: int = 0
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None
    logprobs: Any = None


class _PromptDetails(msgspec.Struct, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _CompletionDetails(msgspec.Struct, gc=False):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None


class _Chunk(msgspec.Struct):
    id: str | None = None
    created: int | None = None
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    system_fingerprint: str | None = None
    service_tier: str | None = None
    error: Any | UnsetType = UNSET


_decoder = msgspec.json.Decoder(_Chunk)
_WITHHELD = ("refusal", "function_call", "annotations", "audio", "reasoning_details")


def _usage(usage: _Usage) -> Usage:
    cached = usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else None
    written = usage.prompt_tokens_details.cache_write_tokens if usage.prompt_tokens_details else None
    fresh = None if usage.prompt_tokens is None else max(0, usage.prompt_tokens - (cached or 0) - (written or 0))
    thinking = usage.completion_tokens_details.reasoning_tokens if usage.completion_tokens_details else None
    return Usage(fresh, usage.completion_tokens, cached, written, thinking)


def _failed(error: Any) -> UpstreamFailed:
    """Rebuild an error payload: its message only (Groq's carries the rejected call beside it)."""
    message = error.get("message") if isinstance(error, dict) else None
    kind = "api_error"
    if isinstance(error, dict) and (error.get("type") == "rate_limit_error" or error.get("code") in (429, "rate_limit_exceeded")):
        kind = "rate_limit_error"
    return UpstreamFailed(kind, message[:500] if isinstance(message, str) else "the upstream reported an error")


class _Builder:
    """Blocks of one message, numbered as their content comes."""

    def __init__(self) -> None:
        self.started = False
        self.usage = Usage()
        self.finish: str | None = None
        self._next = 0
        self._open: tuple[int, BlockKind] | None = None
        self._calls: dict[int | str, int] = {}
        self._ids: dict[int | str, str] = {}
        self._open_calls: list[int] = []
        self.extra: dict[str, Any] = {}

    def start(self, chunk: _Chunk) -> list[Event]:
        """Begin the message with the first chunk that names it."""
        self.started = True
        extra: dict[str, Any] = {}
        if chunk.created is not None:
            extra["created"] = chunk.created
        if chunk.system_fingerprint is not None:
            extra["system_fingerprint"] = chunk.system_fingerprint
        if chunk.service_tier is not None:
            extra["service_tier"] = chunk.service_tier
        return [MessageStart(chunk.id or "", chunk.model or "", Usage(), extra)]

    def text(self, kind: BlockKind, text: str, events: list[Event]) -> None:
        """Add text or reasoning."""
        if self._open is None or self._open[1] is not kind:
            self.close_text(events)
            self._open = (self._next, kind)
            self._next += 1
            events.append(BlockStart(self._open[0], kind))
        events.append(TextDelta(self._open[0], text))

    def close_text(self, events: list[Event]) -> None:
        """End the open text or thinking block."""
        if self._open is not None:
            events.append(BlockStop(self._open[0]))
            self._open = None

    def call(self, position: int, call: _ToolCall, events: list[Event]) -> None:
        """Add a fragment of a tool call. Its key: index, else id, else position; a new id on a used index is a new call."""
        key: int | str = call.index if call.index is not None else (call.id or position)
        block = self._calls.get(key)
        if block is not None and call.id and self._ids[key] and call.id != self._ids[key]:
            block = None
        function = call.function or _Function()
        if block is None:
            self.close_text(events)
            block = self._next
            self._next += 1
            self._calls[key], self._ids[key] = block, call.id or ""
            self._open_calls.append(block)
            events.append(BlockStart(block, BlockKind.TOOL_USE, id=call.id or f"call_{block}", name=function.name or ""))
        elif block not in self._open_calls:
            raise RemoteProtocolError("upstream added to a tool call after the finish")
        if function.arguments:
            events.append(ArgumentsDelta(block, function.arguments))

    def close_calls(self, events: list[Event]) -> None:
        """End all tool calls: the finish came."""
        self.close_text(events)
        events.extend(BlockStop(block) for block in self._open_calls)
        self._open_calls = []

    def stop(self) -> MessageStop:
        """The end, by what was said last; a message with tool calls stops for them whatever word the vendor used."""
        reason = _FINISH.get(self.finish or "", StopReason.END_TURN)
        if self._calls and reason is StopReason.END_TURN:
            reason = StopReason.TOOL_USE
        return MessageStop(reason, self.usage, None, self.extra)


class StreamDecoder:
    """Streamed chunks to events."""

    def __init__(self) -> None:
        self._builder = _Builder()
        self._done = False

    def feed(self, chunk: bytes) -> list[Event]:
        """Decode one SSE event. Raises RemoteProtocolError."""
        name, data = parse_event(chunk)
        if not data:
            return []
        if self._done:
            return [Opaque("data after the end")]
        if data == b"[DONE]":
            return self._finish()
        try:
            parsed = _decoder.decode(data)
        except (msgspec.MsgspecError, RecursionError) as error:
            if name == "error":
                return self._error({})
            raise RemoteProtocolError("upstream sent a chunk that is not one of its dialect") from error
        if parsed.error is not UNSET and parsed.error is not None:
            return self._error(parsed.error)
        if name == "error":
            return self._error(msgspec.json.decode(data))
        return self._chunk(parsed)

    def _error(self, error: Any) -> list[Event]:
        self._done = True
        return [_failed(error)]

    def _chunk(self, chunk: _Chunk) -> list[Event]:
        builder = self._builder
        if chunk.usage is not None:
            builder.usage = builder.usage.updated(_usage(chunk.usage))
        if not chunk.choices:
            return []
        events = [] if builder.started else builder.start(chunk)
        for choice in chunk.choices:
            if choice.index != 0:
                events.append(Opaque("choice"))
                continue
            if choice.delta is not None:
                _content(builder, choice.delta, events)
            if choice.logprobs is not None:
                events.append(Opaque("logprobs"))
            if choice.finish_reason:
                if builder.finish is None:
                    builder.close_calls(events)
                builder.finish = choice.finish_reason
        return events

    def _finish(self) -> list[Event]:
        self._done = True
        builder = self._builder
        if builder.finish is None:
            return [UpstreamFailed("api_error", "the upstream ended its answer without finishing it")]
        events: list[Event] = []
        builder.close_calls(events)
        events.append(builder.stop())
        return events

    def finish(self) -> list[Event]:
        """The stream is over; some vendors send no [DONE]."""
        return [] if self._done else self._finish()


def _content(builder: _Builder, delta: _Delta, events: list[Event]) -> None:
    reasoning = delta.reasoning_content or delta.reasoning
    if reasoning:
        builder.text(BlockKind.THINKING, reasoning, events)
    if delta.content:
        builder.text(BlockKind.TEXT, delta.content, events)
    if delta.tool_calls:
        for position, call in enumerate(delta.tool_calls):
            if call.custom is not UNSET or call.type not in (None, "function", ""):
                events.append(Opaque(f"tool call of type {call.type}"))
                continue
            builder.call(position, call, events)
    for name in _WITHHELD:
        if getattr(delta, name):
            events.append(Opaque(name))


def decode_whole(body: bytes) -> list[Event]:
    """Decode a whole answer. Raises RemoteProtocolError."""
    try:
        parsed = _decoder.decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise RemoteProtocolError("upstream's answer is not one of its dialect") from error
    if parsed.error is not UNSET and parsed.error is not None:
        return [_failed(parsed.error)]
    if not parsed.choices or parsed.choices[0].message is None:
        raise RemoteProtocolError("upstream's answer has no message")
    builder = _Builder()
    events = builder.start(parsed)
    for choice in parsed.choices:
        if choice.index != 0:
            events.append(Opaque("choice"))
            continue
        assert choice.message is not None
        _content(builder, choice.message, events)
        if choice.logprobs is not None:
            events.append(Opaque("logprobs"))
        builder.finish = choice.finish_reason
    if parsed.usage is not None:
        builder.usage = _usage(parsed.usage)
    if not builder.finish:
        raise RemoteProtocolError("upstream's answer has no finish reason")
    builder.close_calls(events)
    events.append(builder.stop())
    return events
