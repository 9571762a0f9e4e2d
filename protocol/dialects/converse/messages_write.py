"""System texts and turns, written for Converse (docs/change/protocol.md, Converse)."""

import base64
import re
from typing import Any

import msgspec

from protocol import bounds
from protocol.dialects.converse.document_names import Titles
from protocol.dialects.converse.models import ModelRow
from protocol.dialects.turns_write import Block, BlockWriter
from protocol.request import TextPart, ToolResultPart, ToolUsePart
from protocol.requests.fields import invalid
from protocol.requests.media import IMAGES
from protocol.requests.names import Ids, Names
from protocol.requests.neutral import (
    AnyTurn,
    MediaPart,
    NeutralPart,
    NeutralRequest,
    Option,
    ProviderResultPart,
    RefusalPart,
    ResultPart,
    SummaryPart,
    find_option,
)
from protocol.target import RequestNotes

MAX_CACHE_POINTS = 4
"""Marks for the prompt cache that one request may have."""
_NO_ID = re.compile(r"[^a-zA-Z0-9_.:-]")
_TTLS = ("5m", "1h")
_CACHE = "cachePoint"
_FORMATS = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    "application/vnd.ms-excel": "xls",
    "text/html": "html",
    "text/plain": "txt",
    "text/markdown": "md",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
}


class MessageWriter(BlockWriter):
    """Writes the system texts and the turns of one request."""

    dialect = "converse"

    def __init__(
        self, draft: RequestNotes, neutral: NeutralRequest, row: ModelRow, names: Names
    ) -> None:
        super().__init__(draft, neutral, names, Ids(_NO_ID, 64))
        self._row, self._titles, self._points = row, Titles(), 0

    def system(self) -> list[Block]:
        """Return a block for each text of the leading system messages, and the marks behind
        them."""
        blocks: list[Block] = []
        for turn in self._neutral.system:
            blocks += self._blocks(turn)
        for block in blocks:
            if block.keys() - {"text", _CACHE}:
                invalid(
                    "a system message may hold nothing but text for this model's provider",
                    "messages",
                )
        return blocks

    def turns(self) -> list[Block]:
        """Return the messages as of all dialects with blocks; the first must be the user's."""
        messages = super().turns()
        if messages and messages[0]["role"] != "user":
            invalid("the first message must be the user's for this model's provider", "messages")
        return messages

    def point(self, mark: tuple[str, Option] | None) -> Block | None:
        """Return a mark for the prompt cache, where the model takes one and there is room."""
        if mark is None:
            return None
        name, option = mark
        if not self._row.cache or self._points >= MAX_CACHE_POINTS:
            self._draft.drop(name)
            return None
        self._points += 1
        ttl = {"ttl": option.value} if option.value in _TTLS else {}
        if option.value is not None and not ttl:
            self._draft.drop(f"{name}.ttl")
        return {_CACHE: {"type": "default", **ttl}}

    def _blocks(self, turn: AnyTurn) -> list[Block]:
        blocks = [block for part in turn.parts for block in self._marked(part)]
        return self._with_mark(blocks, turn.extra)

    def _marked(self, part: NeutralPart) -> list[Block]:
        """A part with the mark for the cache that it has."""
        return self._with_mark(self._part(part), getattr(part, "extra", {}))

    def _with_mark(self, blocks: list[Block], extra: dict[str, Any]) -> list[Block]:
        if not extra:
            return blocks
        for name, value in extra.items():
            if name not in ("cache_control", "citations") and not isinstance(value, Option):
                self._draft.drop(f"messages[].{name[:60]}")
        point = self.point(cache_mark(extra)) if blocks else None
        return [*blocks, point] if point else blocks

    def _is_result(self, block: Block) -> bool:
        return "toolResult" in block

    def _text(self, part: TextPart | RefusalPart) -> Block:
        return {"text": part.text}

    def _summary(self, part: SummaryPart) -> list[Block]:
        return [{"text": part.text}] if part.text.strip() else []

    def _call(self, part: ToolUsePart, arguments: msgspec.Raw) -> Block:
        name, identity = self._names.upstream(part.name), self._ids.upstream(part.id)
        return {"toolUse": {"toolUseId": identity, "name": name, "input": arguments}}

    def _provider_result(self, part: ProviderResultPart) -> list[Block]:
        self._draft.drop(f"messages[].{part.kind}")
        return []

    def _result(self, part: ToolResultPart) -> Block:
        content = [{"text": part.text}] if part.text.strip() else []
        if isinstance(part, ResultPart):
            content = self._inner(part)
        result: Block = {"toolUseId": self._ids.upstream(part.tool_call_id), "content": content}
        if part.is_error and self._row.family in ("claude", "nova"):
            result["status"] = "error"
        elif part.is_error:
            content.insert(0, {"text": "[error]"})
        return {"toolResult": result}

    def _media(self, part: MediaPart) -> Block:
        match part.media:
            case "image":
                return {"image": _image(part)}
            case "document":
                return {"document": self._document(part)}
            case "search_result" if self._row.family == "claude":
                content = self._inner(part)
                if any(b.keys() != {"text"} for b in content):
                    invalid(
                        "a search result in messages must hold text alone for this model's"
                        " provider",
                        "messages",
                    )
                cited = {"citations": {"enabled": True}} if part.extra.get("citations") else {}
                return {
                    "searchResult": {
                        "source": part.url or "",
                        "title": part.title,
                        "content": content,
                        **cited,
                    }
                }
        invalid(f"{part.media} cannot be sent to this model's provider", "messages")

    def _document(self, part: MediaPart) -> Block:
        document: Block = {"name": self._titles.upstream(part.title)}
        blocks = self._inner(part)
        if part.text is not None:
            form = _FORMATS.get(part.media_type, "txt")
            data = base64.b64encode(part.text.encode("utf-8", "replace")).decode()
            document |= {
                "format": form,
                "source": {"text": part.text} if form == "txt" else {"bytes": data},
            }
        elif part.data is not None and part.media_type in _FORMATS:
            document |= {"format": _FORMATS[part.media_type], "source": {"bytes": part.data}}
        elif blocks and all(block.keys() == {"text"} for block in blocks):
            document |= {"format": "txt", "source": {"content": blocks}}
        else:
            invalid(
                "a document in messages must come as its content, in a form that this model's"
                " provider reads: PDF or text",
                "messages",
            )
        if part.context:
            document["context"] = part.context
        if part.extra.get("citations"):
            document["citations"] = {"enabled": True}
        return document


def cache_mark(extra: dict[str, Any]) -> tuple[str, Option] | None:
    """Return the client's mark for the prompt cache, by its name."""
    mark = find_option(extra, "cache")
    if mark is None and isinstance(cache_control := extra.get("cache_control"), dict):
        # the word of another vendor's, which clients use everywhere
        return "cache_control", Option("cache", cache_control.get("ttl"))
    return mark


def _image(part: MediaPart) -> Block:
    if part.data is None:
        invalid(
            "an image in messages must come as its content: this model's provider fetches no URL"
            " and has no files",
            "messages",
        )
    if len(part.data) // 4 * 3 - part.data[-2:].count("=") > bounds.MAX_IMAGE_BYTES:
        invalid(f"an image in messages is larger than {bounds.MAX_IMAGE_BYTES} bytes", "messages")
    if part.media_type not in IMAGES:
        invalid("an image in messages is neither JPEG, PNG, GIF nor WebP", "messages")
    return {"format": part.media_type.rpartition("/")[2], "source": {"bytes": part.data}}
