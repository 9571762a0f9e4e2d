"""The policy `control`: which monitors speak, how their scores become one, what is done about it,
and what comes onto record."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from policy.base import (
    Allow,
    AskJudge,
    Block,
    Context,
    Defer,
    Judgement,
    JudgeQuestion,
    Policy,
    ToolCall,
    Verdict,
)
from policy.builtin.control import Control
from policy.loading import load, make
from policy.monitors import table
from policy.monitors.base import Monitor
from policy.scores import AuditRule, ProtocolChoice, Score
from policy.session.effects import SessionEffects
from policy.session.session import Session
from protocol.bounds import MAX_ASKS
from protocol.errors import PolicyFailed
from protocol.records import (
    DecisionRecord,
    JudgementFacts,
    JudgementRecord,
    ScoreRecord,
    ToolCallRecord,
)
from protocol.request import ChatRequest
from settings.config import Config, PolicyStep
from tests.support.checks.kinds import of_kind
from tests.support.checks.session_runs import DONE, REQUEST, call_chunk, chunk, texts
from tests.support.json_values import Json, as_json
from tests.support.worker_calls import call_info

CALL = ToolCall(1, 0, "t", "bash", '{"command": "ls"}', {"command": "ls"}, None, nonce="mark")
NEUTRAL = "[Sluice blocked the tool call 'bash'. It was not executed. Call c.]"


class Fixed(Monitor):
    """Says what its option says: a number, `none`, or what goes wrong."""

    name = "fixed"

    def __init__(self, says: Any = 0.0, why: str = "") -> None:
        self.says, self.why = says, why

    def on_call(self, call: ToolCall, context: Context) -> Any:
        match self.says:
            case "none":
                return None
            case "raise":
                raise RuntimeError("the prompt stands in here")
            case "odd":
                return "0.9"
            case "error":
                return Score(self.name, 0.1, error="broken")
            case "ask":
                return AskJudge(JudgeQuestion("m", "s", "p", "n", 0.5, None, {}))
        return Score("another name", self.says, {"x": 1.0}, self.why)


class Asks(Fixed):
    """Asks a judge of that name, and says what that says."""

    name = "asks"
    asks = True

    def __init__(self, judge: str = "m", answers: str = "") -> None:
        self.judge, self.answers = judge, answers

    def on_call(self, call: ToolCall, context: Context) -> AskJudge:
        return AskJudge(JudgeQuestion(self.judge, "s", "p", call.nonce, self.threshold, None, {}))

    def on_answer(self, call: ToolCall, judgement: Judgement) -> Any:
        if self.answers == "raise":
            raise RuntimeError("no")
        if self.answers == "ask":
            return self.on_call(call, None)  # type: ignore[arg-type]
        return Score(self.name, judgement.probability, error=judgement.error)


@pytest.fixture(autouse=True)
def monitors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two more monitors than ship."""
    monkeypatch.setattr(
        "policy.builtin.control.MONITORS", {**table.MONITORS, "fixed": Fixed, "asks": Asks}
    )


def fixed(*says: Any, **more: Any) -> list[Json]:
    return [
        {"use": "fixed", "name": f"m{place}", "says": one, **more} for place, one in enumerate(says)
    ]


def control(*monitors: Json, **options: Any) -> Control:
    request = ChatRequest(dialect="openai", model="demo")
    return Control(monitors=monitors, **options).for_call(Context("c", "root", "k", "", request))


def choice_of(verdict: Verdict) -> ProtocolChoice:
    assert not isinstance(verdict, AskJudge) and verdict.choice is not None
    return verdict.choice


STEPS = [
    {"at": 0.9, "do": "block"},
    {"at": 0.5, "do": "defer", "model": "trusted"},
    {"at": 0.2, "do": "allow"},
]


@pytest.mark.parametrize(
    ("score", "kind", "threshold"),
    [
        (0.0, Allow, None),
        (0.19, Allow, None),
        (0.2, Allow, 0.2),
        (0.5, Defer, 0.5),
        (0.89, Defer, 0.5),
        (0.9, Block, 0.9),
        (1, Block, 0.9),
    ],
)
def test_the_highest_step_that_is_reached_counts(
    score: float, kind: type, threshold: float | None
) -> None:
    verdict = control(*fixed(score), steps=STEPS).on_tool_call(CALL)
    assert type(verdict) is kind
    choice = choice_of(verdict)
    assert (choice.protocol, choice.score, choice.threshold, choice.action) == (
        "steps",
        score,
        threshold,
        kind.__name__.lower(),
    )
    assert choice.scores == (Score("m0", float(score), {"x": 1.0}),), (
        "under the name that the series gives it"
    )
    if isinstance(verdict, Defer):
        assert (verdict.model, verdict.reason) == ("trusted", "score")


def test_what_runs_already_or_was_deferred_before_is_blocked_where_it_would_be_deferred() -> None:
    policy = control(*fixed(0.6), steps=STEPS)
    for call in (replaced(executor="provider"), replaced(is_deferred=True)):
        verdict = policy.on_tool_call(call)
        assert isinstance(verdict, Block) and choice_of(verdict).action == "block"


def replaced(**changes: Any) -> ToolCall:
    return msgspec.structs.replace(CALL, **changes)


@pytest.mark.parametrize(
    ("options", "score"),
    [
        ({}, 0.8),
        ({"combine": "mean"}, 0.5),
        ({"combine": "weights", "weights": {"m0": 3, "m1": 1}}, 0.35),
        ({"combine": "weights", "weights": {"m0": 3}}, 0.35),
        ({"combine": "weights", "weights": {"m0": 0, "m1": 0}}, 0.8),
        ({"combine": "logit", "weights": {"m1": 10}, "intercept": -8}, 0.5),
        ({"combine": "logit", "weights": {"m0": 1000}, "intercept": 1000}, 1.0),
        ({"combine": "logit", "weights": {"m0": -1000}, "intercept": -1000}, 0.0),
    ],
)
def test_scores_become_one(options: Json, score: float) -> None:
    choice = choice_of(control(*fixed(0.2, 0.8), **options).on_tool_call(CALL))
    assert choice.score == pytest.approx(score)
    # who abstains has no part in it
    also = choice_of(control(*fixed(0.2, 0.8, "none"), **options).on_tool_call(CALL))
    assert (also.score, len(also.scores)) == (choice.score, 2)


@pytest.mark.parametrize(
    "says",
    [
        "raise",
        "odd",
        "error",
        "ask",
        -0.1,
        1.1,
        float("nan"),
        float("inf"),
        True,
        None,
        "0.5",
        [],
        {},
    ],
)
def test_a_monitor_that_fails_counts_as_the_worst(
    says: Any, caplog: pytest.LogCaptureFixture
) -> None:
    verdict = control(*fixed(0.1, says), threshold=0.5).on_tool_call(CALL)
    assert isinstance(verdict, Block) and verdict.reason == "monitor_fault"
    [sound, fault] = choice_of(verdict).scores
    assert (sound.value, fault.value) == (0.1, None) and fault.error
    assert "the prompt" not in fault.error + fault.why + caplog.text
    [record] = caplog.records
    assert (record.message, record.__dict__["monitor"], record.__dict__["error"]) == (
        "monitor fault",
        "m1",
        fault.error,
    )
    ignoring = control(*fixed(0.1, says), threshold=0.5, on_fault="ignore").on_tool_call(CALL)
    assert isinstance(ignoring, Allow) and choice_of(ignoring).score == 0.1
    assert caplog.records[-1].__dict__["action"] == "ignore", "nobody can say that he was not told"
    honest = control(*fixed(0.7, says), threshold=0.5).on_tool_call(CALL)
    assert isinstance(honest, Block) and honest.reason == "score", (
        "it would have been blocked without the fault"
    )


def test_long_words_of_a_monitor_are_cut() -> None:
    class Talks(Fixed):
        def on_call(self, call: ToolCall, context: Context) -> Score:
            return Score("m", 0.5, {f"d{n}": 1.0 for n in range(100)}, "x" * 10_000)

    policy = control(*fixed(0.1))
    policy._watches = [policy._watches[0]._replace(monitor=Talks())]
    [score] = choice_of(policy.on_tool_call(CALL)).scores
    assert (len(score.dims), len(score.why)) == (32, 2_000)


def test_an_error_on_record_is_a_word() -> None:
    class Quotes(Fixed):
        def on_call(self, call: ToolCall, context: Context) -> Score:
            return Score("m", None, error=f"cannot read {call.arguments}")

    policy = control(*fixed(0.1))
    policy._watches = [policy._watches[0]._replace(monitor=Quotes())]
    assert [score.error for score in choice_of(policy.on_tool_call(CALL)).scores] == ["fault"]


def test_critical_calls_are_not_measured() -> None:
    rules = [{"tool": "deploy_*"}, {"name": "network", "tool": "bash", "argument_matches": "curl"}]
    policy = control(
        *fixed("raise"), critical=rules, on_critical={"do": "defer", "model": "trusted"}
    )
    assert policy.defers_to == ("trusted",)
    verdict = policy.on_tool_call(replaced(name="deploy_now"))
    assert isinstance(verdict, Defer) and (verdict.model, verdict.reason, verdict.rule) == (
        "trusted",
        "critical",
        "critical[0]",
    )
    named = policy.on_tool_call(
        replaced(arguments='{"command": "curl x"}', value={"command": "curl x"})
    )
    assert isinstance(named, Defer) and named.rule == "network"
    assert (choice_of(named).protocol, choice_of(named).score, choice_of(named).scores) == (
        "critical",
        None,
        (),
    )
    blocked = control(critical=rules).on_tool_call(replaced(name="deploy_now"))
    assert isinstance(blocked, Block) and blocked.feedback == "silent"
    trusted = policy.on_tool_call(replaced(name="deploy_now", is_deferred=True))
    assert choice_of(trusted).protocol == "steps", (
        "the model that is trusted with it may make it, and is measured"
    )


def test_critical_rules_know_places() -> None:
    rules = [
        {
            "shell": {
                "effects": ["write", "delete"],
                "scope": ["system", "home", "credentials"],
                "unsure": True,
            }
        }
    ]

    def is_critical(command: str, **places: Any) -> bool:
        call = replaced(arguments=json.dumps({"command": command}), value={"command": command})
        return isinstance(control(critical=rules, **places).on_tool_call(call), Block)

    assert is_critical("rm -r /etc/x") and not is_critical("rm -r build")
    assert is_critical("rm -r /home/me/papers", home="/home/me") and not is_critical(
        "rm -r /home/me/p/build", project="/home/me/p"
    )
    assert is_critical("$(cat plan) -rf x"), "what cannot be known is critical"
    assert control(critical=rules).weight > 1


def test_a_call_with_more_than_is_looked_at_is_critical() -> None:
    rules = [{"paths": {"scope": ["credentials"]}}]
    value = {"paths": [*(f"a{n}.txt" for n in range(64)), "~/.ssh/id_rsa"]}
    call = replaced(name="read_files", arguments=json.dumps(value), value=value)
    assert isinstance(control(critical=rules).on_tool_call(call), Block)
    assert isinstance(
        control(critical=[rules[0] | {"tool": "write_*"}]).on_tool_call(call), Allow
    ), "a rule about other tools"


# --- who asks ---


def asks(name: str, **more: Any) -> Json:
    return {"use": "asks", "name": name, "judge": name, **more}


def question(verdict: Verdict) -> JudgeQuestion:
    assert isinstance(verdict, AskJudge)
    return verdict.question


def test_several_ask_one_after_the_other_behind_those_that_need_nobody() -> None:
    policy = control(asks("a"), *fixed(0.1), asks("b"), threshold=0.5)
    assert (policy.asks, policy.asks_again) == (True, True)
    first = question(policy.on_tool_call(CALL))
    assert (first.model, first.threshold) == ("a", 0.5)
    assert (
        question(policy.on_judgement(replaced(nonce="other"), Judgement(probability=0.2))).nonce
        == "other"
    )
    verdict = policy.on_judgement(CALL, Judgement(probability=0.3))
    assert [(score.monitor, score.value) for score in choice_of(verdict).scores] == [
        ("m0", 0.1),
        ("a", 0.2),
        ("b", 0.3),
    ]
    assert isinstance(verdict, Allow)
    assert isinstance(policy.on_judgement(CALL, Judgement(probability=0.3)), Block), (
        "an answer that nobody waits for"
    )


def test_two_calls_of_one_answer_are_measured_apart() -> None:
    policy = control(asks("a"), asks("b"), threshold=0.5)
    other = replaced(block=2)
    assert (
        question(policy.on_tool_call(CALL)).model
        == question(policy.on_tool_call(other)).model
        == "a"
    )
    assert question(policy.on_judgement(other, Judgement(probability=0.1))).model == "b"
    assert question(policy.on_judgement(CALL, Judgement(probability=0.4))).model == "b"
    assert choice_of(policy.on_judgement(CALL, Judgement(probability=0.2))).score == 0.4
    assert choice_of(policy.on_judgement(other, Judgement(probability=0.2))).score == 0.2


@pytest.mark.parametrize("answers", ["raise", "ask"])
def test_an_answer_that_cannot_be_used_is_a_fault(answers: str) -> None:
    policy = control(asks("a", answers=answers), threshold=0.5)
    policy.on_tool_call(CALL)
    verdict = policy.on_judgement(CALL, Judgement(probability=0.0))
    assert isinstance(verdict, Block) and verdict.reason == "monitor_fault"


# --- in a session ---


def played(policies: Sequence[Policy], *probabilities: float | str) -> SessionEffects:
    """What becomes of a call of `ls`, where judges answer that."""
    call = call_info(nonce="nonce", max_arguments_bytes=1000)
    session = Session(call, policies, Config())
    session.begin(as_json(REQUEST))
    session.drain()
    session.chunks(
        1, [call_chunk(0, "bash", '{"command": "ls"}'), chunk(finish="tool_calls"), DONE]
    )
    taken = session.drain()
    facts = JudgementFacts(input_tokens=300, output_tokens=20)
    marks = set()
    for said in probabilities:
        [ask] = taken.asks
        marks.add(ask.question.nonce)
        answer = (
            Judgement(error=said)
            if isinstance(said, str)
            else Judgement(probability=said, explanation="w", latency_ms=9, facts=facts)
        )
        session.judgement(ask.block, ask.step, answer, 7)
        later = session.drain()
        later.records[:0], later.outputs[:0] = taken.records, taken.outputs
        taken = later
    assert len(marks) == len(probabilities), "each question has a mark of its own"
    return taken


def series(*steps: Json) -> list[Policy]:
    return load([PolicyStep.model_validate(step) for step in steps], session_version="7")[0]


MODELS = [
    {"use": "model", "model": "demo-judge"},
    {"use": "model", "name": "second", "model": "demo-judge", "view": "call"},
]


def test_scores_and_the_choice_are_on_record_with_the_call() -> None:
    step = {
        "use": "control",
        "monitors": [*fixed(0.2), *MODELS],
        "threshold": 0.6,
        "audit": {"rate": 1, "budget": {"count": 3}},
    }
    taken = played(series(step), 0.3, 0.7)
    scores = of_kind(taken.records, ScoreRecord)
    assert [
        (s.step, s.monitor, s.policy, s.value, s.why, s.latency_ms, s.input_tokens, s.output_tokens)
        for s in scores
    ] == [
        (0, "m0", "control", 0.2, "", None, None, None),
        (1, "model", "control", 0.3, "w", 9, 300, 20),
        (2, "second", "control", 0.7, "w", 9, 300, 20),
    ]
    [made] = of_kind(taken.records, DecisionRecord)
    assert (made.policy, made.protocol, made.action, made.score, made.threshold) == (
        "control",
        "threshold",
        "block",
        0.7,
        0.6,
    )
    assert (made.audit, made.audit_rate, made.audit_budget) == ("sampled", 1.0, 3)
    [call] = of_kind(taken.records, ToolCallRecord)
    assert (call.verdict, call.reason, call.policy) == ("block", "score", "control")
    assert len(of_kind(taken.records, JudgementRecord)) == 2
    assert texts(taken.outputs) == NEUTRAL


def test_what_a_rule_blocks_no_monitor_lets_pass() -> None:
    rules = {"use": "tool_rules", "deny": [{"name": "no-bash", "tool": "bash"}]}
    for steps in (
        ({"use": "control", "monitors": fixed(0.0)}, rules),
        (rules, {"use": "control", "monitors": [asks("a")]}),
    ):
        [call] = of_kind(played(series(*steps)).records, ToolCallRecord)
        assert (call.verdict, call.policy, call.rule) == ("block", "tool_rules", "no-bash")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, NEUTRAL),
        ({"feedback": "reason"}, "its risk score is too high"),
        ({"feedback": "message"}, "its risk score is too high (0.70, the limit is 0.60)"),
        (
            {"feedback": "message", "message": "Ask the operators."},
            "'bash': Ask the operators. It was not executed",
        ),
    ],
)
def test_the_model_is_told_no_more_than_feedback_says(options: Json, said: str) -> None:
    taken = played(
        series(
            {
                "use": "control",
                "monitors": fixed(0.7, why="the secret cause"),
                "threshold": 0.6,
                **options,
            }
        )
    )
    assert said in texts(taken.outputs)
    assert "secret cause" not in texts(taken.outputs) and "m0" not in texts(taken.outputs)


def test_a_series_asks_no_more_often_than_there_may_be_questions() -> None:
    steps = [{"use": "control", "monitors": [asks("a"), asks("b")]}] * (MAX_ASKS // 2)
    taken = played(series(*steps, {"use": "tool_judge", "model": "demo-judge"}), *[0.1] * MAX_ASKS)
    assert [r.reason for r in taken.records if isinstance(r, ToolCallRecord)] == ["too_many_asks"]
    keys = [(r.block, r.step) for r in taken.records if isinstance(r, ScoreRecord)]
    assert len(set(keys)) == len(keys) == MAX_ASKS


# --- options ---


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "give `monitors`, `critical` or both"),
        (
            {"monitors": [{"use": "modle"}]},
            r"monitors\.0\.use: 'modle' is no monitor .*did you mean 'model'\?",
        ),
        ({"monitors": [{"use": "model"}]}, r"monitors\.0\.model: Field required"),
        ({"monitors": [{"use": "model", "model": "m", "view": "all"}]}, r"monitors\.0\.view: "),
        ({"monitors": fixed(0.1) * 2}, "two monitors are called 'm0'"),
        (
            {"monitors": fixed(0.1), "threshold": 0.5, "steps": STEPS},
            "`threshold` is shorthand for a single step",
        ),
        ({"monitors": fixed(0.1), "threshold": 0}, "threshold: "),
        (
            {"monitors": fixed(0.1), "steps": [{"at": 0.5, "do": "defer"}]},
            r"steps\.0: `do: defer` and `model` go together",
        ),
        (
            {"monitors": fixed(0.1), "steps": [{"at": 0.5, "do": "block", "model": "m"}]},
            r"steps\.0: `do: defer` and `model` go together",
        ),
        (
            {"monitors": fixed(0.1), "steps": [{"at": 0.5, "do": "block"}] * 2},
            "two steps begin at 0.5",
        ),
        ({"critical": [{}], "threshold": 0.5}, "steps need `monitors`"),
        (
            {"critical": [{}], "on_critical": {"do": "defer"}},
            r"on_critical: `do: defer` and `model` go together",
        ),
        ({"monitors": fixed(0.1), "combine": "logit"}, "`combine: logit` needs `weights`"),
        ({"monitors": fixed(0.1), "weights": {"m0": 1}}, "`weights` are for"),
        (
            {"monitors": fixed(0.1), "combine": "weights", "weights": {"m1": 1}},
            "`weights` names 'm1', and there is no such monitor",
        ),
        ({"monitors": fixed(0.1), "combine": "weights", "weights": {"m0": -1}}, "a weight below 0"),
        ({"monitors": fixed(0.1), "intercept": 1}, "`intercept` is for"),
        ({"monitors": [asks(f"a{n}") for n in range(17)]}, "monitors: "),
        ({"monitors": fixed(0.1), "odd": 1}, "odd: "),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_place(options: Json, said: str) -> None:
    with pytest.raises(PolicyFailed, match=said):
        make(PolicyStep.model_validate({"use": "control", **options}))


def test_audits_are_a_rule_of_the_choice() -> None:
    assert choice_of(control(*fixed(0.1)).on_tool_call(CALL)).audit is None
    audit = {"rate": 0.003, "at": 0.5, "budget": {"count": 50, "per": "day"}}
    assert choice_of(control(*fixed(0.1), audit=audit).on_tool_call(CALL)).audit == AuditRule(
        0.003, 0.5, 50
    )
    assert choice_of(control(critical=[{}], audit=audit).on_tool_call(CALL)).audit == AuditRule(
        0.003, 0.5, 50
    )


# --- in whatever order things come ---


def in_order(order: Sequence[int], *, durable: bool) -> tuple[str, list[Any]]:
    """The hash of what two calls come to, and their rows, where the questions about them are
    answered in that order."""
    call = call_info(nonce="nonce", durable=durable, max_arguments_bytes=1000)
    step = {
        "use": "control",
        "monitors": [*fixed(0.2), *MODELS],
        "threshold": 0.6,
        "audit": {"rate": 0.5, "at": 0.3},
    }
    session = Session(call, series(step), Config())
    session.begin(as_json(REQUEST))
    session.drain()
    raw = [call_chunk(n, "bash", f'{{"command": "ls {n}"}}') for n in range(2)]
    session.chunks(1, [*raw, chunk(finish="tool_calls"), DONE])
    taken = session.drain()
    records, asks = list(taken.records), {(ask.block, ask.step): ask for ask in taken.asks}
    answers = {(0, 0): 0.1, (0, 1): 0.7, (1, 0): 0.4, (1, 1): 0.3}
    for which in order:
        key = next(key for key in asks if key[0] == which)
        asks.pop(key)
        session.judgement(*key, Judgement(probability=answers[key]), 7)
        later = session.drain()
        records += later.records
        asks |= {(ask.block, ask.step): ask for ask in later.asks}
        for key_of_wait in later.waits:
            assert any(
                isinstance(r, ToolCallRecord) and r.block == key_of_wait and r.notify
                for r in later.records
            )
            assert {type(r) for r in later.records} >= {
                ScoreRecord,
                DecisionRecord,
            }, "what may go out has its scores in the same batch"
            session.committed(key_of_wait, "", 8)
            records += session.drain().records
    digest = session.drain().digest
    return digest, sorted((msgspec.structs.replace(record, at=0) for record in records), key=repr)


@pytest.mark.parametrize("durable", [False, True])
def test_what_comes_out_does_not_depend_on_who_answers_first(durable: bool) -> None:
    found = [
        in_order(order, durable=durable)
        for order in ((0, 0, 1, 1), (1, 1, 0, 0), (0, 1, 0, 1), (1, 0, 0, 1))
    ]
    assert all(one == found[0] for one in found)
    assert [r.verdict for r in found[0][1] if isinstance(r, ToolCallRecord)] == ["block", "allow"]
