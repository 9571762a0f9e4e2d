"""Images and documents of Responses: read as neutral parts, and written as parts of a message or an
output (docs/change/protocol.md 1.13)."""

from typing import Any

from protocol.dialects.openai_options import image_url, pdf_file
from protocol.dialects.parts_write import PartWriter
from protocol.requests import media
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


def read_media(body: dict[str, Any], extra: dict[str, Any]) -> MediaPart:
    """Return the neutral part for an image or a file, with these other fields. Raises
    InvalidRequest."""
    kind = body["type"]
    if kind == "computer_screenshot":
        invalid("a screenshot of a computer cannot be sent to this model's provider", "input")
    if kind == "input_image":
        detail = body.get("detail")
        extra = extra if detail in (None, "auto") else {"input_image.detail": detail, **extra}
        return _read_image(body, extra)
    return _read_file(body, extra)


def _read_image(body: dict[str, Any], extra: dict[str, Any]) -> MediaPart:
    url = body.get("image_url")
    if url is None and isinstance(body.get("file_id"), str):
        return MediaPart(media="image", file_id=body["file_id"], extra=extra)
    if not isinstance(url, str):
        invalid("an input_image needs an image_url or a file_id", "input")
    return media.image(url, extra, name="image_url", param="input")


def _read_file(body: dict[str, Any], extra: dict[str, Any]) -> MediaPart:
    title = name if isinstance(name := body.get("filename"), str) else ""
    if isinstance(body.get("file_data"), str):
        return media.document(*media.split(body["file_data"], "file_data"), title, extra)
    if isinstance(body.get("file_url"), str):
        return MediaPart(media="document", url=body["file_url"], title=title, extra=extra)
    if isinstance(body.get("file_id"), str):
        return MediaPart(media="document", file_id=body["file_id"], title=title, extra=extra)
    invalid("an input_file needs file_data, file_url or file_id", "input")
