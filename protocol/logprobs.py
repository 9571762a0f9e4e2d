"""Log probabilities: do they repeat only the text that they belong to?

Theory. Policies read text, and nobody reads what is attached to it. So log probabilities may hold
the tokens of exactly that text, numbers, and a few short alternatives to each token. If they
contain more they are withheld, and the text goes without them.
"""

from typing import Any

_MAX_TOKEN = 128
_MAX_ALTERNATIVES = 20
_TOKEN = frozenset(("token", "logprob", "bytes", "top_logprobs"))


def is_number(value: Any) -> bool:
    """Is it a number, or nothing?"""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _bytes(value: Any) -> bytes | None:
    try:
        return bytes(value) if isinstance(value, list) else None
    except (TypeError, ValueError):
        return None


def _spellings(raw: bytes) -> tuple[str, ...]:
    """The ways in which providers write a token: half a character stands as escapes or as a
    replacement character."""
    escaped = raw.decode("utf-8", "backslashreplace")
    return escaped, f"bytes:{escaped}", raw.decode("utf-8", "replace")


def _token_bytes(entry: Any) -> bytes | None:
    """The bytes that a token stands for, None if the entry holds something else."""
    if (
        not isinstance(entry, dict)
        or not _TOKEN.issuperset(entry)
        or not is_number(entry.get("logprob"))
    ):
        return None
    token, byte_values = entry.get("token"), entry.get("bytes")
    if not isinstance(token, str):
        return None
    if byte_values is None:
        return token.encode("utf-8", "surrogatepass")
    raw = _bytes(byte_values)
    return raw if raw is not None and token in _spellings(raw) else None


def _is_alternative(entry: Any) -> bool:
    if not isinstance(entry, dict) or "top_logprobs" in entry:
        return False
    raw = _token_bytes(entry)
    return raw is not None and len(raw) <= _MAX_TOKEN


def _are_alternatives(entries: Any) -> bool:
    """Alternatives to a token: at most 20, each no longer than a token."""
    return entries is None or (
        isinstance(entries, list)
        and len(entries) <= _MAX_ALTERNATIVES
        and all(map(_is_alternative, entries))
    )


def are_of(entries: Any, text: str) -> bool:
    """Are these the tokens of exactly `text`?"""
    if not isinstance(entries, list):
        return False
    token_bytes = []
    for entry in entries:
        raw = _token_bytes(entry)
        if raw is None or not _are_alternatives(entry.get("top_logprobs")):
            return False
        token_bytes.append(raw)
    return b"".join(token_bytes) == text.encode("utf-8", "surrogatepass")
