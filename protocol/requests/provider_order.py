"""A neutral request in the order that all providers take: one system prompt in front, and results
straight behind their calls.

A Responses client may send items between a call and its output, and a Messages client may begin
with a message of the role system. Providers of other dialects refuse both.
"""

from collections.abc import Sequence
from itertools import takewhile

import msgspec

from protocol.request import OtherPart, TextPart, ToolResultPart, ToolUsePart
from protocol.requests.neutral import AnyTurn, NeutralPart, NeutralRequest, NeutralTurn

_GAP = TextPart("\n\n")


def arranged(neutral: NeutralRequest) -> NeutralRequest:
    """Return the request with its leading system messages in the system prompt and its results
    behind their calls."""
    leading = list(takewhile(_is_system_text, neutral.turns))
    turns = tuple(_paired(neutral.turns[len(leading) :]))
    if not leading:
        return neutral if turns is neutral.turns else msgspec.structs.replace(neutral, turns=turns)
    texts = ("".join(p.text for p in turn.parts if isinstance(p, TextPart)) for turn in leading)
    request = msgspec.structs.replace(neutral.request, system=(*neutral.request.system, *texts))
    more = (NeutralTurn("system", turn.parts, turn.extra) for turn in leading)
    return msgspec.structs.replace(
        neutral, request=request, system=(*neutral.system, *more), turns=turns
    )


def _is_system_text(turn: AnyTurn) -> bool:
    return turn.role == "system" and all(isinstance(p, TextPart) for p in turn.parts)


def _call_id(part: NeutralPart) -> str:
    """The id of the call that a part is; empty for any other."""
    match part:
        case ToolUsePart():
            return part.id
        case OtherPart():
            return part.call_id
        case _:
            return ""


def _called(turn: AnyTurn) -> list[str]:
    """The ids of an answer's calls."""
    return (
        [identity for part in turn.parts if (identity := _call_id(part))]
        if turn.role == "assistant"
        else []
    )


def _paired(turns: Sequence[AnyTurn]) -> Sequence[AnyTurn]:
    """Put each result behind the answer with its call. An answer without calls that stood between
    goes in front of the calls, and whatever else stood there follows the results."""
    made: dict[str, int] = {}
    results: dict[int, list[ToolResultPart]] = {}
    last: dict[int, int] = {}
    for position, turn in enumerate(turns):
        made.update(dict.fromkeys(_called(turn), position))
        for part in turn.parts:
            if (
                isinstance(part, ToolResultPart)
                and (answer := made.get(part.tool_call_id)) is not None
            ):
                results.setdefault(answer, []).append(part)
                last[answer] = position
    if all(end == answer + 1 for answer, end in last.items()):
        return turns
    moved = {id(part) for group in results.values() for part in group}
    written: list[AnyTurn] = []
    answer = place = -1
    for position, turn in enumerate(turns):
        has_calls = bool(_called(turn))
        if turn.role == "assistant" and not has_calls and last.get(answer, -1) > position:
            written[place] = _with_aside(written[place], turn)
            continue
        parts = tuple(p for p in turn.parts if id(p) not in moved)
        if parts or not turn.parts:
            written.append(NeutralTurn(turn.role, parts, turn.extra))
        if has_calls:
            answer, place = position, len(written) - 1
            if position in results:
                written.append(NeutralTurn("user", tuple(results[position])))
    return written


def _with_aside(turn: AnyTurn, aside: AnyTurn) -> AnyTurn:
    """An answer with what another says in front of its calls."""
    first = next(n for n, part in enumerate(turn.parts) if _call_id(part))
    before: tuple[NeutralPart, ...] = turn.parts[:first]
    gap = (_GAP,) if any(isinstance(p, TextPart) for p in before) else ()
    return NeutralTurn(
        "assistant",
        (*before, *gap, *aside.parts, *turn.parts[first:]),
        {**turn.extra, **aside.extra},
    )
