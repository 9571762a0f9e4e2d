"""The object `sluice` next to the choices: parts of an answer of another dialect that
chat/completions cannot express.

It holds blocks that the provider executed, citations of documents, the native stop reason and
usage. SDKs keep it as an unknown field of the chunk or body; it is never inside a delta, where they
would try to join it. Citations of web pages become annotations.
"""

from typing import Any

from protocol.bytes.json_strict import AmbiguousJson, loads_arguments, normal_arguments
from protocol.citations import Citation
from protocol.events import BlockKind, BlockStart, MessageStart, MessageStop

_UNSEEN = frozenset(("redacted_thinking",))
"""Blocks of which a client of this dialect sees nothing: reasoning that is sealed."""


class Vendor:
    """Collects what belongs into the object, and the annotations, of one answer."""

    def __init__(self, start: MessageStart) -> None:
        self._start = start
        self._blocks: list[dict[str, Any]] = []
        self._calls: dict[int, tuple[dict[str, Any], list[str]]] = {}
        self._pending: list[Citation] = []
        self._citations: list[dict[str, Any]] = []
        self.annotations: list[dict[str, Any]] = []

    def begin(self, event: BlockStart) -> None:
        """Take a block that this dialect has no place for."""
        if event.kind is BlockKind.SERVER_TOOL_USE:
            block = {**(event.body or {}), "id": event.id, "name": event.name}
            self._calls[event.index] = block, []
            self._blocks.append(block)
        elif event.kind is BlockKind.OTHER and event.name not in _UNSEEN and event.body:
            self._blocks.append(event.body)

    def arguments(self, index: int, text: str) -> None:
        """Take arguments of a call that the provider executes."""
        self._calls[index][1].append(text)

    def cite(self, citation: Citation) -> None:
        """Take a citation of the open text block."""
        self._pending.append(citation)

    def place(self, start: int, end: int) -> None:
        """The text block that was cited for ended: its characters in the whole content are `start`
        to `end`."""
        for citation in self._pending:
            self._place(citation, start, end)
        self._pending = []

    def _place(self, citation: Citation, start: int, end: int) -> None:
        """Put a citation where its block is; one without a place is of the whole block."""
        if citation.start >= 0:
            start, end = start + citation.start, min(end, start + max(citation.start, citation.end))
        if citation.kind == "url":
            annotation = {
                "start_index": start,
                "end_index": end,
                "title": citation.title,
                "url": citation.url,
            }
            self.annotations.append({"type": "url_citation", "url_citation": annotation})
        else:
            self._citations.append(
                {"start_index": start, "end_index": end, "citation": citation.source_object}
            )

    def object(self, stop: MessageStop) -> dict[str, Any]:
        """Return the object, {} if the answer was of this dialect."""
        before, after = self._start.extra, stop.extra
        if before.get("dialect") in (None, "openai"):
            return {}
        for block, arguments in self._calls.values():
            block.update(_input("".join(arguments)))
        fields = {
            "id": self._start.id,
            "stop_reason": str(stop.stop_reason),
            "stop_sequence": stop.stop_sequence,
            "stop_details": after.get("stop_details"),
            "container": after.get("container") or before.get("container"),
            "blocks": self._blocks,
            "citations": self._citations,
            "usage": {**(before.get("usage") or {}), **(after.get("usage") or {})},
        }
        return {name: value for name, value in fields.items() if value}


def _input(text: str) -> dict[str, Any]:
    """The input of a call; text that is no object (it was cut) stays text."""
    try:
        return {"input": loads_arguments(normal_arguments(text))}
    except AmbiguousJson:
        return {"input": {}, "input_json": text}
