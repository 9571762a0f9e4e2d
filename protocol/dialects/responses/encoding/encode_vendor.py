"""The object `sluice` of a response: parts of an answer of another dialect that Responses cannot
express.

It holds blocks that the provider executed, citations of documents, the native stop reason and
usage. SDKs keep it as an unknown field.
"""

from typing import Any

from protocol.bytes.json_strict import (
    AmbiguousJson,
    loads_arguments,
    loads_written,
    normal_arguments,
)
from protocol.citations import Citation
from protocol.events import BlockKind, BlockStart, MessageStart, MessageStop

_UNSEEN = frozenset(("redacted_thinking", "annotations"))
"""Blocks of which a client of this dialect sees nothing."""


class Vendor:
    """Collects what belongs into the object."""

    def __init__(self) -> None:
        self.start: MessageStart | None = None
        self._blocks: list[dict[str, Any]] = []
        self._citations: list[dict[str, Any]] = []

    def take(self, block: BlockStart, arguments: str) -> None:
        """Take a block that this dialect has no place for."""
        if block.kind is BlockKind.SERVER_TOOL_USE:
            self._blocks.append(
                {**(block.body or {}), "id": block.id, "name": block.name, **_input(arguments)}
            )
        elif block.name not in _UNSEEN and block.body:
            self._blocks.append(block.body)

    def cite(self, citation: Citation, item: str, part: int, length: int) -> None:
        """Take a citation that is no annotation, of a part's text."""
        self._citations.append(
            {
                "item_id": item,
                "content_index": part,
                "start_index": 0,
                "end_index": length,
                "citation": citation.raw,
            }
        )

    def object(self, stop: MessageStop) -> dict[str, Any]:
        """Return the object, {} if there is nothing to say."""
        before, after = self.start.extra if self.start is not None else {}, stop.extra
        fields = {
            "stop_sequence": stop.stop_sequence,
            "stop_details": after.get("stop_details"),
            "container": after.get("container") or before.get("container"),
            "blocks": self._blocks,
            "citations": self._citations,
        }
        fields = {name: value for name, value in fields.items() if value}
        if not fields or self.start is None:
            return {}
        usage = {**(before.get("usage") or {}), **(after.get("usage") or {})}
        return {
            "id": self.start.id,
            "stop_reason": str(stop.stop_reason),
            **fields,
            **({"usage": usage} if usage else {}),
        }


def _input(text: str) -> dict[str, Any]:
    """The input of a call; text that is no object (it was cut) stays text."""
    try:
        loads_arguments(text := normal_arguments(text))
        return {"input": loads_written(text)}
    except AmbiguousJson:
        return {"input": {}, "input_json": text}
