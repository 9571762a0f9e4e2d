"""The toy's answers: steps to events."""

import json
from typing import Any

from protocol import events as e
from protocol.bytes.sse import parse_event
from protocol.errors import RemoteProtocolError


class StreamDecoder:
    """The steps of one answer, each an event of the stream: a block ends where the next begins."""

    def __init__(self, unknown: frozenset[str]) -> None:
        self._index, self._kind, self._has_ended = -1, "", False

    def feed(self, chunk: bytes) -> list[e.Event]:
        """Decode one SSE event."""
        return self.take(json.loads(data)) if (data := parse_event(chunk)[1]) else []

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
        raise RemoteProtocolError("upstream sent a step that the toy does not know")

    def _begin(
        self, what: str, kind: e.BlockKind, identity: str = "", name: str = ""
    ) -> list[e.Event]:
        ended, self._kind, self._index = self._end(), what, self._index + 1
        return [*ended, e.BlockStart(self._index, kind, id=identity, name=name)]

    def _end(self) -> list[e.Event]:
        return [e.BlockStop(self._index)] if self._kind else []


def decode_whole(body: bytes, unknown: frozenset[str] = frozenset()) -> list[e.Event]:
    """Decode an answer that was not streamed."""
    return [
        event
        for take in [StreamDecoder(unknown).take]
        for step in json.loads(body)
        for event in take(step)
    ]
