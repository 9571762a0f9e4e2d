"""The monitor `shell`: the worst effect of a call's shell texts, and of those that it would leave
in files."""

from policy.base import Context, ToolCall
from policy.effects.touch import load_parser, touch_of
from policy.monitors.base import Monitor
from policy.monitors.effect_monitor import ReadingOptions, score_of
from policy.scores import Score


class ShellMonitor(Monitor):
    """Scores shell texts by their effects; abstains where a call has none."""

    name = "shell"

    def __init__(self, **options: object) -> None:
        """Take the options; load what reads shell texts."""
        self.options = ReadingOptions.model_validate(options)
        load_parser()

    def on_call(self, call: ToolCall, context: Context) -> Score | None:
        """Score a call."""
        touch = touch_of(call, self.options.places(context))
        effects = [act.effect for act in touch.acts if act.source in ("shell", "stored")]
        if not effects and not touch.commands and not touch.unsure:
            return None
        return score_of(self.name, effects, touch.unsure, self.options.unsure)
