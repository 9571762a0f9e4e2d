"""The messages of a request that crosses, written for a provider of the Messages dialect
(docs/change/protocol.md 1.1)."""

from collections.abc import Sequence
from typing import Any

import msgspec

from protocol.dialects.anthropic.media import media_block
from protocol.dialects.anthropic.models import ModelRow
from protocol.dialects.turns_write import BlockWriter
from protocol.request import TextPart, ToolResultPart, ToolUsePart
from protocol.requests.names import PLAIN, Ids, Names
from protocol.requests.neutral import (
    AnyTurn,
    MediaPart,
    NeutralRequest,
    Option,
    RefusalPart,
    ResultPart,
    find_option,
)
from protocol.target import RequestNotes

MAX_BREAKPOINTS = 4
"""Places that one request may mark for the prompt cache."""


class MessageWriter(BlockWriter):
    """Writes the system texts and the turns of one request."""

    dialect = "anthropic"

    def __init__(
        self, draft: RequestNotes, neutral: NeutralRequest, row: ModelRow, names: Names
    ) -> None:
        super().__init__(draft, neutral, names, Ids(PLAIN))
        self._mid_system = _before_assistant(neutral.turns) if row.mid_system else []
        self._marked: list[tuple[str, dict[str, Any]]] = []
        self._own_marks = 0

    def system(self) -> list[dict[str, Any]]:
        """Return a text block for each leading system message; more where parts of it are marked
        for the cache."""
        blocks: list[dict[str, Any]] = []
        for turn in self._neutral.system:
            turn_blocks = [block for part in turn.parts for block in self._part(part)]
            self._note_unknown(turn.extra)
            blocks += self._mark_last(turn_blocks, turn.extra)
        return blocks

    def turns(self) -> list[dict[str, Any]]:
        """Return the messages as of all dialects with blocks; without white space at the end of a
        prefill, which the API refuses."""
        messages = super().turns()
        if messages:
            _trim_prefill(messages[-1])
        return messages

    def limit_marks(self, more: int) -> None:
        """Take back the first marks that are not the client's cache_control where, with `more` on
        tools, there are too many."""
        surplus = len(self._marked) + self._own_marks + more - MAX_BREAKPOINTS
        if self._marked and surplus > 0:
            for name, block in self._marked[:surplus]:
                del block["cache_control"]
                self._draft.drop(name)

    def _blocks(self, turn: AnyTurn) -> list[dict[str, Any]]:
        self._note_unknown(turn.extra)
        blocks = [block for part in turn.parts for block in self._part(part)]
        return self._mark_last(blocks, turn.extra)

    def _keeps_system(self, position: int, messages: Sequence[dict[str, Any]]) -> bool:
        return (
            bool(self._mid_system)
            and bool(messages)
            and messages[-1]["role"] != "assistant"
            and self._mid_system[position]
        )

    def _is_result(self, block: dict[str, Any]) -> bool:
        is_result: bool = block["type"] == "tool_result"
        return is_result

    def _text(self, part: TextPart | RefusalPart) -> dict[str, Any]:
        block = {"type": "text", "text": part.text}
        if isinstance(part, RefusalPart):
            return block
        self._note_unknown(part.extra)
        return self._mark(block, part.extra)

    def _call(self, part: ToolUsePart, arguments: msgspec.Raw) -> dict[str, Any]:
        call = {
            "type": "tool_use",
            "id": self._ids.upstream(part.id),
            "name": self._names.upstream(part.name),
            "input": arguments,
        }
        return self._mark(call, part.extra)

    def _result(self, part: ToolResultPart) -> dict[str, Any]:
        block: dict[str, Any] = {
            "type": "tool_result",
            "tool_use_id": self._ids.upstream(part.tool_call_id),
            "content": self._inner(part) if isinstance(part, ResultPart) else part.text,
        }
        if part.is_error:
            block["is_error"] = True
        return self._mark(block, part.extra)

    def _media(self, part: MediaPart) -> dict[str, Any]:
        self._note_unknown(part.extra)
        return self._mark(media_block(self._draft, part), part.extra)

    def _mark_last(
        self, blocks: list[dict[str, Any]], extra: dict[str, Any]
    ) -> list[dict[str, Any]]:
        last = blocks[-1] if blocks else None
        if (
            last is not None
            and "cache_control" not in last
            and last["type"] not in ("thinking", "redacted_thinking")
        ):
            blocks[-1] = self._mark(dict(last), extra)
        return blocks

    def _mark(self, block: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
        """Mark a block for the prompt cache, as `extra` says."""
        if not extra:
            return block
        if isinstance(cache_control := extra.get("cache_control"), dict):
            block["cache_control"] = cache_control
            self._own_marks += 1
        elif (mark := find_option(extra, "cache")) is not None:
            block["cache_control"] = {"type": "ephemeral"}
            self._marked.append((mark[0], block))
            if mark[1].value is not None:
                self._draft.drop(f"{mark[0]}.ttl")
        return block

    def _note_unknown(self, extra: dict[str, Any]) -> None:
        for name, value in extra.items():
            if name != "cache_control" and not isinstance(value, Option):
                self._draft.drop(f"messages[].{name[:60]}")


def _before_assistant(turns: Sequence[AnyTurn]) -> list[bool]:
    """Tell for each turn whether an assistant's comes next, or nothing but system messages: where a
    system message may stay one."""
    result, may = [], True
    for turn in reversed(turns):
        result.append(may)
        if turn.role != "system" and not _is_empty(turn):
            may = turn.role == "assistant"
    return result[::-1]


def _is_empty(turn: AnyTurn) -> bool:
    """Will nothing be written of this turn?"""
    return all(isinstance(p, TextPart | RefusalPart) and not p.text.strip() for p in turn.parts)


def _trim_prefill(message: dict[str, Any]) -> None:
    last = message["content"][-1]
    if message["role"] == "assistant" and last["type"] == "text":
        last["text"] = last["text"].rstrip()
