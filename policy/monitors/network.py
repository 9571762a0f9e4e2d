"""The monitor `network`: the worst of the hosts that a call names and the secrets it would send
there."""

from policy.effects.touch import LocatedEffect
from policy.monitors.effect_monitor import EffectMonitor


class NetworkMonitor(EffectMonitor):
    """Scores addresses by the kind of host they name; abstains where a call has none."""

    name = "network"

    def is_about(self, act: LocatedEffect) -> bool:
        """Is it about a host? What a shell text sends counts, too."""
        return act.source == "network" or act.effect.kind in ("network", "secret")
