"""Names of documents, which Converse wants to be plain and different."""

import re

_FOREIGN = re.compile(r"[^a-zA-Z0-9 \-()\[\]]+")
_LONGEST = 200


class Titles:
    """The names in one request."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._counts: dict[str, int] = {}

    def upstream(self, title: str) -> str:
        """Return a name for one more document."""
        plain = " ".join(_FOREIGN.sub("-", title).split())[:_LONGEST].strip() or "document"
        name = plain
        while name in self._taken:
            self._counts[plain] = self._counts.get(plain, 1) + 1
            number = f" {self._counts[plain]}"
            name = plain[: _LONGEST - len(number)] + number
        self._taken.add(name)
        return name
