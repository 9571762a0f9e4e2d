"""Turns of a conversation as clients sent them: read from the body of a request, in the forms of
all dialects. Must not know: what the model said, SQL, HTML."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from db.read.sessions import RecordedCalls, SessionCall
from protocol.conversations.histories import spans, typed


@dataclass(slots=True)
class TurnPiece:
    """A piece of a turn. `kind`: text, thinking, tool_use, tool_result, injected or other; `size`:
    characters of the whole."""

    kind: str
    text: str
    size: int
    name: str = ""
    id: str = ""


@dataclass(slots=True)
class ShownTurn:
    """A turn as the client sent it. `is_foreign`: it stands for the model's, and is not what was
    released."""

    role: str
    parts: list[TurnPiece]
    number: int
    is_foreign: bool = False
    skipped: int = 0
    """Parts that are not shown."""


def turns_from(call: SessionCall, common: int, content: RecordedCalls) -> list[ShownTurn]:
    """The turns from `common` on, as far as the piece of the body that was read holds them."""
    first, piece = content.pieces.get(call.call_id, (0, b""))
    result: list[ShownTurn] = []
    for number, (begin, end) in enumerate(spans(call.offsets)[common:], common):
        if begin < first or end > first + len(piece):
            break
        try:
            value = json.loads(piece[begin - first : end - first])
        except (ValueError, RecursionError):
            value = None
        turn = _turn(value, number)
        if (
            result
            and turn.role == result[-1].role == "assistant"
            and isinstance(value, dict)
            and "type" in value
        ):
            # of Responses: an answer is several items
            result[-1].parts += turn.parts
        else:
            result.append(turn)
    return result


def _turn(value: Any, number: int) -> ShownTurn:
    if isinstance(value, str):
        return ShownTurn("user", [_text(value)], number)
    if not isinstance(value, dict):
        return ShownTurn("unknown", [_part("other", "not readable")], number)
    if (item := _item(value)) is not None:
        return ShownTurn(*item, number)
    parts = list(_parts(value.get("content"), 0))
    asked = value.get("tool_calls")
    for call in [
        *(asked if isinstance(asked, list) else ()),
        {"function": value.get("function_call")},
    ]:
        function = call.get("function") or call.get("custom") if isinstance(call, dict) else None
        if isinstance(function, dict):
            arguments = function.get("arguments", function.get("input", ""))
            parts.append(
                _part(
                    "tool_use",
                    str(arguments),
                    str(function.get("name", "")),
                    str(call.get("id", "")),
                )
            )
    role = str(value.get("role", ""))
    if role == "tool":
        parts = [
            _part("tool_result", part.text, "", str(value.get("tool_call_id", "")), part.size)
            for part in parts
        ]
    elif role == "user" and parts and all(part.kind == "tool_result" for part in parts):
        role = "tool"
    return ShownTurn(role, parts, number)


def _item(value: Mapping[str, Any]) -> tuple[str, list[TurnPiece]] | None:
    """The role and the parts of an item of Responses that is no message."""
    kind, identity = value.get("type"), str(value.get("call_id") or value.get("id") or "")
    if not isinstance(kind, str) or "role" in value:
        return None
    if kind == "reasoning":
        texts = [
            t.get("text", "")
            for t in (*_list(value, "summary"), *_list(value, "content"))
            if isinstance(t, dict)
        ]
        return "assistant", [_part("thinking", "\n".join(map(str, texts)))]
    if kind.endswith("_output"):
        output = value.get("output")
        return "tool", [
            _part(
                "tool_result",
                output if isinstance(output, str) else json.dumps(output, ensure_ascii=False),
                "",
                identity,
            )
        ]
    if kind.endswith("_call"):
        arguments = next(
            (value[name] for name in ("arguments", "action", "operation") if name in value),
            {"input": value.get("input", "")},
        )
        name = ".".join(
            str(value[attribute]) for attribute in ("namespace", "name") if value.get(attribute)
        ) or kind.removesuffix("_call")
        return "assistant", [
            _part(
                "tool_use",
                arguments
                if isinstance(arguments, str)
                else json.dumps(arguments, ensure_ascii=False),
                name,
                identity,
            )
        ]
    return "other", [_part("other", f"{kind}, {len(json.dumps(value)):,} bytes")]


def _list(value: Mapping[str, Any], name: str) -> list[Any]:
    values = value.get(name)
    return values if isinstance(values, list) else []


def _parts(content: Any, depth: int) -> Iterator[TurnPiece]:
    if isinstance(content, str):
        yield _text(content)
    for element in content if isinstance(content, list) else ():
        if not isinstance(element, dict):
            yield _part("other", json.dumps(element, ensure_ascii=False))
            continue
        match element.get("type"):
            case "text" | "input_text" | "output_text" if isinstance(element.get("text"), str):
                yield _text(element["text"])
            case "thinking" | "redacted_thinking":
                yield _part("thinking", str(element.get("thinking", "")))
            case "tool_use" | "server_tool_use":
                arguments = json.dumps(element.get("input"), ensure_ascii=False)
                yield _part(
                    "tool_use", arguments, str(element.get("name", "")), str(element.get("id", ""))
                )
            case "tool_result":
                # a result holds texts and images; what is deeper nobody sends
                inner = (
                    "\n".join(part.text for part in _parts(element.get("content"), depth + 1))
                    if not depth
                    else "nested"
                )
                yield _part(
                    "tool_result",
                    inner,
                    "error" if element.get("is_error") else "",
                    str(element.get("tool_use_id", "")),
                )
            case kind:
                yield _part("other", f"{kind}, {len(json.dumps(element)):,} bytes")


def _text(text: str) -> TurnPiece:
    return _part("text" if typed(text) or not text.strip() else "injected", text)


def _part(kind: str, text: str, name: str = "", identity: str = "", size: int = 0) -> TurnPiece:
    return TurnPiece(kind, text, size or len(text), name, identity)


def plain(turn: ShownTurn) -> str:
    """A turn as text, for comparing and for export."""
    lines = [f"[{turn.role}]"]
    lines += [
        f"{part.name} {part.text}" if part.kind == "tool_use" else part.text for part in turn.parts
    ]
    return "\n".join(lines)
