"""A session as one conversation: the turns that are new in each call, and what the model's turn
became. Pure.

A client sends the whole conversation with each call. What it had before is left out by the marks of
its turns (`protocol.conversations.prefix_tree`), and the model's turn that comes back is compared
with what was released: it is shown once, as the turn of its call. Must not know: SQL, HTML."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from db.read.sessions import TURN_BYTES, RecordedCalls, SessionCall
from pages.call.diff import Diff, diff
from pages.model_acts import ModelAct, acts, without_echo
from pages.sent_turns import ShownTurn, plain, turns_from
from protocol.conversations.histories import spans
from protocol.conversations.prefix_tree import MAIN, Placed
from protocol.events import BlockKind

PART_CHARS = 4_000
"""Characters of a part that a page shows."""
BUDGET, BUDGET_PARTS, _LEAST = 120_000, 600, 160
"""Characters and parts that a page shows in all. Past the characters a part has `_LEAST`, past the
parts they are counted."""
_DIFF_CHARS, _DIFF_S = 20_000, 0.02


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
    new = turns_from(call, at.common, content)
    step.skipped = max(0, call.turns - at.common - len(new))
    if at.parent >= 0 and at.changed:
        parent = calls[at.parent]
        before, after = (
            "\n\n".join(map(plain, turns))
            for turns in (turns_from(parent, at.common, content), new)
        )
        step.change = diff(before[:_DIFF_CHARS], after[:_DIFF_CHARS], seconds=_DIFF_S)
        step.is_change_cut = max(len(before), len(after)) > _DIFF_CHARS
    step.turns = without_echo(
        new, calls[at.parent] if at.parent >= 0 and not at.changed else None, content
    )
    step.acts = acts(call, content)
    asked = sum(act.kind in (BlockKind.TOOL_USE, BlockKind.SERVER_TOOL_USE) for act in step.acts)
    step.skipped_acts = max(0, call.item.get("tool_calls", 0) - asked)
    step.answer_bytes = content.cut.get(call.call_id, 0)
    return step


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
