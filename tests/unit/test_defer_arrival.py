"""Deferred turns: what comes out, and what is on record, does not depend on when a judge answers or
how a connection ends."""

import pytest

from policy.builtin.control import Control
from protocol.records import AttemptRecord, BlockRecord, EventRecord
from protocol.request import DialectName
from tests.support.checks.deferred import (
    DIALECTS,
    OTHER,
    Critical,
    Judged,
    answer,
    begun,
    count_of_dispatches,
    ended,
    of,
)
from tests.support.clients.answering import Answer
from tests.support.upstreams.cases import began, calls_of, client_call, frames, text, text_of
from tests.support.upstreams.frames import end

DEPLOY = ("call_1", "deploy", {"to": "x"})


def fed(a: Answer, body: bytes, parts: int | None = None) -> Answer:
    """Take the first events of an upstream's stream, and not its end."""
    for part in body.split(b"\n\n")[:-1][:parts]:
        a.session.chunks(a._seq, [part + b"\n\n"])
        a._passed()
    return a


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_turn_is_deferred_though_its_connection_broke_behind_its_end(
    dialect: DialectName,
) -> None:
    a = fed(begun(dialect, dialect, Critical(OTHER[dialect])), answer(dialect, "", DEPLOY)).fail(
        "upstream_timeout"
    )
    assert count_of_dispatches(a) == 2
    a.feed(answer(dialect, "", ("call_9", "look", {})))
    assert [name for _, name, _ in calls_of(ended(a))] == ["look"]


@pytest.mark.parametrize("is_early", [True, False])
def test_a_second_answer_that_fails_is_recorded_with_all_verdicts(is_early: bool) -> None:
    a = (
        begun("openai", "openai", Judged("gpt-trusted"))
        .feed(answer("openai", "", DEPLOY))
        .judge(0.9)
    )
    # all but the frames behind the finish
    fed(a, answer("openai", "", ("call_2", "look", {}), ("call_3", "look", {"to": "y"})), 6)
    assert len(a.asks) == 2
    a = a.judge(0.1).fail() if is_early else a.fail().judge(0.1)
    assert "Sluice blocked" in text_of(ended(a))
    assert a.verdicts == [("deploy", "discarded"), ("look", "discarded"), ("look", "discarded")]
    assert [(row.block, row.reason) for row in of(a.records, BlockRecord)] == [(0, "not_deferred")]
    assert [row.chosen for row in of(a.records, AttemptRecord)] == [False, False]


@pytest.mark.parametrize("durable", [True, False])
def test_a_call_in_a_text_that_goes_on_behind_a_call_ends_the_answer(durable: bool) -> None:
    found = '<tool_call>{"name": "deploy", "arguments": {"to": "x"}}</tool_call>'
    body = frames(
        began(),
        *text(0, "hi ")[:-1],
        *client_call(1, "toolu_1", "look", {}),
        *text(0, found)[1:],
        *end("tool_use"),
    )
    a = begun("anthropic", "anthropic", Critical("claude-trusted"), durable=durable).feed(body)
    assert (a.commit().session.state, count_of_dispatches(a)) == ("FAILED", 1)
    assert b"deploy" not in a.data and [e.kind for e in of(a.records, EventRecord)] == [
        "protocol_error"
    ]


def test_a_critical_call_that_is_blocked_is_so_for_the_other_model_too() -> None:
    judge = {"use": "model", "model": "demo-judge"}
    steps = [{"at": 0.5, "do": "defer", "model": "gpt-trusted"}]
    policy = Control(critical=[{"tool": "deploy*"}], monitors=[judge], steps=steps)
    a = (
        begun("openai", "openai", policy)
        .feed(answer("openai", "", ("call_2", "look", {})))
        .judge(0.6)
    )
    assert count_of_dispatches(a) == 2
    a.feed(answer("openai", "", DEPLOY)).judge(0.0)
    assert calls_of(ended(a)) == [] and a.verdicts == [("look", "discarded"), ("deploy", "block")]
