"""Turns of a request that crosses, written as items of a Responses input (docs/protocol.md 1.13).

Reasoning goes upstream only as recorded, sealed: `protocol.responses.turn` puts its items before what they led to.
"""

from collections.abc import Sequence
from typing import Any, NoReturn, assert_never

from protocol.fields import invalid
from protocol.json_strict import AmbiguousJson, loads_arguments
from protocol.names import Names, short_id
from protocol.neutral import (
    AnyTurn,
    MediaPart,
    NeutralPart,
    NeutralRequest,
    ProviderCallPart,
    ProviderResultPart,
    RefusalPart,
    ResultPart,
    SummaryPart,
    ThinkingPart,
    kind_of,
)
from protocol.request import OtherPart, TextPart, ToolResultPart, ToolUsePart
from protocol.responses.media import note, parts_of, text_part
from protocol.responses.models import ModelRow
from protocol.server_tools import history as provider_history
from protocol.target import Draft

MAX_ID = 64
"""Characters of an id that the vendor takes."""


class InputWriter:
    """The input of one request."""

    def __init__(self, draft: Draft, neutral: NeutralRequest, row: ModelRow, names: Names) -> None:
        self._draft, self._neutral, self._row, self._names = draft, neutral, row, names
        self._results = provider_history.results_of(neutral.turns)
        self._custom = {t.name for t in neutral.request.tools if t.kind == "custom"}
        self._custom_calls: set[str] = set()
        self._callers: dict[str, Any] = {}

    def instructions(self) -> str:
        """Return the leading system texts as one."""
        for said in self._neutral.system:
            beside = {n: v for p in said.parts if isinstance(p, TextPart) for n, v in p.extra.items()}
            note(self._draft, "system[]", beside | said.extra)
        return "\n\n".join(text for text in self._draft.request.system if text.strip())

    def items(self) -> list[dict[str, Any]]:
        """Return all items. Raises InvalidRequest naming what cannot be said."""
        written: list[dict[str, Any]] = []
        asked = max((i for i, t in enumerate(self._neutral.turns) if t.role == "user" and _asks(t)), default=-1)
        for position, turn in enumerate(self._neutral.turns):
            note(self._draft, "messages[]", turn.extra)
            match turn.role:
                case "system":
                    written.append({"type": "message", "role": "developer", "content": self._system(turn.parts)})
                case "user":
                    written += self._user(turn.parts)
                case _:
                    written += self._assistant(turn.parts, goes_on=position > asked)
        return written

    def _system(self, parts: Sequence[NeutralPart]) -> str:
        for part in parts:
            if not isinstance(part, TextPart):
                _misplaced(part)
            note(self._draft, "messages[]", part.extra)
        return "".join(p.text for p in parts if isinstance(p, TextPart))

    def _user(self, parts: Sequence[NeutralPart]) -> list[dict[str, Any]]:
        """Outputs first, as the dialect wants them behind their calls; then the rest as one message."""
        items = [self._result(p) for p in parts if isinstance(p, ToolResultPart)]
        content: list[dict[str, Any]] = []
        for part in parts:
            match part:
                case ToolUsePart():
                    _misplaced(part)
                case ToolResultPart():
                    pass
                case _:
                    content += parts_of(self._draft, part)
        if content:
            simple = len(content) == 1 and content[0]["type"] == "input_text"
            items.append({"type": "message", "role": "user", "content": content[0]["text"] if simple else content})
        return items

    def _result(self, part: ToolResultPart) -> dict[str, Any]:
        if not part.tool_call_id:
            invalid("a result in messages is of no call", "messages")
        note(self._draft, "messages[]", part.extra)
        output: Any = f"[error] {part.text}" if part.is_error else part.text
        if isinstance(part, ResultPart):
            written = [w for held in part.parts for w in parts_of(self._draft, held)]
            output = [text_part("[error]"), *written] if part.is_error else written
        kind = "custom_tool_call_output" if part.tool_call_id in self._custom_calls else "function_call_output"
        # of a call that the provider's code made: it waits for the output by this
        caller = self._callers.get(part.tool_call_id)
        said = {"type": kind, "call_id": self._id(part.tool_call_id), "output": output}
        return said if caller is None else {**said, "caller": caller}

    def _id(self, identity: str) -> str:
        return short_id(identity, MAX_ID) if self._row.vendor else identity

    def _assistant(self, parts: Sequence[NeutralPart], *, goes_on: bool) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        texts: list[str] = []
        has_sealed = any(isinstance(p, OtherPart) and p.kind == "reasoning" for p in parts)
        for part in parts:
            match part:
                case TextPart():
                    note(self._draft, "messages[]", part.extra)
                    texts.append(part.text)
                case ToolUsePart():
                    note(self._draft, "messages[]", part.extra)
                    _say(texts, items)
                    items.append(self._call(part))
                case ThinkingPart():
                    if goes_on and not has_sealed:
                        self._draft.drop("messages[].thinking")
                case RefusalPart() | SummaryPart():
                    texts += _aside(part.text, texts)
                case ProviderCallPart():
                    # a result is one call's: told again for every call of its id, it would cost its size each time
                    texts += _aside(provider_history.told(part, self._results.pop(part.id, None)), texts)
                    self._draft.drop(f"messages[].{part.kind}")
                case ProviderResultPart():
                    self._draft.drop(f"messages[].{part.kind}")
                case OtherPart(dialect="responses"):
                    # of the record, as upstream said it
                    _say(texts, items)
                    items.append(self._recorded(part.body))
                case ToolResultPart() | MediaPart() | OtherPart():
                    _misplaced(part)
                case _:
                    assert_never(part)
        _say(texts, items)
        return items

    def _recorded(self, body: dict[str, Any]) -> dict[str, Any]:
        if body.get("type") != "function_call" or "namespace" in body:
            return body
        if "caller" in body:
            self._callers[body["call_id"]] = body["caller"]
        return {**body, "name": self._names.upstream(body["name"]), "call_id": self._id(body["call_id"])}

    def _call(self, part: ToolUsePart) -> dict[str, Any]:
        name, identity = self._names.upstream(part.name), self._id(part.id)
        if part.form == "custom" or part.name in self._custom:
            try:
                value = loads_arguments(part.arguments)
            except AmbiguousJson:
                value = {}
            if value.keys() == {"input"} and isinstance(value["input"], str):
                self._custom_calls.add(part.id)
                return {"type": "custom_tool_call", "call_id": identity, "name": name, "input": value["input"]}
        return {"type": "function_call", "call_id": identity, "name": name, "arguments": part.arguments or "{}"}


def _say(texts: list[str], items: list[dict[str, Any]]) -> None:
    """Put the texts so far into one message."""
    if text := "".join(texts):
        items.append({"type": "message", "role": "assistant", "content": text})
    texts.clear()


def _aside(text: str, before: list[str]) -> list[str]:
    """The pieces for a text that is not of the answer itself."""
    return [("\n\n" if any(before) else "") + text + "\n\n"] if text else []


def _asks(turn: AnyTurn) -> bool:
    return any(not isinstance(p, ToolResultPart) for p in turn.parts)


def _misplaced(part: NeutralPart) -> NoReturn:
    invalid(f"a {kind_of(part)[:60]} block cannot be sent to this model's provider in this place", "messages")
