"""Recorded turns of chat/completions: what seals an answer or a call goes back with it
(docs/change/protocol.md 1.10).

Text, calls and reasoning are the client's own. What only the provider can read has no place in
other dialects: OpenRouter's `reasoning_details`, LiteLLM's `thinking_blocks` and
`provider_specific_fields`, Google's `extra_content`.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from protocol.dialects import event_turns
from protocol.dialects.event_turns import EventTurnBuilder, TurnBlock
from protocol.dialects.openai_chat.decode import StreamDecoder, decode_whole
from protocol.dialects.turns import StoredTurn
from protocol.events import SEALED, AttachmentDelta, BlockKind, Event, Opaque, RawDelta
from protocol.request import ChatRequest, OtherPart, Part, ToolUsePart

SEALED_MESSAGE = "sealed_message"
"""The kind of the part that holds what seals an assistant message."""
_DETAILS = frozenset(("reasoning_details", "thinking_blocks"))
_GROWING = ("text", "summary", "thinking")
"""Fields that a stream sends in pieces, each as an entry of its own."""


class TurnBuilder(EventTurnBuilder):
    """Builds turns of this dialect. A turn is complete with its finish reason: not every stream
    ends with a word."""

    goes_on = True

    def __init__(self) -> None:
        super().__init__(StreamDecoder, decode_whole)
        self._fields: dict[str, Any] = {}
        self._of_calls: dict[int, dict[str, Any]] = {}

    def feed(self, chunk: bytes) -> None:
        """Take one chunk of a stream."""
        super().feed(chunk)
        self._has_ended = self._has_ended or (
            isinstance(self._decoder, StreamDecoder) and self._decoder.has_finish
        )

    def content(self) -> list[dict[str, Any]]:
        """A block for the message, where something seals it, and the calls with what seals them. Of
        text beside calls the client has a copy."""
        super().content()
        has_calls = any(block.kind is BlockKind.TOOL_USE for block in self._blocks.values())
        blocks = (
            [TurnBlock(-1, BlockKind.OTHER, name=SEALED_MESSAGE, body=self._fields)]
            if self._fields
            else []
        )
        for index, block in sorted(self._blocks.items()):
            if block.kind is BlockKind.TOOL_USE:
                blocks.append(
                    TurnBlock(
                        index, block.kind, block.id, block.name, body=self._of_calls.get(index)
                    )
                )
            elif block.kind is BlockKind.TEXT and not has_calls:
                # the answer is known by it
                blocks.append(block)
        return [msgspec.to_builtins(block) for block in blocks]

    def _take(self, events: Iterable[Event]) -> None:
        super()._take(event for event in events if not self._takes(event))

    def _takes(self, event: Event) -> bool:
        """Is it what seals the answer, or not modelled? The client's part of the turn is whole
        without that."""
        match event:
            case AttachmentDelta() if event.field in _DETAILS:
                _extend(self._fields.setdefault(event.field, []), event.value)
            case RawDelta() if event.is_sealed:
                delta = event.body["choices"][0]["delta"]
                if calls := delta.get("tool_calls"):
                    fields = self._of_calls.setdefault(event.index, {})
                    fields |= {name: value for name, value in calls[0].items() if name in SEALED}
                else:
                    self._fields |= delta
            case Opaque():
                pass
            case _:
                return False
        return True


def _extend(known: list[Any], entries: list[Any]) -> None:
    """Add entries; the first goes on with the last one, where a stream cut one in two."""
    first, last = entries[0], known[-1] if known else {}
    grown = [
        name for name in _GROWING if isinstance(last.get(name), str) and not last.get("signature")
    ]
    if grown and all(first.get(name) == last.get(name) for name in ("type", "index")):
        joined = {name: value for name, value in first.items() if value is not None}
        joined |= {name: last[name] + (first.get(name) or "") for name in grown}
        known[-1], entries = last | joined, entries[1:]
    known += entries


def with_turns(
    request: ChatRequest, stored: Sequence[StoredTurn], *, upstream: str
) -> tuple[ChatRequest, str, list[str]]:
    """Put what seals recorded turns into the client's; no container goes on here, and nothing has
    to be left out."""
    return event_turns.with_turns(request, stored, _write, upstream=upstream)[0], "", []


def _write(block: TurnBlock, call: ToolUsePart | None) -> Part | None:
    if block.body is None:
        return None
    if call is not None:
        return msgspec.structs.replace(call, extra={**call.extra, **block.body})
    return OtherPart(SEALED_MESSAGE, block.body, "openai") if block.name == SEALED_MESSAGE else None
