"""Images and documents of chat/completions as blocks of the Messages dialect (docs/protocol.md 1.1).

A URL is passed on as it is and never fetched here. What a data: URL says of its content is not believed: the first bytes are.
"""

import base64
import binascii
from typing import Any

from protocol import bounds
from protocol.fields import invalid

MAX_IMAGE_BYTES = bounds.MAX_IMAGE_BYTES
_MAGIC = ((b"\xff\xd8\xff", "image/jpeg"), (b"\x89PNG\r\n\x1a\n", "image/png"), (b"GIF87a", "image/gif"), (b"GIF89a", "image/gif"))


def image_block(url: Any) -> dict[str, Any]:
    """Return the image block for `image_url.url`: a data: URL of a known kind of image, or an http(s) URL. Raises InvalidRequest."""
    if not isinstance(url, str):
        invalid("image_url.url must be a string", "messages")
    if url[:8].lower().startswith(("http://", "https://")):
        return {"type": "image", "source": {"type": "url", "url": url}}
    if url[:5].lower() != "data:":
        invalid("image_url.url must be a data: URL or an http(s) URL", "messages")
    return _image(*_data_url(url, "image_url.url"))


def _image(content: bytes, data: str) -> dict[str, Any]:
    if len(content) > MAX_IMAGE_BYTES:
        invalid(f"an image in messages is larger than {MAX_IMAGE_BYTES} bytes", "messages")
    kind = next((kind for start, kind in _MAGIC if content.startswith(start)), "")
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        kind = "image/webp"
    if not kind:
        invalid("an image in messages is neither JPEG, PNG, GIF nor WebP", "messages")
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}


def file_block(file: Any) -> dict[str, Any]:
    """Return the block for a `file` part with `file_data`: a PDF or plain text as a document, or an image. Raises InvalidRequest."""
    if not isinstance(file, dict) or not isinstance(file.get("file_data"), str):
        invalid("a file part needs file_data or file_id", "messages")
    label = file["file_data"][:64].lower()
    content, data = _data_url(file["file_data"], "file.file_data")
    if content.startswith(b"%PDF-"):
        block: dict[str, Any] = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": data}}
    elif label.startswith("data:image/"):
        return _image(content, data)
    elif label.startswith("data:text/plain"):
        block = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": _utf8(content)}}
    else:
        invalid("a file in messages is neither a PDF, plain text nor an image", "messages")
    name = file.get("filename")
    if isinstance(name, str) and name:
        block["title"] = name
    return block


def _data_url(url: str, name: str) -> tuple[bytes, str]:
    """Return the content of `url`, and its base64 text. Base64 alone is taken too: some clients send files so."""
    head, comma, data = url.partition(",") if url[:5].lower() == "data:" else ("data:;base64", ",", url)
    if not comma or not head.lower().endswith(";base64"):
        invalid(f"{name} must be a data: URL in base64", "messages")
    try:
        return base64.b64decode(data, validate=True), data
    except (binascii.Error, ValueError):
        invalid(f"{name} is not valid base64", "messages")


def _utf8(content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        invalid("a text file in messages is not UTF-8", "messages")
