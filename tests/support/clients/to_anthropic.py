"""Requests of chat/completions and what they are in the Messages dialect."""

from typing import Any

import pydantic
import pytest
from anthropic.types.beta import message_create_params

from protocol import codecs
from protocol.dialects.table import CLIENTS
from protocol.errors import InvalidRequest
from protocol.request import ChatRequest
from protocol.server_tools.data import table
from protocol.target import Target, Translated
from tests.support.json_values import Json, as_json
from tests.support.request_codecs import sent_body

EVERY = frozenset(table().families)
OLD, UNKNOWN, BUDGET, ADAPTIVE, NEWEST = (
    "claude-3-5-haiku-latest",
    "m",
    "claude-sonnet-4-5",
    "claude-opus-4-6",
    "claude-opus-4-8",
)

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

TOOL: Json = {
    "type": "function",
    "function": {"name": "f", "description": "d", "parameters": SCHEMA},
}
OTHER = {"type": "function", "function": {"name": "g"}}
WRITTEN = {"name": "f", "description": "d", "input_schema": SCHEMA}
USER = {"role": "user", "content": "x"}
EPHEMERAL = {"type": "ephemeral"}

validate = pydantic.TypeAdapter(
    message_create_params.MessageCreateParamsNonStreaming
).validate_python


def read(body: Json) -> ChatRequest:
    """A request as a client of chat/completions sends it, read."""
    return CLIENTS["openai"].decode_request(
        as_json({"model": UNKNOWN, "messages": [USER]} | body), endpoint="chat"
    )


def translate(
    *, families: frozenset[str] = EVERY, target: Json | None = None, **body: Any
) -> Translated:
    """That request, written for an upstream of the Messages dialect."""
    return codecs.encode_request(
        read(body), Target(dialect="anthropic", families=families, **(target or {}))
    )


def cross(**body: Any) -> Json:
    """The body for the provider; it fits the SDK's own types."""
    written: Json = sent_body(translate(**body))
    validate({k: v for k, v in written.items() if k != "stream"})
    return written


def refused(**body: Any) -> str:
    """The parameter that is named."""
    with pytest.raises(InvalidRequest) as caught:
        translate(**body)
    assert caught.value.http_status == 400
    return caught.value.param or ""


def call(identity: str, name: str = "f", arguments: str = "{}") -> Json:
    """A tool call in an assistant message."""
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


SYSTEM = {"role": "system", "content": "s"}
ANSWER = {"role": "assistant", "content": "y"}


def image(url: Any, **more: Any) -> Json:
    """A part with an image."""
    return {"type": "image_url", "image_url": {"url": url, **more}}


def file(**values: Any) -> Json:
    """A part with a file."""
    return {"type": "file", "file": values}


LEGACY: Json = {
    "messages": [
        USER,
        {
            "role": "assistant",
            "content": None,
            "function_call": {"name": "f", "arguments": '{"city": "a"}'},
        },
        {"role": "function", "name": "f", "content": "1"},
        {
            "role": "assistant",
            "content": None,
            "function_call": {"name": "f", "arguments": '{"city": "b"}'},
        },
        {"role": "function", "name": "f", "content": None},
    ],
    "functions": [TOOL["function"]],
    "function_call": {"name": "f"},
}


def json_schema(schema: Any = SCHEMA, **more: Any) -> Json:
    """A form of the answer."""
    return {"type": "json_schema", "json_schema": {"name": "weather", "schema": schema, **more}}
