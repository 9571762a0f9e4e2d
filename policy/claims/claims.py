"""What names the project of one call, in the order of trust: a setting of its key, a header of its
client, the texts of its request.

Must not know: what a path means (`policy.effects.places` settles it).
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from policy.claims.reading import OwnText, Statement, statements

_ESCAPED = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_encode = msgspec.json.Encoder().encode
_EXPLAINS = frozenset(("description", "explanation", "justification", "reason"))


class SettledProject(msgspec.Struct, frozen=True, omit_defaults=True):
    """The project of a call, as its event has it. `source`: what named it, empty where nothing did
    that can be taken; `ignored`: what else was named, each with the reason."""

    source: str
    roots: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


class ProjectClaims:
    """The claims of one call. Nothing is read before the first policy asks, and nothing twice."""

    def __init__(
        self,
        texts: Sequence[OwnText] = (),
        setting: str = "",
        header: str = "",
        *,
        allowed: Iterable[str] = (),
    ) -> None:
        self._texts, self._setting, self._header = texts, setting, header
        self.allowed = frozenset(allowed)
        """The marks of calls that an admin allowed for good (`mark_of`)."""
        self.settled: dict[str, SettledProject] = {}
        """What came of them, by the home folder that is known."""

    def sources(self) -> Iterator[tuple[str, list[Statement] | None]]:
        """Yield each source and its statements; None where there are more than are weighed."""
        yield "key", [_listed(self._setting)]
        yield "x-sluice-project", [_listed(self._header)]
        yield "request", statements(self._texts)

    @property
    def detail(self) -> str:
        """The detail of the call's event, as JSON; empty where no policy asked, or nobody claimed
        anything."""
        for settled in self.settled.values():
            if settled.source or settled.ignored:
                return _encode(settled).decode()
        return ""


NO_CLAIMS = ProjectClaims()


def mark_of(roots: Iterable[str], tool: str, arguments: Mapping[str, object]) -> str:
    """Return what stands for a call in a project: the same for the same tool and arguments, but for
    what only explains a command. Empty without a project."""
    explains = _EXPLAINS if "command" in arguments else ()
    meant = {name: value for name, value in arguments.items() if name not in explains}
    named = sorted(roots)
    text = json.dumps([named, tool, meant], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest() if named else ""


def _listed(text: str) -> Statement:
    """Folders with commas between them, each with percent signs where a header cannot hold a
    character."""
    paths = (
        _ESCAPED.sub(
            lambda match: bytes.fromhex(match[0].replace("%", "")).decode(errors="replace"), part
        )
        for part in text.split(",")
    )
    return tuple(filter(None, map(str.strip, paths)))
