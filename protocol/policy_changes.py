"""Applies a policy's change of a request so that providers of every dialect get the same.

Theory. Some facts are in two places of a ChatRequest: in a typed field, and as they came in `extra`
or `system_messages`, with details that the field lacks. If a policy changed one of the two, the
other follows. If it changed both to different things, or set something that its dialect cannot
express, the request is refused: nothing is guessed. Must not know: policies, providers.
"""

from collections.abc import Iterator

import msgspec

from protocol.dialects.table import CLIENTS
from protocol.errors import InvalidRequest
from protocol.request import (
    ChatRequest,
    OtherPart,
    Part,
    TextPart,
    Tool,
    ToolResultPart,
    ToolUsePart,
    Turn,
)
from protocol.requests.conflicts import Changes, Unclear, follow
from protocol.requests.fields import refuse_twins

__all__ = ["Unclear", "reconciled"]
_FORM = ("dialect", "stream", "include_usage", "is_as_written", "legacy_functions", "state")
"""What the client's answer is written by."""
_OWN_NAMES = {
    TextPart: frozenset(("type", "text")),
    ToolUsePart: frozenset("id type function custom name input arguments".split()),
    ToolResultPart: frozenset(("role", "type", "tool_call_id", "tool_use_id", "is_error")),
    Turn: frozenset(("role", "content", "tool_calls", "function_call")),
    Tool: frozenset(("name", "description", "parameters", "input_schema")),
}
_PLACES: dict[str, tuple[type[Part], ...]] = {
    "system": (TextPart,),
    "user": (TextPart, ToolResultPart, OtherPart),
    "assistant": (TextPart, ToolUsePart, OtherPart),
}


def reconciled(before: ChatRequest, after: ChatRequest) -> ChatRequest:
    """Return `after`, in which what stands twice agrees. Raises Unclear."""
    for name in _FORM:
        if getattr(before, name) != getattr(after, name):
            raise Unclear(f"{name} cannot be changed: the client's answer depends on it")
    if not after.model or len(after.model) > 200:
        raise Unclear("model is not a valid name")
    try:
        changes = CLIENTS[after.dialect].changes()
        after = changes.agree(before, _system(before, after, changes))
        _check_tools(after, changes)
        return msgspec.structs.replace(after, turns=tuple(_turns(before, after, changes)))
    except InvalidRequest as error:
        raise Unclear(error.message) from error


def _system(before: ChatRequest, after: ChatRequest, changes: Changes) -> ChatRequest:
    """The system prompt as texts, and as it came: with what its parts carry besides."""
    as_it_came, texts = changes.system_as_it_came, changes.system_texts
    came, comes = as_it_came(before), as_it_came(after)
    if came == comes:
        return after
    if comes is None:
        if after.system == before.system:
            raise Unclear(
                "the original system prompt was removed and `system` was not changed: put the new"
                " prompt into `system`"
            )
        return after
    system = texts(comes)
    if follow("system", (before.system, after.system), (None, system)):
        return msgspec.structs.replace(after, system=system)
    return after


def _check_tools(request: ChatRequest, changes: Changes) -> None:
    refuse_twins(request.tools)
    for position, tool in enumerate(request.tools):
        at = f"tools[{position}]"
        if not tool.name:
            raise Unclear(f"{at} has no name")
        if tool.kind in ("client", "server"):
            # where in a request it stands is no part of what it is
            if changes.read_tool(tool.extra, position) != msgspec.structs.replace(tool, outer={}):
                raise Unclear(f"{at} is of a provider's own type: change only its `extra`")
        elif not _OWN_NAMES[Tool].isdisjoint(tool.extra):
            raise Unclear(f"{at}.extra has what has a field of its own")
        else:
            changes.check(tool, at)
        if request.legacy_functions and tool.kind != "function":
            raise Unclear(f"{at}: this client offers functions alone")


def _turns(before: ChatRequest, after: ChatRequest, changes: Changes) -> Iterator[Turn]:
    results: dict[str, ToolResultPart] | None = None
    known = set(map(id, before.turns))
    for position, turn in enumerate(after.turns):
        if id(turn) in known:
            yield turn
            continue
        at, parts = f"turns[{position}]", list(turn.parts)
        _check_extra(turn, at)
        for number, part in enumerate(turn.parts):
            _check_part(part, turn, before, f"{at}.parts[{number}]", changes)
            if type(part) is ToolResultPart and isinstance(part.extra.get("content"), list):
                if results is None:
                    results = {
                        p.tool_call_id: p
                        for t in before.turns
                        for p in t.parts
                        if type(p) is ToolResultPart
                    }
                parts[number] = _result(results.get(part.tool_call_id), part, changes)
        yield Turn(turn.role, tuple(parts), turn.extra)


def _check_extra(held: TextPart | ToolUsePart | ToolResultPart | Turn, at: str) -> None:
    if held.extra and not _OWN_NAMES[type(held)].isdisjoint(held.extra):
        raise Unclear(f"{at}.extra has what has a field of its own")


def _check_part(part: Part, turn: Turn, request: ChatRequest, at: str, changes: Changes) -> None:
    if type(part) not in _PLACES[turn.role]:
        raise Unclear(f"{at}: a turn of the role {turn.role} cannot hold a {type(part).__name__}")
    if isinstance(part, OtherPart):
        if part.body.get("type") != part.kind:
            raise Unclear(f"{at}: `kind` is not the type that its body has")
        # a turn that goes on holds what upstream sent, as it was
        if part.dialect != request.dialect and not any(part in t.parts for t in request.turns):
            raise Unclear(f"{at} is of another dialect")
        return
    _check_extra(part, at)
    if isinstance(part, ToolUsePart):
        changes.check(part, at)


def _result(
    before: ToolResultPart | None, after: ToolResultPart, changes: Changes
) -> ToolResultPart:
    """A result's text, and the parts it came as: where a policy rewrote the text, that is all that
    goes out."""
    text = changes.result_text(after.extra["content"], "")
    if text == after.text or (
        before is not None and after.extra["content"] == before.extra.get("content")
    ):
        return after
    if before is not None and after.text == before.text:
        return msgspec.structs.replace(after, text=text)
    raise Unclear(
        "the text of a tool's result and its parts were both changed, to different things"
    )
