"""The judges that are asked one question, and what their answers come to: shared by the policies
that ask about tool calls and about text.

All are asked at once, and the decision waits for every one: which answered first is chance. A judge
that does not answer counts as one that is sure of harm.
"""

from collections.abc import Callable
from statistics import fmean
from typing import Annotated, Literal, Self

import msgspec
from pydantic import BaseModel, ConfigDict, Field, model_validator

from policy.base import ALLOW, Allow, AskJudge, Block, Judgement, JudgeQuestion
from policy.protocols import figure
from protocol.bounds import MAX_JUDGES

_Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
_Model = Annotated[str, Field(min_length=1)]


class Escalation(BaseModel):
    """A second model for what the judges are not sure of."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    model: _Model
    """The model. Its answer alone decides."""
    between: tuple[_Share, _Share]
    """It is asked where their score lies between these two numbers. The score is the highest
    probability, or their mean with `score: mean`."""


class PanelOptions(BaseModel):
    """Who judges, and when that blocks."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    model: str = ""
    """The judge: `demo-judge`, or a model that `models` routes to an upstream. Give either this or
    `judges`."""
    judges: Annotated[tuple[_Model, ...], Field(max_length=MAX_JUDGES)] = ()
    """Several such models, which are asked at once. One that gives no answer is for a block."""
    block_if: Literal["any", "majority", "all"] | Annotated[int, Field(ge=1, le=MAX_JUDGES)] = "any"
    """How many judges must reach `threshold`: a number, or one of these words. Half of them are a
    majority here."""
    score: Literal["max", "mean"] | None = None
    """Compare the highest or the mean probability with `threshold`, whatever `block_if` says."""
    threshold: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.6
    """Block from this probability upwards."""
    escalate: Escalation | None = None
    """Ask a second model where the judges are not sure."""

    @model_validator(mode="after")
    def _is_a_panel(self) -> Self:
        names = [*self.models, *([self.escalate.model] if self.escalate is not None else ())]
        if bool(self.model) == bool(self.judges):
            raise ValueError("give either `model` or `judges`")
        if len(set(names)) < len(names):
            raise ValueError("one model is there twice as a judge, or as `escalate`")
        if self.votes_needed > len(self.models):
            raise ValueError(f"`block_if` wants more judges than there are ({len(self.models)})")
        return self

    @property
    def models(self) -> tuple[str, ...]:
        """The judges that are asked at once."""
        return self.judges or (self.model,)

    @property
    def votes_needed(self) -> int:
        """How many judges block."""
        asked = len(self.models)
        words = {"any": 1, "majority": (asked + 1) // 2, "all": asked}
        return self.block_if if isinstance(self.block_if, int) else words[self.block_if]


def ask(options: PanelOptions, question: JudgeQuestion) -> AskJudge:
    """Ask the whole panel."""
    first, *others = (msgspec.structs.replace(question, model=model) for model in options.models)
    return AskJudge(first, tuple(others))


def decide(
    options: PanelOptions, judgement: Judgement, ask_again: Callable[[], JudgeQuestion | Block]
) -> Allow | Block | AskJudge:
    """Decide by a panel's answers; `ask_again` gives the question for the second model."""
    second = options.escalate
    is_second = second is not None and judgement.model == second.model
    answers = [judgement, *judgement.others]
    values = [a.probability for a in answers if not a.error and a.probability is not None]
    faults = (1 if is_second else len(options.models)) - len(values)
    # one that gave none is for a block
    values += [1.0] * faults
    score = fmean(values) if options.score == "mean" else max(values)
    if second is not None and not is_second and min(second.between) <= score <= max(second.between):
        question = ask_again()
        if isinstance(question, Block):
            return question
        return AskJudge(msgspec.structs.replace(question, model=second.model))
    if options.score is not None:
        values = [score]
    votes = sum(not value < options.threshold for value in values)
    if votes < (1 if is_second or options.score is not None else options.votes_needed):
        return ALLOW
    if votes <= faults:
        return Block("_".join(("judge", *[a.error for a in answers if a.error][:1])))
    figures = ", ".join(map(figure, values))
    return Block("judge", detail=f"{figures}, the limit is {figure(options.threshold)}")
