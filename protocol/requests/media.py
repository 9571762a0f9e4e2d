"""Images and files in base64: as data: URLs, and typed by their first bytes, because a URL's media
type is not trusted.

No URL is fetched.
"""

import base64
import binascii
import mimetypes
from typing import Any

from protocol.requests.fields import invalid
from protocol.requests.neutral import MediaPart

IMAGES = frozenset(("image/jpeg", "image/png", "image/gif", "image/webp"))
"""What every provider takes."""
_TEXTS = frozenset(
    "application/json application/x-ndjson application/xml application/yaml"
    " application/x-yaml application/toml application/javascript application/typescript"
    " application/sql application/x-sh application/csv".split()
)
"""Types of text beside `text/*`."""
_UNSAID = ("", "application/octet-stream")
_MAGIC = (
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
)


def is_address(url: str) -> bool:
    """Is this an http(s) URL?"""
    return url[:8].lower().startswith(("http://", "https://"))


def split(url: str, name: str) -> tuple[str, str, bytes]:
    """Return the label of a data: URL in lower case, its base64 text and its content. Base64 alone
    is taken, too: some clients send files so. Raises InvalidRequest, which calls it `name`."""
    head, comma, data = (
        url.partition(",") if url[:5].lower() == "data:" else ("data:;base64", ",", url)
    )
    if not comma or not head.lower().endswith(";base64"):
        invalid(f"{name} must be a data: URL in base64", "messages")
    try:
        return head[5:].lower(), data, base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        invalid(f"{name} is not valid base64", "messages")


def image(url: str, extra: dict[str, Any], *, name: str, param: str) -> MediaPart:
    """Return the part for an image at an http(s) or a data: URL. Raises InvalidRequest, which calls
    the URL `name`."""
    if is_address(url):
        return MediaPart(media="image", url=url, extra=extra)
    if url[:5].lower() != "data:":
        invalid(f"{name} must be a data: URL or an http(s) URL", param)
    _, data, content = split(url, name)
    return MediaPart(media="image", media_type=kind_of(content), data=data, extra=extra)


def document(label: str, data: str, content: bytes, title: str, extra: dict[str, Any]) -> MediaPart:
    """Return the part for a file in base64: a text where its label, or else its name, says that it
    is one. Raises InvalidRequest."""
    kind, media_type = kind_of(content), label.partition(";")[0].strip()
    if kind != "application/pdf" and media_type.startswith("image/"):
        return MediaPart(media="image", media_type=kind, data=data, extra=extra)
    if media_type in _UNSAID:
        media_type = mimetypes.guess_type(title)[0] or ""
    if kind or not (
        media_type.startswith("text/")
        or media_type in _TEXTS
        or media_type.endswith(("+json", "+xml"))
    ):
        return MediaPart(media="document", media_type=kind, data=data, title=title, extra=extra)
    try:
        return MediaPart(
            media="document",
            media_type=media_type,
            text=content.decode("utf-8"),
            title=title,
            extra=extra,
        )
    except UnicodeDecodeError:
        invalid(f"a {media_type[:60]} file is not UTF-8", "messages")


def kind_of(content: bytes) -> str:
    """Return the media type that the first bytes tell, "" for none of those known."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _MAGIC if content.startswith(start)), "")
