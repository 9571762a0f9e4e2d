"""Deferred turns: what comes out, and what is on record, does not depend on when a judge answers or
how a connection ends."""

import json
from typing import Any

import pytest

from policy.base import Judgement
from policy.builtin.control import Control
from protocol.records import AttemptRecord, BlockRecord, EventRecord
from protocol.request import DialectName
from tests.support.checks.deferred import (
    DIALECTS,
    OTHER,
    TOOLS,
    Critical,
    Judged,
    answer,
    begun,
    check_frames,
    count_of_dispatches,
    ended,
    of,
)
from tests.support.clients.answering import Answer
from tests.support.clients.sdk import responses_answer
from tests.support.upstreams.cases import began, calls_of, client_call, frames, text, text_of
from tests.support.upstreams.frames import end

DEPLOY = ("call_1", "deploy", {"to": "x"})


def fed(a: Answer, body: bytes, parts: int | None = None) -> Answer:
    """Take the first events of an upstream's stream, and not its end."""
    for part in body.split(b"\n\n")[:-1][:parts]:
        a.session.chunks(a._seq, [part + b"\n\n"])
        a._passed()
    return a


def judged(a: Answer, **by_block: float) -> Answer:
    """Answer the open questions about some blocks."""
    for ask in [ask for ask in a.asks if str(ask.block) in by_block]:
        a.asks.remove(ask)
        a.session.judgement(ask.block, ask.step, Judgement(probability=by_block[str(ask.block)]), 1)
        a._take()
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
def test_the_result_of_an_earlier_call_waits_with_the_turn(is_early: bool) -> None:
    use = {
        "type": "server_tool_use",
        "id": "srvtoolu_1",
        "name": "web_search",
        "input": {"query": "x"},
    }
    messages = [{"role": "user", "content": "go"}, {"role": "assistant", "content": [use]}]
    search: dict[str, Any] = {"type": "web_search_20250305", "name": "web_search"}
    result = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    block = (
        {"type": "content_block_start", "index": 0, "content_block": result},
        {
            "type": "content_block_stop",
            "index": 0,
        },
    )
    body = frames(began(), *block, *client_call(1, "toolu_1", "deploy", {}), *end("tool_use"))
    a = begun(
        "anthropic",
        "anthropic",
        Judged("claude-trusted"),
        messages=messages,
        tools=[*TOOLS["anthropic"], search],
    )
    fed(a, body, 3)
    if is_early:
        judged(a, **{"0": 0.0})
    first = fed(a, b"\n\n".join(body.split(b"\n\n")[3:]))
    first.session.eof(first._seq)
    judged(first._passed(), **{"0": 0.0, "1": 0.9})
    assert [type(output).__name__ for output in first.outputs] == [
        "SendUpstream",
        "MessageStart",
        "SendUpstream",
    ]
    assert first.verdicts == [("web_search", "discarded"), ("deploy", "discarded")]


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


@pytest.mark.parametrize("order", ["01", "10"])
def test_the_first_call_of_the_answer_counts_and_not_the_first_that_a_judge_answered(
    order: str,
) -> None:
    """Its model is asked, it is what the notice is about, and ids are like its own."""
    a = begun("openai", "openai", Judged("claude-trusted"))
    a.feed(
        answer("openai", "", ("call_a", "deploy", {"to": "a"}), ("function-9", "look", {"to": "b"}))
    )
    for block in order:
        judged(a, **{block: 0.9})
    assert [e.detail for e in of(a.records, EventRecord) if e.kind == "deferred"] == [
        "-1: block 0, release early"
    ]
    again = begun("openai", "openai", Judged("claude-trusted"))
    again.feed(
        answer("openai", "", ("call_a", "deploy", {"to": "a"}), ("function-9", "look", {"to": "b"}))
    )
    for block in order:
        judged(again, **{block: 0.9})
    a.feed(answer("anthropic", "", ("toolu_1", "look", {}))).judge(0.1)
    assert calls_of(ended(a))[0][0].startswith("call_")
    again.refuse(500)
    assert "tool call 'deploy'" in text_of(ended(again))


@pytest.mark.parametrize("first", DIALECTS)
@pytest.mark.parametrize("second", DIALECTS)
@pytest.mark.parametrize("streams", [True, False])
def test_a_client_of_responses_gets_one_response(
    first: DialectName, second: DialectName, streams: bool
) -> None:
    a = begun("responses", first, Critical(OTHER[second]), streams=streams)
    a.feed(answer(first, "I deploy.", DEPLOY)).feed(
        answer(second, "I look first.", ("call_2", "look", {"at": "status"}))
    )
    if streams:
        check_frames(a)
    said = responses_answer(a.data, stream=streams)
    calls = [(i.name, json.loads(i.arguments)) for i in said.output if i.type == "function_call"]
    assert (said.status, said.model, calls) == (
        "completed",
        "gpt-x" if first == "openai" else "x",
        [("look", {"at": "status"})],
    )
    assert said.output_text == ("I deploy." if streams else "I look first.")
