"""Reads which folders an agent's own texts name, where it wrote them.

Theory. A system prompt and the messages before the first answer are the client's, but not all in
them is: prompts quote the project's files, and a user pastes what somebody else wrote. So of a
message only a frame at its beginning counts, and of a prompt whole lines before its first quote.
Lines without an empty one between them are one statement, which may name several folders; each
label counts once in it. Statements must agree: who adds one can only take folders away.

Must not know: what a path means, or whom a folder belongs to.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from policy.claims.forms import FRAMES, LINES
from protocol.bounds import MAX_CLAIM_CHARS, MAX_CLAIMS, MAX_PROJECT_ROOTS
from protocol.request import ChatRequest, TextPart, ToolResultPart, ToolUsePart

Statement = tuple[str, ...]
"""Folders that are named together, the one in which the agent works first."""
OwnText = tuple[str, bool]
"""A text of the client's own; is it of a system or developer message?"""
_MAX_TEXTS, _MAX_LINES = 32, 64
_ABSOLUTE = re.compile(r"[/~]|[A-Za-z]:[\\/]")
_ITEM = re.compile(r"\n+\s*[-*+]\s+")


def own_texts(request: ChatRequest) -> list[OwnText]:
    """Return the texts of a request that may name a folder: those before anything that a model said
    or a tool returned, as far as they are looked at. Reads none of them."""
    texts = [(text, True) for text in request.system[:_MAX_TEXTS]]
    for turn in request.turns[:_MAX_TEXTS]:
        parts = turn.parts[:_MAX_TEXTS]
        if turn.role == "assistant" or any(
            isinstance(part, ToolUsePart | ToolResultPart) for part in parts
        ):
            break
        texts += [
            (part.text, turn.role == "system") for part in parts if isinstance(part, TextPart)
        ]
    left, kept = MAX_CLAIM_CHARS, []
    for text, is_prompt in texts[:_MAX_TEXTS]:
        kept.append((text[:left], is_prompt))
        left -= len(kept[-1][0])
    return kept


def statements(texts: Sequence[OwnText]) -> list[Statement] | None:
    """Return the statements in these texts; None where there are more than are weighed."""
    found: dict[Statement, None] = {}
    for text, is_prompt in texts:
        begun = text.lstrip()
        frame = next((frame for frame in FRAMES if begun.startswith(frame[0])), None)
        if frame is not None:
            found |= dict.fromkeys(_named(begun.partition(frame[1])[0], frame[2]))
        elif is_prompt:
            found |= dict.fromkeys(_named(text, LINES))
        if len(found) > MAX_CLAIMS or any(len(each) > MAX_PROJECT_ROOTS for each in found):
            return None
    return list(found)


def _named(text: str, pattern: Any) -> list[Statement]:
    """The statements of one text: all, as a bound could hide the one that is true, or too many."""
    made: dict[tuple[int, int], dict[str, None]] = {}
    labels: Counter[tuple[int, str]] = Counter()
    for number, match in enumerate(pattern.finditer(text)):
        if number == _MAX_LINES:
            return [("",) * (MAX_PROJECT_ROOTS + 1)]
        named = match.groupdict()
        if named.pop("quote", None) is not None:
            break
        label = (named.get("label") or "").lower()
        block = text.rfind("\n\n", 0, match.start()) if pattern is LINES else 0
        value = next(group for group in match.groups()[::-1] if group is not None)
        parts = _ITEM.split(value) if "\n" in value else [value]
        if label.endswith("ies"):
            parts = [each for part in parts for each in part.split(", ")]
        paths = [path for part in parts if _ABSOLUTE.match(path := part.strip(" \t\r`'\""))]
        if paths:
            made.setdefault((block, labels[block, label] if label else 0), {}).update(
                dict.fromkeys(paths[: MAX_PROJECT_ROOTS + 1])
            )
            labels[block, label] += 1
    return [*map(tuple, made.values())]
