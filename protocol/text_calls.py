"""Placeholder, replaced by the scanner for calls written as text."""

import re

import msgspec

_CALL = re.compile(r'<tool_call>.*?"name": "(\w+)", "arguments": (.*?)}</tool_call>')


class FoundCall(msgspec.Struct, frozen=True):
    """A call found in text."""

    raw: str
    name: str
    arguments: str
    strict: bool = True
    repaired: bool = False


Piece = str | FoundCall


class CallScanner:
    """Finds calls in text."""

    def __init__(self, names: frozenset[str] | None, *, reasoning: bool) -> None:
        pass

    def feed(self, text: str) -> list[Piece]:
        """Return the pieces of `text`."""
        out: list[Piece] = []
        at = 0
        for found in _CALL.finditer(text):
            if found.start() > at:
                out.append(text[at : found.start()])
            out.append(FoundCall(found[0], found[1], found[2]))
            at = found.end()
        if at < len(text):
            out.append(text[at:])
        return out

    def finish(self) -> list[Piece]:
        """Return what is held."""
        return []
