"""Images and documents, written as parts of a Responses message or output (docs/protocol.md
1.13)."""

from typing import Any

from protocol.fields import invalid
from protocol.media import IMAGES, is_address
from protocol.neutral import MediaPart
from protocol.parts_write import PartWriter

_DETAILS = ("image_url.detail", "input_image.detail")


def text_part(text: str) -> dict[str, Any]:
    """Return the part for a text."""
    return {"type": "input_text", "text": text}


def _file(part: MediaPart) -> list[dict[str, Any]]:
    match part.media:
        case "image":
            return [_image(part)]
        case "document":
            # a URL has no place for its name
            head = (
                [text_part(f"[document: {part.title}]")] if part.title and part.data is None else []
            )
            return [*head, _document(part)]
        case _:
            invalid(f"{part.media} cannot be sent to this model's provider", "messages")


def _image(part: MediaPart) -> dict[str, Any]:
    detail = next(
        (part.extra[name] for name in _DETAILS if isinstance(part.extra.get(name), str)), "auto"
    )
    if part.data is not None and part.media_type in IMAGES:
        return {
            "type": "input_image",
            "image_url": f"data:{part.media_type};base64,{part.data}",
            "detail": detail,
        }
    if part.url is not None and is_address(part.url):
        return {"type": "input_image", "image_url": part.url, "detail": detail}
    invalid(
        "an image in messages must be a JPEG, PNG, GIF or WebP in base64, or have an http(s) URL",
        "messages",
    )


def _document(part: MediaPart) -> dict[str, Any]:
    if part.data is not None and part.media_type == "application/pdf":
        data = f"data:application/pdf;base64,{part.data}"
        return {"type": "input_file", "filename": part.title or "document.pdf", "file_data": data}
    if part.url is not None and is_address(part.url):
        return {"type": "input_file", "file_url": part.url}
    invalid(
        "a document in messages must be a PDF in base64 or at an http(s) URL, text, or blocks",
        "messages",
    )


WRITER = PartWriter(text=lambda text: [text_part(text)], file=_file, known=_DETAILS)
"""Writes what a user's turn or a tool's result has."""
