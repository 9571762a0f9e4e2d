"""Which calls admins allowed for good, by key, as the database has them (`db.state.polling`)."""

from collections.abc import Iterable, Mapping
from typing import Any

MOST_OF_A_KEY = 100
"""Marks go with every call of their key; past it the newest count."""


class AllowedCalls:
    """The marks of each key's allowed calls."""

    def __init__(self) -> None:
        self._of_key: dict[str, tuple[str, ...]] = {}

    def take(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take what is allowed now, the newest first."""
        of_key: dict[str, dict[str, None]] = {}
        for row in rows:
            of_key.setdefault(row["key_id"], {})[row["mark"]] = None
        self._of_key = {key: tuple(marks)[:MOST_OF_A_KEY] for key, marks in of_key.items()}

    def of(self, key_id: str) -> tuple[str, ...]:
        """Return the marks of a key's calls."""
        return self._of_key.get(key_id, ())
