"""Where a call is made: the folders and hosts that the operator knows, by which paths and addresses
are placed. Must not know: which effects anything has.
"""

from functools import cached_property

import msgspec

from policy.effects.effect import Scope
from policy.effects.network import LISTED, host_scope
from policy.effects.paths import PathTarget, place


class Places(msgspec.Struct, frozen=True, dict=True):
    """The project folder, the home folder and the hosts that the operator knows."""

    project: str = "."
    home: str = "~"
    hosts: tuple[str, ...] = ()

    @cached_property
    def listed(self) -> tuple[str, ...]:
        """All hosts of the scope `listed`."""
        return (*LISTED, *self.hosts)

    @property
    def shown_project(self) -> str:
        """The project folder as sentences name it; empty where none is known."""
        return "" if self.project == "." else self.project

    def place(self, path: str, *, cwd: str = "") -> PathTarget:
        """Where a path leads that begins in the folder `cwd`."""
        return place(path, home=self.home, project=self.project, cwd=cwd)

    def host_scope(self, host: str) -> Scope:
        """Where a host, a `host:port` or a URL lies."""
        return host_scope(host, self.listed)


NOWHERE = Places()
