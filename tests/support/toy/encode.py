"""The toy's answers: events to steps."""

import json
from collections.abc import Sequence
from typing import Any

from protocol import events as e
from protocol.request import ChatRequest


class StepEncoder:
    """Steps for a client, each a frame, or all of them in one list."""

    def __init__(self, request: ChatRequest, *, call_id: str, created: int) -> None:
        self.content_type = "text/event-stream" if request.stream else "application/json"
        self._is_stream, self._steps = request.stream, list[dict[str, Any]]()

    def encode(self, events: Sequence[e.Event]) -> bytes:
        """Return frames, or the body with the last event."""
        steps = [step for event in events if (step := _step(event))]
        if self._is_stream:
            return b"".join(b"data: " + json.dumps(step).encode() + b"\n\n" for step in steps)
        self._steps += steps
        return (
            json.dumps(self._steps).encode()
            if steps and ("end" in steps[-1] or "wrong" in steps[-1])
            else b""
        )


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
            return {
                "end": str(event.stop_reason),
                "tokens": [event.usage.input_tokens or 0, event.usage.output_tokens or 0],
            }
        case e.UpstreamFailed():
            return {"wrong": event.kind, "why": event.message}
    return {}


make = StepEncoder
