"""A session as one conversation: the turns that are new in each call, and what the model's turn
became. Pure.

A client sends the whole conversation with each call. What it had before is left out by the marks of
its turns (`protocol.conversations.prefix_tree`), and the model's turn that comes back is compared
with what was released: it is shown once, as the turn of its call. Must not know: SQL, HTML."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from db.read.sessions import TURN_BYTES, RecordedCalls, SessionCall
from pages.call.diff import Diff, diff
from pages.call.sides import Listener, read_client
from protocol.conversations.histories import spans, typed
from protocol.conversations.prefix_tree import MAIN, Placed
from protocol.events import BlockKind
from protocol.records import to_text

PART_CHARS = 4_000
"""Characters of a part that a page shows."""
BUDGET, BUDGET_PARTS, _LEAST = 120_000, 600, 160
"""Characters and parts that a page shows in all. Past the characters a part has `_LEAST`, past the
parts they are counted."""
_DIFF_CHARS, _DIFF_S = 20_000, 0.02


@dataclass(slots=True)
class TurnPiece:
    """A piece of a turn. `kind`: text, thinking, tool_use, tool_result, injected or other; `size`:
    characters of the whole."""

    kind: str
    text: str
    size: int
    name: str = ""
    id: str = ""


@dataclass(slots=True)
class ShownTurn:
    """A turn as the client sent it. `is_foreign`: it stands for the model's, and is not what was
    released."""

    role: str
    parts: list[TurnPiece]
    number: int
    is_foreign: bool = False
    skipped: int = 0
    """Parts that are not shown."""


@dataclass(slots=True)
class ModelAct:
    """Text or a request of the model, and what became of it. `verdict` is empty where it has none
    of its own."""

    kind: str
    text: str
    size: int
    """Characters of the whole; bytes where only its beginning was read (`is_begun`)."""
    name: str = ""
    verdict: str = ""
    reason: str = ""
    policy: str = ""
    block: int = -1
    released: str | None = None
    """The arguments that went out, where they differ."""
    is_begun: bool = False
    is_released_begun: bool = False
    """A page shows only the beginning of `released`."""


@dataclass(slots=True)
class ConversationStep:
    """A call in the conversation."""

    call: SessionCall
    placed: Placed
    index: int
    turns: list[ShownTurn] = field(default_factory=list)
    skipped: int = 0
    """New turns that are not shown, as they are too large together."""
    change: Diff | None = None
    is_change_cut: bool = False
    """Only the beginning of both sides was compared; without `change` nothing, as the page has too
    much."""
    acts: list[ModelAct] = field(default_factory=list)
    skipped_acts: int = 0
    """Output of the model that is not shown."""
    answer_bytes: int = 0
    """Of an answer of which only the beginning was read."""


def wanted(
    calls: Sequence[SessionCall], placed: Sequence[Placed], indexes: Sequence[int]
) -> tuple[dict[UUID, tuple[int, int]], list[UUID]]:
    """Return which piece of each call's body holds what is shown, and the calls of which to read
    what was released."""
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


def steps(
    calls: Sequence[SessionCall],
    placed: Sequence[Placed],
    indexes: Sequence[int],
    content: RecordedCalls,
    *,
    cut: bool = True,
) -> list[ConversationStep]:
    """Return these calls with what is new in them. `cut`: as much as a page holds, and how much it
    all is. Takes up to a second of CPU."""
    room = _Room()
    result = []
    for index in indexes:
        step = _step(calls, placed, index, content)
        if cut:
            room.fit(step)
        result.append(step)
    return result


class _Room:
    """What is left of a page. Clients choose how many parts a turn has, and how long they are."""

    def __init__(self) -> None:
        self._chars, self._parts = BUDGET, BUDGET_PARTS

    def fit(self, step: ConversationStep) -> None:
        """Leave out of a step what the page does not hold, and count it."""
        acts = self._first(len(step.acts))
        step.skipped_acts += len(step.acts) - acts
        step.acts = step.acts[:acts]
        for act in step.acts:
            act.text = self._beginning(act.text)
            if act.released is not None:
                beginning = self._beginning(act.released)
                act.is_released_begun, act.released = len(beginning) < len(act.released), beginning
            act.name, act.reason = _short(act.name), _short(act.reason)
        turns = []
        for turn in step.turns:
            if kept_parts := self._first(len(turn.parts) or 1):
                turn.skipped, turn.parts = (
                    max(0, len(turn.parts) - kept_parts),
                    turn.parts[:kept_parts],
                )
                for part in turn.parts:
                    part.text, part.name, part.id = (
                        self._beginning(part.text),
                        _short(part.name),
                        _short(part.id),
                    )
                turns.append(turn)
        step.skipped += len(step.turns) - len(turns)
        step.turns = turns
        if step.change is not None:
            size = sum(len(line.text) for line in step.change.lines if line.sign != " ")
            if size > self._chars:
                step.change = None
            else:
                self._chars -= size

    def _first(self, count: int) -> int:
        taken = min(count, self._parts)
        self._parts -= taken
        return taken

    def _beginning(self, text: str) -> str:
        beginning = text[: min(PART_CHARS, max(self._chars, _LEAST))]
        self._chars = max(0, self._chars - len(beginning))
        return beginning


def _short(text: str) -> str:
    return text if len(text) <= _LEAST else text[:_LEAST] + "…"


def _add(pieces: dict[UUID, tuple[int, int]], call: SessionCall, common: int) -> None:
    """The piece from the turn `common` on, as far as whole turns fit; where two are wanted, both if
    they are near each other."""
    places = spans(call.offsets)[common:]
    small = [place for place in places if place[1] - places[0][0] <= TURN_BYTES]
    if small:
        known = pieces.get(call.call_id, (small[0][0], small[-1][1]))
        begin, end = min(known[0], small[0][0]), max(known[1], small[-1][1])
        pieces[call.call_id] = (begin, end) if end - begin <= 2 * TURN_BYTES else known


def _step(
    calls: Sequence[SessionCall], placed: Sequence[Placed], index: int, content: RecordedCalls
) -> ConversationStep:
    call, at = calls[index], placed[index]
    step = ConversationStep(call, at, index)
    new = _turns(call, at.common, content)
    step.skipped = max(0, call.turns - at.common - len(new))
    if at.parent >= 0 and at.changed:
        parent = calls[at.parent]
        before, after = (
            "\n\n".join(map(_plain, turns)) for turns in (_turns(parent, at.common, content), new)
        )
        step.change = diff(before[:_DIFF_CHARS], after[:_DIFF_CHARS], seconds=_DIFF_S)
        step.is_change_cut = max(len(before), len(after)) > _DIFF_CHARS
    step.turns = _without_echo(
        new, calls[at.parent] if at.parent >= 0 and not at.changed else None, content
    )
    step.acts = acts(call, content)
    asked = sum(act.kind in (BlockKind.TOOL_USE, BlockKind.SERVER_TOOL_USE) for act in step.acts)
    step.skipped_acts = max(0, call.item.get("tool_calls", 0) - asked)
    step.answer_bytes = content.cut.get(call.call_id, 0)
    return step


def _turns(call: SessionCall, common: int, content: RecordedCalls) -> list[ShownTurn]:
    """The turns from `common` on, as far as the piece of the body that was read holds them."""
    first, piece = content.pieces.get(call.call_id, (0, b""))
    result: list[ShownTurn] = []
    for number, (begin, end) in enumerate(spans(call.offsets)[common:], common):
        if begin < first or end > first + len(piece):
            break
        try:
            value = json.loads(piece[begin - first : end - first])
        except (ValueError, RecursionError):
            value = None
        turn = _turn(value, number)
        if (
            result
            and turn.role == result[-1].role == "assistant"
            and isinstance(value, dict)
            and "type" in value
        ):
            # of Responses: an answer is several items
            result[-1].parts += turn.parts
        else:
            result.append(turn)
    return result


def _turn(value: Any, number: int) -> ShownTurn:
    if isinstance(value, str):
        return ShownTurn("user", [_text(value)], number)
    if not isinstance(value, dict):
        return ShownTurn("unknown", [_part("other", "not readable")], number)
    if (item := _item(value)) is not None:
        return ShownTurn(*item, number)
    parts = list(_parts(value.get("content"), 0))
    asked = value.get("tool_calls")
    for call in [
        *(asked if isinstance(asked, list) else ()),
        {"function": value.get("function_call")},
    ]:
        function = call.get("function") or call.get("custom") if isinstance(call, dict) else None
        if isinstance(function, dict):
            arguments = function.get("arguments", function.get("input", ""))
            parts.append(
                _part(
                    "tool_use",
                    str(arguments),
                    str(function.get("name", "")),
                    str(call.get("id", "")),
                )
            )
    role = str(value.get("role", ""))
    if role == "tool":
        parts = [
            _part("tool_result", part.text, "", str(value.get("tool_call_id", "")), part.size)
            for part in parts
        ]
    elif role == "user" and parts and all(part.kind == "tool_result" for part in parts):
        role = "tool"
    return ShownTurn(role, parts, number)


def _item(value: Mapping[str, Any]) -> tuple[str, list[TurnPiece]] | None:
    """The role and the parts of an item of Responses that is no message."""
    kind, identity = value.get("type"), str(value.get("call_id") or value.get("id") or "")
    if not isinstance(kind, str) or "role" in value:
        return None
    if kind == "reasoning":
        texts = [
            t.get("text", "")
            for t in (*_list(value, "summary"), *_list(value, "content"))
            if isinstance(t, dict)
        ]
        return "assistant", [_part("thinking", "\n".join(map(str, texts)))]
    if kind.endswith("_output"):
        output = value.get("output")
        return "tool", [
            _part(
                "tool_result",
                output if isinstance(output, str) else json.dumps(output, ensure_ascii=False),
                "",
                identity,
            )
        ]
    if kind.endswith("_call"):
        arguments = next(
            (value[name] for name in ("arguments", "action", "operation") if name in value),
            {"input": value.get("input", "")},
        )
        name = ".".join(
            str(value[attribute]) for attribute in ("namespace", "name") if value.get(attribute)
        ) or kind.removesuffix("_call")
        return "assistant", [
            _part(
                "tool_use",
                arguments
                if isinstance(arguments, str)
                else json.dumps(arguments, ensure_ascii=False),
                name,
                identity,
            )
        ]
    return "other", [_part("other", f"{kind}, {len(json.dumps(value)):,} bytes")]


def _list(value: Mapping[str, Any], name: str) -> list[Any]:
    values = value.get(name)
    return values if isinstance(values, list) else []


def _parts(content: Any, depth: int) -> Iterator[TurnPiece]:
    if isinstance(content, str):
        yield _text(content)
    for element in content if isinstance(content, list) else ():
        if not isinstance(element, dict):
            yield _part("other", json.dumps(element, ensure_ascii=False))
            continue
        match element.get("type"):
            case "text" | "input_text" | "output_text" if isinstance(element.get("text"), str):
                yield _text(element["text"])
            case "thinking" | "redacted_thinking":
                yield _part("thinking", str(element.get("thinking", "")))
            case "tool_use" | "server_tool_use":
                arguments = json.dumps(element.get("input"), ensure_ascii=False)
                yield _part(
                    "tool_use", arguments, str(element.get("name", "")), str(element.get("id", ""))
                )
            case "tool_result":
                # a result holds texts and images; what is deeper nobody sends
                inner = (
                    "\n".join(part.text for part in _parts(element.get("content"), depth + 1))
                    if not depth
                    else "nested"
                )
                yield _part(
                    "tool_result",
                    inner,
                    "error" if element.get("is_error") else "",
                    str(element.get("tool_use_id", "")),
                )
            case kind:
                yield _part("other", f"{kind}, {len(json.dumps(element)):,} bytes")


def _text(text: str) -> TurnPiece:
    return _part("text" if typed(text) or not text.strip() else "injected", text)


def _part(kind: str, text: str, name: str = "", identity: str = "", size: int = 0) -> TurnPiece:
    return TurnPiece(kind, text, size or len(text), name, identity)


def _plain(turn: ShownTurn) -> str:
    """A turn as text, for comparing and for export."""
    lines = [f"[{turn.role}]"]
    lines += [
        f"{part.name} {part.text}" if part.kind == "tool_use" else part.text for part in turn.parts
    ]
    return "\n".join(lines)


def _without_echo(
    turns: list[ShownTurn], parent: SessionCall | None, content: RecordedCalls
) -> list[ShownTurn]:
    """Without the model's turn that comes back, where it is what was released; what is not, is
    marked."""
    back = next((at for at, turn in enumerate(turns) if turn.role != "assistant"), len(turns))
    if not back or parent is None:
        return turns
    got = _released(parent, content)
    if got is None:
        return turns
    is_whole = parent.item["state"] == "ENDED"
    if parent.call_id in content.cut:
        if _may_be(turns[:back], got, is_whole=is_whole):
            # how it goes on nobody knows here: it is shown, and neither the model's nor another's
            return turns
    elif _same(turns[:back], got, is_whole=is_whole):
        return turns[back:]
    for turn in turns[:back]:
        turn.is_foreign = True
    return turns


def _released(call: SessionCall, content: RecordedCalls) -> Listener | None:
    payloads = content.releases.get(call.call_id)
    return (
        read_client(payloads, call.item["dialect"], streams=call.item["stream"])
        if payloads
        else None
    )


def _same(turns: Sequence[ShownTurn], got: Listener, *, is_whole: bool) -> bool:
    """Is what comes back what went out? Clients cut blanks at the ends of texts, leave thinking
    out, and part or join texts; of an answer that broke off they keep what they had by then."""
    texts, asked = _back(turns)
    sent, calls = _went(got)
    if not is_whole:
        return _begins(sent, texts) and calls[: len(asked)] == asked
    return not texts.isdisjoint(sent) and asked == calls


def _may_be(turns: Sequence[ShownTurn], got: Listener, *, is_whole: bool) -> bool:
    """Does what comes back begin as what went out, of which only the beginning was read?"""
    texts, asked = _back(turns)
    sent, calls = _went(got)
    if got.blocks and got.blocks[max(got.blocks)].is_call:
        # its arguments may go on
        calls = calls[:-1]
    if is_whole:
        return _begins(texts, sent) and asked[: len(calls)] == calls
    least = min(len(asked), len(calls))
    return (_begins(texts, sent) or _begins(sent, texts)) and asked[:least] == calls[:least]


def _back(turns: Sequence[ShownTurn]) -> tuple[set[str], list[tuple[str, str]]]:
    """The text and the tool calls of the model's turn as the client sent it."""
    parts = [part for turn in turns for part in turn.parts]
    texts = _joined([part.text for part in parts if part.kind in ("text", "injected")])
    return texts, [(part.name, _arguments(part.text)) for part in parts if part.kind == "tool_use"]


def _went(got: Listener) -> tuple[set[str], list[tuple[str, str]]]:
    """The same of what went out."""
    blocks = [got.blocks[number] for number in sorted(got.blocks)]
    texts = _joined([block.text for block in blocks if block.kind == "text"])
    return texts, [(block.name, _arguments(block.text)) for block in blocks if block.is_call]


def _joined(texts: Sequence[str]) -> set[str]:
    """The whole text: as it is within its ends, and of a client that cut the ends of each part."""
    return {"".join(texts).strip(), "".join(text.strip() for text in texts)}


def _begins(texts: set[str], beginnings: set[str]) -> bool:
    return any(text.startswith(beginning) for text in texts for beginning in beginnings)


def _arguments(text: str) -> str:
    """The same text for the same JSON: 1 is not true, and each of two equal keys counts."""
    try:
        return json.dumps(json.loads(text or "{}", object_pairs_hook=_pairs, parse_float=_number))
    except (ValueError, RecursionError):
        return text


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object in the order of its keys, which clients change; with a list of the pairs where a
    key stands twice."""
    by_name = dict(sorted(pairs, key=lambda pair: pair[0]))
    return by_name if len(by_name) == len(pairs) else {"": [list(pair) for pair in pairs]}


def _number(text: str) -> int | float:
    """1.0 is 1, as clients may write it."""
    value = float(text)
    return int(value) if value.is_integer() else value


def acts(call: SessionCall, content: RecordedCalls) -> list[ModelAct]:
    """The model's output in a call, as released; what was blocked or replaced stands in its
    place."""
    ledger = {row["tool_call_id"]: row for row in content.tool_calls.get(call.call_id, ())}
    result: list[ModelAct] = []
    got = _released(call, content)
    for block in [got.blocks[number] for number in sorted(got.blocks)] if got else []:
        if block.is_call:
            result.append(_act_of_call(ledger.pop(block.id, None), block.name, block.text))
        elif block.text or block.sealed:
            result.append(ModelAct(str(block.kind), block.text, len(block.text)))
    result += [_act_of_call(row, row["name"], "") for row in ledger.values()]
    for row in content.blocks.get(call.call_id, ()):
        result.append(
            ModelAct(
                row["kind"], "", 0, "", row["verdict"], row["reason"], row["policy"], row["block"]
            )
        )
    if got is not None and got.failed:
        result.append(ModelAct("error", got.failed, len(got.failed)))
    return result


def _act_of_call(known: Mapping[str, Any] | None, name: str, sent: str) -> ModelAct:
    if known is None:
        return ModelAct("tool_use", sent, len(sent), name)
    asked, size = to_text(known["arguments"]), known["size"]
    is_begun = size > len(known["arguments"])
    out = None if known["released"] is None else to_text(known["released"])
    return ModelAct(
        "tool_use",
        asked,
        size if is_begun else len(asked),
        known["name"],
        known["verdict"],
        known["reason"],
        known["policy"],
        known["block"],
        out if out is not None and (is_begun or out != asked) else None,
        is_begun,
    )


def branches(all_steps: Sequence[ConversationStep]) -> list[tuple[int, list[ConversationStep]]]:
    """Return the steps of a page in groups: neighbours of the conversation, and each branch where
    its first call of the page stands."""
    groups: list[tuple[int, list[ConversationStep]]] = []
    open_at: dict[int, list[ConversationStep]] = {}
    for step in all_steps:
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
