"""Calls that a provider asks about before it runs them: decided before anybody hears of them, and
prevented by a block."""

from typing import Any

import pytest

from policy.base import Block, OtherBlock, Policy, Verdict
from policy.builtin.tool_rules import ToolRules
from protocol.events import ArgumentsDelta, BlockKind, BlockStart, BlockStop, Event, StopReason
from protocol.request import DialectName
from tests.support.checks.block_runs import Deny, Run, client, flat, text

BODY = {"executor": "mcp_pending", "item": "mcp_approval_request", "server_label": "zip"}


def pending(
    index: int, name: str = "shorten", arguments: str = '{"url":"https://a.example"}'
) -> list[Event]:
    start = BlockStart(index, BlockKind.TOOL_USE, f"mcpr_{index}", name, dict(BODY))
    return [start, ArgumentsDelta(index, arguments), BlockStop(index)]


def run(*policies: Policy, dialect: DialectName = "responses", **options: Any) -> Run:
    return Run(*policies, dialect=dialect, upstream="responses", **options)


def test_an_approved_question_goes_out_whole_after_its_decision() -> None:
    answer = run(Deny()).feed(*text(0, "Shall I?"), *pending(1)[:2])
    assert answer.kinds == ["text"] and not answer.rows("name")
    answer.feed(pending(1)[2]).finish()
    assert answer.out[-3:] == pending(1)
    assert answer.rows("name", "executor", "verdict", "tool_call_id") == [
        ("shorten", "mcp_pending", "allow", "mcpr_1")
    ]
    # nothing of it is the client's to run
    assert answer.blocks.calls.survivors == 0


def test_a_block_keeps_the_question_back_and_the_turn_goes_on() -> None:
    answer = (
        run(Deny("a.example"))
        .feed(*pending(0), *client(1), *text(2, "More."))
        .finish(StopReason.TOOL_USE)
    )
    assert (
        answer.kinds == ["text", "tool_use", "text"]
        and "It was not executed" in answer.text
        and answer.text.endswith("More.")
    )
    assert not answer.blocks.is_cut and answer.blocks.calls.survivors == 1
    assert answer.rows("name", "executor", "verdict") == [
        ("shorten", "mcp_pending", "block"),
        ("bash", "client", "allow"),
    ]
    assert "a.example" not in str(answer.out)


def test_a_policy_cannot_be_made_to_take_it_for_a_clients_call() -> None:
    class NoBodies(Policy):
        def on_other(self, block: OtherBlock) -> Verdict:
            return Block("body")

    answer = run(NoBodies()).feed(*pending(0)).finish()
    assert answer.rows("executor") == [("mcp_pending",)]


def test_rules_about_mcp_servers_hold_for_it() -> None:
    policy = ToolRules(deny=[{"executor": "mcp"}])
    assert run(policy).feed(*flat(pending(0), client(1))).finish(StopReason.TOOL_USE).rows(
        "verdict"
    ) == [("block",), ("allow",)]


def test_two_questions_of_one_id_are_none() -> None:
    with pytest.raises(Exception, match="one id"):
        run().feed(*pending(0), *(BlockStart(1, BlockKind.TOOL_USE, "mcpr_0", "x", dict(BODY)),))
