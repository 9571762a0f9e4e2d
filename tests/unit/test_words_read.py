"""What an answer says beside its content is shown to policies, also where it looks like a word; so
is what Sluice says itself."""

import json

import pytest

from policy.base import Block, Policy, TextBlock, ToolCall, Verdict
from policy.builtin.text_replace import TextReplace
from policy.builtin.tool_rules import ToolRules
from policy.session.effects import Respond
from protocol.bytes.json_strict import dumps
from protocol.dialects.table import CLIENTS
from protocol.request import DialectName
from tests.support.checks.kinds import of_kind
from tests.support.clients.answering import Answer, Watch, direct
from tests.support.json_values import Json, as_json
from tests.support.upstreams.chat_words import CALL, CHUNK, STOP, TOOLS, stream

SECRET = "sk-" + "a" * 20
KEYS = {"rules": [{"pattern": "sk-[a-z]{20}", "replace": "[key]"}]}
FALCON = {"rules": [{"find": "Falcon", "replace": "[name]"}]}


USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
OF_OPENAI: dict[str, bytes] = {
    "id": stream({"id": SECRET}, {}),
    "model": stream({"model": SECRET}, {}),
    "system_fingerprint": stream({"system_fingerprint": SECRET}, {}),
    "service_tier": stream({"service_tier": SECRET}, {}),
    "provider": stream({"provider": SECRET}, {}),
    "x_groq": stream({"x_groq": {"id": SECRET}}, {}),
    "x_groq at the end": stream({}, {"x_groq": {"id": SECRET}}),
    "prompt_filter_results": stream({"prompt_filter_results": [{"word": SECRET}]}, {}),
    "usage": stream({}, {}, {**CHUNK, "choices": [], "usage": {**USAGE, "tier": SECRET}}),
    "a field of usage": stream({}, {}, {**CHUNK, "choices": [], "usage": {**USAGE, SECRET: 1}}),
    "native_finish_reason": stream({}, {"choices": [{**STOP, "native_finish_reason": SECRET}]}),
    "content_filter_results": stream(
        {}, {"choices": [{**STOP, "content_filter_results": {"hate": {"severity": SECRET}}}]}
    ),
}


def message(start: Json, stop: Json, usage: Json) -> bytes:
    body = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "usage": {"input_tokens": 1},
        **start,
    }
    frames: list[Json] = [
        {"type": "message_start", "message": body},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "text", "text": "hello"},
        },
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", **stop},
            "usage": {"output_tokens": 1, **usage},
        },
        {"type": "message_stop"},
    ]
    return b"".join(b"event: %s\ndata: %s\n\n" % (f["type"].encode(), dumps(f)) for f in frames)


OF_ANTHROPIC: dict[str, bytes] = {
    "id": message({"id": SECRET}, {}, {}),
    "model": message({"model": SECRET}, {}, {}),
    "container": message(
        {"container": {"id": SECRET, "expires_at": "2026-01-01T00:00:00Z"}}, {}, {}
    ),
    "container at the end": message({}, {"container": {"id": SECRET}}, {}),
    "usage": message({"usage": {"input_tokens": 1, "service_tier": SECRET}}, {}, {}),
    "usage at the end": message({}, {}, {"service_tier": SECRET}),
    "context_management": message(
        {"context_management": {"applied_edits": [{"type": SECRET}]}}, {}, {}
    ),
    "stop_details": message({}, {"stop_details": {"type": "refusal", "category": SECRET}}, {}),
}
BODIES: list[tuple[DialectName, str]] = [
    *(("openai", n) for n in OF_OPENAI),
    *(("anthropic", n) for n in OF_ANTHROPIC),
]


@pytest.mark.parametrize(("upstream", "where"), BODIES)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("streams", [True, False])
def test_a_secret_that_looks_like_a_word_is_withheld(
    upstream: DialectName, where: str, client: DialectName, streams: bool
) -> None:
    body = (OF_OPENAI if upstream == "openai" else OF_ANTHROPIC)[where]
    assert SECRET.encode() in body
    # without the policy a client of the same dialect gets it, so the case is one
    bare = Answer(upstream, client, streams=streams).feed(body)
    assert client != upstream or SECRET.encode() in bare.data
    answer = Answer(upstream, client, streams=streams, policies=[TextReplace(**KEYS)]).feed(body)
    assert SECRET.encode() not in answer.data and b"hello" in answer.data


def test_counts_stay_where_a_word_beside_them_is_withheld() -> None:
    answer = Answer("openai", "openai", policies=[TextReplace(**KEYS)]).feed(OF_OPENAI["usage"])
    assert direct.accumulated(answer.data)["usage"] == USAGE


def test_the_code_of_an_error_is_read_too() -> None:
    answer = Answer("openai", "openai", policies=[TextReplace(**KEYS)])
    error = {"message": "no", "type": "invalid_request_error", "code": SECRET, "param": SECRET}
    answer.session.error_status(400, as_json({"error": error}), "")
    [refused] = of_kind(answer.session.drain().outputs, Respond)
    assert SECRET.encode() not in refused.body and b"no" in refused.body


# --- what Sluice says ---


class BlocksText(Policy):
    def on_text(self, text: str, block: TextBlock) -> str | Block:
        return Block("rude", "Falcon says no") if "rude" in text else text


class Names(Policy):
    def on_tool_call(self, call: ToolCall) -> Verdict:
        return Block("no", "Falcon tools are off")


CALLED = stream(
    {"choices": [{"index": 0, "delta": {"content": "hi", "tool_calls": [CALL]}}]},
    {"choices": [{**STOP, "finish_reason": "tool_calls"}]},
)
WRITTEN = stream(
    {"choices": [{"index": 0, "delta": {"content": '{"name":"bash","arguments":{}}'}}]}, {}
)


@pytest.mark.parametrize("body", [CALLED, WRITTEN])
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    "rule", [Names(), ToolRules(deny=[{"tool": "bash", "message": "Falcon tools are off"}])]
)
def test_the_message_of_a_rule_is_read(body: bytes, client: DialectName, rule: Policy) -> None:
    answer = Answer(
        "openai", client, policies=[TextReplace(**FALCON), rule], tools=TOOLS[client]
    ).feed(body)
    assert b"Falcon" not in answer.data and b"[name] tools are off" in answer.data


def test_the_message_about_withheld_text_is_read() -> None:
    answer = Answer("openai", "openai", policies=[TextReplace(**FALCON), BlocksText()])
    body = stream({"choices": [{"index": 0, "delta": {"content": "rude"}}]}, {})
    assert b"[name] says no" in answer.feed(body).data


def test_a_notice_that_a_policy_blocks_says_only_that_there_was_something() -> None:
    class NoNotices(Policy):
        def on_text(self, text: str, block: TextBlock) -> str | Block:
            return Block("sluice") if "Sluice" in text else text

    class No(Policy):
        def on_tool_call(self, call: ToolCall) -> Verdict:
            return Block("no")

    answer = Answer("openai", "openai", policies=[NoNotices(), No()], tools=TOOLS["openai"]).feed(
        CALLED
    )
    assert (
        b"[Sluice blocked a tool call. It was not executed. Call " in answer.data
        and b"bash" not in answer.data
    )


def test_notices_do_not_touch_what_a_policy_keeps_of_the_answer() -> None:
    class First(Policy):
        """Puts a line before the first text of an answer."""

        def __init__(self) -> None:
            self.is_first = True

        def on_text(self, text: str, block: TextBlock) -> str:
            said = ("made by a machine: " if self.is_first else "") + text
            self.is_first = False
            return said

    body = stream(
        {"choices": [{"index": 0, "delta": {"tool_calls": [CALL]}}]},
        {"choices": [{"index": 0, "delta": {"content": "hello"}}, STOP]},
    )
    answer = Answer("openai", "openai", policies=[First(), Names()], tools=TOOLS["openai"]).feed(
        body
    )
    assert b"made by a machine: hello" in answer.data


# --- two forms of calls in one message ---


@pytest.mark.parametrize("streams", [True, False])
def test_a_legacy_call_beside_tool_calls_does_not_move_their_index(streams: bool) -> None:
    legacy = {"function_call": {"name": "old", "arguments": "{}"}}
    calls = [{**CALL, "index": n, "id": f"call_{n}"} for n in range(2)]
    for deltas in (
        [legacy, {"tool_calls": calls}],
        [{"tool_calls": calls[:1]}, legacy, {"tool_calls": calls[1:]}],
    ):
        choices = [{**CHUNK, "choices": [{"index": 0, "delta": d}]} for d in deltas]
        body = b"".join(
            b"data: " + dumps(c) + b"\n\n"
            for c in [*choices, {**CHUNK, "choices": [{**STOP, "finish_reason": "tool_calls"}]}]
        )
        answer = Answer(
            "openai", "openai", streams=streams, policies=[Watch()], tools=TOOLS["openai"]
        ).feed(body)
        told = direct.accumulated(answer.data) if streams else json.loads(answer.data)
        assert [c["id"] for c in told["choices"][0]["message"]["tool_calls"]] == [
            "call_0",
            "call_1",
        ]
        indices = [
            c["index"]
            for line in answer.data.decode().split("\n")
            if line.startswith("data: {")
            for c in json.loads(line[6:])["choices"][0]["delta"].get("tool_calls", ())
        ]
        assert not streams or set(indices) == {0, 1}


def test_encoders_of_both_dialects_make_up_what_was_withheld() -> None:
    for client, field in (("openai", "chatcmpl-"), ("anthropic", "msg_")):
        dialect: DialectName = "openai" if client == "openai" else "anthropic"
        body = OF_OPENAI["id"] if dialect == "openai" else OF_ANTHROPIC["id"]
        assert (
            field
            in Answer(dialect, dialect, policies=[TextReplace(**KEYS)]).feed(body).data.decode()
        )
