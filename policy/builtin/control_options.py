"""Options of the policy `control`: which monitors, how their scores are combined, what to do at
which score."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from policy.base import Feedback, Release
from policy.builtin.rule_options import ApprovalOptions, Folder, Hosts, Project, Rule
from policy.monitors.effect_monitor import Share
from policy.protocols import Combine, Do
from protocol.bounds import MAX_MONITORS, MAX_RULES
from settings.config import Name
from settings.config_faults import did_you_mean

At = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Weight = Annotated[float, Field(ge=-1000, le=1000, allow_inf_nan=False)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class MonitorStep(BaseModel):
    """One monitor; its other keys are its options."""

    model_config = ConfigDict(extra="allow", frozen=True)
    use: str
    """The monitor (docs/run/monitors.md#monitors)."""
    name: Name | None = None
    """The name for its scores in the record, if a monitor is used twice. Unset: the monitor's
    name."""
    at: At | None = None
    """Measure only calls that the monitors before it together score at least this high. Unset: all
    calls."""

    @property
    def called(self) -> str:
        """Its name in the record."""
        return self.name or self.use


class StepOptions(_Strict):
    """What to do from a score upwards."""

    at: At
    """The step applies from this score up to the next step's."""
    do: Do
    """`block`, `allow`, `ask`: people decide, or `defer`: another model makes the rest of the
    turn."""
    model: str = ""
    """The other model: a name that `models` routes."""

    @model_validator(mode="after")
    def _names_who_takes_over(self) -> Self:
        _check_model(self.do, self.model)
        return self


class OnCritical(_Strict):
    """What to do with a critical call."""

    do: Literal["ask", "block", "defer"] = "block"
    """`block`, `ask`: people decide, or `defer`: another model makes the rest of the turn."""
    model: str = ""
    """The other model: a name that `models` routes."""

    @model_validator(mode="after")
    def _names_who_takes_over(self) -> Self:
        _check_model(self.do, self.model)
        return self


def _check_model(do: str, model: str) -> None:
    if (do == "defer") != bool(model):
        raise ValueError("`do: defer` and `model` go together: give both, or neither")


class AuditBudget(_Strict):
    """The most audits there may be."""

    count: Annotated[int, Field(ge=1, le=1_000_000)]
    """How many."""
    per: Literal["day"] = "day"
    """The period: a day, in UTC."""


class AuditOptions(_Strict):
    """Which decisions a person should review, whatever they were."""

    rate: Share = 0.0
    """The share of all decisions, chosen at random."""
    at: Share | None = None
    """Review all decisions from this score upwards."""
    budget: AuditBudget | None = None
    """The most reviews there may be. Unset: no bound."""

    @model_validator(mode="after")
    def _chooses_some(self) -> Self:
        if not self.rate and self.at is None:
            raise ValueError(
                "a `rate` of 0 without `at` chooses no decision: give one of them, or take"
                " `audit` out"
            )
        return self


class ControlOptions(_Strict):
    """Options of `control`."""

    monitors: Annotated[tuple[MonitorStep, ...], Field(max_length=MAX_MONITORS)] = ()
    """The monitors that measure a call."""
    combine: Combine = "max"
    """How to combine the scores: `max`, `mean`, `weights` (a weighted mean) or `logit` (a logistic
    sum)."""
    weights: dict[str, Weight] = {}
    """By monitor: its weight if `combine` is `weights` (1 if not named), or its coefficient if it
    is `logit` (0)."""
    intercept: Weight = 0.0
    """The intercept of the logistic sum."""
    threshold: At | None = None
    """Shorthand for `steps` with one step that blocks."""
    steps: Annotated[tuple[StepOptions, ...], Field(max_length=16)] = ()
    """What to do at which score. The highest step that is reached counts."""
    critical: Annotated[tuple[Rule, ...], Field(max_length=MAX_RULES)] = ()
    """Calls that match one of these rules are not measured: `on_critical` applies to them."""
    project: Project = "auto"
    """As in `tool_rules`, for rules about effects."""
    home: Folder = "~"
    """As in `tool_rules`."""
    hosts: Hosts = ()
    """As in `tool_rules`."""
    on_critical: OnCritical = OnCritical()
    """What to do with critical calls."""
    approval: ApprovalOptions = ApprovalOptions()
    """How people decide if a step or `on_critical` asks them, as in `tool_rules`."""
    on_fault: Literal["count", "ignore"] = "count"
    """`count`: a monitor that fails counts as 1.0. `ignore`: it does not count, so a broken monitor
    lets everything pass."""
    observe: bool = False
    """Allow everything, and record what would have been done."""
    audit: AuditOptions | None = None
    """Which decisions people review. Unset: none."""
    feedback: Feedback = "silent"
    """The most that the model learns about a block: `silent`, only that the call was not executed;
    `reason`, a general cause; `message`, everything."""
    message: str = ""
    """What the notice says if `feedback` is `message`."""
    release: Release = "early"
    """If a step or rule defers: what may go out before the turn is decided. `early`: text before
    the first call; `whole`: nothing."""

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if not self.monitors and not self.critical:
            raise ValueError("give `monitors`, `critical` or both: there is nothing to decide by")
        if self.threshold is not None and self.steps:
            raise ValueError(
                "`threshold` is shorthand for a single step: give either it or `steps`"
            )
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
            raise ValueError(
                f"two monitors are called {twice!r}: give one of them a `name`, for the record"
                " could not tell them apart"
            )
        if unknown := next((name for name in self.weights if name not in names), None):
            raise ValueError(
                f"`weights` names {unknown!r}, and there is no such"
                f" monitor{did_you_mean(unknown, names)}"
            )
        places = [step.at for step in self.steps]
        if same := next((at for at in places if places.count(at) > 1), None):
            raise ValueError(f"two steps begin at {same:g}")
