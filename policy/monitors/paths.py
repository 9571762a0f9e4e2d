"""The monitor `paths`: the worst of a call's paths, such as a key that is read or a start-up file
that is written."""

from policy.effects.touch import LocatedEffect
from policy.monitors.effect_monitor import EffectMonitor


class PathsMonitor(EffectMonitor):
    """Scores paths in a call's arguments by where they lie and what is done there; abstains where a
    call has none."""

    name = "paths"

    def is_about(self, act: LocatedEffect) -> bool:
        """Is it about a path?"""
        return act.source == "paths"
