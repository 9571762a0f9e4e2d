"""What of an answer is withheld because nothing here models it: named, and named once."""

import re
from typing import Any

from protocol.bytes.bookkeeping import is_tame
from protocol.bytes.unknown import named
from protocol.events import Event, Opaque

EMPTY: tuple[Any, ...] = (None, "", [], {}, False)
_SEALED = re.compile(r"[A-Za-z0-9+/=_-]*")
"""Encrypted data: base64 in its two alphabets."""


class Withheld:
    """What was named so far."""

    def __init__(self) -> None:
        self._named = set[str]()

    def add(self, what: str, events: list[Event]) -> None:
        """Name what is left out, once."""
        if what not in self._named:
            self._named.add(what)
            events.append(Opaque(what))

    def fields(
        self, body: dict[str, Any], known: frozenset[str] | None, at: str, events: list[Event]
    ) -> None:
        """Name the fields of `body` that are not `known`, if they hold anything."""
        if known is not None and not known.issuperset(body):
            for name, value in body.items():
                if name not in known and value not in EMPTY:
                    self.add(named(at, name), events)

    def tame(self, kind: str, fields: dict[str, Any], events: list[Event]) -> dict[str, Any]:
        """Return what of a call's other fields is words and numbers: no policy reads it as text."""
        allowed: dict[str, Any] = {}
        for name, value in fields.items():
            if is_tame({name: value}) or (
                name == "fingerprint" and isinstance(value, str) and _SEALED.fullmatch(value)
            ):
                allowed[name] = value
            else:
                self.add(named(f"{kind} field", name), events)
        return allowed
