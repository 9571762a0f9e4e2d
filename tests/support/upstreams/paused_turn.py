"""A turn that its provider pauses, and goes on with."""

import json
from typing import Any

from tests.support.upstreams.recordings import framed
from tests.support.upstreams.replay import Reply, stream

MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "stop_sequence": None,
}
CONTAINER = {"id": "container_1", "expires_at": "2026-01-01T00:00:00Z"}
SEARCH: dict[str, Any] = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "web_search",
    "input": {"query": "x", "n": 10},
}
FOUND: dict[str, Any] = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [
        {
            "type": "web_search_result",
            "title": "t",
            "url": "https://example.org",
            "encrypted_content": "Zm9v",
            "page_age": None,
        }
    ],
}
THINKING: dict[str, Any] = {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"}
FIRST = [THINKING, {"type": "text", "text": "Searching. "}, SEARCH]
SECOND = [
    FOUND,
    {"type": "text", "text": "Found it."},
    {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Paris"}},
]


def whole(content: list[dict[str, Any]], reason: str, tokens: tuple[int, int]) -> dict[str, Any]:
    usage = {"input_tokens": tokens[0], "output_tokens": tokens[1]}
    return MESSAGE | {
        "content": content,
        "stop_reason": reason,
        "usage": usage,
        "container": CONTAINER,
    }


def reply(
    content: list[dict[str, Any]], reason: str, tokens: tuple[int, int], *, streamed: bool
) -> Reply:
    message = whole(content, reason, tokens)
    if not streamed:
        return Reply(json.dumps(message).encode())
    events: list[dict[str, Any]] = [
        {
            "type": "message_start",
            "message": message | {"content": [], "stop_reason": None, "container": None},
        }
    ]
    for index, block in enumerate(content):
        events += [
            {"type": "content_block_start", "index": index, "content_block": block},
            {"type": "content_block_stop", "index": index},
        ]
    delta = {"stop_reason": reason, "stop_sequence": None, "container": CONTAINER}
    events += [
        {"type": "message_delta", "delta": delta, "usage": message["usage"]},
        {"type": "message_stop"},
    ]
    return stream(framed("anthropic", [json.dumps(e) for e in events]), cutting="events")
