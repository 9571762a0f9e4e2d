"""The built-in monitors, by name.

A new one gets a module here, and an import and an entry below. All are imported with the table, not
when a configuration names them: the code that decides is part of the revision (`policy.loading`),
which follows imports.
"""

from collections.abc import Mapping

from policy.monitors.base import Monitor
from policy.monitors.model import ModelMonitor
from policy.monitors.network import NetworkMonitor
from policy.monitors.paths import PathsMonitor
from policy.monitors.provenance import Provenance
from policy.monitors.secrets import SecretsMonitor
from policy.monitors.shell import ShellMonitor
from policy.monitors.sql import SqlMonitor

_SHIPPED: tuple[type[Monitor], ...] = (
    ModelMonitor,
    Provenance,
    ShellMonitor,
    PathsMonitor,
    NetworkMonitor,
    SecretsMonitor,
    SqlMonitor,
)
MONITORS: Mapping[str, type[Monitor]] = {kind.name: kind for kind in _SHIPPED}
