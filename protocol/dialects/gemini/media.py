"""Images, documents, sound and search results, written as parts of a content
(docs/change/protocol.md 1.15). No URL is fetched."""

import mimetypes
from typing import Any

from protocol.dialects.parts_write import PartWriter
from protocol.requests.fields import invalid
from protocol.requests.neutral import MediaPart

_STORED = "gs://"
"""Where files may be that the provider reads by itself: its own storage."""


def text_parts(text: str) -> list[dict[str, Any]]:
    """Return the part for a text; an empty one has none, for the API refuses it."""
    return [{"text": text}] if text else []


def _file(part: MediaPart) -> list[dict[str, Any]]:
    is_document = part.media == "document"
    head = text_parts(f"[document: {part.title}]") if is_document and part.title else []
    return [*head, _data(part, f"{'a' if is_document else 'an'} {part.media}")]


def _data(part: MediaPart, what: str) -> dict[str, Any]:
    if part.data is not None and part.media_type:
        return {"inlineData": {"mimeType": part.media_type, "data": part.data}}
    if part.url is not None and part.url.startswith(_STORED):
        kind = part.media_type or mimetypes.guess_type(part.url)[0] or ""
        if not kind:
            invalid(f"{what} in messages has a URL whose ending does not say its type", "messages")
        return {"fileData": {"fileUri": part.url, "mimeType": kind}}
    if part.url is not None:
        invalid(
            f"{what} in messages has a URL, which this model's provider does not fetch: send its"
            " content in base64",
            "messages",
        )
    invalid(
        f"{what} in messages must be base64, in a format that Sluice recognises by its first bytes",
        "messages",
    )


WRITER = PartWriter(text=text_parts, file=_file)
"""Writes what a user's turn or a tool's result has."""
