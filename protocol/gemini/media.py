"""Images, documents, sound and search results, written as parts of a content (docs/protocol.md 1.15). No URL is fetched."""

import mimetypes
from typing import Any

from protocol.fields import invalid
from protocol.neutral import MediaPart, NeutralPart, kind_of
from protocol.request import TextPart
from protocol.target import Draft

_STORED = "gs://"
"""Where files may be that the provider reads by itself: its own storage."""


def parts_of(draft: Draft, part: NeutralPart) -> list[dict[str, Any]]:
    """Return the parts for one of a user's turn or of a tool's result. Raises InvalidRequest naming what cannot be sent."""
    match part:
        case TextPart():
            draft.note("messages[]", part.extra)
            return text_parts(part.text)
        case MediaPart(media="search_result"):
            draft.note("messages[]", part.extra)
            return [*text_parts(f"[search result: {part.title}, {part.url}]"), *_content(draft, part)]
        case MediaPart(media="document"):
            draft.note("messages[]", part.extra)
            return _document(draft, part)
        case MediaPart():
            draft.note("messages[]", part.extra)
            return [_file(part, f"{'an' if part.media != 'document' else 'a'} {part.media}")]
        case _:
            invalid(f"a {kind_of(part)[:60]} block cannot be sent to this model's provider", "messages")


def text_parts(text: str) -> list[dict[str, Any]]:
    """Return the part for a text; an empty one has none, for the API refuses it."""
    return [{"text": text}] if text else []


def _file(part: MediaPart, what: str) -> dict[str, Any]:
    if part.data is not None and part.media_type:
        return {"inlineData": {"mimeType": part.media_type, "data": part.data}}
    if part.url is not None and part.url.startswith(_STORED):
        kind = part.media_type or mimetypes.guess_type(part.url)[0] or ""
        if not kind:
            invalid(f"{what} in messages has a URL whose ending does not say its type", "messages")
        return {"fileData": {"fileUri": part.url, "mimeType": kind}}
    if part.url is not None:
        invalid(f"{what} in messages has a URL, which this model's provider does not fetch: send its content in base64", "messages")
    invalid(f"{what} in messages must be in base64, and of a type that its first bytes tell", "messages")


def _document(draft: Draft, part: MediaPart) -> list[dict[str, Any]]:
    about = text_parts(f"[about the next document: {part.context}]" if part.context else "")
    head = f"[document: {part.title}]" if part.title else "[document]"
    if part.text is not None:
        return [*about, *text_parts(f"{head}\n{part.text}")]
    if part.data is not None or part.url is not None or part.file_id is not None:
        return [*about, *(text_parts(head) if part.title else ()), _file(part, "a document")]
    return [*about, *text_parts(head), *_content(draft, part)]


def _content(draft: Draft, part: MediaPart) -> list[dict[str, Any]]:
    return [written for held in part.parts for written in parts_of(draft, held)]
