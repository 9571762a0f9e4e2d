"""Requests of the Messages dialect for an upstream of the same: as received unless something is
added, and gated all the same."""

from typing import Any

import msgspec
import pytest

from protocol import codecs
from protocol.dialects.table import CLIENTS
from protocol.errors import InvalidRequest
from protocol.request import ChatRequest, OtherPart, Turn
from protocol.target import Target
from tests.support.clients.to_anthropic import (
    EVERY,
    USER,
    WRITTEN,
)
from tests.support.json_values import Json, as_json
from tests.support.request_codecs import written_body

# --- the same dialect ---


def own(**body: Any) -> ChatRequest:
    data: Json = {"model": "claude-opus-4-8", "max_tokens": 5, "messages": [USER]} | body
    return CLIENTS["anthropic"].decode_request(as_json(data), endpoint="messages")


def test_a_messages_request_passes_as_received_unless_something_is_added() -> None:
    use = {"type": "tool_use", "id": "a.b", "name": "my tool", "input": {"b": 1, "a": 2.50}}
    turns = [
        USER,
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a.b"}]},
    ]
    request = own(messages=turns, top_k=3, temperature=0.3, tools=[WRITTEN])
    assert codecs.encode_request(request, Target(dialect="anthropic"), changed=False).body is None
    target = Target(dialect="anthropic", families=EVERY, container="c_1")
    body = written_body(request, target, changed=False)
    assert (body["container"], body["top_k"], body["temperature"], body["tools"]) == (
        "c_1",
        3,
        0.3,
        [WRITTEN],
    )
    assert body["messages"][1]["content"] == [use]
    added = {"type": "web_search_20250305", "name": "web_search"}
    more = Target(dialect="anthropic", families=EVERY, added_tools=(added,))
    body = written_body(request, more, changed=False)
    assert (body["tools"], body["messages"][1]["content"]) == ([WRITTEN, added], [use])
    mine = own(container="c_2")
    assert codecs.encode_request(mine, target, changed=False).body is None


def test_a_messages_request_may_not_hold_parts_of_the_other_dialect() -> None:
    foreign = msgspec.structs.replace(
        own(), turns=(Turn("user", (OtherPart("file", {"type": "file"}, "openai"),)),)
    )
    with pytest.raises(InvalidRequest, match="file"):
        codecs.encode_request(foreign, Target(dialect="anthropic"))
