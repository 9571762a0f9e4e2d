"""Frames of the Messages dialect, built one by one, and what the decoder makes of them."""

import json
from typing import Any

from protocol import codecs
from protocol.dialects.table import DIALECTS
from protocol.events import Event, Opaque
from tests.support.json_values import Json, as_json
from tests.support.upstreams.recordings import framed


def stream(*frames: Json, unknown: tuple[str, ...] = ()) -> list[Event]:
    """The events of these frames."""
    decoder = DIALECTS["anthropic"].decoder(frozenset(unknown))
    chunks = [framed("anthropic", [json.dumps(f)]) for f in frames]
    return [event for chunk in chunks for event in decoder.feed(chunk)] + decoder.finish()


def whole(*content: Json, unknown: tuple[str, ...] = (), **fields: Any) -> list[Event]:
    """The events of a whole message with these blocks."""
    body = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "x",
        "content": content,
        "stop_reason": "end_turn",
        **fields,
    }
    return codecs.decode_whole("anthropic", as_json(body), frozenset(unknown))


def message(**fields: Any) -> Json:
    """A message_start."""
    return {
        "type": "message_start",
        "message": {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "x",
            "content": [],
            **fields,
        },
    }


def start(index: int, **block: Any) -> Json:
    """A content_block_start."""
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **fields: Any) -> Json:
    """A content_block_delta."""
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def stop(index: int) -> Json:
    """A content_block_stop."""
    return {"type": "content_block_stop", "index": index}


def end(reason: str | None = "end_turn", **fields: Any) -> list[Json]:
    """A message_delta and a message_stop."""
    return [
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, **fields},
            "usage": {"output_tokens": 3},
        },
        {"type": "message_stop"},
    ]


def opaque(events: list[Event]) -> list[str]:
    """What is withheld."""
    return [e.what for e in events if isinstance(e, Opaque)]
