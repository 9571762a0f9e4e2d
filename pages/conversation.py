"""A session as one conversation: the turns that are new in each call, and what the model's turn became. Pure.

A client sends the whole conversation with each call. What it had before is left out by the marks of its turns (`protocol.prefix_tree`), and
the model's turn that comes back is compared with what was released: it is shown once, as the turn of its call. Must not know: SQL, HTML.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from db.read.sessions import TURN_BYTES, Said, SessionCall
from pages.diff import Diff, diff
from pages.sides import Listener, read_client
from protocol.histories import spans, typed
from protocol.prefix_tree import MAIN, Placed
from protocol.records import to_text

PART_CHARS = 4_000
"""Characters of a part that a page shows."""
_DIFF_CHARS, _DIFF_S = 20_000, 0.02


@dataclass(slots=True)
class Part:
    """A piece of a turn. `kind`: text, thinking, tool_use, tool_result, injected or other; `size`: characters of the whole."""

    kind: str
    text: str
    size: int
    name: str = ""
    id: str = ""


@dataclass(slots=True)
class Turn:
    """A turn as the client sent it. `is_foreign`: it stands for the model's, and is not what was released."""

    role: str
    parts: list[Part]
    number: int
    is_foreign: bool = False


@dataclass(slots=True)
class Act:
    """What the model said or asked for, and what became of it. `verdict` is empty for what has none of its own."""

    kind: str
    text: str
    size: int
    name: str = ""
    verdict: str = ""
    reason: str = ""
    policy: str = ""
    block: int = -1
    released: str | None = None
    """The arguments that went out, where they differ."""


@dataclass(slots=True)
class Step:
    """A call in the conversation."""

    call: SessionCall
    placed: Placed
    index: int
    turns: list[Turn] = field(default_factory=list)
    skipped: int = 0
    """New turns that are not shown, as they are too large together."""
    change: Diff | None = None
    acts: list[Act] = field(default_factory=list)


def wanted(
    calls: Sequence[SessionCall], placed: Sequence[Placed], indexes: Sequence[int]
) -> tuple[dict[UUID, tuple[int, int]], list[UUID]]:
    """Return which piece of each call's body holds what is shown, and the calls of which to read what was released."""
    pieces: dict[UUID, tuple[int, int]] = {}
    released: dict[UUID, None] = {}
    for index in indexes:
        call, at = calls[index], placed[index]
        released[call.call_id] = None
        _add(pieces, call, at.common)
        if at.parent >= 0:
            released[calls[at.parent].call_id] = None
            if at.changed:
                _add(pieces, calls[at.parent], at.common)
    return pieces, list(released)


def steps(calls: Sequence[SessionCall], placed: Sequence[Placed], indexes: Sequence[int], said: Said, *, cut: bool = True) -> list[Step]:
    """Return these calls with what is new in them. `cut`: of each part only the beginning, and its size."""
    found = [_step(calls, placed, index, said) for index in indexes]
    if cut:
        for step in found:
            for part in (part for turn in step.turns for part in turn.parts):
                part.text = part.text[:PART_CHARS]
            for act in step.acts:
                act.text = act.text[:PART_CHARS]
                act.released = act.released[:PART_CHARS] if act.released is not None else None
    return found


def _add(pieces: dict[UUID, tuple[int, int]], call: SessionCall, common: int) -> None:
    """The piece from the turn `common` on, as far as whole turns fit; where two are wanted, both if they are near each other."""
    places = spans(call.offsets)[common:]
    kept = [place for place in places if place[1] - places[0][0] <= TURN_BYTES]
    if kept:
        known = pieces.get(call.call_id, (kept[0][0], kept[-1][1]))
        begin, end = min(known[0], kept[0][0]), max(known[1], kept[-1][1])
        pieces[call.call_id] = (begin, end) if end - begin <= 2 * TURN_BYTES else known


def _step(calls: Sequence[SessionCall], placed: Sequence[Placed], index: int, said: Said) -> Step:
    call, at = calls[index], placed[index]
    step = Step(call, at, index)
    new = _turns(call, at.common, said)
    step.skipped = max(0, call.turns - at.common - len(new))
    if at.parent >= 0 and at.changed:
        parent = calls[at.parent]
        before = "\n\n".join(map(_plain, _turns(parent, at.common, said)))[:_DIFF_CHARS]
        step.change = diff(before, "\n\n".join(map(_plain, new))[:_DIFF_CHARS], seconds=_DIFF_S)
    step.turns = _without_echo(new, calls[at.parent] if at.parent >= 0 and not at.changed else None, said)
    step.acts = acts(call, said)
    return step


def _turns(call: SessionCall, common: int, said: Said) -> list[Turn]:
    """The turns from `common` on, as far as the piece of the body that was read holds them."""
    first, piece = said.pieces.get(call.call_id, (0, b""))
    found = []
    for number, (begin, end) in enumerate(spans(call.offsets)[common:], common):
        if begin < first or end > first + len(piece):
            break
        try:
            value = json.loads(piece[begin - first : end - first])
        except (ValueError, RecursionError):
            value = None
        found.append(_turn(value, number))
    return found


def _turn(value: Any, number: int) -> Turn:
    if not isinstance(value, dict):
        return Turn("unknown", [_part("other", "not readable")], number)
    parts = list(_parts(value.get("content"), 0))
    asked = value.get("tool_calls")
    for call in [*(asked if isinstance(asked, list) else ()), {"function": value.get("function_call")}]:
        function = call.get("function") or call.get("custom") if isinstance(call, dict) else None
        if isinstance(function, dict):
            arguments = function.get("arguments", function.get("input", ""))
            parts.append(_part("tool_use", str(arguments), str(function.get("name", "")), str(call.get("id", ""))))
    role = str(value.get("role", ""))
    if role == "tool":
        parts = [_part("tool_result", one.text, "", str(value.get("tool_call_id", "")), one.size) for one in parts]
    elif role == "user" and parts and all(one.kind == "tool_result" for one in parts):
        role = "tool"
    return Turn(role, parts, number)


def _parts(content: Any, depth: int) -> Iterator[Part]:
    if isinstance(content, str):
        yield _text(content)
    for one in content if isinstance(content, list) else ():
        if not isinstance(one, dict):
            yield _part("other", json.dumps(one, ensure_ascii=False))
            continue
        match one.get("type"):
            case "text" | "input_text" | "output_text" if isinstance(one.get("text"), str):
                yield _text(one["text"])
            case "thinking" | "redacted_thinking":
                yield _part("thinking", str(one.get("thinking", "")))
            case "tool_use" | "server_tool_use":
                arguments = json.dumps(one.get("input"), ensure_ascii=False)
                yield _part("tool_use", arguments, str(one.get("name", "")), str(one.get("id", "")))
            case "tool_result":
                # a result holds texts and images; what is deeper nobody sends
                inner = "\n".join(part.text for part in _parts(one.get("content"), depth + 1)) if not depth else "nested"
                yield _part("tool_result", inner, "error" if one.get("is_error") else "", str(one.get("tool_use_id", "")))
            case kind:
                yield _part("other", f"{kind}, {len(json.dumps(one)):,} bytes")


def _text(text: str) -> Part:
    return _part("text" if typed(text) or not text.strip() else "injected", text)


def _part(kind: str, text: str, name: str = "", identity: str = "", size: int = 0) -> Part:
    return Part(kind, text, size or len(text), name, identity)


def _plain(turn: Turn) -> str:
    """A turn as text, for comparing and for export."""
    lines = [f"[{turn.role}]"]
    lines += [f"{one.name} {one.text}" if one.kind == "tool_use" else one.text for one in turn.parts]
    return "\n".join(lines)


def _without_echo(turns: list[Turn], parent: SessionCall | None, said: Said) -> list[Turn]:
    """Without the model's turn that comes back, where it is what was released; what is not, is marked."""
    back = next((at for at, turn in enumerate(turns) if turn.role != "assistant"), len(turns))
    if not back or parent is None:
        return turns
    got = _released(parent, said)
    if got is None:
        return turns
    if _same(turns[:back], got, is_whole=parent.item["state"] == "ENDED"):
        return turns[back:]
    for turn in turns[:back]:
        turn.is_foreign = True
    return turns


def _released(call: SessionCall, said: Said) -> Listener | None:
    payloads = said.releases.get(call.call_id)
    return read_client(payloads, call.item["dialect"], streams=call.item["stream"]) if payloads else None


def _same(turns: Sequence[Turn], got: Listener, *, is_whole: bool) -> bool:
    """Is what comes back what went out? Clients cut blanks, leave thinking out, and part or join texts; of an answer that broke off they
    keep what they had by then."""
    parts = [part for turn in turns for part in turn.parts]
    text = "".join("".join(part.text.split()) for part in parts if part.kind in ("text", "injected"))
    asked = [(part.name, _value(part.text)) for part in parts if part.kind == "tool_use"]
    blocks = [got.blocks[number] for number in sorted(got.blocks)]
    sent = "".join("".join(block.text.split()) for block in blocks if block.kind == "text")
    calls = [(block.name, _value(block.text)) for block in blocks if block.is_call]
    if not is_whole:
        return sent.startswith(text) and calls[: len(asked)] == asked
    return text == sent and asked == calls


def _value(arguments: str) -> Any:
    try:
        return json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return arguments


def acts(call: SessionCall, said: Said) -> list[Act]:
    """What the model said in a call: as released, with what was refused or replaced in its place."""
    ledger = {one["tool_call_id"]: one for one in said.tool_calls.get(call.call_id, ())}
    found: list[Act] = []
    got = _released(call, said)
    for block in [got.blocks[number] for number in sorted(got.blocks)] if got else []:
        if block.is_call:
            found.append(_act_of_call(ledger.pop(block.id, None), block.name, block.text))
        elif block.text or block.sealed:
            found.append(Act(str(block.kind), block.text, len(block.text)))
    found += [_act_of_call(one, one["name"], "") for one in ledger.values()]
    for one in said.blocks.get(call.call_id, ()):
        found.append(Act(one["kind"], "", 0, "", one["verdict"], one["reason"], one["policy"], one["block"]))
    if got is not None and got.failed:
        found.append(Act("error", got.failed, len(got.failed)))
    return found


def _act_of_call(known: Mapping[str, Any] | None, name: str, sent: str) -> Act:
    if known is None:
        return Act("tool_use", sent, len(sent), name)
    asked = to_text(known["arguments"])
    out = None if known["released"] is None else to_text(known["released"])
    return Act(
        "tool_use", asked, len(asked), known["name"], known["verdict"], known["reason"], known["policy"], known["block"],
        out if out is not None and out != asked else None,
    )  # fmt: skip


def branches(found: Sequence[Step]) -> list[tuple[int, list[Step]]]:
    """Return the steps of a page in groups: neighbours of the conversation, and each branch where its first call of the page stands."""
    groups: list[tuple[int, list[Step]]] = []
    open_at: dict[int, list[Step]] = {}
    for step in found:
        branch = step.placed.branch
        if branch == MAIN:
            if not groups or groups[-1][0] != MAIN:
                groups.append((MAIN, []))
            groups[-1][1].append(step)
        elif branch in open_at:
            open_at[branch].append(step)
        else:
            open_at[branch] = [step]
            groups.append((branch, open_at[branch]))
    return groups
