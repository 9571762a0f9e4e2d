"""The toy's requests, written."""

import json
from typing import Any

from protocol.request import ChatRequest, TextPart, ToolResultPart, ToolUsePart, Turn
from protocol.requests.neutral import NeutralRequest
from protocol.target import Target, Translated


def encode(
    asked: ChatRequest | NeutralRequest, target: Target, *, changed: bool = True
) -> Translated:
    """Write a request; what the toy has no words for is left out."""
    if isinstance(asked, ChatRequest) and not changed:
        return Translated(body=None)
    request = asked if isinstance(asked, ChatRequest) else asked.request
    turns = [{"by": "user", "text": text} for text in request.system] + [
        _turn(turn) for turn in request.turns
    ]
    tools = [{"name": tool.name, "schema": tool.schema} for tool in request.tools]
    return Translated(
        body=json.dumps(
            {"model": request.model, "stream": request.stream, "turns": turns, "tools": tools}
        ).encode()
    )


def _turn(turn: Turn) -> dict[str, Any]:
    return {
        "by": "model" if turn.role == "assistant" else "user",
        "text": "".join(part.text for part in turn.parts if isinstance(part, TextPart)),
        "calls": [
            [part.id, part.name, part.arguments]
            for part in turn.parts
            if isinstance(part, ToolUsePart)
        ],
        "results": {
            part.tool_call_id: part.text for part in turn.parts if isinstance(part, ToolResultPart)
        },
    }
