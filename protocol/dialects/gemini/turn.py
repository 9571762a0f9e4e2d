"""Recorded turns of Gemini: each part goes back with the signature that it came with
(docs/change/protocol.md 1.15).

A signature belongs to its part, so a signed text and an unsigned one never become one. Reasoning
without a signature stays out.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from protocol.bytes.json_strict import AmbiguousJson, loads_arguments
from protocol.dialects import event_turns
from protocol.dialects.event_turns import EventTurnBuilder, TurnBlock
from protocol.dialects.gemini.blocks import ANNOTATIONS, SEAL
from protocol.dialects.gemini.decode import StreamDecoder, decode_whole
from protocol.dialects.turns import StoredTurn
from protocol.events import BlockKind
from protocol.request import ChatRequest, OtherPart, Part, ToolUsePart

CALL = "functionCall"
PARTS = "parts"
"""Kinds of the parts that the record gives back: a call with what belongs to it, and parts as they
are sent."""
_EVIDENCE = frozenset(("groundingMetadata", "urlContextMetadata"))
"""What only tells of a call of the provider's: there was no part of it."""


class TurnBuilder(EventTurnBuilder):
    """Builds turns of this dialect. A turn is complete with its finish reason: no word ends the
    stream, and more may come, for some models say one with each chunk."""

    goes_on = True

    def __init__(self) -> None:
        super().__init__(StreamDecoder, decode_whole)

    def feed(self, chunk: bytes) -> None:
        """Take one chunk of a stream."""
        super().feed(chunk)
        self._has_ended = isinstance(self._decoder, StreamDecoder) and self._decoder.has_finish


def with_turns(
    request: ChatRequest, stored: Sequence[StoredTurn], *, upstream: str
) -> tuple[ChatRequest, str, list[str]]:
    """Put recorded turns in the place of the client's. What a call without its signature needs is
    added, and noted, by the writer."""
    written, _ = event_turns.with_turns(request, stored, _write, upstream=upstream)
    return written, "", []


def _write(block: TurnBlock, call: ToolUsePart | None) -> Part | None:
    signature = {SEAL: block.signature} if block.signature else {}
    match block.kind:
        case BlockKind.TOOL_USE if call is not None:
            body = {
                "call": {"id": call.id, "name": call.name, "arguments": call.arguments},
                "id": block.id,
                **signature,
            }
            return OtherPart(CALL, body, "gemini", call.id)
        case BlockKind.TEXT | BlockKind.THINKING if block.signature:
            part: dict[str, Any] = {"text": block.text} | (
                {"thought": True} if block.kind is BlockKind.THINKING else {}
            )
            if block.body is not None:
                return _parts(part | signature)
            return (
                _parts(part, {"text": "", **signature})
                if block.kind is BlockKind.TEXT
                else _parts({"text": "", **signature})
            )
        case BlockKind.SERVER_TOOL_USE:
            return _server_call(block, signature)
        case BlockKind.OTHER:
            return _other(block, signature)
        case _:
            return None


def _parts(*parts: dict[str, Any]) -> OtherPart:
    return OtherPart(PARTS, {PARTS: list(parts)}, "gemini")


def _server_call(block: TurnBlock, signature: dict[str, Any]) -> Part | None:
    body = block.body or {}
    kind = body.get("type")
    if kind in _EVIDENCE:
        return None
    try:
        arguments = loads_arguments(block.text or "{}")
    except AmbiguousJson:
        return None
    identity = {"id": body["id"]} if "id" in body else {}
    if kind == "executableCode":
        return _parts({"executableCode": {**arguments, **identity}, **signature})
    call = {"toolType": body.get("toolType"), **identity}
    call |= (
        arguments
        if body.get("form") == "whole"
        else {"args": msgspec.Raw(block.text.encode())}
        if block.text
        else {}
    )
    return _parts({"toolCall": call, **signature})


def _other(block: TurnBlock, signature: dict[str, Any]) -> Part | None:
    body = {
        name: value
        for name, value in (block.body or {}).items()
        if name not in ("type", "tool_use_id")
    }
    if block.name == ANNOTATIONS:
        return None
    if block.name == SEAL:
        return _parts({"text": "", **signature})
    return _parts({block.name: body, **signature})
