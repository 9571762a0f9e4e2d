"""The items of one Responses answer as they are written, streamed or whole
(docs/change/protocol.md, Responses clients).

Theory. The SDK's accumulator wants: the response begins first and keeps its id; an item is there
before anything of it, and a part before its text; what an item was called when it began it is
called when it ends, and in the last event. So items are numbered as they are released, their ids
are ours, and each is written once, here: as frames and as what the last event repeats. Must not
know: in which order events come, that is `encode_answer`.
"""

from typing import Any

from protocol.citations import Citation
from protocol.dialects.responses.encoding.encode_calls import shown
from protocol.dialects.responses.encoding.encode_head import head
from protocol.dialects.responses.encoding.encode_vendor import Vendor
from protocol.dialects.responses.ids import item_id
from protocol.dialects.responses.items import PREFIXES
from protocol.request import ChatRequest

_PROGRESS = frozenset(
    "web_search_call file_search_call code_interpreter_call image_generation_call mcp_call"
    " mcp_list_tools".split()
)
"""Items of which events say how far they are."""
_INPUTS = {
    "function_call": ("function_call_arguments", "arguments"),
    "custom_tool_call": ("custom_tool_call_input", "input"),
}


PARTS = {
    "output_text": ("content_part", "output_text", "content_index", "text"),
    "refusal": ("content_part", "refusal", "content_index", "refusal"),
    "reasoning_text": ("content_part", "reasoning_text", "content_index", "text"),
    "summary_text": ("reasoning_summary_part", "reasoning_summary_text", "summary_index", "text"),
}
"""Of each part: the events of the part and of its text, the field with its number, and the field
with its text."""


class _Part:
    """The open part of an item. `entries`: log probabilities."""

    __slots__ = ("body", "cited", "entries", "kind", "number", "pieces")

    def __init__(self, kind: str, number: int) -> None:
        self.kind, self.number = kind, number
        self.pieces: list[str] = []
        self.cited: list[Citation] = []
        self.entries: list[Any] = []
        field = PARTS[kind][3]
        self.body: dict[str, Any] = {"type": kind, field: ""}
        if kind == "output_text":
            self.body |= {"annotations": [], "logprobs": []}


class ItemWriter:
    """The response with its items, of which a message or reasoning may be open."""

    def __init__(self, request: ChatRequest, call_id: str, created: int) -> None:
        self._call_id = call_id
        self.response = head(request, call_id, created, request.echo)
        self._include = frozenset(request.echo.get("include") or ())
        self._item: dict[str, Any] | None = None
        """The open message or reasoning."""
        self._of: Any = None
        """The item of the upstream's that it is."""
        self._count = 0
        self._part: _Part | None = None
        self._vendor = Vendor()
        self._refused = False

    def put(self, kind: str, fields: dict[str, Any]) -> None:
        """Write an event, if events are written."""

    def text_opened(self, part: str, item: dict[str, Any], number: int) -> None:
        """Text of this part follows."""

    def logprobs(self, entries: list[Any]) -> None:
        """Put these beside the text that was written just now."""

    def _open(self, item: dict[str, Any]) -> None:
        self._item = self._with_id(item)
        self.put("response.output_item.added", {"output_index": self._count, "item": self._item})

    def _with_id(self, item: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": item_id(PREFIXES[item["type"]], self._call_id, self._count),
            **{n: v for n, v in item.items() if n != "id"},
        }

    def _done(self, item: dict[str, Any]) -> None:
        self.put("response.output_item.done", {"output_index": self._count, "item": item})
        self.response["output"].append(item)
        self._count += 1

    def _close(self, status: str = "completed") -> None:
        """End the open message or reasoning."""
        item, self._item, self._of = self._item, None, None
        if item is None:
            return
        if item["type"] == "message":
            item["status"] = status
        self._done(item)

    def _open_part(self, kind: str) -> None:
        assert self._item is not None
        held = self._item.setdefault("summary" if kind == "summary_text" else "content", [])
        part = self._part = _Part(kind, len(held))
        event, _, number, _ = PARTS[kind]
        self._put_part(f"response.{event}.added", {"part": part.body}, number)
        self.text_opened(kind, self._item, part.number)

    def _put_part(self, kind: str, fields: dict[str, Any], number: str) -> None:
        assert self._item is not None and self._part is not None
        self.put(
            kind,
            {
                "item_id": self._item["id"],
                "output_index": self._count,
                number: self._part.number,
                **fields,
            },
        )

    def _end_part(self) -> None:
        part, item = self._part, self._item
        if part is None or item is None:
            return
        event, text_event, number, field = PARTS[part.kind]
        text = part.body[field] = "".join(part.pieces)
        self._refused = self._refused or part.kind == "refusal"
        for citation in part.cited:
            self._place(citation, part, item, len(text))
        if part.entries:
            part.body["logprobs"] = part.entries
        more: dict[str, Any] = {"logprobs": part.entries} if part.kind == "output_text" else {}
        self._put_part(f"response.{text_event}.done", {field: text, **more}, number)
        self._put_part(f"response.{event}.done", {"part": part.body}, number)
        item["summary" if part.kind == "summary_text" else "content"].append(part.body)
        self._part = None

    def _place(self, citation: Citation, part: _Part, item: dict[str, Any], length: int) -> None:
        if citation.kind == "url":
            start, end = (
                (citation.start, citation.end)
                if 0 <= citation.start <= citation.end <= length
                else (0, length)
            )
            self._annotate(
                {
                    "type": "url_citation",
                    "start_index": start,
                    "end_index": end,
                    "title": citation.title,
                    "url": citation.url,
                },
                part,
            )
        else:
            self._vendor.cite(citation, item["id"], part.number, length)

    def _annotate(self, annotation: dict[str, Any], part: _Part) -> None:
        number = len(part.body["annotations"])
        part.body["annotations"].append(annotation)
        fields = {"annotation_index": number, "annotation": annotation}
        self._put_part("response.output_text.annotation.added", fields, "content_index")

    def _refuse(self, text: str) -> None:
        if self._item is None or self._item["type"] != "message":
            self._close()
            self._open(
                {"type": "message", "status": "in_progress", "role": "assistant", "content": []}
            )
        self._open_part("refusal")
        assert self._part is not None
        self._part.pieces.append(text)
        self._put_part("response.refusal.delta", {"delta": text}, "content_index")
        self._end_part()

    def _client_call(self, item: dict[str, Any]) -> None:
        kind = item["type"]
        at = {"item_id": item["id"], "output_index": self._count}
        if (inputs := _INPUTS.get(kind)) is None:
            begun = item if "status" not in item else {**item, "status": "in_progress"}
            self.put("response.output_item.added", {"output_index": self._count, "item": begun})
        else:
            name, field = inputs
            self.put(
                "response.output_item.added",
                {"output_index": self._count, "item": {**item, "status": "in_progress", field: ""}},
            )
            self.put(f"response.{name}.delta", {**at, "delta": item[field]})
            named = {"name": item["name"]} if kind == "function_call" else {}
            self.put(f"response.{name}.done", {**at, **named, field: item[field]})
        self._done(item)

    def _server_item(self, item: dict[str, Any]) -> None:
        item = self._with_id(shown(item, self._include))
        kind = item["type"]
        at = {"item_id": item["id"], "output_index": self._count}
        begun = {**item, "status": "in_progress"} if "status" in item else item
        self.put("response.output_item.added", {"output_index": self._count, "item": begun})
        if kind in _PROGRESS:
            self.put(f"response.{kind}.in_progress", at)
            failed = item.get("status") == "failed" and kind in ("mcp_call", "mcp_list_tools")
            self.put(f"response.{kind}.{'failed' if failed else 'completed'}", at)
        self._done(item)
