"""Images, documents and search results, written as parts of a Responses message or output (docs/protocol.md 1.13)."""

from typing import Any

from protocol.fields import invalid
from protocol.media import IMAGES, is_address
from protocol.neutral import MediaPart, NeutralPart, kind_of
from protocol.request import TextPart
from protocol.target import Draft

_DETAILS = ("image_url.detail", "input_image.detail")


def parts_of(draft: Draft, part: NeutralPart) -> list[dict[str, Any]]:
    """Return the parts for one of a user's turn or of a tool's result. Raises InvalidRequest naming what cannot be sent."""
    match part:
        case TextPart():
            draft.note("messages[]", part.extra)
            return [text_part(part.text)]
        case MediaPart(media="image"):
            draft.note("messages[]", part.extra, *_DETAILS)
            return [_image(part)]
        case MediaPart(media="document"):
            draft.note("messages[]", part.extra)
            return _document(draft, part)
        case MediaPart(media="search_result"):
            draft.note("messages[]", part.extra)
            return [text_part(f"[search result: {part.title}, {part.url}]"), *_content(draft, part)]
        case _:
            invalid(f"a {kind_of(part)[:60]} block cannot be sent to this model's provider", "messages")


def text_part(text: str) -> dict[str, Any]:
    """Return the part for a text."""
    return {"type": "input_text", "text": text}


def _image(part: MediaPart) -> dict[str, Any]:
    detail = next((part.extra[name] for name in _DETAILS if isinstance(part.extra.get(name), str)), "auto")
    if part.data is not None and part.media_type in IMAGES:
        return {"type": "input_image", "image_url": f"data:{part.media_type};base64,{part.data}", "detail": detail}
    if part.url is not None and is_address(part.url):
        return {"type": "input_image", "image_url": part.url, "detail": detail}
    invalid("an image in messages must be a JPEG, PNG, GIF or WebP in base64, or have an http(s) URL", "messages")


def _document(draft: Draft, part: MediaPart) -> list[dict[str, Any]]:
    about = [text_part(f"[about the next document: {part.context}]")] if part.context else []
    head = f"[document: {part.title}]" if part.title else "[document]"
    if part.data is not None and part.media_type == "application/pdf":
        data = f"data:application/pdf;base64,{part.data}"
        return [*about, {"type": "input_file", "filename": part.title or "document.pdf", "file_data": data}]
    if part.text is not None:
        return [*about, text_part(f"{head}\n{part.text}")]
    if part.url is not None and is_address(part.url):
        return [*about, {"type": "input_file", "file_url": part.url}]
    if part.data is not None or part.file_id is not None or part.url is not None:
        invalid("a document in messages must be a PDF in base64 or at an http(s) URL, text, or blocks", "messages")
    return [*about, text_part(head), *_content(draft, part)]


def _content(draft: Draft, part: MediaPart) -> list[dict[str, Any]]:
    return [written for held in part.parts for written in parts_of(draft, held)]
