"""`on_block: continue`: where blocked calls leave a client nothing to run, its model is given them
back and answers again, within the same message."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from policy.base import ALLOW, AskJudge, Block, Judgement, JudgeQuestion, ToolCall, Verdict
from policy.loading import load
from policy.session.choosing import session_of
from policy.session.continuing import CONTINUED, STOPPED
from policy.session.effects import SendUpstream
from protocol.records import AttemptRecord, EventRecord, ToolCallRecord
from protocol.request import DialectName
from settings.config import Config, PolicyStep
from tests.support.checks.blocked import (
    BAD,
    CLIENTS,
    GOOD,
    SEAL,
    TOOLS,
    UPSTREAMS,
    NoDeletes,
    answered,
    begun,
)
from tests.support.checks.deferred import check_frames, of
from tests.support.clients.answering import Answer
from tests.support.clients.sdk_answers import WAYS
from tests.support.json_values import Json
from tests.support.upstreams import responses, turns
from tests.support.upstreams.cases import calls_of, stop_of, text_of
from tests.support.worker_calls import call_info

NOTICE = "[Sluice blocked the tool call 'bash': rule 'deletes' of the policy 'p' (destructive, rm)."


def requests(a: Answer) -> int:
    return sum(isinstance(o, SendUpstream) for o in a.outputs)


def events(a: Answer, kind: str) -> list[str]:
    return [e.detail for e in of(a.records, EventRecord) if e.kind == kind]


def blocked(a: Answer, upstream: DialectName, times: int = 1, **more: Any) -> Answer:
    for n in range(times):
        call = (f"toolu_bad{n}", "bash", {"command": f"rm -rf ~/{n}"})
        a.feed(answered(upstream, f"Try {n}.", [call], **more))
    return a


def read_back(client: DialectName, a: Answer, *, streams: bool) -> tuple[str, list[Any], str]:
    """Text, calls and stop reason as the client has them."""
    if client == "responses":
        text = a.data.decode()
        return text, ["look"] if '"type":"function_call"' in text else [], ""
    found = [a.read(way) for way in WAYS[client][streams]]
    first = found[0]
    assert all(text_of(said) == text_of(first) for said in found)
    return text_of(first), [name for _, name, _ in calls_of(first)], stop_of(first)


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("thought", ["", "Hm."])
def test_the_model_goes_on_and_its_client_gets_one_answer(
    client: DialectName, upstream: DialectName, streams: bool, thought: str
) -> None:
    a = begun(client, upstream, streams=streams)
    form: Any = {"thought": thought, "streams": streams}
    a.feed(answered(upstream, "I delete.", [BAD], **form), streams=streams)
    assert requests(a) == 2 and a.session.state == "ACTIVE"
    sent = json.dumps(a.dispatched[-1])
    # the call as its model made it, with what seals it, and a failed result that says why
    assert "I delete." in sent and "rm -rf ~" in sent and NOTICE in sent
    assert "go on without it" in sent and "ask the user" not in sent
    assert ("is_error" in sent) is (upstream == "anthropic")
    assert (SEAL in sent) is bool(thought)
    a.feed(answered(upstream, "I look.", [GOOD], **form), streams=streams)
    assert (requests(a), a.session.state, a.session.stop_reason) == (2, "ENDED", "tool_use")
    if streams:
        check_frames(a)
    text, calls, stop = read_back(client, a, streams=streams)
    assert text.index("I delete.") < text.index(NOTICE) < text.index("I look.")
    assert calls == ["look"] and stop in ("", "tool_calls", "tool_use")
    assert "rm -rf ~" not in a.data.decode()
    assert [(r.name, r.verdict) for r in of(a.records, ToolCallRecord)] == [
        ("bash", "block"),
        ("look", "allow"),
    ]
    attempts = of(a.records, AttemptRecord)
    assert [(r.segment, r.attempt, r.kind, r.chosen) for r in attempts] == [
        (0, 0, "first", True),
        (1, 0, "continue", True),
    ]
    assert attempts[0].first_seq == 1 and attempts[1].first_seq == attempts[0].end_seq + 1
    assert attempts[1].end_seq >= attempts[1].first_seq
    # all tokens are on record; the client sees what its window holds
    spent, shown = a.session.spent, a.session.usage
    assert spent.input_tokens == sum(r.input_tokens for r in attempts)
    assert spent.output_tokens == shown.output_tokens == sum(r.output_tokens for r in attempts)
    assert shown.input_tokens == attempts[1].input_tokens


@pytest.mark.parametrize("client", CLIENTS)
def test_a_text_ends_the_turn_as_ever(client: DialectName) -> None:
    a = blocked(begun(client, "anthropic"), "anthropic")
    a.feed(answered("anthropic", "I leave it."))
    assert (requests(a), a.session.state, a.session.stop_reason) == (2, "ENDED", "end_turn")


@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_a_model_that_insists_costs_three_requests(upstream: DialectName) -> None:
    a = blocked(begun("anthropic", upstream), upstream, 3)
    assert (requests(a), a.session.state, a.session.stop_reason) == (3, "ENDED", "end_turn")
    text, calls, _ = read_back("anthropic", a, streams=True)
    assert "ended this turn: 3 answers in a row had only blocked tool calls" in text
    assert calls == [] and text.count(NOTICE) == 3
    assert len(events(a, CONTINUED)) == 2 and "3 answers in a row" in events(a, STOPPED)[0]
    assert len(of(a.records, AttemptRecord)) == 3
    assert a.session.spent.output_tokens == sum(
        r.output_tokens for r in of(a.records, AttemptRecord)
    )


def history(times: int, *, user: str = "") -> list[Json]:
    """Rounds in which a call was blocked and another ran."""
    messages: list[Json] = [{"role": "user", "content": "go"}]
    for n in range(times):
        call = {"type": "tool_use", "id": f"toolu_old{n}", "name": "look", "input": {}}
        said = {"type": "text", "text": f"I try.\n\n{NOTICE} It was not executed.]"}
        result = {"type": "tool_result", "tool_use_id": f"toolu_old{n}", "content": "ok"}
        messages.append({"role": "assistant", "content": [said, call]})
        messages.append({"role": "user", "content": [result]})
    return [*messages, *([{"role": "user", "content": user}] if user else [])]


@pytest.mark.parametrize(
    ("times", "user", "expected"), [(18, "", 2), (19, "", 1), (400, "", 1), (400, "Go on.", 2)]
)
def test_twenty_blocked_calls_since_the_user_spoke_end_the_turn(
    times: int, user: str, expected: int
) -> None:
    a = blocked(begun("anthropic", "anthropic", messages=history(times, user=user)), "anthropic")
    assert requests(a) == expected
    if expected == 1:
        text, _, _ = read_back("anthropic", a, streams=True)
        assert f"ended this turn: {times + 1} calls were blocked" in text
        assert a.session.state == "ENDED"


def test_many_calls_of_one_answer_count_each() -> None:
    calls = [(f"toolu_{n}", "bash", {"command": f"rm -rf {n}"}) for n in range(20)]
    a = begun("anthropic", "anthropic").feed(answered("anthropic", "All.", calls))
    assert (requests(a), a.session.state) == (1, "ENDED")
    a = begun("anthropic", "anthropic").feed(answered("anthropic", "All.", calls[:19]))
    assert requests(a) == 2
    results = a.dispatched[-1]["messages"][-1]["content"]
    assert [r["tool_use_id"] for r in results] == [identity for identity, _, _ in calls[:19]]


LOOK = {"type": "tool", "name": "bash"}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}


@pytest.mark.parametrize(
    ("calls", "asked"),
    [
        ([BAD, GOOD], {}),
        ([GOOD, BAD], {}),
        ([("toolu_x", "ba sh", {"command": "rm -rf /"})], {}),
        ([BAD], {"tool_choice": {"type": "any"}}),
        ([BAD], {"tool_choice": LOOK}),
    ],
)
def test_what_cannot_go_on_ends_as_ever(calls: Any, asked: Json) -> None:
    a = begun("anthropic", "anthropic", **asked).feed(answered("anthropic", "So.", calls))
    assert (requests(a), a.session.state) == (1, "ENDED")
    assert not of(a.records, AttemptRecord) and not events(a, CONTINUED)


@pytest.mark.parametrize("reason", ["max_tokens", "refusal"])
def test_an_answer_that_was_cut_is_not_given_back(reason: str) -> None:
    chunks = [
        c.replace(b'"stop_reason": "tool_use"', f'"stop_reason": "{reason}"'.encode())
        for c in answered("anthropic", "So.", [BAD])
    ]
    a = begun("anthropic", "anthropic").feed(chunks)
    assert (requests(a), a.session.state) == (1, "ENDED")


@pytest.mark.parametrize("place", [0, 1])
def test_stop_in_one_policy_decides_for_its_series(place: int) -> None:
    series = [NoDeletes(), NoDeletes()]
    series[place].on_block = "stop"
    a = blocked(begun("anthropic", "anthropic", *series), "anthropic")
    assert (requests(a), a.session.state) == (1, "ENDED")


def test_one_call_per_answer_is_one_in_each_answer() -> None:
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    a = blocked(begun("anthropic", "anthropic", tool_choice=choice), "anthropic")
    a.feed(answered("anthropic", "I look.", [GOOD]))
    assert a.verdicts == [("bash", "block"), ("look", "allow")]


def test_custom_tools_go_back_in_their_own_form() -> None:
    tools = [{"type": "custom", "name": "bash"}, TOOLS["responses"][1]]
    items = [
        {
            "type": "custom_tool_call",
            "call_id": "call_1",
            "name": "bash",
            "input": "rm -rf ~",
            "status": "completed",
        }
    ]
    a = begun("responses", "responses", tools=tools)
    a.feed(turns.events(responses.frames(responses.events(items))))
    assert requests(a) == 2
    call, output = a.dispatched[-1]["input"][-2:]
    assert (call["type"], call["input"]) == ("custom_tool_call", "rm -rf ~")
    assert output["type"] == "custom_tool_call_output" and NOTICE in output["output"]


class Judged(NoDeletes):
    """Asks a judge about each call."""

    asks = True

    def on_tool_call(self, call: ToolCall) -> Verdict:
        return AskJudge(JudgeQuestion("demo-judge", "s", "p", "n", 0.5, None, {}))

    def on_judgement(self, call: ToolCall, judgement: Judgement) -> Verdict:
        return Block("judge") if (judgement.probability or 0) > 0.5 else ALLOW


@pytest.mark.parametrize("durable", [True, False])
def test_what_follows_waits_for_every_verdict(durable: bool) -> None:
    """Judged late or early, committed late or early: the same requests and the same answer."""
    found = []
    for is_late in (True, False):
        a = begun("anthropic", "anthropic", Judged(), durable=durable)
        for said, calls, probability in ("Two.", [BAD, GOOD], 0.9), ("One.", [GOOD], 0.1):
            chunks = answered("anthropic", said, calls)
            for chunk in chunks:
                a._fed[a._seq] = chunk
                a.session.chunks(a._seq, [chunk])
                a._passed()
                if not is_late:
                    a.judge(probability).commit()
            a.session.eof(a._seq)
            a._passed()
            a.judge(probability).commit()
        assert (requests(a), a.session.state, a.session.stop_reason) == (2, "ENDED", "tool_use")
        kinds = (AttemptRecord, EventRecord)
        rows = [r for r in a.records if isinstance(r, kinds)]
        found.append((a.session.out.hash.digest, sorted(map(repr, rows))))
    assert found[0] == found[1]


def test_one_call_that_a_judge_lets_pass_is_the_clients() -> None:
    a = begun("anthropic", "anthropic", Judged()).feed(answered("anthropic", "Two.", [BAD, GOOD]))
    first, second = a.asks
    a.asks = []
    a.session.judgement(first.block, first.step, Judgement(probability=0.9), 1)
    a.session.judgement(second.block, second.step, Judgement(probability=0.1), 1)
    a._take()
    assert (requests(a), a.session.state, a.session.stop_reason) == (1, "ENDED", "tool_use")


def failing(kind: str, a: Answer) -> Answer:
    if kind == "status":
        return a.refuse(529, b'{"type":"error","error":{"type":"overloaded_error","message":"m"}}')
    if kind == "unreachable":
        return a.fail()
    a.session.eof(a._seq)
    return a._passed()


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("kind", ["status", "unreachable", "empty"])
def test_an_upstream_that_does_not_go_on_leaves_the_answer_whole(
    client: DialectName, kind: str
) -> None:
    a = failing(kind, blocked(begun(client, "anthropic"), "anthropic"))
    assert (a.session.state, a.session.stop_reason) == ("ENDED", "end_turn")
    assert "the upstream did not go on" in events(a, STOPPED)[0]
    text, calls, _ = read_back(client, a, streams=True)
    assert NOTICE in text and calls == []
    assert [r.kind for r in of(a.records, AttemptRecord)] == ["first", "continue"]


def test_a_second_answer_that_breaks_off_is_an_error() -> None:
    a = blocked(begun("anthropic", "anthropic"), "anthropic")
    chunks = answered("anthropic", "I look.", [GOOD])[:-3]
    a.feed(chunks)
    assert a.session.state == "FAILED" and b'"type":"error"' in a.data
    assert [r.kind for r in of(a.records, AttemptRecord)] == ["first", "continue"]


def test_a_connection_that_breaks_behind_the_end_changes_nothing() -> None:
    a = begun("anthropic", "anthropic")
    for chunk in answered("anthropic", "I delete.", [BAD]):
        a._fed[a._seq] = chunk
        a.session.chunks(a._seq, [chunk])
        a._passed()
    assert requests(a.fail()) == 2


@pytest.mark.parametrize("what", ["body", "chunks", "large"])
def test_what_redis_lost_or_is_too_large_ends_as_ever(what: str) -> None:
    a = begun("anthropic", "anthropic")
    chunks = answered("anthropic", "I delete.", [BAD])
    for number, chunk in enumerate(chunks):
        a.session.chunks(number + 1, [chunk])
    a.session.eof(len(chunks) + 1)
    body = None if what == "body" else a.body
    given = [] if what == "chunks" else chunks * (10_000 if what == "large" else 1)
    assert a.session.drain().lookup is not None
    a.session.segment(body, given)
    a._take()
    assert (a.session.state, a.session.stop_reason) == ("ENDED", "end_turn")
    assert "it cannot be sent back" in events(a, STOPPED)[0]


def test_an_old_call_ends_as_ever() -> None:
    a = begun("anthropic", "anthropic")
    a.session.at(a.session.call.at + 601_000)
    blocked(a, "anthropic")
    assert (requests(a), a.session.state) == (1, "ENDED")
    assert events(a, STOPPED) == ["-1: the call is too old"]


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ({"name": "coding-agent"}, "continue"),
        ({"name": "office"}, "continue"),
        ({"name": "coding-agent", "on_block": "stop"}, "stop"),
        ({"name": "coding-agent-judged", "judge": "demo-judge"}, "stop"),
        (
            {"name": "coding-agent-judged", "judge": "demo-judge", "on_block": "continue"},
            "continue",
        ),
        ({"name": "strict"}, "stop"),
        ({"name": "cloud"}, "stop"),
        ({"name": "database-readonly"}, ""),
        ({"name": "cloud", "on_block": "continue"}, "continue"),
    ],
)
def test_presets_say_what_follows_a_block(step: Json, expected: str) -> None:
    series = [PolicyStep.model_validate({"use": "preset", **step})]
    made, _ = load(series, session_version="1")
    assert {policy.on_block for policy in made} == {expected}
    session = session_of(call_info(), made, Config())
    assert type(session).__name__ == ("ContinuingSession" if expected == "continue" else "Session")


def test_it_is_in_the_revision_and_has_two_values() -> None:
    step = {"use": "tool_rules", "deny": [{"tool": "x"}]}
    found = {
        load([PolicyStep.model_validate(step | more)], session_version="1")[1]
        for more in ({}, {"on_block": "stop"}, {"on_block": "continue"})
    }
    assert len(found) == 3
    with pytest.raises(ValidationError):
        PolicyStep.model_validate(step | {"on_block": "go on"})
