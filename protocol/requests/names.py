"""Names of tools and ids of calls as an upstream takes them, and the way back: one map for each
request."""

import re
from collections.abc import Iterable
from hashlib import sha256

import msgspec

from protocol.request import ChatRequest, Tool, ToolUsePart

PLAIN = re.compile(r"[^a-zA-Z0-9_-]")
"""What is in no name that every provider takes."""
_END = 8
"""Characters of what a rewritten name ends in."""
_LONG = 128
"""Characters of an id with such an end, where the provider sets no bound."""


class NameForm(msgspec.Struct, frozen=True, kw_only=True):
    """The names that a dialect takes: of 1 to `longest` characters, without what `foreign`
    finds."""

    longest: int = 64
    foreign: re.Pattern[str] = PLAIN
    is_hashed: bool = True
    """A rewritten name ends in a hash of the client's, so that it stays the same from turn to turn,
    whatever else is offered. Else in a number, where another one is written alike."""

    def fits(self, name: str) -> bool:
        """Does the dialect take this name?"""
        return 0 < len(name) <= self.longest and not self.foreign.search(name)

    def plain(self, name: str) -> str:
        """Return a name like it that the dialect takes, which need not be the only one."""
        return self.foreign.sub("_", name)[: self.longest] or "_"


class Numbered:
    """Unique names: a name that is taken gets a number."""

    def __init__(self, longest: int, taken: set[str]) -> None:
        self._stem, self._taken = longest - _END, taken
        self._counts: dict[str, int] = {}

    def free(self, base: str) -> str:
        """Return `base`, or a name like it that is not taken; it is taken from then on."""
        # the count goes on where it was: many names that become one are not tried again and again
        name, stem = base, base[: self._stem]
        while name in self._taken:
            self._counts[stem] = self._counts.get(stem, 1) + 1
            name = f"{stem}_{self._counts[stem]}"
        self._taken.add(name)
        return name


_USUAL = NameForm()


class Names:
    """Names that upstream takes stay; others get one of their own."""

    def __init__(self, names: Iterable[str], form: NameForm = _USUAL) -> None:
        wanted = dict.fromkeys(names)
        self.form = form
        self._upstream = {name: name for name in wanted if form.fits(name)}
        self._taken = set(self._upstream)
        self._numbered = Numbered(form.longest, self._taken)
        for name in wanted:
            if name not in self._upstream:
                self._upstream[name] = (
                    self._hashed(name) if form.is_hashed else self._numbered.free(form.plain(name))
                )

    def upstream(self, name: str) -> str:
        """Return the name for upstream."""
        return self._upstream[name]

    def has(self, name: str) -> bool:
        """Is this name in use upstream?"""
        return name in self._taken

    def free(self, wanted: str) -> str:
        """Return `wanted`, which fits, or a name like it that no tool has; it is taken from then
        on."""
        return (
            self._hashed(wanted)
            if self.form.is_hashed and wanted in self._taken
            else self._numbered.free(wanted)
        )

    def changed(self) -> dict[str, str]:
        """Return the names that differ: upstream's to the client's."""
        return {there: here for here, there in self._upstream.items() if here != there}

    def _hashed(self, name: str) -> str:
        stem, count = self.form.foreign.sub("_", name)[: self.form.longest - 1 - _END], 0
        hashed = f"{stem}_{_hash(name, _END)}"
        while hashed in self._taken:
            # two names with one hash, or a client's name that looks like ours
            count += 1
            hashed = f"{stem}_{_hash(f'{name}{count}', _END)}"
        self._taken.add(hashed)
        return hashed


class Ids:
    """Ids of calls, rewritten where upstream would refuse them; two that differ stay different."""

    def __init__(self, foreign: re.Pattern[str], longest: int | None = None) -> None:
        self._foreign, self._longest = foreign, longest
        self._numbered = Numbered(longest or _LONG, set())
        self._upstream: dict[str, str] = {}

    def upstream(self, identity: str) -> str:
        """Return the id for upstream."""
        upstream_id = self._upstream.get(identity)
        if upstream_id is None:
            upstream_id = self._numbered.free(
                self._foreign.sub("_", identity)[: self._longest] or "call"
            )
            self._upstream[identity] = upstream_id
        return upstream_id


def qualified(namespace: str, name: str) -> str:
    """Return what policies call a function of a namespace."""
    return f"{namespace}.{name}" if namespace else name


def namespace_of(tool: Tool | None) -> str:
    """Return the namespace in which the client offered a tool, "" for none."""
    return tool.outer["namespace"]["name"] if tool is not None and "namespace" in tool.outer else ""


class OfferedNames:
    """The names of the offered tools, to find the one that a call means."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._names: set[str] = set()
        self._by_bare_name: dict[str, set[str]] = {}
        for tool in tools:
            self._names.add(tool.name)
            if space := namespace_of(tool):
                self._by_bare_name.setdefault(tool.name.removeprefix(f"{space}."), set()).add(
                    tool.name
                )

    def meant_by(self, name: str, namespace: str) -> str:
        """Return the name of the tool that a call means; policies, client and record all get this
        one.

        A namespace that the client did not offer is ignored, because the client would run the
        function behind it. OpenAI's tool search gives every function without a namespace its own
        name as one. A bare name that stands in one namespace alone means that tool.
        """
        full = qualified(namespace, name)
        if full in self._names or name in self._names:
            return full if full in self._names else name
        candidates = self._by_bare_name.get(name, set())
        return next(iter(candidates)) if len(candidates) == 1 else name

    def is_ambiguous(self, name: str) -> bool:
        """Do several namespaces offer this name, so that nobody can say which tool its client would
        run?"""
        return name not in self._names and len(self._by_bare_name.get(name, ())) > 1


def called(request: ChatRequest) -> dict[str, None]:
    """Return the names of the tools that were called earlier, each once."""
    return dict.fromkeys(
        p.name for t in request.turns for p in t.parts if isinstance(p, ToolUsePart)
    )


def names_of(request: ChatRequest, form: NameForm = _USUAL) -> Names:
    """Return the names of the request's tools: offered and called earlier."""
    return Names((*(t.name for t in request.tools), *called(request)), form)


def short_id(identity: str, longest: int) -> str:
    """Return an id of a call that the vendor takes: history only, so there is no way back."""
    return identity if len(identity) <= longest else f"call_{_hash(identity, 24)}"


def _hash(text: str, length: int) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()[:length]
