"""Names of tools and ids of calls as Converse takes them, and the way back: one map for each request."""

import re

from protocol.request import ChatRequest, ToolUsePart

MAX_NAME = 64
_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")
_FOREIGN_ID = re.compile(r"[^a-zA-Z0-9_.:-]")
_FOREIGN_TITLE = re.compile(r"[^a-zA-Z0-9 \-()\[\]]+")
_MAX_TITLE = 200


class Names:
    """Names of tools by the client and upstream. Names that upstream takes stay; others are rewritten, each to one of its own."""

    def __init__(self, client_names: list[str]) -> None:
        self._taken = {name for name in client_names if _fits(name)}
        self._counts: dict[str, int] = {}
        self._upstream: dict[str, str] = {name: name for name in self._taken}
        for name in client_names:
            if name not in self._upstream:
                self._upstream[name] = self.free(name)

    def free(self, wanted: str) -> str:
        """Return a name like `wanted` that upstream takes and nothing else has; it is taken from then on."""
        return _free(_FOREIGN.sub("_", wanted)[:MAX_NAME] or "_", self._taken, self._counts)

    def plain(self, name: str) -> str:
        """Return a name like it that upstream takes, which need not be the only one."""
        return _FOREIGN.sub("_", name)[:MAX_NAME] or "_"

    def upstream(self, name: str) -> str:
        """Return the name for upstream."""
        return self._upstream[name]

    def has(self, name: str) -> bool:
        """Is this name in use upstream?"""
        return name in self._taken

    def changed(self) -> dict[str, str]:
        """Return the names that differ: upstream's to the client's."""
        return {there: here for here, there in self._upstream.items() if here != there}


class Ids:
    """Ids of calls, rewritten where upstream would refuse them; two that differ stay different."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._counts: dict[str, int] = {}
        self._upstream: dict[str, str] = {}

    def upstream(self, identity: str) -> str:
        """Return the id for upstream."""
        found = self._upstream.get(identity)
        if found is None:
            found = self._upstream[identity] = _free(_FOREIGN_ID.sub("_", identity)[:MAX_NAME] or "call", self._taken, self._counts)
        return found


class Titles:
    """Names of documents, which Converse wants to be plain and different."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._counts: dict[str, int] = {}

    def upstream(self, title: str) -> str:
        """Return a name for one more document."""
        plain = " ".join(_FOREIGN_TITLE.sub("-", title).split())[:_MAX_TITLE].strip() or "document"
        name = plain
        while name in self._taken:
            self._counts[plain] = self._counts.get(plain, 1) + 1
            number = f" {self._counts[plain]}"
            name = plain[: _MAX_TITLE - len(number)] + number
        self._taken.add(name)
        return name


def names_of(request: ChatRequest) -> Names:
    """Return the names of the request's tools: offered and called earlier."""
    used = (p.name for t in request.turns for p in t.parts if isinstance(p, ToolUsePart))
    return Names(list(dict.fromkeys((*(t.name for t in request.tools), *used))))


def _fits(name: str) -> bool:
    return 0 < len(name) <= MAX_NAME and not _FOREIGN.search(name)


def _free(base: str, taken: set[str], counts: dict[str, int]) -> str:
    # the count goes on where it was: many names that become one are not tried again and again
    name, stem = base, base[: MAX_NAME - 8]
    while name in taken:
        counts[stem] = counts.get(stem, 1) + 1
        name = f"{stem}_{counts[stem]}"
    taken.add(name)
    return name
