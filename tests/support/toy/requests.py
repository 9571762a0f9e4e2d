"""The toy's requests."""

import json
from typing import Any

from protocol.errors import InvalidRequest
from protocol.request import ChatRequest, Part, TextPart, Tool, ToolResultPart, ToolUsePart, Turn


def read(body: bytes) -> ChatRequest:
    """Read a client's body. Raises InvalidRequest."""
    try:
        said: dict[str, Any] = json.loads(body)
        turns = tuple(Turn("assistant" if t["by"] == "model" else "user", _parts(t)) for t in said["turns"])
        tools = tuple(Tool(t["name"], schema=t["schema"]) for t in said.get("tools", ()))
        return ChatRequest(dialect="toy", model=said["model"], stream=said["stream"], turns=turns, tools=tools, max_tokens=100)
    except (ValueError, LookupError, TypeError) as error:
        raise InvalidRequest("this is no request of the toy") from error


def _parts(turn: dict[str, Any]) -> tuple[Part, ...]:
    results = (ToolResultPart(identity, text) for identity, text in turn.get("results", {}).items())
    calls = (ToolUsePart(*call) for call in turn.get("calls", ()))
    return (*results, *([TextPart(turn["text"])] if turn.get("text") else []), *calls)


def write(request: ChatRequest) -> bytes:
    """Write a request; what the toy has no words for is left out."""
    turns = [{"by": "user", "text": text} for text in request.system] + [_turn(turn) for turn in request.turns]
    tools = [{"name": tool.name, "schema": tool.schema} for tool in request.tools]
    return json.dumps({"model": request.model, "stream": request.stream, "turns": turns, "tools": tools}).encode()


def _turn(turn: Turn) -> dict[str, Any]:
    return {
        "by": "model" if turn.role == "assistant" else "user",
        "text": "".join(part.text for part in turn.parts if isinstance(part, TextPart)),
        "calls": [[part.id, part.name, part.arguments] for part in turn.parts if isinstance(part, ToolUsePart)],
        "results": {part.tool_call_id: part.text for part in turn.parts if isinstance(part, ToolResultPart)},
    }
