"""A turn that its provider pauses, and goes on with."""

import json

from tests.support.json_values import Json, as_json
from tests.support.upstreams.recordings import framed
from tests.support.upstreams.replay import Reply, stream

MESSAGE: Json = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "stop_sequence": None,
}
CONTAINER = {"id": "container_1", "expires_at": "2026-01-01T00:00:00Z"}
SEARCH: Json = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "web_search",
    "input": {"query": "x", "n": 10},
}
FOUND: Json = {
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
THINKING: Json = {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"}
FIRST = [THINKING, {"type": "text", "text": "Searching. "}, SEARCH]
SECOND = [
    FOUND,
    {"type": "text", "text": "Found it."},
    {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Paris"}},
]


def whole(content: list[Json], reason: str, tokens: tuple[int, int]) -> Json:
    usage = {"input_tokens": tokens[0], "output_tokens": tokens[1]}
    return MESSAGE | {
        "content": content,
        "stop_reason": reason,
        "usage": usage,
        "container": CONTAINER,
    }


def reply(content: list[Json], reason: str, tokens: tuple[int, int], *, streamed: bool) -> Reply:
    message = whole(content, reason, tokens)
    if not streamed:
        return Reply(as_json(message))
    events: list[Json] = [
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
