"""System texts and turns, written for Converse (docs/change/protocol.md, Converse)."""

import base64
import re
from typing import Any, assert_never

from protocol import bounds
from protocol.converse.models import ModelRow
from protocol.converse.titles import Titles
from protocol.fields import invalid
from protocol.media import IMAGES
from protocol.names import Ids, Names
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
_Block = dict[str, Any]


class MessageWriter:
    """Writes the system texts and the turns of one request."""

    def __init__(
        self, draft: RequestNotes, neutral: NeutralRequest, row: ModelRow, names: Names
    ) -> None:
        self._draft, self._neutral, self._row, self._names = draft, neutral, row, names
        self._ids, self._titles = Ids(_NO_ID, 64), Titles()
        self._results = provider_history.results_of(neutral.turns)
        self._points = 0

    def system(self) -> list[_Block]:
        """Return a block for each text of the leading system messages, and the marks behind
        them."""
        blocks: list[_Block] = []
        for turn in self._neutral.system:
            blocks += self._blocks(turn)
        for block in blocks:
            if block.keys() - {"text", _CACHE}:
                invalid(
                    "a system message may hold nothing but text for this model's provider",
                    "messages",
                )
        return blocks

    def turns(self) -> list[_Block]:
        """Return the messages, [] where none has content. Raises InvalidRequest naming what cannot
        be expressed for the provider."""
        messages: list[_Block] = []
        for turn in self._neutral.turns:
            role = "assistant" if turn.role == "assistant" else "user"
            blocks = self._blocks(turn)
            if turn.role == "system":
                blocks = [{"text": SYSTEM_MARK + b["text"]} if "text" in b else b for b in blocks]
            if blocks and messages and messages[-1]["role"] == role:
                messages[-1]["content"] += blocks
            elif blocks:
                messages.append({"role": role, "content": blocks})
        for message in messages:
            if message["role"] == "user":
                # the API wants results before anything else of their turn
                results = [b for b in message["content"] if "toolResult" in b]
                if results:
                    message["content"] = results + [
                        b for b in message["content"] if "toolResult" not in b
                    ]
        if messages and messages[0]["role"] != "user":
            invalid("the first message must be the user's for this model's provider", "messages")
        return messages

    def point(self, mark: tuple[str, Option] | None) -> _Block | None:
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

    def _blocks(self, turn: AnyTurn) -> list[_Block]:
        blocks = [block for part in turn.parts for block in self._marked(part)]
        return self._with_mark(blocks, turn.extra)

    def _marked(self, part: NeutralPart) -> list[_Block]:
        """A part with the mark for the cache that it has."""
        return self._with_mark(self._part(part), getattr(part, "extra", {}))

    def _with_mark(self, blocks: list[_Block], extra: dict[str, Any]) -> list[_Block]:
        if not extra:
            return blocks
        for name, value in extra.items():
            if name not in ("cache_control", "citations") and not isinstance(value, Option):
                self._draft.drop(f"messages[].{name[:60]}")
        mark = find_option(extra, "cache")
        if mark is None and isinstance(cache_control := extra.get("cache_control"), dict):
            # the word of another vendor's, which clients use everywhere
            mark = "cache_control", Option("cache", cache_control.get("ttl"))
        point = self.point(mark) if blocks else None
        return [*blocks, point] if point else blocks

    def _part(self, part: NeutralPart) -> list[_Block]:
        match part:
            case TextPart() | RefusalPart():
                return [{"text": part.text}] if part.text.strip() else []
            case ToolUsePart():
                name, identity = self._names.upstream(part.name), self._ids.upstream(part.id)
                return [
                    {
                        "toolUse": {
                            "toolUseId": identity,
                            "name": name,
                            "input": read_input(part.id, part.arguments),
                        }
                    }
                ]
            case ToolResultPart():
                return [self._result(part)]
            case OtherPart(dialect="converse"):
                # from the record of an earlier answer: sealed, so as it was
                return [part.body]
            case MediaPart():
                return [self._media(part)]
            case ThinkingPart():
                return []  # sealed for another provider, or not at all
            case SummaryPart():
                return [{"text": part.text}] if part.text.strip() else []
            case ProviderCallPart():
                self._draft.drop(f"messages[].{part.kind}")
                return [
                    {"text": provider_history.describe_call(part, self._results.pop(part.id, None))}
                ]
            case ProviderResultPart():
                self._draft.drop(f"messages[].{part.kind}")
                return []
            case OtherPart():
                invalid(
                    f"a part of type {kind_of(part)[:60]!r} cannot be sent to this model's"
                    " provider",
                    "messages",
                )
            case _:
                assert_never(part)

    def _result(self, part: ToolResultPart) -> _Block:
        if part.form == "legacy" and not part.tool_call_id:
            invalid("a function message answers no earlier function_call", "messages")
        content = [{"text": part.text}] if part.text.strip() else []
        if isinstance(part, ResultPart):
            content = [block for held in part.parts for block in self._part(held)]
        result: _Block = {"toolUseId": self._ids.upstream(part.tool_call_id), "content": content}
        if part.is_error and self._row.family in ("claude", "nova"):
            result["status"] = "error"
        elif part.is_error:
            content.insert(0, {"text": "[error]"})
        return {"toolResult": result}

    def _media(self, part: MediaPart) -> _Block:
        match part.media:
            case "image":
                return {"image": _image(part)}
            case "document":
                return {"document": self._document(part)}
            case "search_result" if self._row.family == "claude":
                content = [b for p in part.parts for b in self._part(p)]
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

    def _document(self, part: MediaPart) -> _Block:
        document: _Block = {"name": self._titles.upstream(part.title)}
        blocks = [block for held in part.parts for block in self._part(held)]
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


def _image(part: MediaPart) -> _Block:
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
