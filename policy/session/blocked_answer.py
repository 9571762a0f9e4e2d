"""Turns that give blocked calls back to their model: the answer that had them, and a failed result
for each.

An answer is written in the client's terms, as a client would send it back; what its provider sealed
comes out of the answer's own chunks, as from the record. Must not know: outputs, when this happens.
"""

from collections.abc import Mapping, Sequence

import msgspec

from policy.session.answer.slots import CallSlot
from policy.session.effects import CallInfo
from policy.session.exchange import Exchange
from policy.session.notices import MARKS, SETUP_FAULTS, Notices
from protocol.bytes.json_strict import normal_arguments
from protocol.dialects.table import CLIENTS, DIALECTS
from protocol.dialects.turns import BaseTurnBuilder, StoredTurn
from protocol.errors import RemoteProtocolError
from protocol.events import BlockKind, BlockStart, Event, TextDelta
from protocol.request import (
    CallForm,
    ChatRequest,
    Part,
    TextPart,
    ToolResultPart,
    ToolUsePart,
    Turn,
    loop_start,
)

_UNREPEATABLE = SETUP_FAULTS | {
    "ambiguous_json",
    "approval_expired",
    "approval_pending",
    "approval_unavailable",
    "approval_used",
    "approvals_full",
    "name",
    "approval_superseded",
    "too_large",
    "too_many",
    "unfinished",
}
"""Reasons of blocks whose call cannot be sent back, or whose model could do nothing about it."""


def is_returnable(request: ChatRequest, slot: CallSlot) -> bool:
    """Is this a call of the client's that the API of its model takes back with a result, and that
    nobody forced?"""
    tool, choice = request.tool(slot.name), request.tool_choice
    return (
        slot.kind is BlockKind.TOOL_USE
        and slot.executor == "client"
        and slot.key == slot.index
        and slot.start.form != "legacy"
        # none that code of the provider's waits for
        and (slot.start.body or {}).get("caller") in (None, {"type": "direct"})
        and (choice is None or choice.mode == "auto")
        # an item of a type of its own, whose result has a form of its own
        and not (tool is not None and tool.kind == "client" and CLIENTS[request.dialect].has_items)
    )


def is_repeatable(slot: CallSlot) -> bool:
    """Is it blocked for a reason that its model can do something about?"""
    decided = slot.decided
    return (
        decided is not None and decided.verdict == "block" and decided.reason not in _UNREPEATABLE
    )


def count_notices(request: ChatRequest) -> int:
    """How many calls were blocked since the user's last words, as far as the client's history says
    so: a client that hides or adds some decides about no more than when its own turn ends."""
    return sum(
        part.text.count(mark)
        for turn in request.turns[loop_start(request.turns) :]
        for part in turn.parts
        for mark in MARKS
        if turn.role == "assistant" and isinstance(part, TextPart)
    )


def blocked_answer(
    call: CallInfo,
    exchange: Exchange,
    calls: Sequence[CallSlot],
    chunks: Sequence[bytes],
    unknown: Sequence[str],
    notices: Notices,
) -> tuple[tuple[Turn, Turn], list[StoredTurn]]:
    """Write the segment that ended, whose blocked calls are `calls`, and their results; and what
    of it goes back as from the record. Raises RemoteProtocolError where that cannot be sent
    back."""
    if not chunks:
        raise RemoteProtocolError("nothing is left of it")
    upstream = exchange.upstream
    is_same = call.dialect == upstream.dialect
    uses = {slot.index - exchange.offset: _use(call, exchange, slot) for slot in calls}
    answer = _answer(exchange.decode_again(chunks, unknown), uses, has_fields=is_same)
    results = tuple(
        ToolResultPart(use.id, notices.failed_result(slot.name, slot.final), True, form=use.form)
        for use, slot in zip(uses.values(), calls, strict=True)
    )
    turns, stored = DIALECTS[upstream.dialect].turns, []
    if turns is not None and upstream.target.native_tools:
        stored = [_stored(call, exchange, uses, chunks, turns.TurnBuilder())]
        if is_same:
            # its client would have sent back what is sealed; its other turns have that already
            alone = msgspec.structs.replace(exchange.request, turns=(answer,))
            [answer], stored = turns.with_turns(alone, stored, upstream=upstream.name)[0].turns, []
    return (answer, Turn("user", results)), stored


def _use(call: CallInfo, exchange: Exchange, slot: CallSlot) -> ToolUsePart:
    tool = exchange.request.tool(slot.name)
    form: CallForm = "custom" if tool is not None and tool.kind == "custom" else "function"
    namespace = (slot.start.body or {}).get("namespace")
    extra = (
        {"item": {"namespace": namespace}} if namespace and CLIENTS[call.dialect].has_items else {}
    )
    return ToolUsePart(slot.id, slot.name, normal_arguments(slot.join()), extra, form)


def _answer(events: Sequence[Event], uses: Mapping[int, ToolUsePart], *, has_fields: bool) -> Turn:
    """The turn of these events. With `has_fields`, thinking that has the name of a field goes back
    in that."""
    pieces: dict[int, list[str]] = {}
    for event in events:
        if isinstance(event, TextDelta):
            pieces.setdefault(event.index, []).append(event.text)
    parts: list[Part] = []
    fields: dict[str, str] = {}
    for start in events:
        if isinstance(start, BlockStart):
            text = "".join(pieces.get(start.index, ()))
            if start.kind is BlockKind.TOOL_USE:
                parts.append(uses[start.index])
            elif start.kind is BlockKind.TEXT and text.strip():
                parts.append(TextPart(text))
            elif start.kind is BlockKind.THINKING and start.name and has_fields:
                fields[start.name] = fields.get(start.name, "") + text
    return Turn("assistant", tuple(parts), fields)


def _stored(
    call: CallInfo,
    exchange: Exchange,
    uses: Mapping[int, ToolUsePart],
    chunks: Sequence[bytes],
    builder: BaseTurnBuilder,
) -> StoredTurn:
    for chunk in chunks:
        if builder.goes_on or not builder.complete:
            builder.take(chunk)
    builder.finish()
    if not builder.complete:
        raise RemoteProtocolError("what came cannot be sent back as it came")
    return StoredTurn(
        f"{call.call_id}.{exchange.segment}",
        builder.content(),
        builder.container,
        tuple(use.id for use in uses.values()),
        exchange.upstream.name,
        blocks=tuple(uses),
    )
