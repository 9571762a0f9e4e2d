"""A weather tool's calls, as both dialects answer with them."""

import pydantic
from anthropic.types import message_create_params

from protocol.dialects.anthropic.turn import TurnBuilder
from protocol.request import DialectName
from tests.support.json_values import Json
from tests.support.upstreams.turns import events

PARIS = {"city": "Paris"}
SERVER_CALL = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "tool_search_tool_bm25",
    "input": {},
}

THINKING = {"type": "thinking", "thinking": "Let me see.", "signature": "c2lnbmF0dXJl"}
WEATHER: dict[DialectName, Json] = {
    "openai": {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    },
    "anthropic": {
        "name": "weather",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
validate = pydantic.TypeAdapter(message_create_params.MessageCreateParamsStreaming).validate_python


def recorded_turn(body: bytes) -> TurnBuilder:
    """The turn that the record has of this answer."""
    turn = TurnBuilder()
    for chunk in events(body):
        turn.feed(chunk)
    assert turn.complete
    return turn
