"""Images, documents, sound and search results among a user's parts: common to their writers
(docs/change/protocol.md 1.10)."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from protocol.dialects.turns_write import misplaced
from protocol.request import TextPart, ToolResultPart, ToolUsePart
from protocol.requests.fields import invalid
from protocol.requests.neutral import MediaPart, NeutralPart, kind_of
from protocol.target import RequestNotes

Written = list[dict[str, Any]]


class PartWriter(msgspec.Struct, frozen=True, kw_only=True):
    """How a dialect writes a text, and an image, a sound or a document that is a file: each as the
    parts of a message.

    `file` raises InvalidRequest naming what cannot be sent; it knows the fields `known` of an
    `extra`.
    """

    text: Callable[[str], Written]
    file: Callable[[MediaPart], Written]
    known: tuple[str, ...] = ()

    def all(self, draft: RequestNotes, parts: Iterable[NeutralPart]) -> Written:
        """Return the parts for those of a tool's result. Raises InvalidRequest naming what cannot
        be sent."""
        return [written for part in parts for written in self._one(draft, part)]

    def asked(self, draft: RequestNotes, parts: Iterable[NeutralPart]) -> Written:
        """Return the parts for what a user's turn has beside results."""
        written: Written = []
        for part in parts:
            match part:
                case ToolUsePart():
                    misplaced(part)
                case ToolResultPart():
                    pass
                case _:
                    written += self._one(draft, part)
        return written

    def _one(self, draft: RequestNotes, part: NeutralPart) -> Written:
        match part:
            case TextPart():
                draft.note("messages[]", part.extra)
                return self.text(part.text)
            case MediaPart():
                draft.note("messages[]", part.extra, *self.known)
                return self._media(draft, part)
            case _:
                invalid(
                    f"a {kind_of(part)[:60]} block cannot be sent to this model's provider",
                    "messages",
                )

    def _media(self, draft: RequestNotes, part: MediaPart) -> Written:
        if part.media == "search_result":
            return [
                *self.text(f"[search result: {part.title}, {part.url}]"),
                *self.all(draft, part.parts),
            ]
        if part.media != "document":
            return self.file(part)
        about = self.text(f"[about the next document: {part.context}]") if part.context else []
        head = f"[document: {part.title}]" if part.title else "[document]"
        if part.text is not None:
            return [*about, *self.text(f"{head}\n{part.text}")]
        if part.data is not None or part.url is not None or part.file_id is not None:
            return [*about, *self.file(part)]
        return [*about, *self.text(head), *self.all(draft, part.parts)]
