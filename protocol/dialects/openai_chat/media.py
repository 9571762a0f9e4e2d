"""Images and documents, written as parts of a chat/completions message (docs/change/protocol.md
1.10)."""

from typing import Any

from protocol.dialects.openai_options import image_url, pdf_file
from protocol.dialects.parts_write import PartWriter
from protocol.requests.fields import invalid
from protocol.requests.neutral import MediaPart


def text_part(text: str) -> dict[str, Any]:
    """Return the part for a text."""
    return {"type": "text", "text": text}


def _file(part: MediaPart) -> list[dict[str, Any]]:
    match part.media:
        case "image":
            return [{"type": "image_url", "image_url": {"url": image_url(part)}}]
        case "document":
            return [_document(part)]
        case _:
            invalid(f"{part.media} cannot be sent to this model's provider", "messages")


def _document(part: MediaPart) -> dict[str, Any]:
    if (file := pdf_file(part)) is not None:
        return {"type": "file", "file": file}
    if part.url is not None:
        invalid(
            "a document with a URL cannot be sent to this model's provider: send its content",
            "messages",
        )
    invalid("a document in messages must be a PDF in base64, text, or blocks", "messages")


WRITER = PartWriter(text=lambda text: [text_part(text)], file=_file)
"""Writes what a user's turn or a tool's result has."""
