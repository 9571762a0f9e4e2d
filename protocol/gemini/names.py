"""Names of tools as Gemini takes them, and the way back: one map for each request.

A rewritten name ends in a hash of the client's, so that it stays the same from turn to turn, whatever else is offered.
"""

import re
from collections.abc import Iterable
from hashlib import sha256

MAX_NAME = 64
_FITS = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}")
_FOREIGN = re.compile(r"[^A-Za-z0-9_.:-]")
_HASH = 8


class Names:
    """Names that upstream takes stay; others get one of their own."""

    def __init__(self, names: Iterable[str]) -> None:
        wanted = list(dict.fromkeys(names))
        self._upstream = {name: name for name in wanted if _FITS.fullmatch(name)}
        self._taken = set(self._upstream)
        for name in wanted:
            if name not in self._upstream:
                self._upstream[name] = self._rewritten(name)

    def upstream(self, name: str) -> str:
        """Return the name for upstream."""
        return self._upstream[name]

    def free(self, wanted: str) -> str:
        """Return `wanted`, or a name like it that no tool has; it is taken from then on."""
        if wanted in self._taken:
            return self._rewritten(wanted)
        self._taken.add(wanted)
        return wanted

    def changed(self) -> dict[str, str]:
        """Return the names that differ: upstream's to the client's."""
        return {there: here for here, there in self._upstream.items() if here != there}

    def _rewritten(self, name: str) -> str:
        clean = _FOREIGN.sub("_", name)
        clean = clean if clean[:1].isalpha() or clean[:1] == "_" else f"_{clean}"
        count = 0
        while True:
            # two names with one hash, or a client's name that looks like ours
            tail = sha256(f"{name}{count or ''}".encode("utf-8", "replace")).hexdigest()[:_HASH]
            found = f"{clean[: MAX_NAME - 1 - _HASH]}_{tail}"
            if found not in self._taken:
                self._taken.add(found)
                return found
            count += 1
