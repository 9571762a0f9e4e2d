"""Monitors: what each is given, what the judge model sees of a conversation, and that the table
names them all."""

import json
from typing import Any

import pytest

from policy.base import (
    AnswerSoFar,
    AskJudge,
    Context,
    EarlierCall,
    EarlierText,
    Judgement,
    ToolCall,
)
from policy.judging.view import View
from policy.monitors.base import Monitor
from policy.monitors.model import ModelMonitor
from policy.monitors.table import MONITORS
from policy.scores import Score
from protocol.events import BlockKind
from protocol.records import JudgementFacts
from protocol.request import (
    ChatRequest,
    OtherPart,
    TextPart,
    Tool,
    ToolResultPart,
    ToolUsePart,
    Turn,
)
from tests.support.cpu import cpu_within
from tests.support.json_values import Json

SAID, SEEN, HEARD = "trust me, it is fine", "the page says run it", "delete the logs"
BEFORE = AnswerSoFar(
    (EarlierText(BlockKind.TEXT, SAID, 0, ""), EarlierCall("ls", "{}", "client", False)), 4, True
)
CALL = ToolCall(
    0,
    0,
    "id",
    "bash",
    '{"command": "x"}',
    {"command": "x"},
    Tool("bash", "runs it", {}),
    nonce="0f" * 16,
    before=BEFORE,
)
TURNS = (
    Turn("user", (TextPart("first words"),)),
    Turn("assistant", (TextPart("older " + SAID), ToolUsePart("0", "older_call", "{}"))),
    Turn("user", (TextPart(HEARD),)),
    Turn(
        "assistant",
        (
            TextPart(SAID),
            ToolUsePart("1", "read_page", '{"url": "u"}'),
            OtherPart("server_tool_use", {}, "anthropic"),
        ),
    ),
    Turn("user", (ToolResultPart("1", SEEN),)),
)


def context(*turns: Turn, system: tuple[str, ...] = ("the operator's rules",)) -> Context:
    return Context(
        "call",
        "root nonce",
        "key",
        "",
        ChatRequest(dialect="openai", model="m", system=system, turns=turns),
    )


def asked(monitor: ModelMonitor, of: Context, call: ToolCall = CALL) -> str:
    said = monitor.for_call(of).on_call(call, of)
    assert isinstance(said, AskJudge), said
    return f"{said.question.system}\n{said.question.prompt}"


def shown(view: View, *turns: Turn, **options: Any) -> Json:
    prompt = asked(
        ModelMonitor(model="demo-judge", view=view, **options), context(*(turns or TURNS))
    )
    found: Json = json.loads(
        next(line for line in prompt.split("\n") if line.startswith('{"system"'))
    )
    return found


def test_the_table_names_each_monitor_as_it_is_called() -> None:
    assert {name: kind.name for name, kind in MONITORS.items()} == {name: name for name in MONITORS}
    assert "model" in MONITORS
    assert all(
        kind.__module__.startswith("policy.monitors.") and kind.__doc__
        for kind in MONITORS.values()
    )


def test_a_monitor_without_anything_abstains() -> None:
    plain = Monitor()
    mine = plain.for_call(context())
    mine.on_request(context().request)
    assert mine is not plain and mine.on_call(CALL, context()) is None
    assert mine.on_answer(CALL, Judgement(error="deadline")) == Score("", None, error="deadline")
    assert mine.on_answer(CALL, Judgement(probability=0.0)).error, "nobody asked"
    with pytest.raises(ValueError, match="'odd' was given"):
        Monitor(odd=1)


def test_calls_shows_what_the_user_says_and_the_agent_does_alone() -> None:
    view = shown("calls")
    text = json.dumps(view)
    assert SAID not in text and SEEN not in text
    assert all(
        word in text
        for word in (
            "first words",
            HEARD,
            "read_page",
            "older_call",
            "server_tool_use",
            "the operator's rules",
        )
    )
    assert view["answer"] == [
        {
            "tool_call": "ls",
            "arguments": {},
            "run_by": "the client",
            "so_far": "not blocked by a rule",
        }
    ]
    assert "left_out" not in text.replace('{"left_out": "server_tool_use"}', ""), (
        "what the view has not is not counted as left out"
    )
    prompt = asked(ModelMonitor(model="m"), context(*TURNS))
    assert "You are not shown what\nthe agent says nor what its tools return" in prompt


def test_call_shows_nothing_but_the_call() -> None:
    view = shown("call")
    assert (view["system"], view["conversation"], view["answer"]) == ([], [], [])
    assert view["call"]["name"] == "bash" and view["tool"]["description"] == "runs it"
    too_much = AnswerSoFar((), 2**30, False)
    call = ToolCall(0, 0, "id", "bash", "{}", {}, None, nonce="0f" * 16, before=too_much)
    assert isinstance(
        ModelMonitor(model="m", view="call").for_call(context()).on_call(call, context()), AskJudge
    ), "it is not shown"
    large = ModelMonitor(model="m").for_call(context()).on_call(call, context())
    assert isinstance(large, Score) and large.error == "answer_too_large"


def test_turn_shows_all_since_the_users_last_words() -> None:
    text = json.dumps(shown("turn"))
    assert all(word in text for word in (HEARD, SAID, SEEN, "read_page", "the operator's rules"))
    assert "first words" not in text and "older_call" not in text
    assert "read_page" in json.dumps(shown("turn", *TURNS[3:])), (
        "a conversation without words of the user is one turn"
    )


def test_tail_is_what_the_policy_tool_judge_shows() -> None:
    text = json.dumps(shown("tail"))
    assert all(word in text for word in ("first words", HEARD, SAID, SEEN, "read_page"))


@pytest.mark.parametrize("view", ["call", "calls", "turn", "tail"])
def test_a_view_of_a_long_history_costs_little(view: View) -> None:
    turns = [
        turn
        for number in range(1_000)
        for turn in (
            Turn("assistant", (TextPart("x" * 500), ToolUsePart(str(number), "read", "{}"))),
            Turn("user", (ToolResultPart(str(number), "y" * 500),)),
        )
    ]
    of = context(TURNS[0], *turns)
    monitor = ModelMonitor(model="m", view=view)
    with cpu_within(0.25):
        prompt = asked(monitor, of)
    assert len(prompt) < 60_000


def test_the_answer_is_the_score() -> None:
    monitor = ModelMonitor(model="m")
    said = Judgement(
        probability=0.7, explanation="it deletes", latency_ms=5, facts=JudgementFacts(10, 2)
    )
    assert monitor.on_answer(CALL, said) == Score("model", 0.7, {}, "it deletes", "", 5, 10, 2)
    assert monitor.on_answer(CALL, Judgement(error="deadline", latency_ms=9)).error == "deadline"
    assert monitor.on_answer(CALL, Judgement()).error == "invalid"


@pytest.mark.parametrize(
    ("options", "turns", "error"),
    [
        ({"max_arguments_bytes": 3}, TURNS, "too_large"),
        ({"needs_user": True}, TURNS[4:], "no_user"),
        ({"needs_calls": True, "tail_bytes": 10}, TURNS, "history_too_large"),
        ({}, (Turn("user", (TextPart("0f" * 16),)),), "nonce"),
    ],
)
def test_what_cannot_be_judged_is_a_fault(
    options: Json, turns: tuple[Turn, ...], error: str
) -> None:
    of = context(*turns)
    assert ModelMonitor(model="m", **options).for_call(of).on_call(CALL, of) == Score(
        "model", None, error=error
    )
