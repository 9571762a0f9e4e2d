"""Turns of a request that crosses, written as items of a Responses input (docs/change/protocol.md
1.13).

Reasoning goes upstream only as recorded, sealed: `protocol.dialects.responses.turn` puts its items
before what they led to."""

from collections.abc import Sequence
from typing import Any

from protocol.bytes.json_strict import AmbiguousJson, loads_arguments
from protocol.dialects.models import OpenAiModelRow
from protocol.dialects.responses.media import WRITER, text_part
from protocol.dialects.turns_write import Answers, joined, last_asked, note_system, plain_text
from protocol.request import OtherPart, ToolResultPart, ToolUsePart
from protocol.requests.fields import invalid
from protocol.requests.names import Names, short_id
from protocol.requests.neutral import NeutralPart, NeutralRequest, ResultPart, ThinkingPart
from protocol.target import RequestNotes

MAX_ID = 64
"""Characters of an id that the vendor takes."""


class InputWriter:
    """The input of one request."""

    def __init__(
        self, draft: RequestNotes, neutral: NeutralRequest, row: OpenAiModelRow, names: Names
    ) -> None:
        self._draft, self._neutral, self._row, self._names = draft, neutral, row, names
        self._answers = Answers(draft, neutral.turns)
        self._custom = {t.name for t in neutral.request.tools if t.kind == "custom"}
        self._custom_calls: set[str] = set()
        self._callers: dict[str, Any] = {}

    def instructions(self) -> str:
        """Return the leading system texts as one."""
        note_system(self._draft, self._neutral.system)
        return "\n\n".join(text for text in self._draft.request.system if text.strip())

    def items(self) -> list[dict[str, Any]]:
        """Return all items. Raises InvalidRequest naming what cannot be expressed."""
        written: list[dict[str, Any]] = []
        asked = last_asked(self._neutral.turns)
        for role, parts, position in joined(
            self._draft, self._neutral.turns, keeps_system=self._row.vendor
        ):
            match role:
                case "system":
                    written.append(
                        {"type": "message", "role": "developer", "content": plain_text(parts)}
                    )
                case "user":
                    written += self._user(parts)
                case _:
                    written += self._assistant(parts, goes_on=position > asked)
        return written

    def _user(self, parts: Sequence[NeutralPart]) -> list[dict[str, Any]]:
        """Outputs first, as the dialect wants them behind their calls; then the rest as one
        message."""
        items = [self._result(p) for p in parts if isinstance(p, ToolResultPart)]
        if content := WRITER.asked(self._draft, parts):
            simple = len(content) == 1 and content[0]["type"] == "input_text"
            items.append(
                {
                    "type": "message",
                    "role": "user",
                    "content": content[0]["text"] if simple else content,
                }
            )
        return items

    def _result(self, part: ToolResultPart) -> dict[str, Any]:
        if not part.tool_call_id:
            invalid("a result in messages is of no call", "messages")
        self._draft.note("messages[]", part.extra)
        output: Any = f"[error] {part.text}" if part.is_error else part.text
        if isinstance(part, ResultPart):
            written = WRITER.all(self._draft, part.parts)
            output = [text_part("[error]"), *written] if part.is_error else written
        kind = (
            "custom_tool_call_output"
            if part.tool_call_id in self._custom_calls
            else "function_call_output"
        )
        # of a call that the provider's code made: it waits for the output by this
        caller = self._callers.get(part.tool_call_id)
        item = {"type": kind, "call_id": self._id(part.tool_call_id), "output": output}
        return item if caller is None else {**item, "caller": caller}

    def _id(self, identity: str) -> str:
        return short_id(identity, MAX_ID) if self._row.vendor else identity

    def _assistant(self, parts: Sequence[NeutralPart], *, goes_on: bool) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        texts: list[str] = []
        has_sealed = any(isinstance(p, OtherPart) and p.kind == "reasoning" for p in parts)
        for part in parts:
            match part:
                case ToolUsePart():
                    self._draft.note("messages[]", part.extra)
                    _say(texts, items)
                    items.append(self._call(part))
                case ThinkingPart():
                    if goes_on and not has_sealed:
                        self._draft.drop("messages[].thinking")
                case OtherPart(dialect="responses"):
                    # from the record, as upstream sent it
                    _say(texts, items)
                    items.append(self._recorded(part.body))
                case _:
                    texts += self._answers.texts(part, texts)
        _say(texts, items)
        return items

    def _recorded(self, body: dict[str, Any]) -> dict[str, Any]:
        if body.get("type") != "function_call" or "namespace" in body:
            return body
        if "caller" in body:
            self._callers[body["call_id"]] = body["caller"]
        return {
            **body,
            "name": self._names.upstream(body["name"]),
            "call_id": self._id(body["call_id"]),
        }

    def _call(self, part: ToolUsePart) -> dict[str, Any]:
        name, identity = self._names.upstream(part.name), self._id(part.id)
        if part.form == "custom" or part.name in self._custom:
            try:
                value = loads_arguments(part.arguments)
            except AmbiguousJson:
                value = {}
            if value.keys() == {"input"} and isinstance(value["input"], str):
                self._custom_calls.add(part.id)
                return {
                    "type": "custom_tool_call",
                    "call_id": identity,
                    "name": name,
                    "input": value["input"],
                }
        return {
            "type": "function_call",
            "call_id": identity,
            "name": name,
            "arguments": part.arguments or "{}",
        }


def _say(texts: list[str], items: list[dict[str, Any]]) -> None:
    """Put the texts so far into one message."""
    if text := "".join(texts):
        items.append({"type": "message", "role": "assistant", "content": text})
    texts.clear()
