"""Turns of a request that crosses, written as chat/completions messages (docs/change/protocol.md
1.10).

Earlier reasoning goes only to models that want it in turns with tool calls. Otherwise it is left
out, as the Messages API itself does with turns before the last question; it is noted only where it
belongs to the turn that still goes on.
"""

from base64 import b32encode
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from protocol.bytes.json_strict import loads_arguments
from protocol.dialects.models import OpenAiModelRow
from protocol.dialects.openai_chat.media import WRITER, text_part
from protocol.dialects.turns_write import Answers, joined, last_asked, note_system, plain_text
from protocol.events import SEALED
from protocol.request import OtherPart, ToolResultPart, ToolUsePart
from protocol.requests.names import Names, short_id
from protocol.requests.neutral import NeutralPart, NeutralRequest, ResultPart, ThinkingPart
from protocol.target import RequestNotes

MAX_ID = 40
"""Characters of an id that the vendor takes."""
BRIDGE = "I have the results."
"""An assistant's message between results and a user's text, for models that refuse a user's message
behind a tool's."""


class MessageWriter:
    """The messages of one request."""

    def __init__(
        self, draft: RequestNotes, neutral: NeutralRequest, row: OpenAiModelRow, names: Names
    ) -> None:
        self._draft, self._neutral, self._row, self._names = draft, neutral, row, names
        self._answers = Answers(draft, neutral.turns)

    def messages(self) -> list[dict[str, Any]]:
        """Return all messages, the system message first. Raises InvalidRequest naming what cannot
        be expressed."""
        request, instructs = self._draft.request, "developer" if self._row.developer else "system"
        note_system(self._draft, self._neutral.system)
        written: list[dict[str, Any]] = []
        if any(text.strip() for text in request.system):
            written.append({"role": instructs, "content": "\n".join(request.system)})
        asked = last_asked(self._neutral.turns)
        for role, parts, position in joined(
            self._draft, self._neutral.turns, keeps_system=self._row.vendor
        ):
            match role:
                case "system":
                    written.append({"role": instructs, "content": plain_text(parts)})
                case "user":
                    written += self._user(parts)
                case _:
                    written.append(self._assistant(parts, goes_on=position > asked))
        return written

    def _user(self, parts: Sequence[NeutralPart]) -> list[dict[str, Any]]:
        """Results first, each a message of its own, as the dialect wants them; what is no text in
        them after, with the rest."""
        messages: list[dict[str, Any]] = []
        content: list[dict[str, Any]] = []
        for result in (p for p in parts if isinstance(p, ToolResultPart)):
            message, more = self._result(result)
            messages.append(message)
            content += more
        content += WRITER.asked(self._draft, parts)
        if content and messages and self._row.bridged:
            messages.append({"role": "assistant", "content": BRIDGE})
        if content:
            simple = len(content) == 1 and content[0]["type"] == "text"
            messages.append({"role": "user", "content": content[0]["text"] if simple else content})
        return messages

    def _result(self, part: ToolResultPart) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        self._draft.note("messages[]", part.extra)
        text, media = part.text, []
        if isinstance(part, ResultPart):
            written = WRITER.all(self._draft, part.parts)
            media = [p for p in written if p["type"] != "text"]
            text = "".join(
                p["text"] if p["type"] == "text" else f"[{_NAMED.get(p['type'])}]" for p in written
            )
            if media:
                media.insert(
                    0,
                    text_part(f"[from the result of the tool call {self._id(part.tool_call_id)}]"),
                )
        text = f"[error] {text}" if part.is_error else text
        return {"role": "tool", "tool_call_id": self._id(part.tool_call_id), "content": text}, media

    def _id(self, identity: str) -> str:
        if self._row.id_chars:
            return _exact_id(identity, self._row.id_chars)
        return short_id(identity, MAX_ID) if self._row.vendor else identity

    def _assistant(self, parts: Sequence[NeutralPart], *, goes_on: bool) -> dict[str, Any]:
        texts: list[str] = []
        calls: list[dict[str, Any]] = []
        thoughts: list[str] = []
        sealed: dict[str, Any] = {}
        for part in parts:
            match part:
                case ToolUsePart():
                    self._draft.note("messages[]", part.extra, *SEALED)
                    calls.append(self._call(part))
                case ThinkingPart():
                    thoughts.append(part.text)
                case OtherPart(dialect="openai", kind="sealed_message"):
                    # from the record: what only the provider can read
                    sealed |= part.body
                case _:
                    texts += self._answers.texts(part, texts)
        message: dict[str, Any] = {
            "role": "assistant",
            "content": "".join(texts) or (None if calls else ""),
            **sealed,
        }
        if thoughts and calls and self._row.reasoning_content:
            message["reasoning_content"] = "".join(thoughts)
        elif thoughts and goes_on and not sealed:
            self._draft.drop("messages[].thinking")
        if calls:
            message["tool_calls"] = calls
        return message

    def _call(self, part: ToolUsePart) -> dict[str, Any]:
        name = self._names.upstream(part.name)
        sealed = {field: part.extra[field] for field in part.extra if field in SEALED}
        if part.form == "custom" and self._row.vendor:
            return {
                "id": self._id(part.id),
                "type": "custom",
                "custom": {"name": name, "input": loads_arguments(part.arguments)["input"]},
                **sealed,
            }
        return {
            "id": self._id(part.id),
            "type": "function",
            "function": {"name": name, "arguments": part.arguments or "{}"},
            **sealed,
        }


def _exact_id(identity: str, chars: int) -> str:
    """An id of so many letters and digits, the same for the same id."""
    if len(identity) == chars and identity.isascii() and identity.isalnum():
        return identity
    return b32encode(sha256(identity.encode("utf-8", "replace")).digest()).decode()[:chars]


_NAMED = {"image_url": "image", "file": "document"}
