"""Where a call is made: the folders and hosts that the operator or the client names, by which paths
and addresses are placed, and which folders can be the project at all.

Must not know: which effects anything has; who may name the project, or how (`policy.claims`).
"""

import re
from collections.abc import Sequence
from functools import cached_property

import msgspec

from policy.claims.claims import ProjectClaims, SettledProject
from policy.claims.roots import HOMES, below, spelled, spellings
from policy.effects.effect import Scope
from policy.effects.network import LISTED, host_scope
from policy.effects.paths import PathTarget, place, spelled_out
from protocol.bounds import MAX_PROJECT_ROOTS

AUTO = "auto"
_SHOWN, _MAX_CHARS = 10, 1_024
_NO_PATH = re.compile(r"[\x00-\x1f\x7f*?$%`<>|{}\"\ud800-\udfff]")
"""What no folder's name has that somebody works in, but a pattern, a variable or a text does."""
_SHARED = re.compile(
    r"/(?:home|users|mnt|media|volumes|opt|srv|var|usr|tmp|private|run|cygdrive|workspaces|data)?"
    r"|/(?:private/)?var/(?:www|tmp|folders|lib|opt)|/private/tmp|/usr/(?:local(?:/[^/]+)?|src)"
    r"|/(?:mnt|media|cygdrive|volumes)/[^/]+|/[a-z]:?|/[a-z]:/(?:users|temp|tmp)|/opt/homebrew"
)
"""Folders above those of many, in lower case."""
_OF_HOME = re.compile(r"/(?:\.[^/]+|library|appdata(?:/[^/]+)?|snap)")
"""Of a home, what programs keep there."""


class Places(msgspec.Struct, frozen=True, dict=True):
    """The roots of the project, the home folder and the hosts that are known. Without roots,
    relative paths alone are in the project; with some, these begin in the first."""

    project: tuple[str, ...] = ()
    home: str = "~"
    hosts: tuple[str, ...] = ()

    @cached_property
    def listed(self) -> tuple[str, ...]:
        """All hosts of the scope `listed`."""
        return (*LISTED, *self.hosts)

    @property
    def folder(self) -> str:
        """What stands for the folder in which the agent works."""
        return self.project[0] if self.project else "."

    @property
    def shown_project(self) -> str:
        """The project as sentences name it; empty where none is known."""
        return ", ".join(self.project)

    def place(self, path: str, *, cwd: str = "") -> PathTarget:
        """Where a path leads that begins in the folder `cwd`."""
        return place(path, home=self.home, project=self.project, cwd=cwd)

    def host_scope(self, host: str) -> Scope:
        """Where a host, a `host:port` or a URL lies."""
        return host_scope(host, self.listed)


NOWHERE = Places()


def places_of(
    project: Sequence[str] | str, home: str, hosts: tuple[str, ...], claims: ProjectClaims
) -> Places:
    """Return the places of a call: with the roots that an option names, those that are claimed
    where it says `auto`, or none where it says `.`."""
    if project == AUTO:
        return Places(settled(claims, home).roots, home, hosts)
    named = (project,) if isinstance(project, str) else project
    return Places(tuple(root for root in named if root != "."), home, hosts)


def settled(claims: ProjectClaims, home: str) -> SettledProject:
    """Return what the project of a call is: the first source decides of which something can be
    taken."""
    if home not in claims.settled:
        claims.settled[home] = _settled(claims, home)
    return claims.settled[home]


def _settled(claims: ProjectClaims, home: str) -> SettledProject:
    ignored: dict[str, None] = {}
    for source, statements in claims.sources():
        if statements is None or any(len(each) > MAX_PROJECT_ROOTS for each in statements):
            ignored[f"{source}: more folders are named than are weighed"] = None
            continue
        for path in sorted({path for each in statements for path in each}):
            if why := refusal(path, home):
                ignored[f"{path[:200].encode(errors='replace').decode()}: {why}"] = None
        usable = [
            [spelled_out(path) for path in each if not refusal(path, home)] for each in statements
        ]
        roots = [*dict.fromkeys(root for each in usable for root in each)]
        stated = [spelled(each, home) for each in usable if each]
        # in one of each statement: who adds a statement only takes away
        agreed = [
            root
            for root in roots
            if all(any(below(form, each) for form in spellings(root, home)) for each in stated)
        ]
        for root in roots:
            if root not in agreed:
                ignored[f"{root[:200]}: another part of the request names another folder"] = None
        if agreed:
            return SettledProject(source, tuple(agreed), tuple(ignored)[:_SHOWN])
    return SettledProject("", (), tuple(ignored)[:_SHOWN])


def refusal(path: str, home: str = "~") -> str:
    """Return why a folder cannot be the project of a call; empty where it can be."""
    if len(path) > _MAX_CHARS or _NO_PATH.search(path) is not None:
        return "no plain path"
    plain = spelled_out(path).rstrip("/")
    if not plain:
        return "the root folder"
    if not f"{plain}/".startswith(("/", "~/")):
        return "no absolute path"
    if f"{spelled_out(home).rstrip('/')}/".startswith(f"{plain}/"):
        return "a home folder, or above one"
    for form in spellings(plain, home):
        low = form.casefold()
        match = HOMES.fullmatch(low)
        in_home = low[1:] if low.startswith("~") else match[2] or match[3] or "" if match else "-"
        if not in_home:
            return "a home folder, or above one"
        if _OF_HOME.fullmatch(in_home) is not None:
            return "a folder in which programs keep their own files"
        if _SHARED.fullmatch(low) is not None:
            return "a folder above many others"
        if (scope := place(form, home=home).scope) not in ("project", "home", "unknown", "temp"):
            return f"of the scope {scope}"
    return ""
