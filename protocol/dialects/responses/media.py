"""Images and documents, written as parts of a Responses message or output (docs/change/protocol.md
1.13)."""

from typing import Any

from protocol.dialects.openai_options import image_url, pdf_file
from protocol.dialects.parts_write import PartWriter
from protocol.requests.fields import invalid
from protocol.requests.media import is_address
from protocol.requests.neutral import MediaPart

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
    return {"type": "input_image", "image_url": image_url(part), "detail": detail}


def _document(part: MediaPart) -> dict[str, Any]:
    if (file := pdf_file(part)) is not None:
        return {"type": "input_file", **file}
    if part.url is not None and is_address(part.url):
        return {"type": "input_file", "file_url": part.url}
    invalid(
        "a document in messages must be a PDF in base64 or at an http(s) URL, text, or blocks",
        "messages",
    )


WRITER = PartWriter(text=lambda text: [text_part(text)], file=_file, known=_DETAILS)
"""Writes what a user's turn or a tool's result has."""
