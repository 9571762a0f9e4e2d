"""What becomes of a long request: all of it is decided on, and no more of it stays with a worker
than its call still needs."""

import gc
import json
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from bench.histories import history
from policy.base import Block, Context, Judgement, Policy, TextBlock
from policy.builtin.tool_rules import ToolRules
from policy.loading import load
from policy.session.effects import SendUpstream
from policy.session.session import Session
from protocol.request import ChatRequest, TextPart, Turn
from settings.config import Config, PolicyStep
from tests.support.checks.kinds import of_kind
from tests.support.clients.answering import Answer
from tests.support.json_values import Json, as_json
from tests.support.upstreams.cases import frames
from tests.support.worker_calls import call_info

CALL = "01990000-0000-7000-8000-000000000000"
MIB = 2**20
BODY = history("demo", MIB)
MESSAGES: list[Json] = json.loads(BODY)["messages"]
JUDGED: list[Json] = [
    {"use": "tool_rules", "deny": [{"tool": "bash", "argument_matches": "rm -rf"}]},
    {"use": "text_replace", "rules": [{"find": "secret", "replace": "******"}]},
    {"use": "tool_judge", "model": "demo-judge"},
]


def series(*steps: Json) -> list[Policy]:
    return load([PolicyStep.model_validate(step) for step in steps], session_version="1")[0]


def begun(policies: Sequence[Policy], body: bytes = BODY) -> Session:
    session = Session(
        call_info(CALL, nonce="5e" * 16, max_arguments_bytes=8 << 20),
        policies,
        Config(),
    )
    session.begin(body)
    return session


def chunk(**delta: Any) -> bytes:
    return (
        b"data: "
        + as_json({"id": "x", "model": "m", "choices": [{"index": 0, "delta": delta}]})
        + b"\n\n"
    )


def use(arguments: str) -> list[bytes]:
    """An answer that calls bash."""
    head = {
        "index": 0,
        "id": "c1",
        "type": "function",
        "function": {"name": "bash", "arguments": arguments},
    }
    end = {
        "id": "x",
        "model": "m",
        "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}],
    }
    return [
        chunk(role="assistant", tool_calls=[head]),
        b"data: " + as_json(end) + b"\n\n",
        b"data: [DONE]\n\n",
    ]


def held_bytes(make: Callable[[], Session]) -> int:
    """What the session keeps, without the collector's help: a worker with a hundred calls must not
    wait for it."""
    make()
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        session = make()
        assert any(isinstance(o, SendUpstream) for o in session.drain().outputs)
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
        gc.enable()


class Looks(Policy):
    """Says nothing of the request, so it may look at it whenever it likes."""

    def on_text(self, text: str, block: TextBlock) -> str:
        return f"{text} ({len(self.context.request.turns)})"


class LooksToo(ToolRules):
    """Made of a policy that does not look at the request."""

    def on_text(self, text: str, block: TextBlock) -> str:
        return f"{text} ({len(self.context.request.turns)})"


class Shortens(Policy):
    """Sends only the last turns, and counts what it saw."""

    keeps_request = False
    seen = 0

    def for_call(self, context: Context) -> "Shortens":
        mine = super().for_call(context)
        mine.seen = len(context.request.turns)
        return mine

    def on_request(self, request: ChatRequest) -> ChatRequest | Block:
        if request.turns[0].parts == (TextPart("no"),):
            return Block("no")
        return msgspec.structs.replace(
            request, turns=(*request.turns[-2:], Turn("user", (TextPart(f"{self.seen} turns"),)))
        )

    def on_text(self, text: str, block: TextBlock) -> str:
        return f"{text} {self.seen} {len(self.context.request.turns)}"


def said(session: Session) -> str:
    session.chunks(1, [chunk(role="assistant", content="x")])
    return "".join(o.text for o in session.drain().outputs if hasattr(o, "text"))


def test_a_sent_request_of_a_megabyte_leaves_some_kilobytes() -> None:
    assert len(BODY) > MIB
    policies = series(*JUDGED)
    # what the judge may be shown is a part of it: its last turns, the user's first and last words,
    # the system's
    assert held_bytes(lambda: begun(policies)) < MIB // 9
    assert held_bytes(lambda: begun([Looks()])) > MIB


@pytest.mark.parametrize("policy", [Looks(), LooksToo()])
def test_a_policy_that_does_not_say_otherwise_has_all_of_it(policy: Policy) -> None:
    turns = len(begun([policy])._exchange.chain.context.request.turns)  # type: ignore[union-attr]
    assert turns > 300
    assert said(begun([*series({"use": "noop"}), policy])) == f"x ({turns})"


def test_request_hooks_see_all_of_it_and_what_they_say_is_sent() -> None:
    turns = len(begun([Looks()])._exchange.chain.context.request.turns)  # type: ignore[union-attr]
    session = begun([Shortens()])
    [sent] = of_kind(session.drain().outputs, SendUpstream)
    messages = json.loads(sent.body or b"")["messages"]
    assert messages[0] == MESSAGES[0], "the system prompt"
    assert (messages[-1], messages[-2]) == (
        {"role": "user", "content": f"{turns} turns"},
        MESSAGES[-1],
    )
    assert said(session) == f"x {turns} 0"
    refused = as_json(
        json.loads(BODY) | {"messages": [{"role": "user", "content": "no"}, *MESSAGES[1:]]}
    )
    assert [getattr(o, "status", 0) for o in begun([Shortens()], refused).drain().outputs] == [403]


def test_the_judge_of_a_long_call_sees_its_end_and_how_much_there_was() -> None:
    session = begun(series(*JUDGED))
    session.drain()
    session.chunks(1, use('{"command": "ls"}'))
    [ask] = session.drain().asks
    shown = json.loads(ask.question.prompt.split("\n")[1])
    (first, *before), tail = shown["conversation"][:-6], shown["conversation"][-6:]
    assert first == {"role": "user", "parts": [{"text": MESSAGES[1]["content"]}]}
    assert tail[-1]["parts"][-1]["tool_result"][:100] == MESSAGES[-1]["content"][:100]
    turns = len(begun([Looks()])._exchange.chain.context.request.turns)  # type: ignore[union-attr]
    assert sum(item.get("turns_left_out", 1) for item in before) == turns - 7
    assert shown["system"] == [{"text": MESSAGES[0]["content"]}]
    assert (shown["tool"]["name"], shown["tool"]["schema"]["required"]) == ("bash", ["command"])


def test_a_second_owner_of_a_long_call_comes_out_where_the_first_stood() -> None:
    allowed = Judgement(probability=0.0, model="demo-judge")
    first, second = begun(series(*JUDGED)), begun(series(*JUDGED))
    digests = []
    for session in (first, second):
        session.drain()
        session.chunks(1, use('{"command": "ls"}'))
        [ask] = session.drain().asks
        session.judgement(ask.block, ask.step, allowed, 5)
        session.eof()
        digests.append(session.drain().digest)
    assert digests[0] == digests[1]
    assert first.state == second.state == "ENDED"


def test_arguments_are_held_against_the_schema_of_a_long_call() -> None:
    session = begun(series({"use": "tool_rules", "validate_schema": True}))
    session.drain()
    session.chunks(1, use('{"timeout": 1}'))
    taken = session.drain()
    assert [
        getattr(r, "reason", "") for r in taken.records if getattr(r, "verdict", "") == "block"
    ] == ["schema"]


def test_a_long_turn_that_goes_on_is_sent_with_its_history() -> None:
    paused: list[Json] = [
        {
            "type": "message_start",
            "message": {
                "id": "m",
                "type": "message",
                "role": "assistant",
                "model": "claude-x",
                "content": [],
                "stop_reason": None,
                "usage": {"input_tokens": 1, "output_tokens": 1},
            },
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "so far"},
        },
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "pause_turn"},
            "usage": {"output_tokens": 2},
        },
        {"type": "message_stop"},
    ]
    answer = Answer(
        "anthropic",
        "openai",
        policies=series({"use": "noop"}),
        messages=MESSAGES,
        tools=json.loads(BODY)["tools"],
    )
    answer.feed(frames(*paused))
    first, second = answer.dispatched
    assert len(first["messages"]) > 300
    assert second["messages"][:-1] == first["messages"]
    assert second["messages"][-1] == {
        "role": "assistant",
        "content": [{"type": "text", "text": "so far"}],
    }
