"""A request as a page shows it: the newest turns first and open, what came before folded, files as
facts. Must not know: the database."""

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import Any, TypeVar

from pages.escape import UNSEEN, is_plain
from protocol.records import to_bytes
from protocol.request import ChatRequest, OtherPart, TextPart, ToolResultPart, ToolUsePart, Turn
from protocol.requests.media import kind_of

_T = TypeVar("_T")
_HIDDEN = re.compile(f"[{UNSEEN}]")
NEWEST = 3
"""Turns that are open, where nobody knows which ones are new."""
LISTED = 60
"""Turns that are listed; the raw request has all."""
MOST, MOST_FOLDED = 4_000, 600
"""Characters of a part that are shown, in an open turn and in a folded one."""
BUDGET, PARTS = 100_000, 400
"""Bytes of all turns of a page, about, and parts of them: the newest turns have them first."""
_OF_SYSTEM, _OF_TOOLS = (16_000, 20), (40_000, 200)
"""The same of the instructions and of the tools."""
_TOLD = 300
"""Characters of a tool's description."""
_NO_FILES: dict[str, Any] = {"files": [], "files_more": False}
_SPELLED = 60
"""Bytes of a page that spell out a character which nobody would see."""
_LEAST_FILE = 64
"""Characters of base64 that are taken for a file."""


@dataclass(frozen=True, slots=True)
class AttachedFile:
    """An image or a file in a request."""

    data: bytes
    media_type: str

    @property
    def sha256(self) -> str:
        """Its name in a link."""
        return sha256(self.data).hexdigest()


@dataclass(slots=True)
class _Room:
    """What is left of a page's bytes and parts."""

    size: int
    parts: int

    def cut(self, text: str, most: int) -> dict[str, Any]:
        """Return the beginning of a text that still has room, and how long all of it is."""
        excerpt = text[: min(most, max(0, self.size))]
        self.size -= (
            len(excerpt)
            if is_plain(excerpt)
            else len(excerpt.encode(errors="replace")) + _SPELLED * len(_HIDDEN.findall(excerpt))
        )
        return {"text": excerpt, "length": len(text), "cut": len(excerpt) < len(text)}

    def some(self, values: Sequence[_T]) -> Iterator[_T]:
        """Yield those that still have room."""
        for value in values:
            if self.parts <= 0:
                return
            self.parts -= 1
            yield value


def shown(request: ChatRequest, *, new: int | None = None) -> dict[str, Any]:
    """Return what the page shows. `new`: how many turns this call has that the one before had not;
    None: nobody knows."""
    turns = request.turns
    first_open = max(0, len(turns) - (NEWEST if new is None else new))
    listed = range(len(turns) - 1, max(-1, len(turns) - 1 - LISTED), -1)
    room, of_system, of_tools = _Room(BUDGET, PARTS), _Room(*_OF_SYSTEM), _Room(*_OF_TOOLS)
    rows = [
        _turn(number, turns[number], MOST if number >= first_open else MOST_FOLDED, room)
        for number in listed
    ]
    system = [of_system.cut(text, MOST) for text in of_system.some(request.system)]
    tools = [_tool(tool, of_tools) for tool in of_tools.some(request.tools)]
    return {
        "turns": len(turns),
        "open": [row for row in rows if row["number"] >= first_open],
        "folded": [row for row in rows if row["number"] < first_open],
        "not_listed": len(turns) - len(rows),
        "system": system,
        "system_more": len(request.system) - len(system),
        "tools": tools,
        "tools_more": len(request.tools) - len(tools),
        "facts": _facts(request),
    }


def _facts(request: ChatRequest) -> list[list[str]]:
    """The options of the request, by name."""
    choice, form, reasoning = request.tool_choice, request.response_format, request.reasoning
    known: dict[str, Any] = {
        "model": request.model,
        "stream": "yes" if request.stream else "no",
        "max tokens": request.max_tokens,
        "temperature": request.temperature,
        "top p": request.top_p,
        "stop": ", ".join(request.stop) or None,
        "tool choice": f"{choice.mode} {choice.name}".strip() if choice else None,
        "answer's form": form.mode if form else None,
        "thinking": (reasoning.mode or reasoning.effort) if reasoning else None,
        "user": request.user,
        "other fields": ", ".join(sorted(request.extra)) or None,
    }
    return [[name, _beginning(str(value))] for name, value in known.items() if value is not None]


def _beginning(text: str) -> str:
    if len(text) <= MOST_FOLDED:
        return text
    return (
        f"{text[:MOST_FOLDED]} … (the first {MOST_FOLDED:,} of {len(text):,} characters; the raw"
        " body has all)"
    )


def _turn(number: int, turn: Turn, most: int, room: _Room) -> dict[str, Any]:
    parts = [_part(part, most, room) for part in room.some(turn.parts)]
    return {
        "number": number,
        "role": turn.role,
        "parts": parts,
        "more": len(turn.parts) - len(parts),
    }


def _part(
    part: TextPart | ToolUsePart | ToolResultPart | OtherPart, most: int, room: _Room
) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"kind": "text", "name": "", **room.cut(part.text, most), **_NO_FILES}
        case ToolUsePart():
            return {
                "kind": "tool call",
                "name": part.name,
                "id": part.id,
                **room.cut(part.arguments, most),
                **_NO_FILES,
            }
        case ToolResultPart():
            kind = "result, an error" if part.is_error else "result"
            return {
                "kind": kind,
                "name": part.tool_call_id,
                **room.cut(part.text, most),
                **_facts_of(files_in(part.extra), room),
            }
        case OtherPart():
            thinking = part.body.get("thinking")
            text = thinking if isinstance(thinking, str) else ""
            return {
                "kind": part.kind,
                "name": "",
                **room.cut(text, most),
                **_facts_of(files_in(part.body), room),
            }


def _tool(tool: Any, room: _Room) -> dict[str, Any]:
    return {"name": tool.name, "description": room.cut(tool.description, _TOLD), "kind": tool.kind}


def _facts_of(files: Iterator[AttachedFile], room: _Room) -> dict[str, Any]:
    facts = [
        {"media_type": file.media_type, "size": len(file.data), "sha256": file.sha256}
        for file in islice(files, max(0, room.parts))
    ]
    room.parts -= len(facts)
    return {"files": facts, "files_more": next(files, None) is not None}


def files(request: ChatRequest) -> Iterator[AttachedFile]:
    """Yield all images and files of a request."""
    for turn in request.turns:
        for part in turn.parts:
            if isinstance(part, OtherPart):
                yield from files_in(part.body)
            elif isinstance(part, ToolResultPart):
                yield from files_in(part.extra)


def files_in(value: Any) -> Iterator[AttachedFile]:
    """Yield what is in base64 in a JSON value, as `data:` URL or in a field beside its media
    type."""
    items: list[Any] = [value]
    while items:
        item = items.pop()
        if isinstance(item, dict):
            media_type = item.get("media_type")
            for name, child in item.items():
                if isinstance(child, str):
                    file = _file(name, child, media_type if isinstance(media_type, str) else "")
                    if file is not None:
                        yield file
                else:
                    items.append(child)
        elif isinstance(item, Sequence) and not isinstance(item, str | bytes):
            items += item


def _file(name: str, text: str, media_type: str) -> AttachedFile | None:
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
    return AttachedFile(data, kind_of(data) or media_type[:80] or "unknown")
