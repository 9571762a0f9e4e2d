"""chat/completions answers, streamed and whole, to events (docs/change/protocol.md 1.5).

Theory. chat/completions has no block boundaries, so blocks are numbered as their first content
comes: a text or thinking block ends where content of another kind begins, tool calls end at the
finish (their fragments may interleave). The finish reason may come twice, with content, and usage
may follow it; so the message ends at [DONE] or at the end of the stream, with the last values
received. A stream without a finish reason was cut: never a made-up stop.
"""

from operator import attrgetter
from typing import Any

import msgspec

from protocol.bytes.sse import parse_event
from protocol.dialects.openai_chat.answer import CUT, Answer
from protocol.dialects.openai_chat.failures import failed_inside
from protocol.dialects.openai_chat.wire import Chunk, Delta, Unknown, read_chunk
from protocol.errors import RemoteProtocolError
from protocol.events import Event, Opaque, TextDelta, UpstreamFailed

_MAX_DONE = 20
_DONE = "chat.completion.done"
"""Perplexity's last chunk, which repeats the whole message beside an empty delta."""
_DELTA, _MESSAGE = attrgetter("delta"), attrgetter("message")
"""Where a choice holds what it says: in a stream, in a whole answer."""


def _error_of(chunk: Chunk, unknown_fields: list[Unknown]) -> dict[str, Any]:
    payload = {"error": chunk.error}
    for unknown in unknown_fields:
        payload |= unknown.body or {}
    return payload


class StreamDecoder:
    """Streamed chunks to events."""

    def __init__(self, unknown: frozenset[str] = frozenset()) -> None:
        self._message = Answer(unknown)
        self._done = False
        self._last: tuple[Chunk, Delta, int] | None = None
        """The last chunk, its delta and its block, if it was nothing but text."""

    @property
    def has_finish(self) -> bool:
        """Did the provider say how the answer ended?"""
        return self._message.finish is not None

    def feed(self, chunk: bytes) -> list[Event]:
        """Decode one SSE event. Raises RemoteProtocolError; what comes after that, or after the
        end, is withheld."""
        name, data = parse_event(chunk)
        if not data:
            return []
        is_end = len(data) < _MAX_DONE and data.strip() == b"[DONE]"
        if self._done:
            return [] if is_end else [Opaque("data after the end")]
        try:
            if is_end:
                if self._message.has_blank_finish and self._message.finish is None:
                    self._message.finish = "stop"
                return self._finish()
            if name == "error":
                return self._error(_json_or_none(data))
            return self._chunk(data)
        except RemoteProtocolError:
            self._done = True
            raise

    def _error(self, payload: Any) -> list[Event]:
        self._done = True
        return [failed_inside(payload)]

    def _chunk(self, data: bytes) -> list[Event]:
        try:
            chunk, unknown_fields = read_chunk(data)
        except ValueError as error:
            if isinstance(payload := _json_or_none(data), dict) and payload.get("error"):
                return self._error(payload)
            raise RemoteProtocolError(
                "upstream sent a chunk that is not one of its dialect"
            ) from error
        new_delta = chunk.choices[0].delta if chunk.choices else None
        if (
            self._last is not None
            and new_delta is not None
            and new_delta.content
            and not unknown_fields
        ):
            # as the one before but for its text, like nearly every chunk: what else it says was
            # taken then (0.83x a chunk in bursts)
            last, delta, index = self._last
            delta.content, last.obfuscation = new_delta.content, chunk.obfuscation
            if chunk == last:
                return [TextDelta(index, new_delta.content)]
        if chunk.error:
            return self._error(_error_of(chunk, unknown_fields))
        events: list[Event] = []
        self._message.take(chunk, unknown_fields, _DELTA, events)
        for choice in chunk.choices or ():
            if choice.message is not None and choice.index == 0 and chunk.object != _DONE:
                events.append(Opaque("message in a stream"))
        self._last = None
        if (
            new_delta is None
            or not new_delta.content
            or unknown_fields
            or new_delta != Delta(new_delta.role, new_delta.content)
            or len(chunk.choices or ()) != 1
        ):
            # also a fragment of a call without a name yet, which gives no event
            return events
        if len(events) == 1 and isinstance(event := events[0], TextDelta):
            self._last = chunk, new_delta, event.index
        return events

    def _finish(self) -> list[Event]:
        self._done = True
        message = self._message
        if message.finish is None:
            return [UpstreamFailed("api_error", CUT)]
        return message.end()

    def finish(self) -> list[Event]:
        """The stream is over; some vendors send no [DONE]."""
        return [] if self._done else self._finish()


def _json_or_none(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def decode_whole(body: bytes, unknown: frozenset[str] = frozenset()) -> list[Event]:
    """Decode a whole answer. Raises RemoteProtocolError."""
    try:
        answer, unknown_fields = read_chunk(body)
    except ValueError as error:
        raise RemoteProtocolError("upstream's answer is not one of its dialect") from error
    if answer.error:
        return [failed_inside(_error_of(answer, unknown_fields))]
    choice = next((c for c in answer.choices or () if c.index == 0), None)
    if choice is None or (choice.message is None and choice.finish_reason != "content_filter"):
        raise RemoteProtocolError("upstream's answer has no message")
    if choice.finish_reason == "":
        choice.finish_reason = "stop"
    if not choice.finish_reason:
        raise RemoteProtocolError("upstream's answer has no finish reason")
    for other in answer.choices or ():
        if other is not choice and other.index == 0:
            other.index = 1
    for position, call in enumerate((choice.message and choice.message.tool_calls) or ()):
        # each is whole: none goes on with another of the same id
        call.index = position
    message = Answer(unknown)
    events: list[Event] = []
    message.take(answer, unknown_fields, _MESSAGE, events)
    return events + message.end()
