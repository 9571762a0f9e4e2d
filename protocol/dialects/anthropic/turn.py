"""Recorded turns of the Messages dialect in the next request, in the place of the client's. Why,
and how one is rebuilt from the record: `protocol.dialects.anthropic.turn_builder`."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from protocol.bytes.json_strict import AmbiguousJson, loads_arguments, normal_arguments
from protocol.dialects.anthropic.turn_builder import TurnBuilder
from protocol.dialects.turns import StoredTurn
from protocol.request import (
    ChatRequest,
    OtherPart,
    Part,
    Reasoning,
    TextPart,
    ToolUsePart,
    Turn,
    loop_start,
)

__all__ = ["TurnBuilder", "with_turns"]
_THINKING = frozenset(("thinking", "redacted_thinking"))
_PLAIN_CALL = frozenset(("type", "id", "name", "input"))


def _calls(turn: Turn) -> Iterator[ToolUsePart]:
    return (
        (p for p in turn.parts if isinstance(p, ToolUsePart))
        if turn.role == "assistant"
        else iter(())
    )


def with_turns(
    request: ChatRequest, stored: Sequence[StoredTurn], *, upstream: str = ""
) -> tuple[ChatRequest, str, list[str]]:
    """Put recorded turns in the place of the client's; returns the request, the container to go on
    with, and what was dropped.

    A turn is known where all its tool call ids are of exactly one recorded turn (of `upstream`, if
    given). The client's arguments stay: a policy may have replaced them; a call that the client
    does not have was blocked, and stays out. Where a turn of the tool loop that the request goes on
    with is unknown, thinking is turned off: the API refuses such turns without the thinking they
    began with, and nothing is made up.
    """
    stored = [s for s in stored if not upstream or s.upstream in ("", upstream)]
    owners, answers = _owners(stored), {s.call_id: s for s in stored if _is_usable(s)}
    known: dict[int, StoredTurn] = {}
    used: set[str] = set()
    loop = loop_start(request.turns)
    has_unknown = False
    for position, turn in enumerate(request.turns):
        ids = [p.id for p in _calls(turn)]
        owner = _owner(ids, owners) if ids else answers.get(turn.answer)
        if not ids and (owner is None or not _says(turn, owner)):
            continue
        if owner is not None and owner.call_id not in used:
            used.add(owner.call_id)
            known[position] = owner
        else:
            has_unknown = has_unknown or position >= loop
    reasoning, dropped = request.reasoning, []
    if has_unknown and reasoning is not None and not _is_off(reasoning):
        dropped = ["reasoning_effort" if reasoning.effort else "thinking"]
        reasoning = Reasoning(mode="off")
    merge = _Merge(keep_thinking=reasoning is None or not _is_off(reasoning))
    turns = tuple(merge.turn(t, known[n]) if n in known else t for n, t in enumerate(request.turns))
    if not known and not dropped:
        return request, "", []
    container = next((s.container for s in reversed(known.values()) if s.container), "")
    return msgspec.structs.replace(request, turns=turns, reasoning=reasoning), container, dropped


def _is_off(reasoning: Reasoning) -> bool:
    return reasoning.mode == "off" or reasoning.effort == "none"


def _owners(stored: Sequence[StoredTurn]) -> dict[str, StoredTurn | None]:
    """The one recorded turn of each id; None where there are two, or where the turn cannot be sent
    back."""
    owners: dict[str, StoredTurn | None] = {}
    for turn in stored:
        tool_use_ids = {b.get("id") for b in turn.content if b.get("type") == "tool_use"}
        usable = _is_usable(turn)
        for identity in dict.fromkeys(turn.tool_call_ids):
            owners[identity] = (
                turn if usable and identity in tool_use_ids and identity not in owners else None
            )
    return owners


def _is_usable(turn: StoredTurn) -> bool:
    """Thinking without a signature (of another vendor's model) is refused."""
    return all(b.get("signature") for b in turn.content if b.get("type") == "thinking")


def _says(turn: Turn, stored: StoredTurn) -> bool:
    """Is the turn's text that of the recorded one?"""
    texts = (b["text"] for b in stored.content if b["type"] == "text")
    return _words(p.text for p in turn.parts if isinstance(p, TextPart)) == _words(texts)


def _owner(ids: Sequence[str], owners: dict[str, StoredTurn | None]) -> StoredTurn | None:
    first = owners.get(ids[0])
    return first if len(set(ids)) == len(ids) and all(owners.get(i) is first for i in ids) else None


class _Merge:
    """Writes recorded turns with what the client has of them; one for a whole request, because
    results refer back to calls."""

    def __init__(self, *, keep_thinking: bool) -> None:
        self._keep_thinking = keep_thinking
        self._server_calls: set[Any] = set()

    def turn(self, turn: Turn, stored: StoredTurn) -> Turn:
        """The recorded blocks in their order, with the client's calls, and its text where that is
        not the recorded one."""
        calls = {p.id: p for p in _calls(turn)}
        client_parts: list[Part] = [p for p in turn.parts if not isinstance(p, ToolUsePart)]
        texts = [b for b in stored.content if b["type"] == "text"]
        same = _says(turn, stored)
        client_parts = [p for p in client_parts if not (same and isinstance(p, TextPart))]
        parts: list[Part] = []
        for block in stored.content:
            if client_parts and (
                block["type"] == "text" or (block["type"] == "tool_use" and not texts)
            ):
                parts, client_parts = parts + client_parts, []
            match block["type"]:
                case "text":
                    if same:
                        parts.append(_other(block))
                case "tool_use":
                    if (part := calls.pop(block.get("id", ""), None)) is not None:
                        parts.append(_call(part, block))
                case _:
                    if self._belongs(block):
                        parts.append(_other(block))
        return Turn("assistant", (*parts, *client_parts), turn.extra)

    def _belongs(self, block: dict[str, Any]) -> bool:
        """A result whose call is not in the request is refused by the API; a call without its
        result is not: it may come late."""
        if block["type"] in _THINKING:
            return self._keep_thinking
        if block["type"].endswith("tool_use"):
            self._server_calls.add(block.get("id"))
        return "tool_use_id" not in block or block["tool_use_id"] in self._server_calls


def _words(texts: Iterable[str]) -> str:
    # blank blocks are left out of recorded turns, and clients trim
    return "".join("".join(texts).split())


def _other(block: dict[str, Any]) -> OtherPart:
    return OtherPart(block["type"], block, "anthropic")


def _call(part: ToolUsePart, block: dict[str, Any]) -> Part:
    """The client's call; with what the dialect has beside it where it was called by code that runs
    at the provider."""
    if block.keys() <= _PLAIN_CALL or (
        block.keys() <= {*_PLAIN_CALL, "caller"} and block["caller"] == {"type": "direct"}
    ):
        return part
    try:
        arguments = normal_arguments(part.arguments)
        loads_arguments(arguments)
    except AmbiguousJson:
        # refused by name where the request is written
        return part
    return OtherPart(
        block["type"], {**block, "input": msgspec.Raw(arguments.encode())}, "anthropic", part.id
    )
