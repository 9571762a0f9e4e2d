"""The messages of a request that crosses, written for a provider of the Messages dialect
(docs/change/protocol.md 1.1)."""

from collections.abc import Sequence
from typing import Any, assert_never

from protocol.anthropic.media import media_block
from protocol.anthropic.models import ModelRow
from protocol.fields import invalid
from protocol.names import PLAIN, Ids, Names
from protocol.neutral import (
    AnyTurn,
    MediaPart,
    NeutralPart,
    NeutralRequest,
    Option,
    ProviderCallPart,
    ProviderResultPart,
    RefusalPart,
    ResultPart,
    SummaryPart,
    ThinkingPart,
    find_option,
    kind_of,
)
from protocol.request import OtherPart, TextPart, ToolResultPart, ToolUsePart
from protocol.server_tools import history as provider_history
from protocol.target import RequestNotes
from protocol.turns_write import SYSTEM_MARK, read_input

MAX_BREAKPOINTS = 4
"""Places that one request may mark for the prompt cache."""


class MessageWriter:
    """Writes the system texts and the turns of one request."""

    def __init__(
        self, draft: RequestNotes, neutral: NeutralRequest, row: ModelRow, names: Names
    ) -> None:
        self._draft = draft
        self._neutral = neutral
        self._row = row
        self._names = names
        self._ids = Ids(PLAIN)
        self._marked: list[tuple[str, dict[str, Any]]] = []
        self._own_marks = 0
        self._results = provider_history.results_of(neutral.turns)

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
        """Return the messages, [] where none has content. Raises InvalidRequest naming what cannot
        be expressed for the provider."""
        messages: list[dict[str, Any]] = []
        followed = _before_assistant(self._neutral.turns)
        for position, turn in enumerate(self._neutral.turns):
            role = "assistant" if turn.role == "assistant" else "user"
            blocks = self._blocks(turn)
            if turn.role == "system":
                if (
                    self._row.mid_system
                    and messages
                    and messages[-1]["role"] != "assistant"
                    and followed[position]
                ):
                    role = "system"
                else:
                    blocks = [b | {"text": SYSTEM_MARK + b["text"]} for b in blocks]
            if blocks and messages and messages[-1]["role"] == role:
                messages[-1]["content"] += blocks
            elif blocks:
                messages.append({"role": role, "content": blocks})
        for message in messages:
            if message["role"] == "user":
                # the API wants results before anything else of their turn
                message["content"].sort(key=lambda b: b["type"] != "tool_result")
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

    def _part(self, part: NeutralPart) -> list[dict[str, Any]]:
        match part:
            case TextPart():
                self._note_unknown(part.extra)
                return (
                    [self._mark({"type": "text", "text": part.text}, part.extra)]
                    if part.text.strip()
                    else []
                )
            case ToolUsePart():
                name, identity = self._names.upstream(part.name), self._ids.upstream(part.id)
                call = {
                    "type": "tool_use",
                    "id": identity,
                    "name": name,
                    "input": read_input(part.id, part.arguments),
                }
                return [self._mark(call, part.extra)]
            case ToolResultPart():
                return [self._result(part)]
            case OtherPart(dialect="anthropic"):
                # from the record of an earlier answer: signed, so as it was
                return [part.body]
            case MediaPart():
                self._note_unknown(part.extra)
                return [self._mark(media_block(self._draft, part), part.extra)]
            case RefusalPart():
                return [{"type": "text", "text": part.text}] if part.text.strip() else []
            case ThinkingPart():
                return []  # sealed for another provider, or not at all
            case ProviderCallPart():
                self._draft.drop(f"messages[].{part.kind}")
                # a result is one call's: repeated for every call of its id, it would cost its size
                # each time
                return [
                    {
                        "type": "text",
                        "text": provider_history.describe_call(
                            part, self._results.pop(part.id, None)
                        ),
                    }
                ]
            case ProviderResultPart():
                return []
            case SummaryPart() | OtherPart():
                invalid(
                    f"a part of type {kind_of(part)[:60]!r} cannot be sent to this model's"
                    " provider",
                    "messages",
                )
            case _:
                assert_never(part)

    def _result(self, part: ToolResultPart) -> dict[str, Any]:
        if part.form == "legacy" and not part.tool_call_id:
            invalid("a function message answers no earlier function_call", "messages")
        block: dict[str, Any] = {
            "type": "tool_result",
            "tool_use_id": self._ids.upstream(part.tool_call_id),
            "content": part.text,
        }
        if isinstance(part, ResultPart):
            block["content"] = [b for p in part.parts for b in self._part(p)]
        if part.is_error:
            block["is_error"] = True
        return self._mark(block, part.extra)

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
        # the API refuses trailing whitespace in a prefill
        last["text"] = last["text"].rstrip()
