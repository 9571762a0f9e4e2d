"""Messages requests: a client's body read, and a request written for a provider of this dialect (protocol.md 1.1, 1.10)."""

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from protocol import fields
from protocol.errors import InvalidRequest
from protocol.fields import invalid
from protocol.json_strict import AmbiguousJson, loads_arguments, loads_body, normal_arguments
from protocol.request import ChatRequest, OtherPart, Part, TextPart, Tool, ToolChoice, ToolResultPart, ToolUsePart, Turn

DEFAULT_MAX_TOKENS = 4096
"""What a request gets that names none: the dialect requires one, and a model's own limit would be an expensive default."""
_MODELLED = frozenset("model messages system tools tool_choice stream max_tokens temperature top_p stop_sequences".split())
_ID = re.compile(r"[^a-zA-Z0-9_-]")


def decode(body: bytes) -> ChatRequest:
    """Read a client's body (max_tokens may be absent: count_tokens has none). Raises InvalidRequest naming the parameter."""
    data = loads_body(body)
    fields.refuse_routing(data)
    if fields.integer(data, "n", 1) != 1:
        invalid("n must be 1: every choice would have to be decided on", "n")
    choice, parallel = _choice(data.get("tool_choice"))
    system = data.get("system")
    metadata = fields.mapping(data, "metadata")
    return ChatRequest(
        dialect="anthropic", model=fields.model(data), system=() if system is None else tuple(_texts(system, "system")),
        turns=tuple(_turn(m, f"messages[{i}]") for i, m in enumerate(fields.array(data, "messages"))),
        tools=tuple(_tool(t, i) for i, t in enumerate(fields.array(data, "tools", required=False))), tool_choice=choice, parallel_tool_calls=parallel,
        stream=bool(fields.boolean(data, "stream", False)), max_tokens=fields.integer(data, "max_tokens", None),
        temperature=fields.number(data, "temperature"), top_p=fields.number(data, "top_p"), stop=_stop(data.get("stop_sequences")),
        user=fields.string(metadata, "user_id", None), extra={k: v for k, v in data.items() if k not in _MODELLED},
    )  # fmt: skip


def _stop(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        invalid("stop_sequences must be a list of strings", "stop_sequences")
    return tuple(value)


def _texts(content: Any, at: str) -> list[str]:
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list) or not all(isinstance(p, dict) and isinstance(p.get("text"), str) for p in content):
        invalid(f"{at} must be a string or a list of text blocks", at.partition("[")[0])
    return [p["text"] for p in content]


def _turn(message: Any, at: str) -> Turn:
    if not isinstance(message, dict):
        invalid(f"{at} must be an object", "messages")
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", "system"):
        invalid(f"{at}.role must be user, assistant or system", "messages")
    if isinstance(content, str):
        return Turn(role, (TextPart(content),))
    if not isinstance(content, list):
        invalid(f"{at}.content must be a string or a list of blocks", "messages")
    return Turn(role, tuple(_part(block, at) for block in content))


def _part(block: Any, at: str) -> Part:
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        invalid(f"{at}.content has a block that is not an object with a type", "messages")
    match block["type"]:
        case "text":
            return TextPart(fields.string(block, "text", ""))
        case "tool_use":
            arguments = json.dumps(fields.mapping(block, "input"), ensure_ascii=False)
            return ToolUsePart(fields.string(block, "id", ""), fields.string(block, "name", ""), arguments)
        case "tool_result":
            return ToolResultPart(fields.string(block, "tool_use_id", ""), _result(block.get("content"), at), bool(block.get("is_error")))
        case kind:
            return OtherPart(kind, block, "anthropic")


def _result(content: Any, at: str) -> str:
    if content is None:
        return ""
    if isinstance(content, list):
        return "".join(p["text"] if isinstance(p, dict) and isinstance(p.get("text"), str) else json.dumps(p) for p in content)
    if not isinstance(content, str):
        invalid(f"{at}: a tool_result's content must be a string or a list of blocks", "messages")
    return content


def _tool(tool: Any, position: int) -> Tool:
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str) or not tool["name"]:
        invalid(f"tools[{position}].name is missing", "tools")
    if tool.get("type", "custom") not in ("custom", None):
        return Tool(tool["name"], "", {}, {k: v for k, v in tool.items() if k != "name"})
    extra = {k: v for k, v in tool.items() if k not in ("name", "description", "input_schema")}
    return Tool(tool["name"], fields.string(tool, "description", ""), fields.mapping(tool, "input_schema"), extra)


def _choice(value: Any) -> tuple[ToolChoice | None, bool | None]:
    if value is None:
        return None, None
    if not isinstance(value, dict):
        invalid("tool_choice must be an object", "tool_choice")
    parallel = False if value.get("disable_parallel_tool_use") else None
    match value:
        case {"type": "auto" | "any" | "none" as mode}:
            return ToolChoice(mode), parallel
        case {"type": "tool", "name": str(name)}:
            return ToolChoice("tool", name), parallel
    invalid("tool_choice.type must be auto, any, none or tool with a name", "tool_choice")


# --- writing ---


def encode(request: ChatRequest) -> bytes:
    """Write the request for a Messages provider. Raises InvalidRequest naming what it cannot say."""
    same = request.dialect == "anthropic"
    body: dict[str, Any] = dict(request.extra) if same else {}
    if not same:
        _refuse_foreign(request)
    body |= {"model": request.model, "max_tokens": request.max_tokens or DEFAULT_MAX_TOKENS, "messages": _write_turns(request)}
    if request.system:
        body["system"] = [{"type": "text", "text": text} for text in request.system if text.strip()]
    if request.tools:
        body["tools"] = [_write_tool(t, same=same) for t in request.tools]
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
        body["metadata"] = {"user_id": request.user}
    return msgspec.json.encode(body)


_DROPPED = frozenset(
    "seed logit_bias frequency_penalty presence_penalty metadata store service_tier verbosity prompt_cache_key safety_identifier n "
    "stream_options reasoning_effort".split()
)
"""What an OpenAI client may say and this dialect has no word for, and whose absence changes no meaning."""


def _refuse_foreign(request: ChatRequest) -> None:
    for name, value in request.extra.items():
        harmless = name in _DROPPED or value in (None, False) or (name == "response_format" and value == {"type": "text"})
        if not harmless:
            invalid(f"{name} cannot be sent to this model's provider", name)


def _write_turns(request: ChatRequest) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    for turn in request.turns:
        role = "assistant" if turn.role == "assistant" else "user"
        blocks = _write_parts(turn.parts)
        if not blocks:
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    if turns and turns[-1]["role"] == "assistant" and turns[-1]["content"][-1]["type"] == "text":
        turns[-1]["content"][-1]["text"] = turns[-1]["content"][-1]["text"].rstrip()
    for turn_body in turns:
        # the API wants results before anything else of their turn
        turn_body["content"].sort(key=lambda b: b["type"] != "tool_result" if turn_body["role"] == "user" else False)
    return turns


def _write_parts(parts: Sequence[Part]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for part in parts:
        match part:
            case TextPart():
                if part.text.strip():
                    blocks.append({"type": "text", "text": part.text})
            case ToolUsePart():
                blocks.append({"type": "tool_use", "id": _safe_id(part.id), "name": part.name, "input": _input(part)})
            case ToolResultPart():
                result: dict[str, Any] = {"type": "tool_result", "tool_use_id": _safe_id(part.tool_call_id), "content": part.text}
                blocks.append(result | ({"is_error": True} if part.is_error else {}))
            case OtherPart(dialect="anthropic"):
                blocks.append(part.body)
            case OtherPart():
                raise InvalidRequest(f"a {part.kind} part cannot be sent to this model's provider", param="messages")
    return blocks


def _safe_id(text: str) -> str:
    return _ID.sub("_", text) or "call_0"


def _input(part: ToolUsePart) -> dict[str, Any]:
    try:
        return loads_arguments(normal_arguments(part.arguments))
    except AmbiguousJson as error:
        raise InvalidRequest(f"the arguments of the tool call {part.id[:60]!r} cannot be read: {error}", param="messages") from error


def _write_tool(tool: Tool, *, same: bool) -> dict[str, Any]:
    if same and tool.extra.get("type", "custom") not in ("custom", None):
        return {"name": tool.name, **tool.extra}
    schema = tool.schema or {"type": "object", "properties": {}}
    body: dict[str, Any] = {"name": tool.name, "input_schema": {"type": "object", **schema}}
    if tool.description:
        body["description"] = tool.description
    strict = {"strict": True} if tool.extra.get("strict") else {}
    return body | (tool.extra if same else strict)


def _write_choice(request: ChatRequest) -> dict[str, Any] | None:
    choice = request.tool_choice
    if choice is None and (request.parallel_tool_calls is not False or not request.tools):
        return None
    body: dict[str, Any] = {"type": choice.mode if choice else "auto"}
    if choice is not None and choice.mode == "tool":
        body["name"] = choice.name
    if request.parallel_tool_calls is False and body["type"] != "none":
        body["disable_parallel_tool_use"] = True
    return body
