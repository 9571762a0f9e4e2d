"""Images and documents, written as parts of a chat/completions message (docs/protocol.md 1.10)."""

from typing import Any

from protocol.fields import invalid
from protocol.media import IMAGES, is_address
from protocol.neutral import MediaPart
from protocol.parts_write import PartWriter


def text_part(text: str) -> dict[str, Any]:
    """Return the part for a text."""
    return {"type": "text", "text": text}


def _file(part: MediaPart) -> list[dict[str, Any]]:
    match part.media:
        case "image":
            return [_image(part)]
        case "document":
            return [_document(part)]
        case _:
            invalid(f"{part.media} cannot be sent to this model's provider", "messages")


def _image(part: MediaPart) -> dict[str, Any]:
    if part.data is not None and part.media_type in IMAGES:
        return {
            "type": "image_url",
            "image_url": {"url": f"data:{part.media_type};base64,{part.data}"},
        }
    if part.url is not None and is_address(part.url):
        return {"type": "image_url", "image_url": {"url": part.url}}
    invalid(
        "an image in messages must be a JPEG, PNG, GIF or WebP in base64, or have an http(s) URL",
        "messages",
    )


def _document(part: MediaPart) -> dict[str, Any]:
    if part.data is not None and part.media_type == "application/pdf":
        data = f"data:application/pdf;base64,{part.data}"
        return {
            "type": "file",
            "file": {"filename": part.title or "document.pdf", "file_data": data},
        }
    if part.url is not None:
        invalid(
            "a document with a URL cannot be sent to this model's provider: send its content",
            "messages",
        )
    invalid("a document in messages must be a PDF in base64, text, or blocks", "messages")


WRITER = PartWriter(text=lambda text: [text_part(text)], file=_file)
"""Writes what a user's turn or a tool's result has."""
