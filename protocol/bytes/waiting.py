"""Keepalives that say what a client waits for, and for how long: a comment in a stream, or a header
where the answer has not begun. Only these words can be said, whatever came over Redis."""

import re
from collections.abc import Sequence
from typing import Literal

Cause = Literal["a judge", "a person"]
HEADER = "x-sluice-waiting"
_SAID = re.compile(r"(?:a judge|a person), \d{1,5} s")


def said(cause: Cause, seconds: float) -> str:
    """Return the words for a wait of so many seconds, as header and comment have them."""
    return f"{cause}, {min(int(seconds), 99_999)} s"


def checked(words: str) -> str:
    """Return the words if they are such, else none."""
    return words if _SAID.fullmatch(words) else ""


def keepalive(own: bytes, words: str) -> bytes:
    """Return a dialect's keepalive with the words as a comment; as it is where there are none."""
    if not words:
        return own
    comment = f": waiting for {words}\n".encode()
    return comment + (b"\n" if own.startswith(b":") else own)


def detail(times: int, words: Sequence[str]) -> str:
    """Return how the record has keepalives that stand behind each other: how many, and the words of
    each if any has some."""
    return "; ".join([str(times), *words]) if any(words) else str(times)


def written(own: bytes, in_record: str) -> bytes:
    """Return the keepalives that a `detail` stands for; none where it is none."""
    times, *words = in_record.split("; ")
    if words:
        return b"".join(keepalive(own, checked(each)) for each in words)
    return own * (int(times) if times.isdecimal() else 0)
