"""Recorded turns of Converse, sent back as they were: thinking with what seals it, and what the
provider's own tools did."""

from collections.abc import Sequence
from typing import Any

from protocol.bytes.json_strict import AmbiguousJson, loads_arguments, normal_arguments
from protocol.dialects.converse.decode import StreamDecoder, decode_whole
from protocol.dialects.converse.parts import REDACTED, RESULT
from protocol.dialects.event_turns import EventTurnBuilder, TurnBlock
from protocol.dialects.event_turns import with_turns as put_turns
from protocol.dialects.turns import StoredTurn
from protocol.events import BlockKind
from protocol.request import ChatRequest, OtherPart, Part, ToolUsePart


class TurnBuilder(EventTurnBuilder):
    """Builds a turn from an upstream's messages."""

    def __init__(self) -> None:
        super().__init__(StreamDecoder, decode_whole)


def with_turns(
    request: ChatRequest, stored: Sequence[StoredTurn], *, upstream: str
) -> tuple[ChatRequest, str, list[str]]:
    """Put recorded turns of `upstream` in the place of the client's. No container goes on here, and
    nothing has to be left out: a model whose thinking is lost is asked without."""
    return put_turns(request, stored, _write, upstream=upstream)[0], "", []


def _write(block: TurnBlock, call: ToolUsePart | None) -> Part | None:
    if call is not None:
        return None
    body = block.body or {}
    match block.kind, block.name:
        case BlockKind.THINKING, _ if block.signature:
            return _part(
                "reasoningContent",
                {"reasoningText": {"text": block.text, "signature": block.signature}},
            )
        case BlockKind.OTHER, name if name == REDACTED:
            return _part("reasoningContent", {"redactedContent": body.get("redactedContent")})
        case BlockKind.SERVER_TOOL_USE, _:
            try:
                arguments = loads_arguments(normal_arguments(block.text))
            except AmbiguousJson:
                return None
            return _part(
                "toolUse",
                {
                    "toolUseId": block.id,
                    "name": block.name,
                    "input": arguments,
                    "type": "server_tool_use",
                },
            )
        case BlockKind.OTHER, name if name == RESULT:
            fields = {
                there: body[here]
                for here, there in (("result_type", "type"), ("status", "status"))
                if here in body
            }
            return _part(
                "toolResult",
                {"toolUseId": body.get("tool_use_id"), "content": body.get("content"), **fields},
            )
    return None


def _part(kind: str, value: dict[str, Any]) -> OtherPart:
    return OtherPart(kind, {kind: value}, "converse")
