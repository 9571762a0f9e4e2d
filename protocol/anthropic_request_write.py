"""Messages requests written for a provider of this dialect (protocol.md 1.1, 1.2)."""

import re
from hashlib import sha256
from typing import Any

import msgspec

from protocol import fields
from protocol.anthropic_request_read import result_text
from protocol.fields import invalid
from protocol.json_strict import AmbiguousJson, dumps, loads_arguments, normal_arguments
from protocol.request import ChatRequest, OtherPart, Part, TextPart, Tool, ToolResultPart, ToolUsePart
from protocol.target import Target, Translated

DEFAULT_MAX_TOKENS = 4096
"""What a request gets that names none: the dialect requires one, and a model's own limit would be an expensive default."""
_ID = re.compile(r"[^a-zA-Z0-9_-]")
_DROPPED = frozenset(
    (
        "frequency_penalty",
        "logit_bias",
        "max_completion_tokens",
        "metadata",
        "n",
        "presence_penalty",
        "prompt_cache_key",
        "reasoning_effort",
        "safety_identifier",
        "seed",
        "service_tier",
        "store",
        "stream_options",
        "verbosity",
    )
)
"""What an OpenAI client may say and this dialect has no word for, and whose absence changes no meaning."""


def encode(request: ChatRequest, target: Target, *, changed: bool = True) -> Translated:
    """Write the request for a Messages provider. Raises InvalidRequest naming what it cannot say."""
    if request.dialect == target.dialect and not changed:
        return Translated(body=None)
    same = request.dialect == "anthropic"
    if not same:
        _refuse_foreign(request)
    body: dict[str, Any] = dict(request.extra) if same else {}
    original = body.pop("system", None)
    body |= {"model": request.model, "max_tokens": request.max_tokens or DEFAULT_MAX_TOKENS, "messages": _write_turns(request, same=same)}
    if any(map(str.strip, request.system)):
        unchanged = isinstance(original, list) and [p["text"] for p in original] == list(request.system)
        body["system"] = original if unchanged else [{"type": "text", "text": text} for text in request.system if text.strip()]
    if tools := [_write_tool(t, same=same) for t in request.tools] or _tools_of_history(request, same=same):
        body["tools"] = tools
        if choice := _write_choice(request):
            body["tool_choice"] = choice
    if request.stream:
        body["stream"] = True
    if request.temperature is not None:
        body["temperature"] = request.temperature if same else min(1.0, max(0.0, request.temperature))
    if request.top_p is not None:
        body["top_p"] = request.top_p
    if stop := [s for s in request.stop if same or s.strip()]:
        body["stop_sequences"] = stop
    if request.user and not same:
        # the vendor asks for an opaque value, and clients put e-mail addresses there
        body["metadata"] = {"user_id": sha256(request.user.encode("utf-8", "replace")).hexdigest()}
    return Translated(body=dumps(body))


def _refuse_foreign(request: ChatRequest) -> None:
    for name, value in request.extra.items():
        harmless = name in _DROPPED or value in (None, False) or (name == "response_format" and value == {"type": "text"})
        if not harmless and not (name == "modalities" and value == ["text"]):
            invalid(f"{name} cannot be sent to this model's provider", name)


def _write_turns(request: ChatRequest, *, same: bool) -> list[dict[str, Any]]:
    if same:
        return [{"role": t.role, "content": [_write_part(p, same=True) for p in t.parts], **t.extra} for t in request.turns]
    turns: list[dict[str, Any]] = []
    for turn in request.turns:
        role = "assistant" if turn.role == "assistant" else "user"
        blocks = [_write_part(p, same=False) for p in turn.parts if not (isinstance(p, TextPart) and not p.text.strip())]
        if turn.role == "system":
            blocks = [{"type": "text", "text": f"[system message] {b['text']}"} for b in blocks]
        if turn.role == "assistant" and isinstance(refusal := turn.extra.get("refusal"), str) and refusal.strip():
            blocks.insert(0, {"type": "text", "text": refusal})
        if blocks and turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    for written in turns:
        if written["role"] == "user":
            # the API wants results before anything else of their turn
            written["content"].sort(key=lambda b: b["type"] != "tool_result")
    if not turns:
        invalid("messages has no content for this model's provider", "messages")
    last = turns[-1]["content"][-1]
    if turns[-1]["role"] == "assistant" and last["type"] == "text":
        # the API refuses trailing whitespace in a prefill
        last["text"] = last["text"].rstrip()
    return turns


def _write_part(part: Part, *, same: bool) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text, **(part.extra if same else {})}
        case ToolUsePart():
            identity = part.id if same else _safe_id(part.id)
            return {"type": "tool_use", "id": identity, "name": part.name, "input": _input(part), **(part.extra if same else {})}
        case ToolResultPart():
            return _write_result(part, same=same)
        case OtherPart(dialect="anthropic"):
            return part.body
        case _:
            invalid(f"a {part.kind} part cannot be sent to this model's provider", "messages")


def _write_result(part: ToolResultPart, *, same: bool) -> dict[str, Any]:
    identity = part.tool_call_id if same else _safe_id(part.tool_call_id)
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": identity, "content": part.text}
    if part.is_error:
        block["is_error"] = True
    if same:
        original = part.extra.get("content")
        unchanged = isinstance(original, list) and result_text(original, "") == part.text
        block |= part.extra if unchanged else fields.rest(part.extra, "content")
    return block


def _safe_id(text: str) -> str:
    return _ID.sub("_", text) or "call_0"


def _input(part: ToolUsePart) -> msgspec.Raw:
    text = normal_arguments(part.arguments)
    try:
        loads_arguments(text)
        return msgspec.Raw(text.encode())
    except AmbiguousJson as error:
        invalid(f"the arguments of the tool call {part.id[:60]!r} cannot be read: {error}", "messages")


def _write_tool(tool: Tool, *, same: bool) -> dict[str, Any]:
    if same and tool.extra.get("type", "custom") not in ("custom", None):
        return tool.extra
    schema = tool.schema or {"type": "object", "properties": {}}
    body: dict[str, Any] = {"name": tool.name, "input_schema": {"type": "object", **schema}}
    if tool.description:
        body["description"] = tool.description
    strict = {"strict": True} if tool.extra.get("strict") else {}
    return body | (tool.extra if same else strict)


def _tools_of_history(request: ChatRequest, *, same: bool) -> list[dict[str, Any]]:
    """Definitions for calls in the history of a request that offers no tools: the API wants them there."""
    if same:
        return []
    names = dict.fromkeys(p.name for t in request.turns for p in t.parts if isinstance(p, ToolUsePart))
    return [{"name": name, "input_schema": {"type": "object"}} for name in names]


def _write_choice(request: ChatRequest) -> dict[str, Any] | None:
    choice = request.tool_choice
    if not request.tools:
        return {"type": "none"}
    if choice is None and request.parallel_tool_calls is not False:
        return None
    body: dict[str, Any] = {"type": choice.mode if choice else "auto"}
    if choice is not None and choice.mode == "tool":
        body["name"] = choice.name
    if request.parallel_tool_calls is False and body["type"] != "none":
        body["disable_parallel_tool_use"] = True
    return body
