"""Recorded turns of Responses: reasoning goes back encrypted, before what it led to
(docs/change/protocol.md 1.13).

Nothing is kept at the provider, so an item goes back whole and without its id. Items with a call of
the provider's go back as well: reasoning in front of one that is missing would be refused.
"""

from collections.abc import Sequence
from typing import Any

from protocol.bytes.json_strict import AmbiguousJson, loads_arguments, loads_written
from protocol.dialects import event_turns
from protocol.dialects.event_turns import EventTurnBuilder, TurnBlock
from protocol.dialects.responses.decode import StreamDecoder, decode_whole
from protocol.dialects.responses.items import CARRIED_ITEMS, OUTPUT_ITEMS, RESULT, SERVER_ITEMS
from protocol.dialects.turns import StoredTurn
from protocol.events import BlockKind
from protocol.request import ChatRequest, OtherPart, Part, ToolUsePart
from protocol.requests.names import qualified


class TurnBuilder(EventTurnBuilder):
    """Builds turns of this dialect."""

    def __init__(self) -> None:
        super().__init__(StreamDecoder, decode_whole)


def with_turns(
    request: ChatRequest, stored: Sequence[StoredTurn], *, upstream: str
) -> tuple[ChatRequest, str, list[str]]:
    """Put recorded turns in the place of the client's; a container and parameters that had to be
    left out there are none."""
    written, _ = event_turns.with_turns(request, stored, _Writer(), upstream=upstream)
    return written, "", []


class _Writer:
    """Writes blocks in their order: the parts of one item are several."""

    def __init__(self) -> None:
        self._texts: dict[str, list[dict[str, Any]]] = {}
        self._calls: dict[str, TurnBlock] = {}

    def __call__(self, block: TurnBlock, call: ToolUsePart | None) -> Part | None:
        match block.kind:
            case BlockKind.THINKING:
                return self._reasoning(block)
            case BlockKind.TEXT:
                return _message(block)
            case BlockKind.TOOL_USE if call is not None:
                return _call(block, call)
            case BlockKind.SERVER_TOOL_USE:
                return self._server_call(block)
            case BlockKind.OTHER:
                return self._other(block)
            case _:
                return None

    def _reasoning(self, block: TurnBlock) -> Part | None:
        """The item, with its last part: that has what is encrypted. Without it, it is left out."""
        body = block.body or {}
        field = "content" if body.get("part") == "reasoning_text" else "summary"
        if block.text:
            self._texts.setdefault(field, []).append(
                {"type": body.get("part") or "summary_text", "text": block.text}
            )
        if not block.signature:
            return None
        item = {
            "type": "reasoning",
            "summary": [],
            **self._texts,
            "encrypted_content": block.signature,
        }
        self._texts = {}
        return OtherPart("reasoning", item, "responses")

    def _server_call(self, block: TurnBlock) -> Part | None:
        kind = str((block.body or {}).get("type"))
        if kind not in SERVER_ITEMS or kind == "program":
            body = {**(block.body or {}), "call_id": block.id}
            field = (
                "code"
                if kind == "program"
                else "arguments"
                if kind == "tool_search_call"
                else "action"
            )
            value = _value(block)
            return OtherPart(
                kind,
                body | {field: value.get("code", "") if field == "code" else value},
                "responses",
            )
        self._calls[block.id] = block
        return None

    def _other(self, block: TurnBlock) -> Part | None:
        body = dict(block.body or {})
        call = self._calls.pop(str(body.pop("tool_use_id", "")), None)
        if block.name in CARRIED_ITEMS or block.name in OUTPUT_ITEMS:
            return OtherPart(block.name, body, "responses")
        if call is None or not block.name.endswith(RESULT):
            return None
        kind = block.name.removesuffix(RESULT)
        row, item = SERVER_ITEMS[kind], {**(call.body or {}), **body, "type": kind, "id": call.id}
        if kind == "mcp_call":
            item |= {"name": call.name, "arguments": call.text}
        elif row.input:
            value = _value(call)
            item[row.input] = value if row.input == "action" else value.get(row.input)
        return OtherPart(kind, item, "responses")


def _value(block: TurnBlock) -> dict[str, Any]:
    try:
        loads_arguments(text := block.text or "{}")
    except AmbiguousJson:
        return {}
    value: dict[str, Any] = loads_written(text)
    return value


def _message(block: TurnBlock) -> Part | None:
    phase = (block.body or {}).get("phase")
    if not phase or not block.text:
        return None
    return OtherPart(
        "message",
        {"type": "message", "role": "assistant", "content": block.text, "phase": phase},
        "responses",
    )


def _call(block: TurnBlock, call: ToolUsePart) -> Part | None:
    """A call of the provider's code says so, or its output would be taken for another's."""
    caller = (block.body or {}).get("caller")
    if caller is None:
        return None
    item = {
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": call.arguments or "{}",
        "caller": caller,
    }
    space = (block.body or {}).get("namespace")
    if call.name == qualified(space or "", block.name):
        item |= {"name": block.name, "namespace": space} if space else {}
    return OtherPart("function_call", item, "responses", call.id)
