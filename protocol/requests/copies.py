"""Copies of what a policy receives: it may change them freely, and nobody else sees the changes.

Only what can change is copied, so text, which is nearly all of a request, is shared. Recursion is
bounded: JSON that comes in is nested 128 deep at most.
"""

from collections.abc import Set
from typing import Any

import msgspec

from protocol.request import NOTHING, ChatRequest, OtherPart, Part, Tool, Turn


def copied_json(value: Any) -> Any:
    """Return a copy of decoded JSON."""
    if type(value) is dict:
        return {key: copied_json(item) for key, item in value.items()}
    if type(value) is list:
        return [copied_json(item) for item in value]
    return value


def copied(request: ChatRequest, *, owned_ids: Set[int] = frozenset()) -> ChatRequest:
    """Return a copy of a request; turns with an `id` in `owned_ids` are not shared, so they
    stay."""
    form = request.response_format
    changes: dict[str, Any] = {
        "turns": tuple(t if id(t) in owned_ids else _turn(t) for t in request.turns),
        "tools": tuple(map(copied_tool, request.tools)),
        "extra": copied_json(request.extra),
        "system_messages": tuple(map(copied_json, request.system_messages)),
        "echo": {},
        "web_search": copied_json(request.web_search),
        "response_format": (
            None if form is None else msgspec.structs.replace(form, schema=copied_json(form.schema))
        ),
    }
    return msgspec.structs.replace(request, **changes)


def anchored(request: ChatRequest, copy: ChatRequest, edited: ChatRequest) -> ChatRequest:
    """Return `edited`, which was made from `copy`, with the original turns of `request` wherever
    they are unchanged."""
    if type(edited.turns) is not tuple:
        return edited
    same = {id(g): r for g, r in zip(copy.turns, request.turns, strict=True) if g == r}
    return msgspec.structs.replace(edited, turns=tuple(same.get(id(t), t) for t in edited.turns))


def copied_tool(tool: Tool) -> Tool:
    """Return a copy of a tool."""
    return Tool(
        tool.name,
        tool.description,
        copied_json(tool.schema),
        copied_json(tool.extra),
        tool.kind,
        copied_json(tool.outer),
    )


def _turn(turn: Turn) -> Turn:
    if turn.extra is NOTHING and all(
        not isinstance(p, OtherPart) and p.extra is NOTHING for p in turn.parts
    ):
        # nothing in it can change: most of an agent's history
        return turn
    return Turn(turn.role, tuple(map(_part, turn.parts)), _extra(turn.extra))


def _extra(extra: dict[str, Any]) -> dict[str, Any]:
    return extra if extra is NOTHING else copied_json(extra)


def _part(part: Part) -> Part:
    if isinstance(part, OtherPart):
        return OtherPart(part.kind, copied_json(part.body), part.dialect)
    return (
        part
        if part.extra is NOTHING
        else msgspec.structs.replace(part, extra=copied_json(part.extra))
    )
