"""chat/completions answers, streamed and whole, to events (protocol.md 1.5).

Theory. chat/completions has no block boundaries, so blocks are numbered as their first content comes: a text or
thinking block ends where content of another kind begins, tool calls end at the finish (their fragments may
interleave). The finish reason may come twice, with content beside it, and usage may follow it; so the message ends at
[DONE] or at the end of the stream, with what was said last. A stream without a finish reason was cut: never a made-up stop.
"""

from hashlib import sha256
from typing import Any

import msgspec

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
from protocol.openai_wire import Choice, Chunk, ChunkUsage, Delta, Function, ToolCall, read_chunk
from protocol.sse import parse_event

_FINISH = {
    "stop": StopReason.END_TURN,
    "length": StopReason.MAX_TOKENS,
    "tool_calls": StopReason.TOOL_USE,
    "function_call": StopReason.TOOL_USE,
    "content_filter": StopReason.REFUSAL,
    # words of compatible servers
    "eos": StopReason.END_TURN,
    "eos_token": StopReason.END_TURN,
    "end_turn": StopReason.END_TURN,
    "stop_sequence": StopReason.END_TURN,
    "max_tokens": StopReason.MAX_TOKENS,
    "model_length": StopReason.MAX_TOKENS,
    "tool_use": StopReason.TOOL_USE,
    "abort": None,
    "error": None,
    "insufficient_system_resource": None,
}
"""What a finish reason means; None: upstream failed and says it this way."""
_WITHHELD = ("refusal", "function_call", "annotations", "audio", "reasoning_details")
_MAX_MESSAGE = 500
_MAX_DONE = 20
_CUT = "the upstream ended its answer without finishing it"


def _usage(usage: ChunkUsage) -> Usage:
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    cached = prompt.cached_tokens if prompt else None
    written = prompt.cache_write_tokens if prompt else None
    fresh = None if usage.prompt_tokens is None else max(0, usage.prompt_tokens - (cached or 0) - (written or 0))
    return Usage(fresh, usage.completion_tokens, cached, written, completion.reasoning_tokens if completion else None)


def _failed(error: Any) -> UpstreamFailed:
    """Rebuild an error payload from its message alone. Groq's carries the rejected call, and its message speaks of it."""
    kind, message = "api_error", "the upstream reported an error"
    if isinstance(error, dict):
        if error.get("type") == "rate_limit_error" or error.get("code") in (429, "429", "rate_limit_exceeded"):
            kind = "rate_limit_error"
        if "failed_generation" in error:
            message = "the upstream refused a tool call that its model wrote"
        elif isinstance(error.get("message"), str):
            message = error["message"][:_MAX_MESSAGE]
    return UpstreamFailed(kind, message)


class _Call:
    """A tool call that is being told. It begins, for the reader, when its name is known."""

    __slots__ = ("block", "id", "name", "waiting")

    def __init__(self, block: int, id: str) -> None:
        self.block, self.id, self.name = block, id, ""
        self.waiting: list[str] = []


class _Builder:
    """Blocks of one message, numbered as their content comes."""

    def __init__(self) -> None:
        self.started = False
        self.usage = Usage()
        self.total: int | None = None
        self.finish: str | None = None
        self._seed = ""
        self._next = 0
        self._open: tuple[int, BlockKind] | None = None
        self._calls: dict[int | str, _Call] = {}
        self._last: _Call | None = None
        self._open_calls: list[_Call] = []

    def start(self, chunk: Chunk, choice: Choice | None) -> MessageStart:
        """Begin the message with the first chunk that has a choice."""
        self.started = True
        self._seed = f"{chunk.id}:{chunk.created}"
        first = (choice.delta or choice.message) if choice is not None else None
        extra: dict[str, Any] = {"dialect": "openai", "content_null": first is None or first.content is None}
        own = {
            "created": chunk.created if isinstance(chunk.created, int) else None,
            "system_fingerprint": chunk.system_fingerprint,
            "service_tier": chunk.service_tier,
        }
        extra |= {name: value for name, value in own.items() if value is not None}
        return MessageStart(chunk.id or "", chunk.model or "", Usage(), extra)

    def count(self, usage: ChunkUsage) -> None:
        """Take usage; what is said last counts."""
        self.usage = self.usage.updated(_usage(usage))
        self.total = usage.total_tokens if usage.total_tokens is not None else self.total

    def text(self, kind: BlockKind, text: str, events: list[Event], name: str = "") -> None:
        """Add text or reasoning; `name` is the field in which reasoning came."""
        opened = self._open
        if opened is None or opened[1] is not kind:
            self.close_text(events)
            opened = self._open = (self._next, kind)
            self._next += 1
            events.append(BlockStart(opened[0], kind, "", name))
        events.append(TextDelta(opened[0], text))

    def close_text(self, events: list[Event]) -> None:
        """End the open text or thinking block."""
        if self._open is not None:
            events.append(BlockStop(self._open[0]))
            self._open = None

    def call(self, position: int, fragment: ToolCall, events: list[Event]) -> None:
        """Add a fragment of a tool call."""
        function = fragment.function or Function()
        call = self._find(position, fragment, function.name)
        if call is None:
            self.close_text(events)
            call = self._last = self._calls[_key(position, fragment)] = _Call(self._next, fragment.id or "")
            self._next += 1
            self._open_calls.append(call)
        elif call not in self._open_calls:
            raise RemoteProtocolError("upstream added to a tool call after the finish")
        self._last = call
        if function.name and not call.name:
            call.name = function.name
            call.id = call.id or fragment.id or self._made_up_id(call.block)
            events.append(BlockStart(call.block, BlockKind.TOOL_USE, call.id, call.name))
            events.extend(ArgumentsDelta(call.block, text) for text in call.waiting)
        elif function.name and function.name != call.name:
            raise RemoteProtocolError("upstream gave a tool call two names")
        elif fragment.id and not call.id:
            call.id = fragment.id
        if function.arguments:
            if call.name:
                events.append(ArgumentsDelta(call.block, function.arguments))
            else:
                call.waiting.append(function.arguments)

    def _find(self, position: int, fragment: ToolCall, name: str | None) -> _Call | None:
        """The call that a fragment belongs to, None for a new one: vendors repeat index 0 with new ids, or send no index."""
        if fragment.index is None and not fragment.id:
            return None if name else self._last
        call = self._calls.get(_key(position, fragment))
        if call is not None and call.id and fragment.id and fragment.id != call.id:
            return None
        return call

    def _made_up_id(self, block: int) -> str:
        # the same bytes give the same id; other messages of the conversation give others
        return f"call_{block}_{sha256(self._seed.encode('utf-8', 'replace')).hexdigest()[:16]}"

    def close(self, events: list[Event]) -> None:
        """End everything that is open: the finish came."""
        self.close_text(events)
        for call in self._open_calls:
            if not call.name:
                raise RemoteProtocolError("upstream sent a tool call without a name")
            events.append(BlockStop(call.block))
        self._open_calls = []

    def stop(self) -> Event:
        """The end, by what was said last; a finished message with tool calls stops for them whatever word the vendor used."""
        if self.finish not in _FINISH:
            raise RemoteProtocolError("upstream ended its answer with an unknown finish reason")
        reason = _FINISH[self.finish]
        if reason is None:
            return UpstreamFailed("api_error", _CUT)
        if self._calls and reason is StopReason.END_TURN:
            reason = StopReason.TOOL_USE
        usage = self.usage
        counted = sum(n or 0 for n in (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens))
        extra = {"total_tokens": self.total} if self.total not in (None, counted) else {}
        return MessageStop(reason, usage, None, extra)


def _key(position: int, fragment: ToolCall) -> int | str:
    if fragment.index is not None:
        return fragment.index
    return fragment.id or f"#{position}"


class StreamDecoder:
    """Streamed chunks to events."""

    def __init__(self, unknown: frozenset[str] = frozenset()) -> None:
        self._unknown = unknown
        self._builder = _Builder()
        self._done = False

    def feed(self, chunk: bytes) -> list[Event]:
        """Decode one SSE event. Raises RemoteProtocolError; what comes after that, or after the end, is withheld."""
        name, data = parse_event(chunk)
        if not data:
            return []
        is_end = len(data) < _MAX_DONE and data.strip() == b"[DONE]"
        if self._done:
            return [] if is_end else [Opaque("data after the end")]
        try:
            if is_end:
                return self._finish()
            if name == "error":
                return self._error(_json_or_none(data))
            return self._chunk(data)
        except RemoteProtocolError:
            self._done = True
            raise

    def _error(self, payload: Any) -> list[Event]:
        self._done = True
        inner = payload.get("error") if isinstance(payload, dict) else None
        return [_failed(inner if inner is not None else payload)]

    def _chunk(self, data: bytes) -> list[Event]:
        try:
            chunk, unknown = read_chunk(data)
        except ValueError as error:
            if isinstance(payload := _json_or_none(data), dict) and payload.get("error"):
                return self._error(payload)
            raise RemoteProtocolError("upstream sent a chunk that is not one of its dialect") from error
        if chunk.error:
            return self._error({"error": chunk.error})
        builder = self._builder
        events: list[Event] = []
        if chunk.usage is not None:
            builder.count(chunk.usage)
        for choice in chunk.choices or ():
            if choice.index != 0:
                events.append(Opaque("choice"))
                continue
            if not builder.started:
                events.append(builder.start(chunk, choice))
            if choice.delta is not None:
                _content(builder, choice.delta, events)
            if choice.message is not None:
                events.append(Opaque("message in a stream"))
            _end_of_choice(builder, choice, events)
        events.extend(map(Opaque, unknown))
        return events

    def _finish(self) -> list[Event]:
        self._done = True
        builder = self._builder
        if builder.finish is None:
            return [UpstreamFailed("api_error", _CUT)]
        events: list[Event] = []
        builder.close(events)
        events.append(builder.stop())
        return events

    def finish(self) -> list[Event]:
        """The stream is over; some vendors send no [DONE]."""
        return [] if self._done else self._finish()


def _json_or_none(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _content(builder: _Builder, delta: Delta, events: list[Event]) -> None:
    if delta.reasoning_content:
        builder.text(BlockKind.THINKING, delta.reasoning_content, events, "reasoning_content")
    elif delta.reasoning:
        builder.text(BlockKind.THINKING, delta.reasoning, events, "reasoning")
    if delta.content:
        builder.text(BlockKind.TEXT, delta.content, events)
    if delta.tool_calls:
        for position, call in enumerate(delta.tool_calls):
            if call.custom is not None or call.type not in (None, "function", ""):
                events.append(Opaque("tool call of another type"))
            else:
                builder.call(position, call, events)
    if delta.refusal or delta.function_call or delta.annotations or delta.audio or delta.reasoning_details:
        events.extend(Opaque(name) for name in _WITHHELD if getattr(delta, name))


def _end_of_choice(builder: _Builder, choice: Choice, events: list[Event]) -> None:
    logprobs = choice.logprobs
    if logprobs and not (isinstance(logprobs, dict) and not any(logprobs.values())):
        events.append(Opaque("logprobs"))
    if choice.finish_reason:
        if builder.finish is None:
            builder.close(events)
        builder.finish = choice.finish_reason


def decode_whole(body: bytes, unknown: frozenset[str] = frozenset()) -> list[Event]:
    """Decode a whole answer. Raises RemoteProtocolError."""
    try:
        answer, found = read_chunk(body)
    except ValueError as error:
        raise RemoteProtocolError("upstream's answer is not one of its dialect") from error
    if answer.error:
        return [_failed(answer.error)]
    choice = next((c for c in answer.choices or () if c.index == 0), None)
    if choice is None or choice.message is None:
        raise RemoteProtocolError("upstream's answer has no message")
    if not choice.finish_reason:
        raise RemoteProtocolError("upstream's answer has no finish reason")
    builder = _Builder()
    events: list[Event] = [builder.start(answer, choice)]
    events.extend(Opaque("choice") for c in answer.choices or () if c is not choice)
    _content(builder, choice.message, events)
    if answer.usage is not None:
        builder.count(answer.usage)
    _end_of_choice(builder, choice, events)
    events.extend(map(Opaque, found))
    events.append(builder.stop())
    return events
