"""An estimate of a request's tokens, whatever its dialect, for upstreams that do not count."""

import binascii
from typing import Any

import msgspec

from protocol.request import ChatRequest, OtherPart, TextPart, Tool, ToolResultPart, ToolUsePart
from protocol.server_tools.typed import as_function

BYTES_PER_TOKEN = 3.5
_PER_TURN = 4
_PER_IMAGE = 1500
"""An image whose size is not known, and the most that one costs."""
_PIXELS_PER_TOKEN = 750
_PDF_BYTES_PER_TOKEN = 25
"""Pages of a PDF cost their text and an image each: about 2,000 tokens for 50 kB."""
_PER_TOOLS = 350
"""What a provider says to the model once a request has any tools."""
_PER_SERVER_TOOL = 600
_THINKING = ("thinking", "redacted_thinking")
"""Thinking of earlier turns is not charged."""


def estimate_tokens(request: ChatRequest) -> int:
    """Estimate input tokens: UTF-8 bytes of all text over 3.5, images by their pixels, PDFs by
    their bytes, tools by their definitions.

    High rather than low: clients shorten a conversation by it before it is too long.
    """
    size = sum(map(_bytes, request.system))
    extra = _PER_TURN * (len(request.turns) + len(request.system))
    for part in (p for turn in request.turns for p in turn.parts):
        match part:
            case TextPart(text=text):
                size += _bytes(text)
            case ToolResultPart(text=text):
                size += _bytes(text)
                extra += sum(
                    _of_block(b)
                    for b in _blocks(part.extra.get("content"))
                    if b.get("type") in ("image", "image_url", "file")
                )
            case ToolUsePart():
                size += _bytes(part.name) + _bytes(part.arguments)
            case OtherPart():
                extra += 0 if part.kind in _THINKING else _of_block(part.body)
    extra += (_PER_TOOLS if request.tools else 0) + sum(map(_of_tool, request.tools))
    if request.response_format is not None:
        size += len(msgspec.json.encode(request.response_format.schema))
    return max(1, round(size / BYTES_PER_TOKEN) + extra)


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _blocks(value: Any) -> list[dict[str, Any]]:
    return [b for b in value if isinstance(b, dict)] if isinstance(value, list) else []


def _of_tool(tool: Tool) -> int:
    if tool.kind == "server":
        return _PER_SERVER_TOOL
    function = as_function(tool) or tool
    return round(
        (
            _bytes(tool.name)
            + _bytes(function.description)
            + len(msgspec.json.encode(function.schema))
        )
        / BYTES_PER_TOKEN
    )


def _of_block(block: dict[str, Any]) -> int:
    """The tokens of a block that is no text, of any client dialect."""
    source, kind = block.get("source"), block.get("type")
    data, label = _data(
        source if isinstance(source, dict) else block.get("image_url") or block.get("file")
    )
    if kind in ("image", "image_url") or label.startswith("image/"):
        return _of_image(data)
    if label == "application/pdf":
        return max(_PER_IMAGE, len(data) * 3 // 4 // _PDF_BYTES_PER_TOKEN)
    if kind == "document" and label.startswith("text/"):
        return round(_bytes(data) / BYTES_PER_TOKEN)
    if kind in ("document", "file", None):
        return _PER_IMAGE
    return round(_shown(block) / BYTES_PER_TOKEN)


def _data(source: Any) -> tuple[str, str]:
    """Return the data and the media type of a source, or of an image_url or file with a data:
    URL."""
    if not isinstance(source, dict):
        return "", ""
    data, label = (
        source.get("data"),
        source.get("media_type", "text/plain" if source.get("type") == "text" else ""),
    )
    url = source.get("url") or source.get("file_data")
    if isinstance(url, str) and url.startswith("data:"):
        label, _, data = url[5:].partition(";base64,")
    return data if isinstance(data, str) else "", label if isinstance(label, str) else ""


def _of_image(data: str) -> int:
    """By width and height where the first bytes tell them (PNG, GIF)."""
    try:
        head = binascii.a2b_base64(data[:64])
    except ValueError:
        return _PER_IMAGE
    if head.startswith(b"\x89PNG") and len(head) >= 24:
        pixels = int.from_bytes(head[16:20], "big") * int.from_bytes(head[20:24], "big")
    elif head.startswith(b"GIF8") and len(head) >= 10:
        pixels = int.from_bytes(head[6:8], "little") * int.from_bytes(head[8:10], "little")
    else:
        return _PER_IMAGE
    return min(_PER_IMAGE, pixels // _PIXELS_PER_TOKEN + 1)


def _shown(value: Any) -> int:
    """Bytes of all text in a block but what is sealed."""
    size, stack = 0, [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            stack += [v for k, v in item.items() if not k.startswith("encrypted_")]
        elif isinstance(item, list):
            stack += item
        elif isinstance(item, str):
            size += _bytes(item)
    return size
