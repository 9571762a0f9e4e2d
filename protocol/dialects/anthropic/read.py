"""Reads a client's Messages body as a ChatRequest (docs/change/protocol.md 1.10).

Fields that are modelled for policies and for other dialects (`thinking`, `output_config`,
`output_format`, `metadata`, `system`) also stay in `extra` as they came: a provider of the same
dialect gets them unchanged.
"""

from typing import Any

from protocol.bytes.json_strict import dumps
from protocol.request import (
    ChatRequest,
    OtherPart,
    Part,
    Reasoning,
    ResponseFormat,
    TextPart,
    Tool,
    ToolChoice,
    ToolResultPart,
    ToolUsePart,
    Turn,
)
from protocol.requests import body_bounds, fields
from protocol.requests.fields import invalid
from protocol.server_tools.data import tool_type

_MODELLED = frozenset(
    "model messages tools tool_choice stream max_tokens temperature top_p stop_sequences".split()
)
_OF_BLOCKS = tuple("type text source content tool input id name".split())


def decode(body: bytes, *, needs_max_tokens: bool = False) -> ChatRequest:
    """Read a client's body; count_tokens needs no max_tokens. Raises InvalidRequest naming the
    parameter."""
    data = body_bounds.load(body)
    fields.refuse_routing(data)
    if fields.integer(data, "n", 1) != 1:
        invalid("n must be 1: every choice would have to be decided on", "n")
    model = fields.model(data)
    turns = tuple(_turn(m, f"messages[{i}]") for i, m in enumerate(fields.array(data, "messages")))
    max_tokens = fields.integer(data, "max_tokens", None)
    if max_tokens is None and needs_max_tokens:
        invalid("max_tokens is required", "max_tokens")
    choice, parallel = _choice(data.get("tool_choice"))
    return ChatRequest(
        dialect="anthropic",
        model=model,
        system=_system(data.get("system")),
        turns=turns,
        tools=fields.refuse_twins(
            tuple(_tool(t, i) for i, t in enumerate(fields.array(data, "tools", required=False)))
        ),
        tool_choice=choice,
        parallel_tool_calls=parallel,
        stream=bool(fields.boolean(data, "stream", False)),
        max_tokens=max_tokens,
        temperature=fields.number(data, "temperature"),
        top_p=fields.number(data, "top_p"),
        stop=_stop(data.get("stop_sequences")),
        user=fields.string(fields.mapping(data, "metadata"), "user_id", None),
        response_format=_response_format(data),
        reasoning=_reasoning(data),
        # `system` stays here as it came, with what its blocks carry beside their text
        extra=fields.exclude_known(
            data, *_MODELLED, *(() if isinstance(data.get("system"), list) else ("system",))
        ),
    )


def _stop(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        invalid("stop_sequences must be a list of strings", "stop_sequences")
    return tuple(value)


def _system(content: Any) -> tuple[str, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (content,)
    if not isinstance(content, list) or not all(map(_is_text, content)):
        invalid("system must be a string or a list of text blocks", "system")
    return tuple(p["text"] for p in content)


def _is_text(block: Any) -> bool:
    """Is this a text block? Nothing else may stand in `system`: what is checked of blocks is
    checked in messages."""
    return (
        isinstance(block, dict)
        and block.get("type", "text") == "text"
        and isinstance(block.get("text"), str)
    )


def _turn(message: Any, at: str) -> Turn:
    if not isinstance(message, dict):
        invalid(f"{at} must be an object", "messages")
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", "system"):
        invalid(f"{at}.role must be user, assistant or system", "messages")
    extra = fields.exclude_known(message, "role", "content")
    if isinstance(content, str):
        return Turn(role, (TextPart(content),), extra)
    if not isinstance(content, list):
        invalid(f"{at}.content must be a string or a list of blocks", "messages")
    return Turn(
        role, tuple(_part(block, f"{at}.content[{i}]") for i, block in enumerate(content)), extra
    )


def _part(block: Any, at: str) -> Part:
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        invalid(f"{at} must be an object with a type", "messages")
    match block["type"]:
        case "text":
            return TextPart(_string(block, "text", at), fields.exclude_known(block, "type", "text"))
        case "tool_use":
            value = block.get("input", {})
            if not isinstance(value, dict):
                invalid(f"{at}.input must be an object", "messages")
            extra = fields.exclude_known(block, "type", "id", "name", "input")
            return ToolUsePart(
                _string(block, "id", at), _string(block, "name", at), dumps(value).decode(), extra
            )
        case "tool_result":
            content = block.get("content")
            known = (
                "type",
                "tool_use_id",
                "is_error",
                *(() if isinstance(content, list) else ("content",)),
            )
            is_error = block.get("is_error") is True
            return ToolResultPart(
                _string(block, "tool_use_id", at),
                result_text(content, at),
                is_error,
                fields.exclude_known(block, *known),
            )
        case kind:
            fields.refuse_lookalikes(block, _OF_BLOCKS)
            return OtherPart(kind, block, "anthropic")


def _string(block: dict[str, Any], name: str, at: str) -> str:
    value = block.get(name)
    if not isinstance(value, str):
        invalid(f"{at}.{name} must be a string", "messages")
    return value


def result_text(content: Any, at: str) -> str:
    """Return the content of a tool result as text: what policies read. What is no text is named."""
    if content is None:
        return ""
    if isinstance(content, list) and all(isinstance(p, dict) for p in content):
        return "".join(_block_text(p, at) for p in content)
    if not isinstance(content, str):
        invalid(f"{at}.content must be a string or a list of blocks", "messages")
    return content


def _block_text(block: dict[str, Any], at: str) -> str:
    """The text of one block of a result: documents of text and search results are text, too, with
    their descriptions."""
    kind, source = block.get("type"), block.get("source")
    if kind == "text":
        return _string(block, "text", at)
    about = [
        v for v in (block.get("title"), block.get("context"), source) if isinstance(v, str) and v
    ]
    if kind == "search_result":
        return "\n".join((*about, result_text(block.get("content"), at)))
    if kind == "document" and isinstance(source, dict) and source.get("type") == "text":
        return "\n".join((*about, _string(source, "data", f"{at}.source")))
    if kind == "document" and isinstance(source, dict) and source.get("type") == "content":
        return "\n".join((*about, result_text(source.get("content"), f"{at}.source")))
    return block["text"] if isinstance(block.get("text"), str) else "\n".join((*about, f"[{kind}]"))


def _reasoning(data: dict[str, Any]) -> Reasoning | None:
    thinking, effort = (
        fields.mapping(data, "thinking"),
        fields.string(fields.mapping(data, "output_config"), "effort", None),
    )
    match thinking.get("type"):
        case "enabled":
            return Reasoning("budget", effort, fields.integer(thinking, "budget_tokens", None))
        case "adaptive" | "between_tools":
            return Reasoning("adaptive", effort)
        case "disabled":
            return Reasoning("off", effort)
    return Reasoning("", effort) if effort is not None else None


def _response_format(data: dict[str, Any]) -> ResponseFormat | None:
    """`output_config.format`, or the older `output_format`."""
    spec = fields.mapping(fields.mapping(data, "output_config"), "format") or fields.mapping(
        data, "output_format"
    )
    if spec.get("type") != "json_schema":
        return None
    if not isinstance(spec.get("schema"), dict):
        invalid(
            "output_config.format must have an object as schema",
            "output_config" if "output_config" in data else "output_format",
        )
    return ResponseFormat("json_schema", schema=spec["schema"])


def _tool(tool: Any, position: int) -> Tool:
    if not isinstance(tool, dict):
        invalid(f"tools[{position}] must be an object", "tools")
    name, kind, description = tool.get("name"), tool.get("type"), tool.get("description")
    if kind not in ("custom", None):
        # carried as it came; some have no name. Whether a type may be used at all is checked where
        # it is written
        row = tool_type(kind)
        named = name if isinstance(name, str) else (row.name if row and row.name else str(kind))
        return Tool(
            named,
            extra=tool,
            kind="client" if row is not None and row.executor == "client" else "server",
        )
    if not isinstance(name, str) or not name:
        invalid(f"tools[{position}].name is missing", "tools")
    if not isinstance(description, str | None) or not isinstance(tool.get("input_schema"), dict):
        invalid(
            f"tools[{position}] must have an object as input_schema and a string as description",
            "tools",
        )
    return Tool(
        name,
        description or "",
        tool["input_schema"],
        fields.exclude_known(tool, "name", "description", "input_schema"),
    )


def _choice(value: Any) -> tuple[ToolChoice | None, bool | None]:
    if value is None:
        return None, None
    if not isinstance(value, dict):
        invalid("tool_choice must be an object", "tool_choice")
    parallel = False if fields.boolean(value, "disable_parallel_tool_use", False) else None
    match value:
        case {"type": "auto" | "any" | "none" as mode}:
            return ToolChoice(mode), parallel
        case {"type": "tool", "name": str(name)}:
            return ToolChoice("tool", name), parallel
    invalid("tool_choice.type must be auto, any, none or tool with a name", "tool_choice")


# Parts of a request that are read again where a policy changed them.
MODELLED, read_reasoning, read_response_format, read_system, read_tool = (
    _MODELLED,
    _reasoning,
    _response_format,
    _system,
    _tool,
)
