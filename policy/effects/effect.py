"""What a tool call would do: the vocabulary of monitors and rules, whatever the tool's language.

A shell command, an SQL statement and a path in an argument all come down to a few effects on a few
places. Rules name effects, never texts: the same effect has a hundred spellings. This module only
holds the values; `policy/effects/shell/` and the monitors find them.
"""

from collections.abc import Collection
from typing import Literal

import msgspec

Kind = Literal[
    "read",
    "write",
    "delete",
    "network",
    "execute",
    "privilege",
    "persistence",
    "defence",
    "process",
    "secret",
]
"""`execute`: runs a program that the call does not show, as a download. `privilege`: makes somebody
more powerful. `persistence`: will run again by itself. `defence`: takes a guard or a trace away.
`process`: stops or watches processes and services. `secret`: carries a credential."""
PathScope = Literal[
    "project", "temp", "home", "system", "device", "credentials", "startup", "root", "unknown"
]
"""`root` is `/` itself."""
HostScope = Literal["unknown", "metadata", "loopback", "private", "listed", "other"]
ServiceScope = Literal["service", "scratch"]
"""What lies with a service: a cloud, a cluster, a forge, a registry, a database. `scratch`: what is
made for a test, by its name."""
Scope = Literal[PathScope, HostScope, ServiceScope]
MAX_TARGET = 200
"""Characters of a target: it is for a report, which a client's text must not fill."""


class Effect(msgspec.Struct, frozen=True):
    """One thing that a call would do.

    `wide`: to a whole tree, a glob or many; `target`: path or host, for the report; `by`: the
    command's name.
    """

    kind: Kind
    scope: Scope
    wide: bool = False
    target: str = ""
    by: str = ""

    @staticmethod
    def of(
        kind: Kind, scope: Scope, target: str = "", *, wide: bool = False, by: str = ""
    ) -> "Effect":
        """Make an effect whose texts are cut to their bounds."""
        if (
            target in (".", "./*")
            and scope == "home"
            and (kind == "read" or (kind == "write" and not wide))
        ):
            # it is the project as a whole only for who deletes or changes all of it
            scope = "project"
        return Effect(kind, scope, wide, target[:MAX_TARGET], by[:MAX_TARGET])


def matches(
    effect: Effect,
    kinds: Collection[str] = (),
    scopes: Collection[str] = (),
    wide: bool | None = None,
) -> bool:
    """Tell whether the effect is one of these kinds, on one of these scopes, and as wide. What is
    empty or None asks for nothing."""
    return (
        (not kinds or effect.kind in kinds)
        and (not scopes or effect.scope in scopes)
        and (wide is None or effect.wide == wide)
    )
