"""What the hostile client may not have got, whatever it sent and its upstream said: a sentence for
each thing it has."""

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.chaos.hostile import ATTACKS, ROUTING
from tests.chaos.hostile_answers import FORBIDDEN, PHRASES, SECRET
from tests.chaos.load import Done
from tests.support.checks.invariants import Seen, calls_of, frames_of

_UNSEEN = re.compile("[\x00-\x08\x0e-\x1b\x7f\u200b\u2060\u00ad\ufeff]")
_BLANKS = re.compile("[\\s\ufeff\x1c-\x1f]+")
_FULL_WIDTH = str.maketrans({n: n - 0xFEE0 for n in range(0xFF01, 0xFF5F)})


def hostile_faults(done: Done, fields: set[str]) -> Iterator[str]:
    """Check a hostile call; `fields` are those of the request that upstream was sent."""
    attack, seen = ATTACKS[done.attack], done.seen
    if attack.refused and seen.status == 200:
        yield "it was served, and may not be"
    if found := fields & {*ROUTING}:
        yield f"upstream was sent {sorted(found)}"
    if seen.status != 200:
        return
    read = texts(seen)
    for text in read:
        if FORBIDDEN in text:
            yield f"its client reads {FORBIDDEN!r}"
        if attack.policy == "replaced" and (
            any(p in text for p in PHRASES) or re.search(SECRET, text)
        ):
            yield f"its client reads a phrase that its policy replaces: {text[:120]!r}"
    raw = to_text(json_text(seen.body))
    if attack.policy == "replaced" and (any(p in raw for p in PHRASES) or re.search(SECRET, raw)):
        yield "a phrase that its policy replaces is in what it got"
    calls = calls_of(seen)
    if attack.tools is not None and sorted(name for _, name, _, _ in calls) not in (
        [],
        sorted(attack.tools),
    ):
        yield f"it got the calls {[name for _, name, _, _ in calls]}, and may have {attack.tools}"
    for _, name, arguments, _ in calls:
        if any(FORBIDDEN in said for said in _run(arguments)):
            yield (
                f"it got a call of {name!r} that some shell runs as {FORBIDDEN!r}:"
                f" {arguments[:120]!r}"
            )


def texts(seen: Seen) -> list[str]:
    """What a client reads, joined as clients join it: the text, and the reasoning."""
    text, reasoning = [], []
    for frame in frames_of(seen):
        for choice in frame.get("choices", ()):
            said = choice.get("delta") or choice.get("message") or {}
            text.append(said.get("content") or "")
            reasoning.append(said.get("reasoning") or said.get("reasoning_content") or "")
        for block in (
            frame.get("content_block"),
            frame.get("delta"),
            *(frame.get("content") or ()),
        ):
            if isinstance(block, dict):
                text.append(block.get("text") or "")
                reasoning.append(block.get("thinking") or "")
    return [to_text("".join(text)), to_text("".join(reasoning))]


def to_text(joined: str) -> str:
    """Text with halves of characters put together, as programs have it that count UTF-16."""
    return joined.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def json_text(body: bytes) -> str:
    """Bytes of JSON with their escapes read."""
    text = body.decode("utf-8", "replace")
    return re.sub(r"\\u([0-9a-fA-F]{4})", lambda m: chr(int(m[1], 16)), text)


def line_faults(seen: Seen) -> Iterator[str]:
    """Check that clients that split lines at more than line feeds read the same frames."""
    text = seen.body.decode("utf-8", "replace")
    if len(text.splitlines()) != text.count("\n") + (text[-1:] not in ("\n", "")):
        yield "lines end at more than line feeds"


def _run(arguments: str) -> list[str]:
    """What shells may make of arguments: blanks of all kinds are one, what nobody sees is gone,
    lists are words."""
    try:
        words: Any = _words(json.loads(arguments or "{}"))
    except (ValueError, RecursionError):
        words = [arguments]
    joined = " ".join(words).translate(_FULL_WIDTH)
    return [_BLANKS.sub(" ", joined), _BLANKS.sub(" ", _UNSEEN.sub("", joined))]


def _words(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [
            word
            for key, inner in value.items()
            for word in (key if FORBIDDEN in key else "", *_words(inner))
            if word
        ]
    if isinstance(value, list):
        return [word for inner in value for word in _words(inner)]
    return [value] if isinstance(value, str) else []
