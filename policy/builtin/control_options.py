"""Options of the policy `control`: which monitors, how their scores become one, what is done at which score."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from policy.base import Feedback, Release
from policy.builtin.tool_rules import Folder, Hosts, Rule
from policy.monitors.acts import Share
from policy.protocols import Combine, Do
from protocol.bounds import MAX_MONITORS, MAX_RULES
from protocol.config import Name
from protocol.config_faults import did_you_mean

At = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Weight = Annotated[float, Field(ge=-1000, le=1000, allow_inf_nan=False)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class MonitorStep(BaseModel):
    """One monitor; its other keys are its options."""

    model_config = ConfigDict(extra="allow", frozen=True)
    use: str
    """Its name (docs/policies.md#monitors)."""
    name: Name | None = None
    """What scores are recorded under, where two are the same monitor. Unset: the monitor's name."""
    at: At | None = None
    """It measures only calls that the monitors before it score as high together. Unset: all."""

    @property
    def called(self) -> str:
        """Its name in the record."""
        return self.name or self.use


class StepOptions(_Strict):
    """What is done from a score on."""

    at: At
    """From this score on, up to the next step's."""
    do: Do
    """`block`; `defer`, another model makes the rest of the turn; `allow`."""
    model: str = ""
    """That other model: a name that `models` routes."""

    @model_validator(mode="after")
    def _names_who_takes_over(self) -> Self:
        _check_model(self.do, self.model)
        return self


class OnCritical(_Strict):
    """What is done about a critical call."""

    do: Literal["block", "defer"] = "block"
    """`block`, or `defer`: another model makes the rest of the turn."""
    model: str = ""
    """That other model: a name that `models` routes."""

    @model_validator(mode="after")
    def _names_who_takes_over(self) -> Self:
        _check_model(self.do, self.model)
        return self


def _check_model(do: str, model: str) -> None:
    if (do == "defer") != bool(model):
        raise ValueError("`do: defer` and `model` go together: give both, or neither")


class Budget(_Strict):
    """How many audits there are at most."""

    count: Annotated[int, Field(ge=1, le=1_000_000)]
    """So many."""
    per: Literal["day"] = "day"
    """In each day (UTC)."""


class Audit(_Strict):
    """Which decisions a person should look at, whatever was decided."""

    rate: Share = 0.0
    """So large a part of all, drawn by lot."""
    at: Share | None = None
    """All from this score on."""
    budget: Budget | None = None
    """The most there may be. Unset: no bound."""

    @model_validator(mode="after")
    def _chooses_some(self) -> Self:
        if not self.rate and self.at is None:
            raise ValueError("a `rate` of 0 without `at` chooses no decision: give one of them, or take `audit` out")
        return self


class Options(_Strict):
    """Options of `control`."""

    monitors: Annotated[tuple[MonitorStep, ...], Field(max_length=MAX_MONITORS)] = ()
    """What measures a call."""
    combine: Combine = "max"
    """How the scores become one: `max`; `mean`; `weights`, a weighted mean; `logit`, a logistic sum."""
    weights: dict[str, Weight] = {}
    """By monitor: weights, where `combine` is `weights` (those not named have 1), or coefficients, where it is `logit` (0)."""
    intercept: Weight = 0.0
    """Of the logistic sum."""
    threshold: At | None = None
    """Short for `steps` with one step that blocks."""
    steps: Annotated[tuple[StepOptions, ...], Field(max_length=16)] = ()
    """What is done at which score; the highest step that is reached counts."""
    critical: Annotated[tuple[Rule, ...], Field(max_length=MAX_RULES)] = ()
    """Calls that one of these rules is about are not measured: `on_critical` says what is done about them."""
    project: Folder = "."
    """As of `tool_rules`, for rules about effects."""
    home: Folder = "~"
    """As of `tool_rules`."""
    hosts: Hosts = ()
    """As of `tool_rules`."""
    on_critical: OnCritical = OnCritical()
    """What is done about critical calls."""
    on_fault: Literal["count", "ignore"] = "count"
    """A monitor that fails counts 1.0, or, with `ignore`, nothing: then a monitor that does not work lets everything pass."""
    observe: bool = False
    """Record what would be done, and allow everything."""
    audit: Audit | None = None
    """Which decisions people look at. Unset: none."""
    feedback: Feedback = "silent"
    """What the model is told of a block at most: `silent`, that the call was not executed; `reason`, a general cause; `message`, all."""
    message: str = ""
    """What a block says, where `feedback` is `message`."""
    release: Release = "early"
    """Where a step or rule defers: what may go out before the turn is decided; `early`, text before its first call; `whole`, nothing."""

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if not self.monitors and not self.critical:
            raise ValueError("give `monitors`, `critical` or both: there is nothing to decide by")
        if self.threshold is not None and self.steps:
            raise ValueError("`threshold` is shorthand for a single step: give either it or `steps`")
        if not self.monitors and (self.steps or self.threshold is not None):
            raise ValueError("steps need `monitors`: nothing has a score")
        if self.weights and self.combine not in ("weights", "logit"):
            raise ValueError("`weights` are for `combine: weights` and `combine: logit`")
        if self.combine in ("weights", "logit") and not self.weights:
            raise ValueError(f"`combine: {self.combine}` needs `weights`")
        if self.combine == "weights" and min(self.weights.values()) < 0:
            raise ValueError("a weight below 0 is for `combine: logit` alone")
        if self.intercept and self.combine != "logit":
            raise ValueError("`intercept` is for `combine: logit`")
        self._check_names()
        return self

    def _check_names(self) -> None:
        names = [step.called for step in self.monitors]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two monitors are called {twice!r}: give one of them a `name`, for the record could not tell them apart")
        if unknown := next((name for name in self.weights if name not in names), None):
            raise ValueError(f"`weights` names {unknown!r}, and there is no such monitor{did_you_mean(unknown, names)}")
        places = [step.at for step in self.steps]
        if same := next((at for at in places if places.count(at) > 1), None):
            raise ValueError(f"two steps begin at {same:g}")
