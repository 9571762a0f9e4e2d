"""Thinking of other dialects for Messages clients: it has a signature, and neither that nor an
empty one goes to a Claude model."""

import json
from typing import Any

import pytest

from protocol import codecs
from protocol.anthropic.wire import UNSIGNED
from protocol.dialects import CLIENTS, DIALECTS
from protocol.events import (
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    MessageStart,
    MessageStop,
    SignatureDelta,
    StopReason,
    TextDelta,
)
from protocol.request import ChatRequest
from protocol.target import Target, Translated
from tests.support.clients.sdk import anthropic_answer

Json = dict[str, Any]
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


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("upstream", [name for name in DIALECTS if name != "anthropic"])
def test_a_client_gets_no_empty_signature(upstream: str, stream: bool) -> None:
    said: list[Event] = [
        MessageStart("m", "m", extra={"dialect": upstream}),
        BlockStart(0, BlockKind.THINKING),
        TextDelta(0, "Hm."),
        SignatureDelta(0, "c2Vh"),
        BlockStop(0),
        MessageStop(StopReason.END_TURN),
    ]
    request = ChatRequest(dialect="anthropic", model="m", stream=stream)
    data = CLIENTS["anthropic"].encoder(request, call_id="c", created=1).encode(said)
    [block] = [b for b in anthropic_answer(data, stream=stream).content if b.type == "thinking"]
    assert (block.thinking, block.signature) == ("Hm.", UNSIGNED)


def sent(
    *content: Json, model: str = CLAUDE, then: tuple[Json, ...] = (RESULT,), **more: Any
) -> tuple[Json, Translated]:
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": list(content)},
        *then,
    ]
    body = json.dumps({"model": model, "max_tokens": 9000, "messages": messages, **more}).encode()
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


def test_what_is_signed_goes_out_as_it_came_and_so_does_what_another_vendor_leaves_unsigned() -> (
    None
):
    assert sent(SIGNED, USE)[1].body is None
    assert sent(thought(""), USE, model="deepseek-reasoner")[1].body is None
    assert sent(thought(UNSIGNED), USE, model="deepseek-reasoner")[0]["messages"][1]["content"] == [
        USE
    ]
