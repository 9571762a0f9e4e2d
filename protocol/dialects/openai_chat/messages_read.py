"""Messages of chat/completions requests, read as turns (docs/change/protocol.md 1.1)."""

from collections import deque
from collections.abc import Sequence
from typing import Any

from protocol.bytes.json_strict import dumps
from protocol.request import OtherPart, Part, TextPart, ToolResultPart, ToolUsePart, Turn
from protocol.requests import fields
from protocol.requests.fields import invalid

_OF_PARTS = ("type", "text", "refusal", "image_url", "file", "input_audio")


def messages(
    items: list[Any],
) -> tuple[tuple[str, ...], tuple[dict[str, Any], ...], tuple[Turn, ...]]:
    """Return the leading system texts, the messages they were read from, and the turns. Raises
    InvalidRequest."""
    leading = 0
    while leading < len(items) and _role(items[leading], leading) in ("system", "developer"):
        leading += 1
    system = tuple(_text(message, f"messages[{i}]") for i, message in enumerate(items[:leading]))
    reader = _Turns(items)
    for position in range(leading, len(items)):
        reader.read(items[position], position)
    return system, tuple(items[:leading]), reader.finish()


def _role(message: Any, position: int) -> Any:
    if not isinstance(message, dict):
        invalid(f"messages[{position}] must be an object", "messages")
    return message.get("role")


class _Turns:
    """The turns so far, and the function calls of the older form that wait for their result."""

    def __init__(self, items: list[Any]) -> None:
        self._turns: list[Turn] = []
        self._results: list[ToolResultPart] = []
        self._items = items
        self._ids: set[str] | None = None
        self._made = 0
        self._waiting: dict[str, deque[str]] = {}

    def read(self, message: Any, position: int) -> None:
        """Add a message."""
        at, role = f"messages[{position}]", _role(message, position)
        if role not in ("tool", "function"):
            self._close_results()
        match role:
            case "system" | "developer":
                self._turns.append(
                    Turn(
                        "system",
                        (TextPart(_text(message, at)),),
                        fields.exclude_known(message, "role", "content"),
                    )
                )
            case "user":
                self._turns.append(
                    Turn(
                        "user",
                        _parts(message, at),
                        fields.exclude_known(message, "role", "content"),
                    )
                )
            case "assistant":
                self._turns.append(self._assistant(message, at))
            case "tool":
                self._results.append(_result(message, at))
            case "function":
                self._results.append(self._legacy_result(message, at))
            case _:
                invalid(
                    f"{at}.role must be system, developer, user, assistant, tool or function",
                    "messages",
                )

    def finish(self) -> tuple[Turn, ...]:
        """Return the turns."""
        self._close_results()
        return tuple(self._turns)

    def _close_results(self) -> None:
        """Make one turn of the results that follow each other, as other dialects want them."""
        if self._results:
            self._turns.append(Turn("user", tuple(self._results)))
            self._results = []

    def _assistant(self, message: dict[str, Any], at: str) -> Turn:
        calls = message.get("tool_calls")
        if calls is not None and not isinstance(calls, list):
            invalid(f"{at}.tool_calls must be a list", "messages")
        parts = list(_parts(message, at)) if message.get("content") is not None else []
        parts += [
            _plain_use(call) or _tool_use(call, f"{at}.tool_calls[{i}]")
            for i, call in enumerate(calls or ())
        ]
        if message.get("function_call") is not None:
            parts.append(self._legacy_call(message["function_call"], f"{at}.function_call"))
        return Turn(
            "assistant",
            tuple(parts),
            fields.exclude_known(message, "role", "content", "tool_calls", "function_call"),
        )

    def _legacy_call(self, call: Any, at: str) -> ToolUsePart:
        function = call if isinstance(call, dict) else {}
        _need_strings(at, function, "name", "arguments")
        if self._ids is None:
            self._ids = {i for m in self._items if isinstance(m, dict) for i in _call_ids(m)}
        self._made += 1
        while (identity := f"call_function_{self._made}") in self._ids:
            self._made += 1
        self._waiting.setdefault(function["name"], deque()).append(identity)
        return ToolUsePart(
            identity,
            function["name"],
            function["arguments"],
            fields.exclude_known(function, "name", "arguments"),
            "legacy",
        )

    def _legacy_result(self, message: dict[str, Any], at: str) -> ToolResultPart:
        """The result for the first call of that name without one; "" as its id where there is
        none."""
        _need_strings(at, message, "name")
        waiting = self._waiting.get(message["name"])
        content = {"content": ""} if message.get("content") is None else message
        extra = fields.exclude_known(
            message, "role", *(("content",) if isinstance(message.get("content"), str) else ())
        )
        return ToolResultPart(
            waiting.popleft() if waiting else "",
            result_text(content["content"], at),
            extra=extra,
            form="legacy",
        )


def _call_ids(message: dict[str, Any]) -> list[str]:
    calls = message.get("tool_calls")
    return (
        [c["id"] for c in calls if isinstance(c, dict) and isinstance(c.get("id"), str)]
        if isinstance(calls, list)
        else []
    )


def _text(message: dict[str, Any], at: str) -> str:
    parts = _parts(message, at)
    texts = [p.text for p in parts if isinstance(p, TextPart)]
    if len(texts) != len(parts):
        invalid(f"{at}.content must be text", "messages")
    return "".join(texts)


def _result(message: dict[str, Any], at: str) -> ToolResultPart:
    call = message.get("tool_call_id")
    if not isinstance(call, str) or not call:
        invalid(f"{at}.tool_call_id is missing", "messages")
    content = message.get("content")
    extra = fields.exclude_known(
        message, "role", "tool_call_id", *(() if isinstance(content, list) else ("content",))
    )
    return ToolResultPart(call, result_text(content, at), extra=extra)


def result_text(content: Any, at: str) -> str:
    """Return the content of a tool's result as text; parts that are no text are named. Raises
    InvalidRequest."""
    if isinstance(content, str):
        return content
    parts = _parts({"content": content}, at)
    return "".join(
        p.text if isinstance(p, TextPart) else f"[{p.kind}]"
        for p in parts
        if isinstance(p, (TextPart, OtherPart))
    )


def _parts(message: dict[str, Any], at: str) -> tuple[Part, ...]:
    content = message.get("content")
    if isinstance(content, str):
        return (TextPart(content),)
    if not isinstance(content, list):
        invalid(f"{at}.content must be a string or a list of parts", "messages")
    return tuple(_part(part, at) for part in content)


def _part(part: Any, at: str) -> Part:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        invalid(f"{at}.content has a part that is not an object with a type", "messages")
    if part["type"] != "text":
        fields.refuse_lookalikes(part, _OF_PARTS)
        return OtherPart(part["type"], part, "openai")
    if not isinstance(part.get("text"), str):
        invalid(f"{at}.content has a text part without a text", "messages")
    return TextPart(part["text"], fields.exclude_known(part, "type", "text"))


def _plain_use(call: Any) -> ToolUsePart | None:
    """Read a function's call with nothing else in it: nearly all of an agent's history. None: see
    `_tool_use`."""
    try:
        function = call["function"]
        identity, name, arguments = call["id"], function["name"], function["arguments"]
        is_plain = len(call) == 3 and call["type"] == "function"
    except (KeyError, TypeError):
        return None
    if not is_plain or not type(identity) is type(name) is type(arguments) is str:
        return None
    return ToolUsePart(identity, name, arguments)


def _tool_use(call: Any, at: str) -> ToolUsePart:
    custom = isinstance(call, dict) and call.get("type") == "custom"
    called = call.get("custom" if custom else "function") if isinstance(call, dict) else None
    if not isinstance(called, dict) or (not custom and call.get("type", "function") != "function"):
        invalid(f"{at} must be a call of a function or a custom tool", "messages")
    _need_strings(at, call, "id")
    if custom:
        _need_strings(f"{at}.custom", called, "name", "input")
        arguments = dumps({"input": called["input"]}).decode()
        return ToolUsePart(
            call["id"],
            called["name"],
            arguments,
            fields.exclude_known(call, "id", "type", "custom"),
            "custom",
        )
    _need_strings(f"{at}.function", called, "name", "arguments")
    return ToolUsePart(
        call["id"],
        called["name"],
        called["arguments"],
        fields.exclude_known(call, "id", "type", "function"),
    )


def _need_strings(at: str, value: dict[str, Any], *names: str) -> None:
    for name in names:
        if type(value.get(name)) is not str:
            invalid(f"{at}.{name} must be a string", "messages")


def texts(messages: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Return the texts of system messages. Raises InvalidRequest."""
    return tuple(_text(message, "system_messages") for message in messages)
