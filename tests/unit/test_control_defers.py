"""`control` in a session that can defer: critical calls and high scores go to another model, whose
calls are measured in turn."""

from typing import Any

import pytest

from policy.builtin.control import Control
from protocol.records import AttemptRecord, DecisionRecord, ScoreRecord
from tests.support.checks.deferred import answer, begun, count_of_dispatches, ended, of, sent_models
from tests.support.clients.answering import Answer
from tests.support.upstreams.cases import calls_of, text_of

DEPLOY, LOOK = ("call_1", "deploy", {"to": "production"}), ("call_2", "look", {"at": "staging"})
JUDGE = {"use": "model", "model": "demo-judge"}
TRUSTED = {"do": "defer", "model": "gpt-trusted"}
STEPS = [{"at": 0.9, "do": "block"}, {"at": 0.5, **TRUSTED}]


def started(*calls: Any, said: str = "", **options: Any) -> Answer:
    return begun("openai", "openai", Control(**options)).feed(answer("openai", said, *calls))


def decisions(a: Answer) -> list[tuple[int, str, str, float | None]]:
    return [
        (row.attempt, row.protocol, row.action, row.score) for row in of(a.records, DecisionRecord)
    ]


def test_a_critical_call_goes_to_the_other_model_which_may_make_it() -> None:
    a = started(DEPLOY, critical=[{"tool": "deploy*"}], on_critical=TRUSTED)
    assert count_of_dispatches(a) == 2 and sent_models(a)[-1] == "gpt-trusted"
    a.feed(answer("openai", "", ("call_9", "deploy", {"to": "staging"})))
    assert [value for _, _, value in calls_of(ended(a))] == [{"to": "staging"}]
    assert a.verdicts == [("deploy", "discarded"), ("deploy", "allow")]
    assert decisions(a) == [(0, "critical", "defer", None), (1, "critical", "allow", None)]
    assert [row.chosen for row in of(a.records, AttemptRecord)] == [False, True]


def test_a_score_defers_and_the_other_models_calls_are_measured_too() -> None:
    a = started(LOOK, monitors=[JUDGE], steps=STEPS).judge(0.6)
    assert count_of_dispatches(a) == 2
    a.feed(answer("openai", "", LOOK))
    a.judge(0.2)
    assert len(calls_of(ended(a))) == 1
    assert decisions(a) == [(0, "steps", "defer", 0.6), (1, "steps", "allow", 0.2)]
    rows = of(a.records, ScoreRecord)
    assert len({(row.block, row.step) for row in rows}) == len(rows) == 2, (
        "scores of two attempts have keys of their own"
    )


def test_what_the_other_model_makes_is_blocked_where_it_would_be_deferred_again() -> None:
    a = started(LOOK, monitors=[JUDGE], steps=STEPS).judge(0.6)
    a.feed(answer("openai", "", LOOK))
    a.judge(0.7)
    assert not calls_of(ended(a)) and "It was not executed" in text_of(ended(a))
    assert decisions(a) == [(0, "steps", "defer", 0.6), (1, "steps", "block", 0.7)]
    assert count_of_dispatches(a) == 2


@pytest.mark.parametrize("score", [0.2, 0.95])
def test_without_a_deferral_nothing_is_sent_again(score: float) -> None:
    a = started(LOOK, said="I look.", monitors=[JUDGE], steps=STEPS).judge(score)
    assert count_of_dispatches(a) == 1 and not of(a.records, AttemptRecord)
    assert bool(calls_of(ended(a))) == (score == 0.2)


def test_observing_asks_nobody_else() -> None:
    a = started(DEPLOY, critical=[{"tool": "deploy*"}], on_critical=TRUSTED, observe=True)
    assert count_of_dispatches(a) == 1 and decisions(a) == [(0, "observe", "defer", None)]
    assert len(calls_of(ended(a))) == 1
