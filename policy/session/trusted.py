"""A request for another model, and a history with turns of another model: a model's thinking means
nothing to any other.

Providers sign thinking and refuse what another model signed, or a turn that lacks the thinking that
it must begin with. So the model that a turn is deferred to is asked without thinking. Where a
client sends such a turn back, the model that it asks goes on without thinking until its user says
something new. Must not know: sessions, policies.
"""

from collections.abc import Iterator

import msgspec

from protocol.dialects.table import DIALECTS
from protocol.errors import PolicyFailed
from protocol.policy_changes import Unclear, reconciled
from protocol.request import (
    ChatRequest,
    OtherPart,
    Part,
    Reasoning,
    ToolUsePart,
    Turn,
    loop_start,
)

_THINKING = frozenset(("thinking", "redacted_thinking"))
_FIELDS = frozenset(("reasoning", "reasoning_content", "reasoning_details"))
"""The same in chat/completions: beside the content of a turn."""
_OFF = Reasoning(mode="off")


def for_model(request: ChatRequest, model: str) -> ChatRequest:
    """Return the request for `model` instead, without thinking. Raises PolicyFailed."""
    changed = msgspec.structs.replace(request, model=model, turns=tuple(_turns(request.turns)))
    return _agreed(request, _quiet(changed))


def settled(request: ChatRequest) -> ChatRequest:
    """Return the request with thinking turned off where its provider would refuse it: with a budget
    to think, the turns since the last new user text must begin with thinking."""
    reasoning = request.reasoning
    is_due = (
        reasoning is not None
        and reasoning.mode == "budget"
        and DIALECTS[request.dialect].turns is not None
    )
    if not is_due or _begins_with_thinking(request.turns):
        return request
    return _agreed(request, _quiet(request))


def _quiet(request: ChatRequest) -> ChatRequest:
    return (
        request if request.reasoning is None else msgspec.structs.replace(request, reasoning=_OFF)
    )


def _agreed(before: ChatRequest, after: ChatRequest) -> ChatRequest:
    try:
        return reconciled(before, after)
    except Unclear as error:
        raise PolicyFailed(
            f"the request cannot be sent to the model {after.model!r}: {error}"
        ) from error


def _is_thinking(part: Part) -> bool:
    return isinstance(part, OtherPart) and part.kind in _THINKING


def _turns(turns: tuple[Turn, ...]) -> Iterator[Turn]:
    for turn in turns:
        if turn.role != "assistant" or (
            _FIELDS.isdisjoint(turn.extra) and not any(map(_is_thinking, turn.parts))
        ):
            yield turn
            continue
        parts = tuple(part for part in turn.parts if not _is_thinking(part))
        extra = (
            {name: value for name, value in turn.extra.items() if name not in _FIELDS}
            if turn.extra
            else turn.extra
        )
        if parts:
            yield Turn(turn.role, parts, extra)


def _begins_with_thinking(turns: tuple[Turn, ...]) -> bool:
    """Does the first turn with calls since the last new user text begin with thinking? True where
    there is none."""
    for turn in turns[loop_start(turns) :]:
        if turn.role == "assistant" and any(isinstance(part, ToolUsePart) for part in turn.parts):
            return _is_thinking(turn.parts[0])
    return True
