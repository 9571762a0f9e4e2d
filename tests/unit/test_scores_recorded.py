"""Scores and choices that go with a verdict come onto record with the call, whoever decided."""

from typing import Any

import msgspec
import pytest

from policy.base import Allow, Block, Defer, Feedback, Policy, Replace, ToolCall, Verdict
from policy.scores import AuditRule, ProtocolChoice, Score
from policy.session.effects import SessionEffects
from policy.session.session import Session
from protocol import sampling
from protocol.records import (
    DecisionRecord,
    Record,
    ScoreRecord,
    ToolCallRecord,
    decode_records,
    encode_records,
)
from settings.config import Config
from tests.support.checks.kinds import of_kind
from tests.support.checks.session_runs import DONE, REQUEST, call_chunk, chunk, texts
from tests.support.json_values import Json, as_json
from tests.support.worker_calls import call_info

SCORES = (
    Score("shell", 0.9, {"wide": 1.0}, "deletes /"),
    Score("model", None, error="deadline", latency_ms=7, input_tokens=3),
)
CHOICE = ProtocolChoice("threshold", "block", SCORES, 1.0, 0.6, "score")


class Fixed(Policy):
    """Says one thing about every call."""

    name = "fixed"

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict

    def on_tool_call(self, call: ToolCall) -> Verdict:
        return self.verdict


def effects_of(*verdicts: Verdict) -> SessionEffects:
    call = call_info(nonce="nonce", max_arguments_bytes=1000)
    session = Session(call, [Fixed(verdict) for verdict in verdicts], Config())
    session.begin(as_json(REQUEST))
    session.drain()
    session.chunks(
        1, [call_chunk(0, "bash", '{"command": "ls"}'), chunk(finish="tool_calls"), DONE]
    )
    return session.drain()


@pytest.mark.parametrize(
    "verdict",
    [
        Allow(CHOICE),
        Block("x", choice=CHOICE),
        Replace("{}", choice=CHOICE),
        Defer("m", "x", choice=CHOICE),
    ],
)
def test_they_are_in_the_batch_of_their_call(verdict: Verdict) -> None:
    records = effects_of(verdict, Allow(CHOICE)).records
    [call] = of_kind(records, ToolCallRecord)
    scores = of_kind(records, ScoreRecord)
    decisions = of_kind(records, DecisionRecord)
    times = 1 if call.verdict == "block" else 2
    assert [
        (s.block, s.step, s.monitor, s.value, s.dims, s.why, s.error, s.latency_ms, s.input_tokens)
        for s in scores[:2]
    ] == [
        (call.block, 0, "shell", 0.9, '{"wide":1.0}', "deletes /", "", None, None),
        (call.block, 1, "model", None, "", "", "deadline", 7, 3),
    ]
    assert [s.step for s in scores] == list(range(2 * times)), "each has a key of its own"
    assert [
        (d.block, d.step, d.policy, d.action, d.score, d.threshold, d.audit, d.u) for d in decisions
    ] == [(call.block, step, "fixed", "block", 1.0, 0.6, "", None) for step in range(times)]
    assert decode_records(encode_records(records)) == records


def test_a_call_without_a_choice_has_no_row_beside_its_own() -> None:
    records: list[Record] = effects_of(Allow(), Replace("{}"), Block("x")).records
    assert not any(isinstance(record, ScoreRecord | DecisionRecord) for record in records)


def test_until_turns_can_be_deferred_a_deferral_blocks() -> None:
    [call] = of_kind(
        effects_of(Defer("trusted", "critical", rule="deploy")).records, ToolCallRecord
    )
    assert (call.verdict, call.reason, call.rule, call.released_arguments) == (
        "block",
        "critical",
        "deploy",
        None,
    )


@pytest.mark.parametrize(
    ("score", "rule", "why"),
    [
        (0.2, AuditRule(rate=1.0), "sampled"),
        (0.2, AuditRule(rate=0.0), ""),
        (0.5, AuditRule(rate=1.0, at=0.5, budget=3), "suspicion"),
        (None, AuditRule(rate=0.0, at=0.5), ""),
    ],
)
def test_the_lot_is_drawn_by_who_records(score: float | None, rule: AuditRule, why: str) -> None:
    choice = msgspec.structs.replace(CHOICE, score=score, audit=rule)
    [made] = of_kind(effects_of(Allow(choice)).records, DecisionRecord)
    assert made.u == sampling.draw("nonce", "r", made.block)
    assert (made.audit, made.audit_rate, made.audit_at, made.audit_budget) == (
        why,
        rule.rate,
        rule.at,
        rule.budget,
    )


@pytest.mark.parametrize(
    ("dims", "why"),
    [
        ({"a": "b"}, "x"),
        ({"a": float("nan")}, "x"),
        ({1: 1.0}, "x"),
        ({"\ud800": 1.0}, "x"),
        ([], "x"),
        ({}, 5),
    ],
)
def test_what_is_no_score_is_a_fault_that_blocks(dims: Any, why: Any) -> None:
    wrong = ProtocolChoice("threshold", "allow", (Score("m", 0.1, dims, why),))
    records = effects_of(Allow(wrong)).records
    assert [r.reason for r in records if isinstance(r, ToolCallRecord)] == ["fault"]
    assert not any(isinstance(r, ScoreRecord | DecisionRecord) for r in records)


@pytest.mark.parametrize(
    "changes",
    [
        {"scores": (Score("m", 0.1),) * 17},
        {"scores": (Score("m", 1.5),)},
        {"scores": (Score("m" * 200, 0.5),)},
        {"scores": (Score("m", 0.5, why="x" * 2_001),)},
        {"scores": (Score("m", 0.5, {f"d{n}": 0.0 for n in range(33)}),)},
        {"score": -0.1},
        {"threshold": 2.0},
        {"audit": AuditRule(rate=7.0)},
        {"action": "x" * 200},
        {"action": "let it pass"},
        {"scores": (Score("m", None, error="it said: rm -rf /"),)},
        {"reason": "x" * 2_001},
    ],
)
def test_a_choice_of_somebodys_own_is_bounded(changes: Json) -> None:
    records = effects_of(Block("x", choice=msgspec.structs.replace(CHOICE, **changes))).records
    assert [r.reason for r in records if isinstance(r, ToolCallRecord)] == ["fault"]


@pytest.mark.parametrize(
    ("feedback", "said"),
    [
        ("silent", "[Sluice blocked the tool call 'bash'. It was not executed. Call c.]"),
        (
            "reason",
            (
                "[Sluice blocked the tool call 'bash': judged harmful. It was not executed. Do not"
                " retry it in another form; ask the user. Call c.]"
            ),
        ),
    ],
)
def test_feedback_says_no_more_than_it_may(feedback: Feedback, said: str) -> None:
    blocked = effects_of(
        Block("judge", "because of rule 5", "r5", "0.93", feedback=feedback, choice=CHOICE)
    )
    assert texts(blocked.outputs) == said
    assert "because of rule 5" in texts(
        effects_of(Block("judge", "because of rule 5", "r5", "0.93")).outputs
    )
