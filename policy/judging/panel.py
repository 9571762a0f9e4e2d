"""The judges that are asked one question, and what their answers come to: shared by the policies
that ask about tool calls and about text.

All are asked at once, and the decision waits for every one: which answered first is chance. A judge
that does not answer counts as one that is sure of harm.
"""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Annotated, Literal, Self

import msgspec
from pydantic import BaseModel, ConfigDict, Field, model_validator

from policy.base import ALLOW, Allow, AskJudge, Block, Judgement, JudgeQuestion
from policy.protocols import figure
from protocol.bounds import MAX_JUDGES, MAX_MESSAGE_CHARS

_Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
_Model = Annotated[str, Field(min_length=1)]


class Escalation(BaseModel, extra="forbid", frozen=True):
    """Whom to ask where judges are not sure."""

    model: _Model
    """Its answer alone decides."""
    between: tuple[_Share, _Share]
    """It is asked where the highest probability (`score: mean`: the mean) lies between these."""


class PanelOptions(BaseModel):
    """Who judges, and when that blocks."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    model: str = ""
    """The judge: `demo-judge`, or a model that `models` routes. Either this or `judges`."""
    judges: Annotated[tuple[_Model, ...], Field(max_length=MAX_JUDGES)] = ()
    """Several, asked at once. One without an answer is for a block."""
    block_if: Literal["any", "majority", "all"] | Annotated[int, Field(ge=1, le=MAX_JUDGES)] = "any"
    """How many must reach `threshold`; half of them are a majority."""
    score: Literal["max", "mean"] | None = None
    """Compare their highest or mean probability instead."""
    threshold: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.6
    """Block from this probability upwards."""
    fallback: str = ""
    """The model to ask instead of one that fails, or has failed too often to be asked at all. The
    record names the one that answered."""
    escalate: Escalation | None = None
    """A second model, for what they are not sure of."""
    message: Annotated[str, Field(max_length=MAX_MESSAGE_CHARS)] = ""
    """The cause in notices. Unset: `judged harmful`, with figures."""

    @model_validator(mode="after")
    def _is_a_panel(self) -> Self:
        names = [*self.models, *([self.escalate.model] if self.escalate is not None else ())]
        names += [self.fallback] if self.fallback else ()
        if bool(self.model) == bool(self.judges):
            raise ValueError("give either `model` or `judges`")
        if len(set(names)) < len(names):
            raise ValueError("one model is there twice as a judge, as `escalate` or as `fallback`")
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


def ask(
    models: Sequence[str], question: JudgeQuestion | Block, fallback: str = ""
) -> AskJudge | Block:
    """Ask these models at once, where there is a question."""
    if isinstance(question, Block):
        return question
    first, *others = (
        msgspec.structs.replace(question, model=model, fallback=fallback) for model in models
    )
    return AskJudge(first, tuple(others))


def decide(
    options: PanelOptions, judgement: Judgement, ask_again: Callable[[], JudgeQuestion | Block]
) -> Allow | Block | AskJudge:
    """Decide by a panel's answers; `ask_again` gives the question for the second model."""
    second, needed, asked = options.escalate, options.votes_needed, len(options.models)
    if second is not None and judgement.model == second.model:
        second, needed, asked = None, 1, 1
    answers = [judgement, *judgement.others]
    values = [a.probability for a in answers if not a.error and a.probability is not None]
    faults = asked - len(values)
    # one that gave none is for a block
    values += [1.0] * faults
    score = fmean(values) if options.score == "mean" else max(values)
    if second is not None and min(second.between) <= score <= max(second.between):
        return ask((second.model,), ask_again(), options.fallback)
    if options.score is not None:
        values, needed = [score], 1
    votes = sum(not value < options.threshold for value in values)
    if votes < needed:
        return ALLOW
    if votes <= faults:
        return Block("_".join(("judge", *[a.error for a in answers if a.error][:1])))
    figures = f"{', '.join(map(figure, values))}, the limit is {figure(options.threshold)}"
    return Block("judge", options.message, detail=figures)
