"""The toy's requests, read."""

import json
from typing import Any

from protocol.errors import InvalidRequest
from protocol.request import ChatRequest, Part, TextPart, Tool, ToolResultPart, ToolUsePart, Turn


def decode(body: bytes, *, needs_max_tokens: bool = False) -> ChatRequest:
    """Read a client's body. Raises InvalidRequest."""
    try:
        said = json.loads(body)
        turns = tuple(
            Turn("assistant" if t["by"] == "model" else "user", _parts(t)) for t in said["turns"]
        )
        tools = tuple(Tool(t["name"], schema=t["schema"]) for t in said.get("tools", ()))
        return ChatRequest(
            dialect="toy",
            model=said["model"],
            stream=said["stream"],
            turns=turns,
            tools=tools,
            max_tokens=100,
        )
    except (ValueError, LookupError, TypeError) as error:
        raise InvalidRequest("this is no request of the toy") from error


def _parts(turn: dict[str, Any]) -> tuple[Part, ...]:
    results = (ToolResultPart(identity, text) for identity, text in turn["results"].items())
    return (
        *results,
        *(TextPart(text) for text in [turn["text"]] if text),
        *(ToolUsePart(*call) for call in turn["calls"]),
    )
