"""JSON as people read it: indented, in the order in which it was sent, with the kind of each piece.

The text itself is split and never regenerated: numbers keep their digits, duplicate keys stay
duplicate, escapes stay escapes.
"""

import json
import re
from collections.abc import Iterator

from pages.escape import Piece

MAX_CHARS = 1 << 16
"""Longer text is shown as it is: pretty, it would be several times as long."""
MAX_PIECES = 4000
"""Each coloured piece is a node of the page."""
_DEEPEST = 24
"""Levels of indentation. Nesting goes on without."""
_TOKEN = re.compile(
    r'\s+|("(?:[^"\\]|\\.)*")(\s*:)?|([-0-9][-+.0-9eE]*)|([A-Za-z]+)|([{\[])|([}\]])|(,)|:'
)
_EMPTY = re.compile(r"\s*[}\]]")


def pretty(text: str) -> list[Piece] | None:
    """Return JSON text as pieces, None where it is no JSON, or more than a page should colour."""
    if len(text) > MAX_CHARS:
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    pieces = list(_merged(_pieces(text)))
    return (
        pieces
        if len(pieces) <= MAX_PIECES
        else [Piece("", "".join(piece.text for piece in pieces))]
    )


def _pieces(text: str) -> Iterator[Piece]:
    depth = 0
    is_empty = False
    for token in _TOKEN.finditer(text):
        string, colon, number, word, opens, closes, comma = token.groups()
        if string is not None:
            yield Piece("key" if colon else "string", string)
            if colon:
                yield Piece("", ": ")
        elif number is not None:
            yield Piece("number", number)
        elif word is not None:
            yield Piece("word", word)
        elif opens is not None:
            depth += 1
            is_empty = _EMPTY.match(text, token.end()) is not None
            yield Piece("", opens if is_empty else opens + _break(depth))
        elif closes is not None:
            depth -= 1
            yield Piece("", closes if is_empty else _break(depth) + closes)
            is_empty = False
        elif comma is not None:
            yield Piece("", "," + _break(depth))


def _break(depth: int) -> str:
    return "\n" + "  " * min(depth, _DEEPEST)


def _merged(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Pieces without a colour that follow each other become one."""
    held = ""
    for piece in pieces:
        if not piece.kind:
            held += piece.text
            continue
        if held:
            yield Piece("", held)
            held = ""
        yield piece
    if held:
        yield Piece("", held)
