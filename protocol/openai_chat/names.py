"""Names of tools and ids of calls as chat/completions takes them, and the way back: one map for each request.

A rewritten name ends in a hash of the client's, so that it stays the same from turn to turn, whatever else is offered.
"""

import re
from base64 import b32encode
from collections.abc import Iterable
from hashlib import sha256

MAX_NAME = 64
MAX_ID = 40
_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")


class Names:
    """Names that upstream takes stay; others get one of their own."""

    def __init__(self, names: Iterable[str]) -> None:
        wanted = list(dict.fromkeys(names))
        self._upstream = {name: name for name in wanted if _fits(name)}
        taken = set(self._upstream)
        for name in wanted:
            if name not in self._upstream:
                self._upstream[name] = _rewritten(name, taken)

    def upstream(self, name: str) -> str:
        """Return the name for upstream."""
        return self._upstream[name]

    def changed(self) -> dict[str, str]:
        """Return the names that differ: upstream's to the client's."""
        return {there: here for here, there in self._upstream.items() if here != there}


def call_id(identity: str) -> str:
    """Return an id that the vendor takes: history only, so there is no way back."""
    return identity if len(identity) <= MAX_ID else f"call_{_hash(identity, 24)}"


def short_id(identity: str, chars: int) -> str:
    """Return an id of so many letters and digits, the same for the same id."""
    if len(identity) == chars and identity.isascii() and identity.isalnum():
        return identity
    return b32encode(sha256(identity.encode("utf-8", "replace")).digest()).decode()[:chars]


def _fits(name: str) -> bool:
    return 0 < len(name) <= MAX_NAME and not _FOREIGN.search(name)


def _rewritten(name: str, taken: set[str]) -> str:
    clean, count = _FOREIGN.sub("_", name), 0
    while True:
        # two names with one hash, or a client's name that looks like ours
        tail = _hash(f"{name}{count or ''}", 8)
        found = f"{clean[: MAX_NAME - 9]}_{tail}"
        if found not in taken:
            taken.add(found)
            return found
        count += 1


def _hash(text: str, length: int) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()[:length]
