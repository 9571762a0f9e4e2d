"""Requests of the Messages dialect and what they are in chat/completions."""

from typing import Any

from protocol import codecs
from protocol.dialects.table import CLIENTS
from protocol.request import ChatRequest
from protocol.target import Target, Translated
from tests.support.json_values import Json, as_json
from tests.support.request_codecs import sent_body

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CLOSED = SCHEMA | {"additionalProperties": False}
USER = {"role": "user", "content": "x"}
TOOL = {"name": "f", "input_schema": SCHEMA}

SEARCH = {"type": "web_search_20250305", "name": "web_search"}


def read(**changes: Any) -> ChatRequest:
    """A Messages request, read."""
    body = {"model": "m", "max_tokens": 5, "messages": [USER]} | changes
    return CLIENTS["anthropic"].decode_request(as_json(body), endpoint="messages")


def translate(target: Target | None = None, **changes: Any) -> Translated:
    """That request, written for an upstream of chat/completions."""
    return codecs.encode_request(read(**changes), target or Target(dialect="openai"))


def write(**changes: Any) -> Json:
    """The body for the provider."""
    body: Json = sent_body(translate(**changes))
    return body


def said(*blocks: Json, role: str = "user") -> list[Json]:
    """A message of these blocks, alone in its conversation."""
    return [{"role": role, "content": list(blocks)}]


def use(identity: str = "t", name: str = "f", **values: Any) -> Json:
    """A tool call."""
    return {"type": "tool_use", "id": identity, "name": name, "input": {}} | values


def result(content: Any, identity: str = "t", **values: Any) -> Json:
    """The result of a tool call."""
    return {"type": "tool_result", "tool_use_id": identity, "content": content} | values


THOUGHT = [
    {"type": "thinking", "thinking": "hm", "signature": "s"},
    {"type": "redacted_thinking", "data": "x"},
]

SEARCHING = Target(dialect="openai", families=frozenset(("web_search",)))
