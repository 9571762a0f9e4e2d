"""Protocols are total: whatever monitors say, there is a verdict with its choice, and no fault
makes a call safer."""

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from policy.base import Allow, AskJudge, Block, Context, Defer, Judgement, JudgeQuestion, ToolCall
from policy.builtin import control as control_module
from policy.builtin.control import Control
from policy.monitors.base import Monitor
from policy.protocols import ALLOW, ProtocolStep, Sum, combined, reached
from policy.scores import Score
from policy.session import hook_checks
from protocol.request import ChatRequest

SHARES = st.floats(0, 1)
ANY = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=3)
    | st.lists(st.integers(), max_size=2)
)
SCORES = st.builds(
    Score, st.sampled_from("abc"), SHARES | st.none(), error=st.sampled_from(["", "x"])
).map(
    lambda score: (
        Score(score.monitor, None, error="x") if score.error or score.value is None else score
    )
)
WEIGHTS = st.dictionaries(st.sampled_from("abc"), st.floats(-1000, 1000), min_size=1)
SUMS = (
    st.sampled_from([Sum("max"), Sum("mean")])
    | st.builds(
        Sum,
        st.just("weights"),
        WEIGHTS.map(lambda weights: {name: abs(value) for name, value in weights.items()}),
    )
    | st.builds(Sum, st.just("logit"), WEIGHTS, st.floats(-1000, 1000))
)
STEPS = st.lists(
    st.tuples(st.floats(0.001, 1), st.sampled_from(["block", "defer", "allow"])),
    max_size=4,
    unique_by=lambda step: step[0],
)
CALL = ToolCall(1, 0, "t", "bash", "{}", {}, None, nonce="mark")


@given(st.lists(SCORES, max_size=5), SUMS, STEPS, st.booleans())
def test_every_set_of_scores_has_an_action(
    scores: list[Score], by: Sum, steps: list[Any], ignores: bool
) -> None:
    score = combined(scores, by, ignores_faults=ignores)
    assert score is None or (0 <= score <= 1 and math.isfinite(score))
    assert (score is None) == (not [one for one in scores if one.value is not None or not ignores])
    ladder = [ProtocolStep(at, do, "m" if do == "defer" else "") for at, do in steps]
    step = reached(ladder, score)
    assert step is ALLOW or (step in ladder and score is not None and step.at <= score)
    assert (
        all(other.at <= step.at or (score is not None and other.at > score) for other in ladder)
        or score is None
    )


@given(st.lists(SCORES, min_size=1, max_size=5), SUMS)
def test_a_fault_in_place_of_a_score_makes_nothing_safer(scores: list[Score], by: Sum) -> None:
    before = combined(scores, by)
    after = combined([Score(scores[0].monitor, None, error="x"), *scores[1:]], by)
    assert before is not None and after is not None and after >= before - 1e-12


@given(
    st.lists(SCORES, min_size=1, max_size=4), st.sampled_from(["max", "mean", "weights"]), SHARES
)
def test_a_higher_score_is_never_worth_less(scores: list[Score], how: Any, raised: float) -> None:
    by = Sum(how)
    first = scores[0].value
    before = combined(scores, by)
    after = combined(
        [Score(scores[0].monitor, max(raised, 1.0 if first is None else first)), *scores[1:]], by
    )
    assert before is not None and after is not None and after >= before - 1e-12


@given(SHARES, st.integers(1, 16), st.sampled_from(["mean", "weights"]), st.floats(0.01, 1000))
def test_scores_that_all_reach_a_step_reach_it_together(
    value: float, count: int, how: Any, weight: float
) -> None:
    scores = [Score(f"m{number}", value) for number in range(count)]
    after = combined(
        scores, Sum(how, {"m0": weight, "m1": 0.0} if how == "weights" and count > 1 else {})
    )
    assert after is not None and after >= value


class Says(Monitor):
    """Returns whatever it was given, or raises it."""

    name = "says"

    def __init__(self, what: Any, answer: Any = None) -> None:
        self.what, self.answer = what, answer
        self.asks = isinstance(what, AskJudge)  # type: ignore[misc]

    def on_call(self, call: ToolCall, context: Context) -> Any:
        return given_or_raised(self.what)

    def on_answer(self, call: ToolCall, judgement: Judgement) -> Any:
        return given_or_raised(self.answer)


def given_or_raised(what: Any) -> Any:
    if isinstance(what, Exception):
        raise what
    return what


ODD_SCORES = st.builds(
    Score,
    st.text(max_size=3),
    ANY,
    ANY | st.dictionaries(ANY.filter(lambda v: not isinstance(v, list)), ANY, max_size=2),
    ANY,
    ANY,
)
SAID = (
    ANY
    | ODD_SCORES
    | st.builds(Score, st.just("a"), SHARES)
    | st.sampled_from([ValueError("x"), KeyError(1), RecursionError()])
)


@given(
    st.lists(SAID, min_size=1, max_size=3),
    STEPS,
    st.sampled_from(["count", "ignore"]),
    st.booleans(),
    st.booleans(),
)
def test_whatever_monitors_say_there_is_a_sound_verdict(
    said: list[Any], steps: list[Any], on_fault: str, observe: bool, deferred: bool
) -> None:
    made = control_of([Says(one) for one in said], steps, on_fault=on_fault, observe=observe)
    call = ToolCall(1, 0, "t", "bash", "{}", {}, None, is_deferred=deferred)
    verdict = made.on_tool_call(call)
    assert isinstance(verdict, Allow | Block | Defer) and verdict.choice is not None
    assert not isinstance(verdict, Defer) or not deferred
    # what is no text in a score is for the engine to find, which then blocks
    problem = hook_checks.problem(verdict)
    assert problem == "" or "choice" in problem
    faults = [score for score in verdict.choice.scores if score.value is None]
    if faults and steps and on_fault == "count" and not observe:
        highest = max(steps)
        assert highest[1] == "allow" or not isinstance(verdict, Allow)


@given(SAID)
def test_whatever_comes_of_an_answer_there_is_a_verdict(answer: Any) -> None:
    ask = AskJudge(JudgeQuestion("m", "s", "p", "n", 0.5, None, {}))
    made = control_of([Says(ask, answer)], [(0.5, "block")])
    assert made.on_tool_call(CALL) is ask
    verdict = made.on_judgement(CALL, Judgement(probability=0.0))
    assert isinstance(verdict, Allow | Block)
    if isinstance(verdict, Allow):
        assert answer is None or (
            isinstance(answer, Score) and not answer.error and answer.value < 0.5  # type: ignore[operator]
        )


def control_of(monitors: list[Says], steps: list[Any], **options: Any) -> Control:
    shaped = [{"at": at, "do": do, **({"model": "m"} if do == "defer" else {})} for at, do in steps]
    made = Control(monitors=[{"use": "model", "model": "m"}], steps=shaped, **options)
    watches = [
        control_module._Watch(f"m{place}", None, monitor) for place, monitor in enumerate(monitors)
    ]
    made._watches = sorted(watches, key=lambda watch: watch.monitor.asks)
    return made.for_call(Context("c", "root", "k", "", ChatRequest(dialect="openai", model="demo")))
