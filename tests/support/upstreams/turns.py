"""Answers of the Messages dialect as the chunks that are recorded of them."""

import json

from protocol.bytes.sse import EventSplitter
from tests.support.json_values import Json
from tests.support.upstreams.recordings import framed


def events(body: bytes) -> list[bytes]:
    """Cut a stream into its events."""
    splitter = EventSplitter(2**24)
    return [*splitter.feed(body), *splitter.finish()]


def streamed(
    content: list[Json],
    reason: str,
    *,
    container: str = "",
    identity: str = "msg_1",
    about: Json | None = None,
) -> list[bytes]:
    """The events of an answer with these blocks, each whole at its start."""
    frames: list[Json] = [
        {
            "type": "message_start",
            "message": {"id": identity, "type": "message", "content": [], **(about or {})},
        }
    ]
    for index, block in enumerate(content):
        frames += [
            {"type": "content_block_start", "index": index, "content_block": block},
            {"type": "content_block_stop", "index": index},
        ]
    delta = {
        "stop_reason": reason,
        "container": {"id": container, "expires_at": "2099-01-01T00:00:00Z"} if container else None,
    }
    frames += [
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]
    return events(framed("anthropic", [json.dumps(f) for f in frames]))
