"""Images and files in base64: as data: URLs, and by their first bytes, for what a URL says of its content is not believed.

No URL is fetched.
"""

import base64
import binascii

from protocol.fields import invalid

IMAGES = frozenset(("image/jpeg", "image/png", "image/gif", "image/webp"))
"""What every provider takes."""
_MAGIC = (
    (b"\xff\xd8\xff", "image/jpeg"), (b"\x89PNG\r\n\x1a\n", "image/png"), (b"GIF87a", "image/gif"), (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
)  # fmt: skip


def is_address(url: str) -> bool:
    """Is this an http(s) URL?"""
    return url[:8].lower().startswith(("http://", "https://"))


def split(url: str, name: str) -> tuple[str, str, bytes]:
    """Return the label of a data: URL in lower case, its base64 text and its content. Base64 alone is taken, too: some clients
    send files so. Raises InvalidRequest, which calls it `name`."""
    head, comma, data = url.partition(",") if url[:5].lower() == "data:" else ("data:;base64", ",", url)
    if not comma or not head.lower().endswith(";base64"):
        invalid(f"{name} must be a data: URL in base64", "messages")
    try:
        return head[5:].lower(), data, base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        invalid(f"{name} is not valid base64", "messages")


def kind_of(content: bytes) -> str:
    """Return the media type that the first bytes tell, "" for none of those known."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _MAGIC if content.startswith(start)), "")
