"""Turns of a Messages client written as chat/completions messages (docs/protocol.md 1.10).

Earlier reasoning goes only to models that want it in turns with tool calls. Otherwise it is left out, as the Messages API
itself does with turns before the last question; it is noted only where it belongs to the turn that still goes on.
"""

from collections.abc import Sequence
from typing import Any, NoReturn

from protocol.anthropic.read import result_text
from protocol.fields import invalid
from protocol.openai_chat.media import parts_of, text_part
from protocol.openai_chat.models import ModelRow
from protocol.openai_chat.names import Names, call_id
from protocol.request import OtherPart, Part, TextPart, ToolResultPart, ToolUsePart, Turn
from protocol.server_tools import history as provider_history
from protocol.target import Draft

_THINKING = ("thinking", "redacted_thinking")


class MessageWriter:
    """The messages of one request."""

    def __init__(self, draft: Draft, row: ModelRow, names: Names) -> None:
        self._draft, self._row, self._names = draft, row, names
        self._results = provider_history.results_of(draft.request.turns)

    def messages(self) -> list[dict[str, Any]]:
        """Return all messages, the system message first. Raises InvalidRequest naming what cannot be said."""
        request, role = self._draft.request, "developer" if self._row.developer else "system"
        self._note("system[]", {k: v for b in _blocks(request.extra.get("system")) for k, v in b.items()}, "type", "text")
        written: list[dict[str, Any]] = []
        if any(text.strip() for text in request.system):
            written.append({"role": role, "content": "\n".join(request.system)})
        asked = max((i for i, t in enumerate(request.turns) if t.role == "user" and _asks(t)), default=-1)
        for position, turn in enumerate(request.turns):
            self._note("messages[]", turn.extra)
            match turn.role:
                case "system":
                    written.append({"role": role, "content": self._system(turn.parts)})
                case "user":
                    written += self._user(turn.parts)
                case _:
                    written.append(self._assistant(turn.parts, goes_on=position > asked))
        return written

    def _note(self, where: str, extra: dict[str, Any], *known: str) -> None:
        """Note the fields that are left out."""
        for name, value in extra.items():
            if value is not None and name not in known:
                self._draft.drop("cache_control" if name == "cache_control" else f"{where}.{name[:60]}")

    def _system(self, parts: Sequence[Part]) -> str:
        for part in parts:
            if not isinstance(part, TextPart):
                _misplaced(part)
            self._note("messages[]", part.extra)
        return "".join(p.text for p in parts if isinstance(p, TextPart))

    def _user(self, parts: Sequence[Part]) -> list[dict[str, Any]]:
        """Results first, each a message of its own, as the dialect wants them; what is no text in them after, with the rest."""
        messages: list[dict[str, Any]] = []
        content: list[dict[str, Any]] = []
        for result in (p for p in parts if isinstance(p, ToolResultPart)):
            message, more = self._result(result)
            messages.append(message)
            content += more
        for part in parts:
            match part:
                case TextPart():
                    self._note("messages[]", part.extra)
                    content.append(text_part(part.text))
                case OtherPart():
                    content += parts_of(self._draft, part.body)
                case ToolUsePart():
                    _misplaced(part)
        if content:
            simple = len(content) == 1 and content[0]["type"] == "text"
            messages.append({"role": "user", "content": content[0]["text"] if simple else content})
        return messages

    def _result(self, part: ToolResultPart) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        self._note("messages[]", part.extra, "content")
        original = part.extra.get("content")
        text, media = part.text, []
        if isinstance(original, list) and result_text(original, "") == part.text:
            # a result that a policy rewrote goes out as its text alone
            written = [p for block in original for p in parts_of(self._draft, block)]
            media = [p for p in written if p["type"] != "text"]
            text = "".join(p["text"] if p["type"] == "text" else f"[{_NAMED.get(p['type'])}]" for p in written)
            if media:
                media.insert(0, text_part(f"[from the result of the tool call {self._id(part.tool_call_id)}]"))
        text = f"[error] {text}" if part.is_error else text
        return {"role": "tool", "tool_call_id": self._id(part.tool_call_id), "content": text}, media

    def _id(self, identity: str) -> str:
        return call_id(identity) if self._row.vendor else identity

    def _assistant(self, parts: Sequence[Part], *, goes_on: bool) -> dict[str, Any]:
        texts: list[str] = []
        calls: list[dict[str, Any]] = []
        thoughts: list[str] = []
        for part in parts:
            match part:
                case TextPart():
                    self._note("messages[]", part.extra, *(("citations",) if not part.extra.get("citations") else ()))
                    texts.append(part.text)
                case ToolUsePart():
                    self._note("messages[]", part.extra, *(("caller",) if part.extra.get("caller") == {"type": "direct"} else ()))
                    function = {"name": self._names.upstream(part.name), "arguments": part.arguments or "{}"}
                    calls.append({"id": self._id(part.id), "type": "function", "function": function})
                case OtherPart(kind=kind, body=body) if kind in _THINKING:
                    thoughts.append(body["thinking"] if isinstance(body.get("thinking"), str) else "")
                case OtherPart():
                    texts += self._other(part, follows=bool("".join(texts)))
                case _:
                    _misplaced(part)
        message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) or (None if calls else "")}
        if thoughts and calls and self._row.reasoning_content:
            message["reasoning_content"] = "".join(thoughts)
        elif thoughts and goes_on:
            self._draft.drop("messages[].thinking")
        if calls:
            message["tool_calls"] = calls
        return message

    def _other(self, part: OtherPart, *, follows: bool) -> list[str]:
        """The text for what the provider did itself; a result is told with its call."""
        text = ""
        if part.kind in provider_history.CALLS:
            identity = part.body.get("id")
            # a result is one call's: told again for every call of its id, it would cost its size each time
            text = provider_history.told(part.body, self._results.pop(identity, None) if isinstance(identity, str) else None)
        elif part.kind == "compaction" and isinstance(part.body.get("content"), str):
            text = part.body["content"]
        elif not provider_history.is_result(part.kind) and part.kind not in provider_history.SILENT and part.kind != "compaction":
            _misplaced(part)
        if part.kind != "compaction":
            self._draft.drop(f"messages[].{part.kind}")
        return [("\n\n" if follows else "") + text + "\n\n"] if text else []


_NAMED = {"image_url": "image", "file": "document"}


def _blocks(value: Any) -> list[dict[str, Any]]:
    return [b for b in value if isinstance(b, dict)] if isinstance(value, list) else []


def _asks(turn: Turn) -> bool:
    return any(not isinstance(p, ToolResultPart) for p in turn.parts)


def _misplaced(part: Part) -> NoReturn:
    kind = part.kind[:60] if isinstance(part, OtherPart) else part.__struct_config__.tag
    invalid(f"a {kind} block cannot be sent to this model's provider in this place", "messages")
