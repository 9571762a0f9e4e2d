"""The monitor `paths`: the worst that a call's paths say, as a key that is read or a start-up file that is written."""

from policy.base import Context, ToolCall
from policy.effects import Effect
from policy.monitors.acts import TOO_MANY, PlaceOptions, score_of
from policy.monitors.base import Monitor
from policy.paths import place, written
from policy.scores import Score
from policy.touch import touch_of


class Options(PlaceOptions):
    """Options of the monitor `paths`."""


class PathsMonitor(Monitor):
    """Scores paths in a call's arguments by where they lie and what is done there; abstains where a call has none."""

    name = "paths"

    def __init__(self, **options: object) -> None:
        """Take the options."""
        self.options = Options.model_validate(options)

    def on_call(self, call: ToolCall, context: Context) -> Score | None:
        """Score a call."""
        touch = touch_of(call, self.options.places)
        if not touch.surface.is_whole:
            return Score(self.name, None, error=TOO_MANY)
        effects = [act.effect for act in touch.acts if act.source == "paths"]
        for effect in tuple(effects):
            if effect.kind == "write":
                where = place(effect.target, home=self.options.home, project=self.options.project)
                effects += [Effect.of(kind, effect.scope, effect.target, by=effect.by) for kind in written(where)]
        return score_of(self.name, effects) if effects else None
