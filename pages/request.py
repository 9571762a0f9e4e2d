"""A request as a page shows it: the newest turns first and open, what came before folded, files as facts. Must not know: the database."""

import base64
import binascii
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from protocol.media import kind_of
from protocol.records import to_bytes
from protocol.request import ChatRequest, OtherPart, TextPart, ToolResultPart, ToolUsePart, Turn

NEWEST = 3
"""Turns that are open, where nobody knows which ones are new."""
LISTED = 60
"""Turns that are listed; the raw request has all."""
MOST, MOST_FOLDED = 4_000, 600
"""Characters of a part that are shown, in an open turn and in a folded one."""
_LEAST_FILE = 64
"""Characters of base64 that are taken for a file."""


@dataclass(frozen=True, slots=True)
class File:
    """An image or a file in a request."""

    data: bytes
    media_type: str

    @property
    def sha256(self) -> str:
        """Its name in a link."""
        return sha256(self.data).hexdigest()


def shown(request: ChatRequest, *, new: int | None = None) -> dict[str, Any]:
    """Return what the page shows. `new`: how many turns this call has that the one before had not; None: nobody knows."""
    turns = request.turns
    first_open = max(0, len(turns) - (NEWEST if new is None else new))
    listed = range(len(turns) - 1, max(-1, len(turns) - 1 - LISTED), -1)
    rows = [_turn(number, turns[number], MOST if number >= first_open else MOST_FOLDED) for number in listed]
    return {
        "turns": len(turns),
        "open": [row for row in rows if row["number"] >= first_open],
        "folded": [row for row in rows if row["number"] < first_open],
        "not_listed": len(turns) - len(rows),
        "system": [_cut(text, MOST) for text in request.system],
        "tools": [_tool(tool) for tool in request.tools],
        "facts": _facts(request),
    }


def _facts(request: ChatRequest) -> list[list[str]]:
    """The options of the request, by name."""
    choice, form, reasoning = request.tool_choice, request.response_format, request.reasoning
    known: dict[str, Any] = {
        "model": request.model, "stream": "yes" if request.stream else "no", "max tokens": request.max_tokens,
        "temperature": request.temperature, "top p": request.top_p, "stop": ", ".join(request.stop) or None,
        "tool choice": f"{choice.mode} {choice.name}".strip() if choice else None, "answer's form": form.mode if form else None,
        "thinking": (reasoning.mode or reasoning.effort) if reasoning else None, "user": request.user,
        "other fields": ", ".join(sorted(request.extra)) or None,
    }  # fmt: skip
    return [[name, str(value)[:MOST_FOLDED]] for name, value in known.items() if value is not None]


def _turn(number: int, turn: Turn, most: int) -> dict[str, Any]:
    return {"number": number, "role": turn.role, "parts": [_part(part, most) for part in turn.parts]}


def _part(part: TextPart | ToolUsePart | ToolResultPart | OtherPart, most: int) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"kind": "text", "name": "", **_cut(part.text, most), "files": []}
        case ToolUsePart():
            return {"kind": "tool call", "name": part.name, "id": part.id, **_cut(part.arguments, most), "files": []}
        case ToolResultPart():
            kind = "result, an error" if part.is_error else "result"
            return {"kind": kind, "name": part.tool_call_id, **_cut(part.text, most), "files": _facts_of(files_in(part.extra))}
        case OtherPart():
            said = part.body.get("thinking")
            text = said if isinstance(said, str) else ""
            return {"kind": part.kind, "name": "", **_cut(text, most), "files": _facts_of(files_in(part.body))}


def _tool(tool: Any) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description[:MOST_FOLDED], "kind": tool.kind}


def _cut(text: str, most: int) -> dict[str, Any]:
    return {"text": text[:most], "length": len(text), "cut": len(text) > most}


def _facts_of(files: Iterator[File]) -> list[dict[str, Any]]:
    return [{"media_type": one.media_type, "size": len(one.data), "sha256": one.sha256} for one in files]


def files(request: ChatRequest) -> Iterator[File]:
    """Yield all images and files of a request."""
    for turn in request.turns:
        for part in turn.parts:
            if isinstance(part, OtherPart):
                yield from files_in(part.body)
            elif isinstance(part, ToolResultPart):
                yield from files_in(part.extra)


def files_in(value: Any) -> Iterator[File]:
    """Yield what is in base64 in a JSON value, as `data:` URL or in a field beside its media type."""
    items: list[Any] = [value]
    while items:
        item = items.pop()
        if isinstance(item, dict):
            said = item.get("media_type")
            for name, one in item.items():
                if isinstance(one, str):
                    found = _file(name, one, said if isinstance(said, str) else "")
                    if found is not None:
                        yield found
                else:
                    items.append(one)
        elif isinstance(item, Sequence) and not isinstance(item, str | bytes):
            items += item


def _file(name: str, text: str, media_type: str) -> File | None:
    is_url = text[:5].lower() == "data:"
    if len(text) < _LEAST_FILE or not (is_url or name in ("data", "file_data")):
        return None
    if is_url:
        start, _, text = text.partition(",")
        media_type = start[5:].partition(";")[0]
    try:
        data = base64.b64decode(to_bytes(text), validate=True)
    except (binascii.Error, ValueError):
        return None
    # what a sender says of its bytes is not believed
    return File(data, kind_of(data) or media_type[:80] or "unknown")
