"""A chat/completions request in neutral parts, for a provider of another dialect (protocol.md 1.1)."""

from typing import Any

from protocol import media
from protocol.fields import invalid
from protocol.neutral import MediaPart, NeutralPart, NeutralRequest, NeutralTurn, RefusalPart, ResultPart
from protocol.openai_chat.messages_read import result_text
from protocol.request import NOTHING, ChatRequest, OtherPart, Part, TextPart, ToolResultPart, Turn

_MARKS = ("cache_control", "prompt_cache_breakpoint")


def neutral(request: ChatRequest) -> NeutralRequest:
    """Return the request without what only this dialect has. Raises InvalidRequest naming what cannot be read."""
    return NeutralRequest(request=request, turns=tuple(map(_turn, request.turns)))


def _turn(turn: Turn) -> NeutralTurn:
    extra = turn.extra
    parts = [_part(p) for p in turn.parts]
    if turn.role == "assistant":
        if isinstance(refusal := extra.get("refusal"), str):
            parts.insert(0, RefusalPart(refusal))
        if extra.get("audio") is not None:
            parts.append(MediaPart(media="audio"))
    return NeutralTurn(turn.role, tuple(parts), extra)


def _part(part: Part) -> NeutralPart:
    match part:
        case ToolResultPart():
            return _result(part)
        case OtherPart(dialect="openai"):
            return _other(part.body)
        case _:
            return part


def _result(part: ToolResultPart) -> ResultPart:
    extra, parts = part.extra, list[NeutralPart]()
    if isinstance(original := extra.get("content"), list):
        extra = {name: value for name, value in extra.items() if name != "content"}
        # a result that a policy rewrote is its text alone
        if any(p.keys() != {"type", "text"} for p in original) and result_text(original, "") == part.text:
            parts = [_content(p) for p in original]
    return ResultPart(call_id=part.tool_call_id, text=part.text, is_error=part.is_error, parts=tuple(parts), form=part.form, extra=extra)


def _content(part: dict[str, Any]) -> NeutralPart:
    if part["type"] == "text":
        return TextPart(part["text"], {name: value for name, value in part.items() if name not in ("type", "text")})
    return _other(part)


def _other(body: dict[str, Any]) -> NeutralPart:
    marks = {name: body[name] for name in _MARKS if name in body} or NOTHING
    match body["type"]:
        case "image_url":
            image = body.get("image_url")
            image = image if isinstance(image, dict) else {"url": image}
            detail = image.get("detail")
            return _image(image.get("url"), marks if detail in (None, "auto") else {"image_url.detail": detail, **marks})
        case "file":
            return _file(body.get("file"), marks)
        case "refusal" if isinstance(body.get("refusal"), str):
            return RefusalPart(body["refusal"])
    return OtherPart(body["type"], body, "openai")


def _image(url: Any, extra: dict[str, Any]) -> MediaPart:
    if not isinstance(url, str):
        invalid("image_url.url must be a string", "messages")
    if media.is_address(url):
        return MediaPart(media="image", url=url, extra=extra)
    if url[:5].lower() != "data:":
        invalid("image_url.url must be a data: URL or an http(s) URL", "messages")
    _, data, content = media.split(url, "image_url.url")
    return MediaPart(media="image", media_type=media.kind_of(content), data=data, extra=extra)


def _file(file: Any, extra: dict[str, Any]) -> MediaPart:
    if isinstance(file, dict) and file.get("file_id") is not None and file.get("file_data") is None:
        if not isinstance(file["file_id"], str):
            invalid("file.file_id must be a string", "messages")
        return MediaPart(media="document", file_id=file["file_id"], extra=extra)
    if not isinstance(file, dict) or not isinstance(file.get("file_data"), str):
        invalid("a file part needs file_data or file_id", "messages")
    label, data, content = media.split(file["file_data"], "file.file_data")
    kind = media.kind_of(content)
    if kind != "application/pdf" and label.startswith("image/"):
        return MediaPart(media="image", media_type=kind, data=data, extra=extra)
    title = name if isinstance(name := file.get("filename"), str) else ""
    if kind != "application/pdf" and label.startswith("text/plain"):
        return MediaPart(media="document", media_type="text/plain", text=_utf8(content), title=title, extra=extra)
    return MediaPart(media="document", media_type=kind, data=data, title=title, extra=extra)


def _utf8(content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        invalid("a text file in messages is not UTF-8", "messages")
