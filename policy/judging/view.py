"""Selects what a judge sees of a conversation: some authors always, others while there is room.

Theory. A conversation has four authors: the operator and client (system prompt), the user, the
judged agent, and the authors of pages and files that its tools read. The last two may want to hide
something from the judge, and sheer size is enough for that. So the system prompt has its own room,
and so have the user's first and last words. The rest is shared by class, in the order user, agent's
calls, agent's words, tool results: each class gets what the classes before it left. Within a class
short texts stay whole, and long ones are cut in the middle to one common length. A cut is marked in
the structure of the view, which no content can imitate.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from policy.base import AnswerSoFar, EarlierCall, EarlierText, Executor
from policy.judging.answer_so_far import size_of
from protocol.bytes.json_strict import AmbiguousJson, loads_arguments
from protocol.request import (
    ChatRequest,
    OtherPart,
    Part,
    TextPart,
    ToolResultPart,
    ToolUsePart,
    Turn,
    without_metadata,
)

USER_BYTES = 4_096
"""For the user's first words, and for the last."""
TEXT_BYTES = 16_384
"""For the text of the answer that is judged."""
MOST_TURNS = 100
"""No view has more of the last turns."""
_LEAST = 200
"""No text is cut to less: rather are older ones left out."""
_SYSTEM_TEXTS = 64
_NAME = 128
_written = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
RUN_BY: dict[Executor, str] = {
    "client": "the client",
    "provider": "the model's provider, while it answers",
    "mcp": "a remote MCP server that the provider asks",
    "nested": "code that the model wrote and the provider runs",
    "mcp_pending": "a remote MCP server that the provider asks, once the client lets it",
}
Kind = Literal["user", "call", "said", "result", "other"]
View = Literal["call", "calls", "tail", "turn"]
"""How much of a conversation a judge is shown. `call`: nothing. `calls`: what the user says and
what the agent calls; not what the agent says nor what its tools return, which may persuade a judge.
`tail`: all of the last turns. `turn`: all since the user's last words."""
_SHARES: tuple[tuple[Kind, float], ...] = (
    ("user", 0.25),
    ("call", 0.75),
    ("said", 0.875),
    ("result", 1.0),
    ("other", 1.0),
)
"""Up to which part of the room a class may fill it, those before it included."""


class KnownTurns(msgspec.Struct, frozen=True):
    """The parts of a request kept for judges: some turns with their positions, how many there are,
    and which are the user's first and last. A history may be megabytes: of the turns before the
    tail only the user's are kept, and of the system prompt only what is shown.
    """

    turns: tuple[tuple[int, Turn, int], ...]
    """Place, turn, and how many of its parts are not kept."""
    of: int
    first: int
    last: int
    system: list[dict[str, Any]]
    tail: int


def of_view(request: ChatRequest, view: View) -> ChatRequest:
    """Return what a view has of a request."""
    match view:
        case "tail":
            return request
        case "call":
            return msgspec.structs.replace(request, system=(), turns=())
        case "turn":
            turns = request.turns
            last = next((at for at in reversed(range(len(turns))) if _has_user(turns[at])), 0)
            # system turns apply to the whole conversation, wherever they are
            return msgspec.structs.replace(
                request,
                turns=tuple(t for at, t in enumerate(turns) if at >= last or t.role == "system"),
            )
        case "calls":
            return msgspec.structs.replace(
                request,
                turns=tuple(t for turn in request.turns if (t := _without_words(turn)).parts),
            )


def _without_words(turn: Turn) -> Turn:
    """A turn without what the agent says and what tools return."""
    if turn.role == "system":
        return turn
    parts = tuple(
        part
        for part in turn.parts
        if _is_act(part) or (turn.role == "user" and isinstance(part, TextPart))
    )
    return turn if len(parts) == len(turn.parts) else Turn(turn.role, parts)


def _is_act(part: Part) -> bool:
    return isinstance(part, ToolUsePart) or (
        isinstance(part, OtherPart) and part.kind in ("server_tool_use", "mcp_tool_use")
    )


def _has_user(turn: Turn) -> bool:
    return turn.role == "user" and any(_is_spoken(part) for part in turn.parts)


def keep(request: ChatRequest, count: int, system_room: int) -> KnownTurns:
    """Keep the last `count` turns, the first and the last in which the user says something, and the
    system's words in `system_room`."""
    shown = [turn for turn in request.turns if turn.role != "system"]
    user_positions = [at for at, turn in enumerate(shown) if _has_user(turn)]
    first, last = (user_positions[0], user_positions[-1]) if user_positions else (-1, -1)
    places = sorted({first, last, *range(max(0, len(shown) - count), len(shown))} - {-1})
    system = [
        *request.system,
        *(
            p.text
            for t in request.turns
            if t.role == "system"
            for p in t.parts
            if isinstance(p, TextPart)
        ),
    ]
    system = list(filter(None, map(without_metadata, system)))
    tail = len(shown) - count
    turns = tuple((at, shown[at], 0) if at >= tail else (at, *_words(shown[at])) for at in places)
    return KnownTurns(turns, len(shown), first, last, _system(system, system_room), tail)


def _words(turn: Turn) -> tuple[Turn, int]:
    parts = tuple(part for part in turn.parts if isinstance(part, TextPart))
    return Turn(turn.role, parts), len(turn.parts) - len(parts)


def _is_spoken(part: Part) -> bool:
    return isinstance(part, TextPart) and bool(part.text.strip())


class Seen(msgspec.Struct, frozen=True):
    """`json` is the text of an object's members. `has_user`: words of the user are in it.
    `calls_whole`: none of the agent's is cut."""

    json: str
    has_user: bool
    calls_whole: bool


def view(history: KnownTurns, room: int) -> Seen:
    """Show a conversation in about `room` bytes, the user's first and last words in room of their
    own."""
    shown = _Shown(history, room)
    members = {"system": history.system, "conversation": shown.items()}
    return Seen(dumps(members)[1:-1], history.first >= 0, shown.calls_whole)


def dumps(value: Any) -> str:
    """JSON text, as short as it can be, with every character as it is."""
    return _written(value)


def level(sizes: Iterable[int], room: int) -> int:
    """Return the size to which texts must be cut to fit: the short ones keep theirs, the long ones
    share the rest alike."""
    ordered = sorted(sizes)
    for number, size in enumerate(ordered):
        if size * (len(ordered) - number) > room:
            return max(room, 0) // (len(ordered) - number)
        room -= size
    return ordered[-1] if ordered else 0


def cut(name: str, text: str, limit: int) -> dict[str, Any]:
    """Return `text` under `name`, or its beginning and end in about `limit` bytes with how many
    characters are left out between."""
    if size_of(text) <= limit:
        return {name: text}
    begins, ends = _ends(text, text, limit)
    return _both_ends(name, begins, ends, max(1, len(text) - len(begins) - len(ends)))


def _both_ends(name: str, begins: str, ends: str, left_out: int) -> dict[str, Any]:
    return {f"{name}_begins": begins, "characters_left_out": left_out, f"{name}_ends": ends}


def _ends(begins: str, ends: str, limit: int) -> tuple[str, str]:
    half = limit // 2
    # a character is a byte at least
    first = begins[:half].encode("utf-8", "backslashreplace")
    last = ends[max(0, len(ends) - half) :].encode("utf-8", "backslashreplace")
    return first[:half].decode("utf-8", "ignore"), last[max(0, len(last) - half) :].decode(
        "utf-8", "ignore"
    )


def arguments(name: str, text: str, value: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return arguments as what they mean, and where escapes may have hidden that, as they are
    written too. `value`: what `text` means."""
    if value is None:
        try:
            value = loads_arguments(text)
        except AmbiguousJson:
            return {f"{name}_unreadable": text}
    return {name: value, f"{name}_as_written": text} if "\\u" in text else {name: value}


def plain(text: str) -> str:
    """Return arguments of an earlier turn without escapes that hide what they say; as they are
    where they cannot be read."""
    if "\\u" not in text:
        return text
    try:
        return dumps(loads_arguments(text))
    except AmbiguousJson:
        return text


def before(answer: AnswerSoFar, view: View = "tail") -> list[dict[str, Any]]:
    """Return the earlier content of the answer, as far as a view includes it: its calls whole, its
    texts in TEXT_BYTES."""
    if view == "call":
        return []
    parts = (
        answer.parts
        if view != "calls"
        else tuple(part for part in answer.parts if isinstance(part, EarlierCall))
    )
    limit = level(
        (2 * max(size_of(t.begins), size_of(t.ends)) for t in parts if isinstance(t, EarlierText)),
        TEXT_BYTES,
    )
    return [_text(part, limit) if isinstance(part, EarlierText) else _call(part) for part in parts]


def _text(excerpt: EarlierText, limit: int) -> dict[str, Any]:
    if not excerpt.left_out:
        return cut(excerpt.kind.value, excerpt.begins + excerpt.ends, limit)
    begins, ends = _ends(excerpt.begins, excerpt.ends, limit)
    left_out = excerpt.left_out + len(excerpt.begins) + len(excerpt.ends) - len(begins) - len(ends)
    return _both_ends(excerpt.kind.value, begins, ends, left_out)


def _call(call: EarlierCall) -> dict[str, Any]:
    verdict = "blocked by a rule" if call.blocked else "not blocked by a rule"
    return {
        **cut("tool_call", call.name, _NAME),
        **arguments("arguments", call.arguments),
        "run_by": RUN_BY[call.executor],
        "so_far": verdict,
    }


def _system(texts: Sequence[str], room: int) -> list[dict[str, Any]]:
    half = _SYSTEM_TEXTS // 2
    chosen = texts if len(texts) <= _SYSTEM_TEXTS else [*texts[:half], *texts[-half:]]
    limit = level(map(size_of, chosen), room)
    items = [cut("text", text, limit) for text in chosen]
    if len(chosen) < len(texts):
        items.insert(half, {"texts_left_out": len(texts) - len(chosen)})
    return items


class _Shown:
    """A conversation with the room of each of its parts."""

    def __init__(self, history: KnownTurns, room: int) -> None:
        self._history = history
        self.calls_whole = True
        self._limits: dict[tuple[int, int], int] = {}
        self._texts: dict[tuple[int, int], str] = {}
        kinds: dict[Kind, list[tuple[int, int]]] = {kind: [] for kind, _ in _SHARES}
        user_parts: dict[int, list[tuple[int, int]]] = {
            at: [] for at in {history.first, history.last} - {-1}
        }
        # newest first: where there are too many, older ones are left out
        for at, turn, _ in reversed(history.turns):
            for number, part in reversed(list(enumerate(turn.parts))):
                kind, text = _kind(turn, part)
                if kind == "user" and at in user_parts:
                    user_parts[at].append((at, number))
                elif at >= history.tail:
                    kinds[kind].append((at, number))
                else:
                    continue
                self._texts[at, number] = text
        for places in user_parts.values():
            self._share(places, USER_BYTES)
        used = 0
        for kind, share in _SHARES:
            spent, is_whole = self._share(kinds[kind], int(room * share) - used)
            used += spent
            self.calls_whole &= is_whole or kind != "call"

    def _share(self, places: list[tuple[int, int]], room: int) -> tuple[int, bool]:
        """Give parts their room; returns what they take, and whether all of them are whole."""
        if not places:
            return 0, True
        chosen = places[: max(0, room) // _LEAST]
        sizes = [size_of(self._texts[place]) + _OVERHEAD for place in chosen]
        limit = level(sizes, room)
        self._limits |= dict.fromkeys(chosen, max(limit - _OVERHEAD, 0))
        return sum(min(size, limit) for size in sizes), len(chosen) == len(places) and (
            not sizes or max(sizes) <= limit
        )

    def items(self) -> list[dict[str, Any]]:
        """The turns, oldest first, with what is left out between them."""
        items: list[dict[str, Any]] = []
        expected = 0
        for at, turn, missing in self._history.turns:
            parts = [
                self._part(turn.parts[n], at, n)
                for n in range(len(turn.parts))
                if (at, n) in self._limits
            ]
            if at > expected:
                items.append({"turns_left_out": at - expected})
            expected = at + 1
            if left_out := len(turn.parts) - len(parts) + missing:
                parts.append({"parts_left_out": left_out})
            items.append({"role": turn.role, "parts": parts})
        if self._history.of > expected:
            items.append({"turns_left_out": self._history.of - expected})
        return items

    def _part(self, part: Part, at: int, number: int) -> dict[str, Any]:
        text, limit = self._texts[at, number], self._limits[at, number]
        match part:
            case TextPart():
                return cut("text", text, limit)
            case ToolUsePart():
                return {**cut("tool_call", part.name, _NAME), **cut("arguments", text, limit)}
            case ToolResultPart():
                return cut("tool_result", text, limit)
            case OtherPart():
                return cut("left_out", text, limit)


_OVERHEAD = 40
"""Bytes around a part's text."""


def _kind(turn: Turn, part: Part) -> tuple[Kind, str]:
    match part:
        case TextPart():
            return "user" if turn.role == "user" else "said", part.text
        case ToolUsePart():
            return "call", plain(part.arguments)
        case ToolResultPart():
            return "result", part.text
        case OtherPart():
            return "other", part.kind
