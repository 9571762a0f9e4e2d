"""Thinking of other dialects for Messages clients: it has a signature, and neither that nor an
empty one goes to a Claude model."""

import json
from typing import Any

import pytest

from protocol import codecs
from protocol.dialects.anthropic.wire import UNSIGNED
from protocol.dialects.table import CLIENTS
from protocol.target import Target, Translated
from tests.support.json_values import Json, as_json

CLAUDE = "claude-sonnet-4-5"
USE: Json = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
RESULT: Json = {
    "role": "user",
    "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "r"}],
}
SIGNED: Json = {"type": "thinking", "thinking": "Signed.", "signature": "c2ln"}


def thought(signature: str | None) -> Json:
    return {
        "type": "thinking",
        "thinking": "Hm.",
        **({} if signature is None else {"signature": signature}),
    }


def sent(
    *content: Json, model: str = CLAUDE, then: tuple[Json, ...] = (RESULT,), **more: Any
) -> tuple[Json, Translated]:
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": list(content)},
        *then,
    ]
    body = as_json({"model": model, "max_tokens": 9000, "messages": messages, **more})
    made = codecs.encode_request(
        CLIENTS["anthropic"].decode_request(body), Target(dialect="anthropic"), changed=False
    )
    return json.loads(made.body or body), made


@pytest.mark.parametrize("signature", ["", None, UNSIGNED])
def test_thinking_that_claude_did_not_sign_does_not_go_there(signature: str | None) -> None:
    body, made = sent(thought(signature), {"type": "text", "text": "a"}, USE, SIGNED)
    assert body["messages"][1]["content"] == [{"type": "text", "text": "a"}, USE, SIGNED]
    assert made.dropped == ("messages[].thinking",)


def test_a_turn_of_nothing_else_is_left_out() -> None:
    body, _ = sent(thought(UNSIGNED), then=({"role": "user", "content": "and?"},))
    assert [m["role"] for m in body["messages"]] == ["user", "user"]


def test_a_tool_loop_that_began_without_signed_thinking_goes_on_without_thinking() -> None:
    thinking = {"type": "enabled", "budget_tokens": 2000}
    body, made = sent(thought(UNSIGNED), USE, thinking=thinking)
    assert "thinking" not in body and made.dropped == ("messages[].thinking", "thinking")
    body, made = sent(
        thought(UNSIGNED),
        USE,
        then=(RESULT, {"role": "user", "content": "and?"}),
        thinking=thinking,
    )
    assert body["thinking"] == thinking and made.dropped == ("messages[].thinking",)
