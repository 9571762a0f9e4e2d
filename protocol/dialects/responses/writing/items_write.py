"""Turns of a Responses client's request, written as the items that they were read from
(docs/change/protocol.md 1.14).

Nothing is kept at the provider, so items go out without the ids under which it would look for them;
reasoning has its encrypted content.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from protocol.bytes.json_strict import AmbiguousJson, loads_arguments, loads_written
from protocol.dialects.responses.items import CLIENT_ONLY_ITEMS, TYPED_NAMES
from protocol.dialects.responses.parts_read import result_text, text_of
from protocol.dialects.responses.read import INSTRUCTIONS
from protocol.request import (
    ChatRequest,
    OtherPart,
    Part,
    TextPart,
    ToolResultPart,
    ToolUsePart,
    Turn,
)
from protocol.requests.fields import invalid

_NO_ID = frozenset(
    (
        "message",
        "reasoning",
        "function_call",
        "custom_tool_call",
        "function_call_output",
        "custom_tool_call_output",
    )
)
_OUTPUTS = {
    "function": "function_call_output",
    "legacy": "function_call_output",
    "custom": "custom_tool_call_output",
}


def write_system(request: ChatRequest) -> tuple[str | None, list[dict[str, Any]]]:
    """Return `instructions` and the items of the leading system and developer messages."""
    texts, originals = request.system, request.system_messages
    if len(originals) != len(texts):
        # a policy changed how many there are
        return None, [_message("developer", text, {}) for text in texts]
    instructions: str | None = None
    items: list[dict[str, Any]] = []
    for text, original in zip(texts, originals, strict=True):
        if original.get("type") == INSTRUCTIONS:
            instructions = text
        elif text_of(original, "system_messages") == text:
            items.append(_sent({"type": "message", **original}))
        else:
            items.append(_message(str(original.get("role", "developer")), text, {}))
    return instructions, items


def write_turns(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """Return the items of all turns. Raises InvalidRequest where a policy made what no item can
    say."""
    items: list[dict[str, Any]] = []
    for turn in turns:
        match turn.role:
            case "system":
                item = dict(turn.extra.get("item") or {})
                role = item.pop("role", "developer")
                items.append(
                    _message(
                        role, "".join(p.text for p in turn.parts if isinstance(p, TextPart)), item
                    )
                )
            case "user":
                _user(turn, items)
            case _:
                _assistant(turn, items)
    return [_sent(item) for item in items]


def _sent(item: dict[str, Any]) -> dict[str, Any]:
    return (
        {n: v for n, v in item.items() if n != "id"}
        if "id" in item and item.get("type") in _NO_ID
        else item
    )


def _message(role: str, content: Any, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content, **item}


def _simple(parts: list[dict[str, Any]]) -> Any:
    return parts[0]["text"] if len(parts) == 1 and parts[0].keys() == {"type", "text"} else parts


def _user(turn: Turn, items: list[dict[str, Any]]) -> None:
    content: list[dict[str, Any]] = []
    for part in turn.parts:
        match part:
            case ToolResultPart():
                items.append(_output(part))
            case OtherPart(dialect="responses") if part.kind in CLIENT_ONLY_ITEMS:
                items.append(part.body)
            case OtherPart(dialect="responses"):
                content.append(part.body)
            case TextPart():
                content.append({"type": "input_text", "text": part.text, **part.extra})
            case _:
                _misplaced(part)
    if content or not turn.parts:
        items.append(_message("user", _simple(content), dict(turn.extra.get("item") or {})))


def _assistant(turn: Turn, items: list[dict[str, Any]]) -> None:
    message: dict[str, Any] | None = None
    begun = len(items)
    for part in turn.parts:
        is_said = isinstance(part, TextPart) or (
            isinstance(part, OtherPart) and part.kind == "refusal"
        )
        if not is_said:
            message = None
        match part:
            case TextPart():
                item = part.extra.get("item")
                if message is None or item is not None:
                    message = _message("assistant", [], dict(item or {}))
                    items.append(message)
                extra = {n: v for n, v in part.extra.items() if n != "item"}
                if part.text or item is None:
                    message["content"].append({"type": "output_text", "text": part.text, **extra})
            case OtherPart(kind="refusal"):
                if message is None:
                    message = _message("assistant", [], {})
                    items.append(message)
                message["content"].append(part.body)
            case ToolUsePart():
                items.append(_call(part))
            case OtherPart(dialect="responses"):
                items.append(part.body)
            case _:
                _misplaced(part)
    for item in items[begun:]:
        if (
            item.get("type") == "message"
            and item.get("role") == "assistant"
            and isinstance(item.get("content"), list)
        ):
            item["content"] = _simple(item["content"]) if item["content"] else ""


def _call(part: ToolUsePart) -> dict[str, Any]:
    item = dict(part.extra.get("item") or {})
    if part.form == "typed" and (typed := TYPED_NAMES.get(part.name)) is not None:
        try:
            loads_arguments(part.arguments)
        except AmbiguousJson as error:
            invalid(
                f"the arguments of a call of {part.name[:60]!r} are not one JSON object: {error}",
                "input",
            )
        action = msgspec.Raw(part.arguments.encode())
        if typed.name == "computer" and (value := loads_written(part.arguments)).keys() == {
            "actions"
        }:
            return {"type": typed.call, **item, "call_id": part.id, **value}
        return {"type": typed.call, **item, "call_id": part.id, typed.field: action}
    space = item.get("namespace")
    name = part.name.removeprefix(f"{space}.") if isinstance(space, str) else part.name
    if part.form == "custom":
        value = loads_arguments(part.arguments)
        return {
            "type": "custom_tool_call",
            "call_id": part.id,
            "name": name,
            "input": value["input"],
            **item,
        }
    return {
        "type": "function_call",
        "call_id": part.id,
        "name": name,
        "arguments": part.arguments or "{}",
        **item,
    }


def _output(part: ToolResultPart) -> dict[str, Any]:
    item = dict(part.extra.get("item") or {})
    content = part.extra.get("content")
    is_same = "content" in part.extra and result_text(content, "input") == part.text
    output: Any = content if is_same else part.text
    if part.form != "typed":
        if part.is_error:
            # only a policy says so here: the dialect has no word for it
            output = f"[error] {part.text}"
        return {"type": _OUTPUTS[part.form], "call_id": part.tool_call_id, "output": output, **item}
    kind = str(item.get("type"))
    if not is_same and kind in ("computer_call_output", "shell_call_output", "tool_search_output"):
        invalid(f"a policy changed an item of type {kind}, which has no place for a text", "input")
    field = "tools" if kind == "tool_search_output" else "output"
    if kind == "computer_call_output" and isinstance(output, list):
        output = output[0]
    return {**item, part.extra.get("named", "call_id"): part.tool_call_id, field: output}


def _misplaced(part: Part) -> None:
    kind = part.kind if isinstance(part, OtherPart) else str(part.__struct_config__.tag)
    invalid(f"a {kind[:60]} is in a turn that cannot hold it", "input")
