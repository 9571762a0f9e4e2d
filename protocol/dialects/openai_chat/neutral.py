"""A chat/completions request in neutral parts, for a provider of another dialect
(docs/change/protocol.md 1.1)."""

import re
from collections.abc import Collection
from typing import Any

import msgspec

from protocol.dialects.openai_chat.messages_read import result_text
from protocol.request import (
    NOTHING,
    ChatRequest,
    OtherPart,
    Part,
    TextPart,
    Tool,
    ToolResultPart,
    ToolUsePart,
    Turn,
)
from protocol.requests import media
from protocol.requests.fields import invalid
from protocol.requests.neutral import (
    EFFORTS,
    AnyTurn,
    MediaPart,
    NeutralPart,
    NeutralRequest,
    NeutralTurn,
    Option,
    RefusalPart,
    is_plain,
    result_of,
)

_MARKS = ("cache_control", "prompt_cache_breakpoint")
_ELSEWHERE = frozenset(
    "annotations audio content id prompt_cache_breakpoint reasoning_details refusal"
    " role text thinking_blocks type".split()
)
"""Of messages and their parts: what is read elsewhere, and what clients send back of an answer.
Thinking goes upstream only as recorded with its signature, never as a client tells it."""
_HARMLESS = frozenset(
    "frequency_penalty logit_bias metadata presence_penalty prompt_cache_key"
    " prompt_cache_options prompt_cache_retention seed store".split()
)
"""Left out, they change no meaning."""
_READ = frozenset(
    "max_completion_tokens modalities n safety_identifier stream_options top_k verbosity".split()
)
"""What is read elsewhere, or is for this gateway alone."""
_EMPTY = (("response_format", {"type": "text"}), ("top_logprobs", 0))
_WORDS = {
    "effort": "reasoning_effort",
    "thinking": "reasoning_effort",
    "max_uses": "search_context_size",
}
_SEARCHES = {"low": 1, "medium": 5, "high": 10}
"""search_context_size as the most searches of one answer."""
_LOCATION = ("city", "country", "region", "timezone")
_FORMAT = re.compile(r"[a-z0-9]{2,8}")
_FREE = {"type": "text"}
"""The form of a custom tool's input that says nothing."""


def neutral(request: ChatRequest) -> NeutralRequest:
    """Return the request without what only this dialect has. Raises InvalidRequest naming what
    cannot be read."""
    turns = tuple(map(_turn, request.turns))
    effort = request.reasoning.effort if request.reasoning is not None else None
    if effort not in (None, "none", *EFFORTS):
        invalid(f"reasoning_effort must be none, {', '.join(EFFORTS)}", "reasoning_effort")
    who = request.extra.get("safety_identifier") or request.user
    if not isinstance(who, str | None):
        invalid("safety_identifier must be a string", "safety_identifier")
    search = None if request.web_search is None else _web_search(request.web_search)
    tools = tuple(map(_tool, request.tools))
    if not isinstance(length := request.extra.get("verbosity"), str | None):
        invalid("verbosity must be a string", "verbosity")
    extra = _options(request.extra)
    written = msgspec.structs.replace(
        request, extra=extra, user=who, web_search=search, tools=tools, verbosity=length
    )
    words = _WORDS | (
        {"max_tokens": "max_completion_tokens"}
        if request.extra.get("max_completion_tokens") is not None
        else {}
    )
    words |= {"user": "safety_identifier"} if request.extra.get("safety_identifier") else {}
    return NeutralRequest(request=written, system=_system(request), turns=turns, words=words)


def _options(extra: dict[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, value in extra.items():
        if name == "top_k" and value is not None:
            options[name] = Option("top_k", value)
        elif value is None or value is False or name in _READ or (name, value) in _EMPTY:
            continue
        elif name == "service_tier":
            options[name] = Option("service_tier", value)
        else:
            options[name] = Option("harmless", value) if name in _HARMLESS else value
    return options


def _web_search(options: dict[str, Any]) -> dict[str, Any]:
    tool: dict[str, Any] = {"type": "web_search_20250305", "name": "web_search"}
    for name, value in options.items():
        match name, value:
            case _, None:
                continue
            case "search_context_size", "low" | "medium" | "high":
                tool["max_uses"] = _SEARCHES[value]
            case "user_location", {"type": "approximate", "approximate": {**place}} if all(
                isinstance(v, str) for v in place.values()
            ):
                tool["user_location"] = {"type": "approximate"} | {
                    k: place[k] for k in _LOCATION if place.get(k)
                }
            case _:
                invalid(
                    f"web_search_options.{name[:60]} cannot be sent to this model's provider",
                    "web_search_options",
                )
    return tool


def _tool(tool: Tool) -> Tool:
    if tool.kind in ("server", "client") or not (tool.extra or tool.outer):
        return tool
    extra = tool.extra | tool.outer
    if tool.kind == "custom" and (form := extra.pop("format", None) or _FREE) != _FREE:
        extra["format"] = Option("grammar", form)
    return msgspec.structs.replace(tool, extra=extra, outer={})


def _system(request: ChatRequest) -> tuple[NeutralTurn, ...]:
    texts, messages = request.system, request.system_messages
    return tuple(
        map(_system_turn, texts, messages if len(messages) == len(texts) else ({},) * len(texts))
    )


def _system_turn(text: str, message: dict[str, Any]) -> NeutralTurn:
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    is_marked = (
        any(p.get(mark) for p in parts for mark in _MARKS)
        and "".join(p["text"] for p in parts) == text
    )
    turn_parts = (
        tuple(TextPart(p["text"], _beside(p, _MARKS)) for p in parts)
        if is_marked
        else (TextPart(text),)
    )
    return NeutralTurn("system", turn_parts, _beside(message))


def _beside(extra: dict[str, Any], names: Collection[str] = ()) -> dict[str, Any]:
    """The extra fields of a text, a call or a result; only those in `names`, if there are any."""
    options: dict[str, Any] = {}
    for name, value in extra.items():
        if name == "prompt_cache_breakpoint" and isinstance(value, dict):
            options[name] = Option("cache", value.get("ttl"))
        elif value is not None and name not in _ELSEWHERE and (not names or name in names):
            options[name] = value
    return options or NOTHING


def _turn(turn: Turn) -> AnyTurn:
    if is_plain(turn):
        return turn
    extra = turn.extra
    parts = [_part(p) for p in turn.parts]
    if turn.role == "assistant":
        if isinstance(refusal := extra.get("refusal"), str):
            parts.insert(0, RefusalPart(refusal))
        if extra.get("audio") is not None:
            parts.append(MediaPart(media="audio"))
    return NeutralTurn(turn.role, tuple(parts), _beside(extra))


def _part(part: Part) -> NeutralPart:
    match part:
        case ToolResultPart():
            tool_result = result_of(part, _content, result_text)
            return (
                msgspec.structs.replace(tool_result, extra=_beside(tool_result.extra))
                if tool_result.extra
                else tool_result
            )
        case OtherPart(dialect="openai"):
            return _other(part.body)
        case TextPart(extra=extra) | ToolUsePart(extra=extra) if extra:
            return msgspec.structs.replace(part, extra=_beside(extra))
        case _:
            return part


def _content(part: dict[str, Any]) -> NeutralPart:
    if part["type"] == "text":
        return TextPart(part["text"], _beside(part))
    return _other(part)


def _other(body: dict[str, Any]) -> NeutralPart:
    marks = _beside(body, _MARKS)
    match body["type"]:
        case "image_url":
            image = body.get("image_url")
            image = image if isinstance(image, dict) else {"url": image}
            detail = image.get("detail")
            return _image(
                image.get("url"),
                marks if detail in (None, "auto") else {"image_url.detail": detail, **marks},
            )
        case "file":
            return _file(body.get("file"), marks)
        case "input_audio":
            return _sound(body.get("input_audio"), marks)
        case "refusal" if isinstance(body.get("refusal"), str):
            return RefusalPart(body["refusal"])
    return OtherPart(body["type"], body, "openai")


def _image(url: Any, extra: dict[str, Any]) -> MediaPart:
    if not isinstance(url, str):
        invalid("image_url.url must be a string", "messages")
    return media.image(url, extra, name="image_url.url", param="messages")


def _file(file: Any, extra: dict[str, Any]) -> MediaPart:
    title = name if isinstance(file, dict) and isinstance(name := file.get("filename"), str) else ""
    if isinstance(file, dict) and file.get("file_id") is not None and file.get("file_data") is None:
        if not isinstance(file["file_id"], str):
            invalid("file.file_id must be a string", "messages")
        return MediaPart(media="document", file_id=file["file_id"], title=title, extra=extra)
    if not isinstance(file, dict) or not isinstance(file.get("file_data"), str):
        invalid("a file part needs file_data or file_id", "messages")
    return media.document(*media.split(file["file_data"], "file.file_data"), title, extra)


def _sound(sound: Any, extra: dict[str, Any]) -> MediaPart:
    match sound:
        case {"data": str(data), "format": str(form)} if _FORMAT.fullmatch(form):
            media.split(data, "input_audio.data")
            return MediaPart(media="audio", media_type=f"audio/{form}", data=data, extra=extra)
    invalid("input_audio needs data in base64 and a format, as wav or mp3", "messages")
