"""The toy's answers: steps to events and back."""

import json
from collections.abc import Sequence
from typing import Any

from protocol import events as e
from protocol.errors import RemoteProtocolError
from protocol.sse import parse_event


class ToyDecoder:
    """The steps of one answer, each an event of the stream: a block ends where the next begins."""

    def __init__(self) -> None:
        self._index, self._kind, self._has_ended = -1, "", False

    def feed(self, chunk: bytes) -> list[e.Event]:
        """Decode one SSE event."""
        data = parse_event(chunk)[1]
        return self.take(json.loads(data)) if data else []

    def finish(self) -> list[e.Event]:
        """The stream is over."""
        return [] if self._has_ended else [e.UpstreamFailed("api_error", "the toy was cut")]

    def take(self, step: dict[str, Any]) -> list[e.Event]:
        """Return the events of one step."""
        match step:
            case {"begin": str(model)}:
                return [e.MessageStart("", model)]
            case {"text": str(text)}:
                begun = [] if self._kind == "text" else self._begin("text", e.BlockKind.TEXT)
                return [*begun, e.TextDelta(self._index, text)]
            case {"call": str(identity), "name": str(name)}:
                return self._begin("call", e.BlockKind.TOOL_USE, identity, name)
            case {"args": str(text)}:
                return [e.ArgumentsDelta(self._index, text)]
            case {"end": str(reason), "tokens": [int(there), int(back)]}:
                self._has_ended = True
                return [*self._end(), e.MessageStop(e.StopReason(reason), e.Usage(there, back))]
            case {"wrong": str(kind), "why": str(why)}:
                self._has_ended = True
                return [e.UpstreamFailed(kind, why)]
            case _:
                raise RemoteProtocolError("upstream sent a step that the toy does not know")

    def _begin(self, what: str, kind: e.BlockKind, identity: str = "", name: str = "") -> list[e.Event]:
        ended = self._end()
        self._kind, self._index = what, self._index + 1
        return [*ended, e.BlockStart(self._index, kind, id=identity, name=name)]

    def _end(self) -> list[e.Event]:
        was, self._kind = self._kind, ""
        return [e.BlockStop(self._index)] if was else []


class ToyEncoder:
    """Steps for a client, each a frame, or all of them in one list."""

    def __init__(self, *, is_stream: bool) -> None:
        self.content_type = "text/event-stream" if is_stream else "application/json"
        self._is_stream, self._steps = is_stream, list[dict[str, Any]]()

    def encode(self, events: Sequence[e.Event]) -> bytes:
        """Return the frames of these events, or the body with the last."""
        steps = [step for event in events if (step := _step(event))]
        if self._is_stream:
            return b"".join(b"data: " + json.dumps(step).encode() + b"\n\n" for step in steps)
        self._steps += steps
        return json.dumps(self._steps).encode() if steps and ("end" in steps[-1] or "wrong" in steps[-1]) else b""

    def keepalive(self) -> bytes:
        """A comment, in a stream."""
        return b": still here\n\n" if self._is_stream else b""


def _step(event: e.Event) -> dict[str, Any]:
    match event:
        case e.MessageStart():
            return {"begin": event.model}
        case e.BlockStart(kind=e.BlockKind.TOOL_USE):
            return {"call": event.id, "name": event.name}
        case e.TextDelta():
            return {"text": event.text}
        case e.ArgumentsDelta():
            return {"args": event.text}
        case e.MessageStop():
            return {"end": str(event.stop_reason), "tokens": [event.usage.input_tokens or 0, event.usage.output_tokens or 0]}
        case e.UpstreamFailed():
            return {"wrong": event.kind, "why": event.message}
        case _:
            return {}
