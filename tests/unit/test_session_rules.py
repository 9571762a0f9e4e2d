"""Rules over sequences and numbers of calls."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from policy.base import Allow, Block, Context, ToolCall
from policy.builtin import session_rules
from policy.builtin.session_rules import SessionRules
from protocol.request import ChatRequest, ToolResultPart, ToolUsePart, Turn

Call = tuple[str, dict[str, Any]]

LABELS = [
    {"label": "secret", "tool": "read*", "argument_matches": r"\.env"},
    {"label": "secret", "shell": {"effects": ["read"], "target": ["*/.env"]}},
    {"label": "tested", "tool": "test", "result_matches": "^OK"},
]


def decides(
    rule: dict[str, Any], before: Sequence[Call], call: Call, result: str = "OK"
) -> str | None:
    """The reason for which a call is blocked after others; None if it passes."""
    policy = SessionRules(labels=LABELS, rules=[rule])
    turns: list[Turn] = []
    for number, (name, arguments) in enumerate(before):
        use = ToolUsePart(f"p{number}", name, json.dumps(arguments))
        turns += [
            Turn("assistant", (use,)),
            Turn("user", (ToolResultPart(f"p{number}", result),)),
        ]
    request = ChatRequest(dialect="openai", model="m", turns=tuple(turns))
    clone = policy.for_call(Context("c", "n", "k", "", request))
    verdict = clone.on_tool_call(tool_call(call))
    assert isinstance(verdict, Allow | Block)
    return verdict.reason if isinstance(verdict, Block) else None


def tool_call(call: Call, block: int = 0) -> ToolCall:
    name, arguments = call
    return ToolCall(block, block, f"c{block}", name, json.dumps(arguments), arguments, None)


ENV: Call = ("read_file", {"path": ".env"})
CAT: Call = ("bash", {"command": "cat ./.env"})
OTHER: Call = ("read_file", {"path": "a.py"})
MAIL: Call = ("send_mail", {"to": "x@example.org"})
TEST: Call = ("test", {})
PAY: Call = ("pay", {"amount": "40"})
AFTER = {"tool": "send_*", "if": ["secret"], "reason": "leak"}
ORDER = {"tool": "send_*", "unless": ["tested"], "reason": "order"}


@pytest.mark.parametrize(
    ("rule", "before", "reason"),
    [
        (AFTER, [], None),
        (AFTER, [OTHER, TEST], None),
        (AFTER, [ENV], "leak"),
        (AFTER, [CAT, OTHER, OTHER], "leak"),
        (AFTER | {"tool": "pay"}, [ENV], None),
        (AFTER | {"within": 2}, [ENV, OTHER], "leak"),
        (AFTER | {"within": 2}, [ENV, OTHER, OTHER], None),
        (AFTER | {"if": ["secret", "tested"]}, [ENV], None),
        (AFTER | {"if": ["secret", "tested"]}, [TEST, ENV], "leak"),
        (ORDER, [], "order"),
        (ORDER, [OTHER], "order"),
        (ORDER, [TEST], None),
        ({"max": 2}, [OTHER], None),
        ({"max": 2}, [OTHER, ENV], "session"),
        ({"max": 1, "tool": "send_*"}, [OTHER, ENV], None),
        ({"max": 1, "tool": "send_*"}, [MAIL, ENV], "session"),
        ({"max": 0, "tool": "send_*"}, [], "session"),
    ],
)
def test_rules_look_at_the_calls_before(
    rule: dict[str, Any], before: list[Call], reason: str | None
) -> None:
    assert decides(rule, before, MAIL) == reason


def test_a_result_counts_as_the_client_sent_it() -> None:
    assert decides(ORDER, [TEST], MAIL, "3 failed\nOK") == "order"


@pytest.mark.parametrize(
    ("before", "amount", "passes"),
    [
        ([], 100, True),
        ([], 101, False),
        ([40, "40"], 20, True),
        ([40, "40"], "20.01", False),
        ([-40, 90], 20, False),
        ([], "many", False),
        ([], True, False),
        ([], None, False),
        ([], "NaN", False),
        ([], "1e999999999", False),
        (["?"], 1, False),
    ],
)
def test_sums_are_known_or_too_high(before: list[Any], amount: Any, passes: bool) -> None:
    rule = {"tool": "pay", "sum": "amount", "max": 100}
    calls: list[Call] = [("pay", {"amount": each}) for each in before]
    assert (decides(rule, calls, ("pay", {"amount": amount})) is None) is passes


def test_calls_of_the_same_answer_count_once_and_blocked_ones_do_not() -> None:
    request = ChatRequest(dialect="openai", model="m")
    policy = SessionRules(rules=[{"tool": "pay", "max": 2}])
    clone = policy.for_call(Context("c", "n", "k", "", request))
    calls = [tool_call(PAY, block) for block in (0, 1, 1, 0, 2, 3)]
    passed = [isinstance(clone.on_tool_call(call), Allow) for call in calls]
    assert passed == [True, True, True, True, False, False]


@pytest.mark.parametrize("bound", ["MAX_CHARS", "MAX_WORK"])
def test_what_is_behind_a_bound_makes_it_stricter(
    monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(session_rules, bound, 0)
    assert decides(AFTER, [OTHER], MAIL) == "leak"
    assert decides(ORDER, [TEST], MAIL) == "order"
    assert decides(AFTER, [PAY], MAIL) == "leak"  # a command of any tool may read it


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({"tool": "a"}, "say when it applies"),
        ({"sum": "amount"}, "say when it applies"),
        ({"if": ["unset"]}, "no rule of `labels` sets 'unset'"),
        ({"max": -1}, "greater than or equal to 0"),
        ({"when": ["secret"]}, "Extra inputs"),
    ],
)
def test_mistakes_are_named(rule: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        SessionRules(labels=LABELS, rules=[rule])
