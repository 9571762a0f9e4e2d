"""The texts in a tool call's arguments as rules look at them: every decoded string and key, whatever escapes spelt it."""

import json
import unicodedata
from typing import Any

from policy.judging import INVISIBLE

Json = Any


def texts(value: Json) -> list[str]:
    """Return every string and key in `value`, and each list of strings joined by spaces (`["rm", "-rf"]`)."""
    found: list[str] = []
    _collect(value, found)
    return found


def _collect(value: Json, found: list[str]) -> None:
    if isinstance(value, str):
        found.append(value)
    elif isinstance(value, dict):
        found.extend(value)
        for inner in value.values():
            _collect(inner, found)
    elif isinstance(value, list):
        for inner in value:
            _collect(inner, found)
        found.append(" ".join(inner for inner in value if isinstance(inner, str)))


def scalars(value: Json) -> list[str]:
    """Return every value that is neither object nor list: strings as they are, others as JSON text."""
    if isinstance(value, dict | list):
        return [text for inner in (value.values() if isinstance(value, dict) else value) for text in scalars(inner)]
    return [value if isinstance(value, str) else json.dumps(value)]


def spellings(text: str) -> list[str]:
    """Return the text, and what a lenient reader may take it for: compatibility forms folded, invisible characters gone."""
    if text.isascii():
        return [text]
    folded = unicodedata.normalize("NFKC", INVISIBLE.sub("", text))
    return [text] if folded == text else [text, folded]
