"""Text for columns of type text, which can hold neither U+0000 nor a lone surrogate: escaped
losslessly.

Ordinary text is stored as it is. A character that PostgreSQL refuses, and the escape character
itself (U+FFFE, a noncharacter that no ordinary text holds), becomes U+FFFE and four hexadecimal
digits. Filters escape their values the same way, so that equality works. Must not know: SQL.
"""

import json
import re
from hashlib import sha256
from typing import Any

from protocol.bounds import MAX_INDEXED_CHARS, MAX_SEARCHED_CHARS

ESCAPE = "\ufffe"
INDEXED = MAX_INDEXED_CHARS
"""Characters of a text that an index holds: escaped they are 2,100 bytes at most, and a btree takes
2,704 with the call's id."""
SEARCH_LIMIT = MAX_SEARCHED_CHARS
"""Characters of one tool call that the text search sees; longer arguments are kept whole, but
searched up to here."""
_REFUSED = re.compile("[\x00\ud800-\udfff\ufffe]")
_ESCAPED = re.compile("\ufffe([0-9a-f]{4})")
_GAPS = re.compile(r"[\W_]+")
_MAX_DEPTH = 64


def to_column(text: str) -> str:
    """Return `text` in the form a text column holds."""
    if text.isascii() and "\x00" not in text:
        return text
    return _REFUSED.sub(lambda match: f"{ESCAPE}{ord(match[0]):04x}", text)


def to_short(text: str, most: int) -> str:
    """Return a text of at most `most` characters unchanged, a longer one as its beginning and the
    hash of the whole: different texts stay different, and equal texts equal."""
    if len(text) <= most:
        return text
    digest = sha256(text.encode(errors="surrogatepass")).hexdigest()
    return f"{text[: most - 120]}... [{len(text)} characters, SHA-256 {digest}]"


def from_column(text: str) -> str:
    """Return the text that `to_column` was given."""
    if ESCAPE not in text:
        return text
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)


def words(text: str) -> str:
    """Return the words of `text`, in order, with single spaces between: what the search index holds
    and is asked for."""
    return _GAPS.sub(" ", _REFUSED.sub(" ", text)).strip()


def search_text(name: str, arguments: str, reason: str, rule: str) -> str:
    """Return the words of a tool call to index: name, reason, rule and arguments, the arguments
    also with their JSON escapes decoded."""
    decoded = (
        " ".join(_leaves(arguments)) if "\\" in arguments and len(arguments) <= SEARCH_LIMIT else ""
    )
    return words(
        f"{name} {reason} {rule} {arguments[:SEARCH_LIMIT]} {decoded}"[: 2 * SEARCH_LIMIT]
    )[:SEARCH_LIMIT]


def _leaves(arguments: str) -> list[str]:
    try:
        strings: list[str] = []
        _collect(json.loads(arguments), strings, 0)
    except (ValueError, RecursionError):
        return []
    return strings


def _collect(value: Any, strings: list[str], depth: int) -> None:
    if depth > _MAX_DEPTH:
        return
    match value:
        case str():
            strings.append(value)
        case dict():
            for key, item in value.items():
                strings.append(key)
                _collect(item, strings, depth + 1)
        case list():
            for item in value:
                _collect(item, strings, depth + 1)
