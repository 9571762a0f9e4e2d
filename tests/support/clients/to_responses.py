"""Requests for a Responses provider."""

from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming,
    ResponseCreateParamsStreaming,
)
from pydantic import TypeAdapter

from tests.support.json_values import Json

STREAMED, WHOLE = (
    TypeAdapter(ResponseCreateParamsStreaming),
    TypeAdapter(ResponseCreateParamsNonStreaming),
)
ENCRYPTED = "reasoning.encrypted_content"


def paired(items: list[Json]) -> None:
    """What the vendor refuses: an output without its call, reasoning with nothing behind it, ids of
    what is kept nowhere."""
    called: set[str] = set()
    for place, item in enumerate(items):
        kind = item["type"]
        if kind.endswith("_call"):
            called.add(item["call_id"])
        if kind.endswith("_output"):
            assert item["call_id"] in called
        if kind == "reasoning":
            assert items[place + 1]["type"] in (
                "message",
                "function_call",
                "custom_tool_call",
                "reasoning",
            )
        assert kind not in ("message", "reasoning", "function_call") or "id" not in item
