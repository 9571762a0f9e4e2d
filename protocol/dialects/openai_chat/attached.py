"""Checks what chat/completions attaches to text (log probabilities, reasoning details,
annotations): does it repeat only the text?

Theory. Policies read text. Attached data is withheld when they change or block the text, but nobody
reads it separately. So it may repeat that text, in tokens or entries, and hold numbers, ids and
encrypted data, and nothing else. If it contains more it is not recognised here, and the chunk's
text is released without it.
"""

import re
from typing import Any

from protocol.logprobs import are_of, is_number

_WORD = re.compile(r"[A-Za-z0-9_.:/-]{0,128}")
_SEALED = re.compile(r"[A-Za-z0-9+/=_-]*")
"""Encrypted data and signatures: base64 in its two alphabets."""
_DETAIL = frozenset("type id format index text summary data signature thinking".split())
_SHOWN = ("text", "summary", "thinking")
_CITATION = frozenset(("start_index", "end_index", "title", "url", "content"))


def logprobs_of(value: Any, texts: dict[str, str]) -> dict[str, dict[str, Any]] | None:
    """Split log probabilities by what they are of: `texts` is what the same chunk says, by field.

    Returns one object for each that has some, None where the tokens are not exactly those texts.
    """
    if not isinstance(value, dict) or not texts.keys() >= value.keys():
        return None
    empty: dict[str, Any] = dict.fromkeys(value)
    parts = {field: {**empty, field: entries} for field, entries in value.items() if entries}
    return (
        parts if all(are_of(part[field], texts[field]) for field, part in parts.items()) else None
    )


def readable_reasoning(details: Any) -> str | None:
    """Return the text that reasoning details or thinking blocks show a reader, None where they hold
    something that is neither that nor sealed."""
    if not isinstance(details, list):
        return None
    texts = []
    for entry in details:
        if (
            not isinstance(entry, dict)
            or not _DETAIL.issuperset(entry)
            or not is_number(entry.get("index"))
        ):
            return None
        shown = [entry.get(name) or "" for name in _SHOWN]
        words = [entry.get(name) or "" for name in ("type", "id", "format")]
        sealed = [entry.get(name) or "" for name in ("data", "signature")]
        if not all(isinstance(item, str) for item in [*shown, *words, *sealed]):
            return None
        if not all(map(_WORD.fullmatch, words)) or not all(map(_SEALED.fullmatch, sealed)):
            return None
        texts += shown
    return "".join(texts)


def is_prose_free(value: Any) -> bool:
    """Does this JSON hold numbers, words and sealed strings alone?"""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting += item
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
        elif isinstance(item, str) and not _WORD.fullmatch(item) and not _SEALED.fullmatch(item):
            return False
    return True


def are_annotations(value: Any) -> bool:
    """Are these citations of pages, as chat/completions has them? Files that a provider parsed, and
    what is new, are not."""
    return isinstance(value, list) and all(map(_is_citation, value))


def _is_citation(entry: Any) -> bool:
    if (
        not isinstance(entry, dict)
        or not entry.keys() <= {"type", "index", "url_citation"}
        or entry.get("type") != "url_citation"
    ):
        return False
    cited = entry.get("url_citation")
    if (
        not isinstance(cited, dict)
        or not _CITATION.issuperset(cited)
        or not is_number(entry.get("index"))
    ):
        return False
    words = (cited.get(name) for name in ("title", "url", "content"))
    return all(w is None or isinstance(w, str) for w in words) and all(
        is_number(cited.get(n)) for n in ("start_index", "end_index")
    )
