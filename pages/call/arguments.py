"""Arguments of a tool call as a page shows them: in lines, raw next to released, and as sent where
that differs.

Must not know: the database, templates.
"""

import re
from collections.abc import Iterator
from typing import Any

from pages.call.diff import Diff, diff
from pages.pretty import pretty
from protocol.bytes.json_strict import AmbiguousJson, loads_call
from protocol.records import to_text

WHOLE = 64 * 1024
"""Arguments up to so many bytes are shown whole."""
ENDS = 4 * 1024
"""Of longer ones, so many bytes from the beginning and from the end."""
_CONTEXT = 3
"""Lines beside a change that are shown with it."""
_BLANK = re.compile(r"\s+")


def shown(start: bytes, tail: bytes | None, size: int, most: int) -> dict[str, Any]:
    """Return a text as far as it was read: `start` holds its first `most` bytes, `tail` the last
    ones where it is longer."""
    if size <= most:
        return {"text": to_text(start), "size": size, "cut": False, "tail": ""}
    tail = tail or b""
    # what is read of both ends may meet: then it is all there is, and no byte of it stands twice
    if (twice := len(start) + len(tail) - size) >= 0:
        return {"text": to_text(start + tail[twice:]), "size": size, "cut": False, "tail": ""}
    end = tail.decode(errors="ignore")
    first = start[:ENDS].decode(errors="ignore")
    return {
        "text": first,
        "size": size,
        "cut": True,
        "tail": end,
        "first": len(first.encode()),
        "last": len(end.encode()),
    }


def one_side(arguments: dict[str, Any]) -> dict[str, Any]:
    """Add how arguments read in lines, and whether they have to be shown as sent too, and why."""
    if arguments["cut"]:
        return {**arguments, "lines": None, "exact": None, "why": ""}
    text = arguments["text"]
    lines = in_lines(text)
    why = doubt(text)
    if lines is None:
        return {
            **arguments,
            "lines": None,
            "exact": text,
            "why": why or "too long to be put into lines",
        }
    if not why and _BLANK.sub("", lines) != _BLANK.sub("", text):
        why = "in lines they are not the same"
    return {**arguments, "lines": lines, "exact": text if why else None, "why": why}


def in_lines(text: str) -> str | None:
    """Return JSON in lines, in the order in which it was sent; None for what is none."""
    pieces = pretty(text)
    return None if pieces is None else "".join(piece.text for piece in pieces)


def doubt(text: str) -> str:
    """Return why two programs may read this in two ways; nothing where they do not."""
    try:
        loads_call(text)
    except AmbiguousJson as error:
        return str(error)
    except (ValueError, RecursionError):
        return "it is no JSON"
    return ""


def compared(old: str, new: str, **bounds: Any) -> dict[str, Any]:
    """Return two texts as lines with what changed in them: JSON in lines, if both are; only the
    lines around changes."""
    left, right = in_lines(old), in_lines(new)
    difference = (
        diff(old, new, **bounds) if left is None or right is None else diff(left, right, **bounds)
    )
    return {"lines": folded(difference), "aligned": difference.aligned}


def folded(difference: Diff) -> list[dict[str, Any]]:
    """Return the lines of a comparison as `fold` has them."""
    return list(fold(difference))


def fold(
    difference: Diff, *, context: int = _CONTEXT, whole: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the lines of a comparison as JSON values. A stretch of equal lines becomes one with the
    sign "…", which says how many."""
    near = set[int]()
    for at, line in enumerate(difference.lines):
        if line.sign != " ":
            near.update(range(at - context, at + context + 1))
    skipped = 0
    for at, line in enumerate(difference.lines):
        if line.sign == " " and at not in near and not whole:
            skipped += 1
            continue
        if skipped:
            yield {"sign": "…", "parts": [], "skipped": skipped, "cut": 0}
            skipped = 0
        yield {
            "sign": line.sign,
            "parts": [{"text": part.text, "changed": part.changed} for part in line.parts],
            "skipped": 0,
            "cut": 0,
        }
    if skipped:
        yield {"sign": "…", "parts": [], "skipped": skipped, "cut": 0}
