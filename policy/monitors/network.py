"""The monitor `network`: the worst of the hosts that a call names, and of secrets that it would send there."""

from policy.base import Context, ToolCall
from policy.monitors.acts import TOO_MANY, PlaceOptions, score_of
from policy.monitors.base import Monitor
from policy.scores import Score
from policy.touch import touch_of


class Options(PlaceOptions):
    """Options of the monitor `network`."""


class NetworkMonitor(Monitor):
    """Scores addresses by which kind of host they name; abstains where a call has none."""

    name = "network"

    def __init__(self, **options: object) -> None:
        """Take the options."""
        self.options = Options.model_validate(options)

    def on_call(self, call: ToolCall, context: Context) -> Score | None:
        """Score a call. What a shell text sends counts, too."""
        touch = touch_of(call, self.options.places)
        if not touch.surface.is_whole:
            return Score(self.name, None, error=TOO_MANY)
        effects = [act.effect for act in touch.acts if act.source == "network" or act.effect.kind in ("network", "secret")]
        return score_of(self.name, effects) if effects else None
