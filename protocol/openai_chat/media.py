"""Images, documents and search results of the Messages dialect as parts of a chat/completions message (docs/protocol.md 1.10).

An image's URL is passed on as it is and never fetched here.
"""

from typing import Any

from protocol.fields import invalid
from protocol.target import Draft

IMAGES = frozenset(("image/jpeg", "image/png", "image/gif", "image/webp"))


def parts_of(draft: Draft, block: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parts for a block of a user's turn or of a tool's result. Raises InvalidRequest naming what cannot be sent."""
    if block.get("cache_control") is not None:
        draft.drop("cache_control")
    match block.get("type"):
        case "text":
            return [text_part(_string(block, "text"))]
        case "image":
            return [_image(draft, block)]
        case "document":
            return _document(draft, block)
        case "search_result":
            title, source = _string(block, "title"), _string(block, "source")
            return [text_part(f"[search result: {title}, {source}]"), *_content(draft, block.get("content"))]
        case "tool_reference":
            return [text_part(f"[tool {_string(block, 'tool_name')}]")]
        case kind:
            invalid(f"a {str(kind)[:60]} block cannot be sent to this model's provider", "messages")


def text_part(text: str) -> dict[str, Any]:
    """Return the part for a text."""
    return {"type": "text", "text": text}


def _string(block: dict[str, Any], name: str) -> str:
    value = block.get(name)
    if not isinstance(value, str):
        invalid(f"a {str(block.get('type'))[:60]} block in messages must have a string as {name}", "messages")
    return value


def _source(block: dict[str, Any]) -> dict[str, Any]:
    source = block.get("source")
    if not isinstance(source, dict):
        invalid(f"a {block['type']} block in messages must have an object as source", "messages")
    return source


def _image(draft: Draft, block: dict[str, Any]) -> dict[str, Any]:
    source = _source(block)
    if block.get("transformations") is not None:
        draft.drop("messages[].transformations")
    match source.get("type"):
        case "base64" if _string(source, "media_type") in IMAGES:
            url = f"data:{source['media_type']};base64,{_string(source, 'data')}"
        case "url" if _string(source, "url")[:8].lower().startswith(("http://", "https://")):
            url = source["url"]
        case _:
            invalid("an image in messages must be a JPEG, PNG, GIF or WebP in base64, or have an http(s) URL", "messages")
    return {"type": "image_url", "image_url": {"url": url}}


def _document(draft: Draft, block: dict[str, Any]) -> list[dict[str, Any]]:
    source, title, context = _source(block), block.get("title"), block.get("context")
    if isinstance(block.get("citations"), dict) and block["citations"].get("enabled"):
        draft.drop("messages[].citations")
    about = [text_part(f"[about the next document: {context}]")] if isinstance(context, str) and context else []
    named = title if isinstance(title, str) and title else ""
    match source.get("type"):
        case "base64" if source.get("media_type") == "application/pdf":
            data = f"data:application/pdf;base64,{_string(source, 'data')}"
            return [*about, {"type": "file", "file": {"filename": named or "document.pdf", "file_data": data}}]
        case "text":
            head = f"[document: {named}]\n" if named else "[document]\n"
            return [*about, text_part(head + _string(source, "data"))]
        case "content":
            return [*about, text_part(f"[document: {named}]" if named else "[document]"), *_content(draft, source.get("content"))]
        case "url":
            invalid("a document with a URL cannot be sent to this model's provider: send its content", "messages")
    invalid("a document in messages must be a PDF in base64, text, or blocks", "messages")


def _content(draft: Draft, content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [text_part(content)]
    if not isinstance(content, list) or not all(isinstance(b, dict) and b.get("type") in ("text", "image") for b in content):
        invalid("the content of a document or search result must be text and images", "messages")
    return [part for block in content for part in parts_of(draft, block)]
