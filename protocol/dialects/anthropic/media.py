"""Images and documents, written as blocks of the Messages dialect (docs/change/protocol.md 1.1)."""

from typing import Any

from protocol import bounds
from protocol.requests.fields import invalid
from protocol.requests.media import IMAGES
from protocol.requests.neutral import MediaPart
from protocol.target import RequestNotes

MAX_IMAGE_BYTES = bounds.MAX_IMAGE_BYTES


def media_block(draft: RequestNotes, part: MediaPart) -> dict[str, Any]:
    """Return the block for an image or a document. Raises InvalidRequest naming what cannot be
    sent."""
    match part.media:
        case "image":
            return {"type": "image", "source": _image(draft, part)}
        case "document":
            block = {"type": "document", "source": _document(draft, part)}
            return block | ({"title": part.title} if part.title else {})
        case _:
            invalid(f"{part.media} cannot be sent to this model's provider", "messages")


def _image(draft: RequestNotes, part: MediaPart) -> dict[str, Any]:
    if part.file_id is not None:
        return _stored(draft, part.file_id)
    if part.data is None:
        return {"type": "url", "url": part.url}
    if len(part.data) // 4 * 3 - part.data[-2:].count("=") > MAX_IMAGE_BYTES:
        invalid(f"an image in messages is larger than {MAX_IMAGE_BYTES} bytes", "messages")
    if part.media_type not in IMAGES:
        invalid("an image in messages is neither JPEG, PNG, GIF nor WebP", "messages")
    return {"type": "base64", "media_type": part.media_type, "data": part.data}


def _stored(draft: RequestNotes, file_id: str) -> dict[str, Any]:
    if "files" not in draft.target.families:
        invalid(
            "file_id names a file at a provider, and this key may not use such files; send its"
            " content",
            "messages",
        )
    return {"type": "file", "file_id": file_id}


def _document(draft: RequestNotes, part: MediaPart) -> dict[str, Any]:
    if part.file_id is not None:
        return _stored(draft, part.file_id)
    if part.text is not None:
        return {"type": "text", "media_type": "text/plain", "data": part.text}
    if part.media_type != "application/pdf":
        invalid("a file in messages is neither a PDF, text nor an image", "messages")
    return {"type": "base64", "media_type": part.media_type, "data": part.data}
