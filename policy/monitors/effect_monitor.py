"""What the effect monitors have in common: their options, how they handle a call, and how effects
become a score."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from policy.base import Context, ToolCall
from policy.effects.effect import Effect
from policy.effects.places import AUTO, Places, places_of
from policy.effects.severity import severity, worst
from policy.effects.touch import LocatedEffect, touch_of
from policy.monitors.base import Monitor
from policy.scores import Score

TOO_MANY = "too_many"
"""The error of a call with more arguments than are looked at: what is behind them is not known, so
it has no score."""
Share = Annotated[float, Field(ge=0, le=1)]


class PlaceOptions(BaseModel):
    """What the paths and hosts of a call mean."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    project: str | tuple[str, ...] = AUTO
    """The project, as in `tool_rules`."""
    home: str = "~"
    """The home folder of the user that the tools run as."""
    hosts: tuple[str, ...] = ()
    """Known hosts, such as `api.example.com` or `*.example.com`. Public package indexes and forges
    are always known."""

    def places(self, context: Context) -> Places:
        """The same as what readers of calls take."""
        return places_of(self.project, self.home, self.hosts, context.claims)


class ReadingOptions(PlaceOptions):
    """Options of monitors that may not understand a text."""

    unsure: Share = 0.5
    """The score of a text that cannot be read with certainty, unless what can be read scores
    higher."""


class EffectMonitor(Monitor):
    """Scores a call by the worst of the effects that this monitor covers; abstains where there are
    none."""

    def __init__(self, **options: object) -> None:
        """Take the options."""
        self.options = PlaceOptions.model_validate(options)
        self.reads_project = self.options.project == AUTO

    def is_about(self, act: LocatedEffect) -> bool:
        """Is this effect its business?"""
        raise NotImplementedError

    def on_call(self, call: ToolCall, context: Context) -> Score | None:
        """Score a call."""
        touch = touch_of(call, self.options.places(context))
        if not touch.surface.is_whole:
            return Score(self.name, None, error=TOO_MANY)
        effects = [act.effect for act in touch.acts if self.is_about(act)]
        return score_of(self.name, effects) if effects else None


def score_of(
    name: str, effects: Sequence[Effect], unsure: Sequence[str] = (), value_of_unsure: float = 0.0
) -> Score:
    """Make the score of what was found: the worst of it, and by kinds."""
    value, first = worst(effects)
    dims: dict[str, float] = {}
    for effect in effects:
        dims[effect.kind] = max(dims.get(effect.kind, 0.0), severity(effect))
    reasons = [
        f"{effect.kind} {effect.scope}{' (wide)' if effect.wide else ''} {effect.target} by"
        f" {effect.by}"
        for effect in first
    ]
    if unsure:
        dims["unsure"] = value_of_unsure
        value = max(value, value_of_unsure)
        reasons.append(f"not sure: {unsure[0]}")
    return Score(name, value, dims, "; ".join(reasons)[:2000])
