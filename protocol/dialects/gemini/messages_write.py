"""Turns of a request that crosses, written as contents (docs/change/protocol.md 1.15).

Contents begin with the user's and alternate. The results of an answer's calls stand in the one
content straight after it, as many as there are calls: a call that nobody answered is left out, and
so is the result of a call that is not there. Models that think want each step of the current turn
back with the signature of its first call; where the record has none, the vendor's word for "there
is none" stands in.
"""

from collections.abc import Iterator, Sequence
from typing import Any, assert_never

import msgspec

from protocol.bytes.json_strict import AmbiguousJson, loads_arguments
from protocol.dialects.gemini.blocks import SEAL
from protocol.dialects.gemini.media import WRITER, text_parts
from protocol.dialects.gemini.models import ModelRow
from protocol.dialects.gemini.turn import CALL, PARTS
from protocol.dialects.turns_write import SYSTEM_MARK, asks, last_asked, misplaced, read_input
from protocol.request import OtherPart, TextPart, ToolResultPart, ToolUsePart
from protocol.requests.names import Names
from protocol.requests.neutral import (
    AnyTurn,
    MediaPart,
    NeutralRequest,
    ProviderCallPart,
    ProviderResultPart,
    RefusalPart,
    ResultPart,
    SummaryPart,
    ThinkingPart,
)
from protocol.server_tools import history as provider_history
from protocol.target import RequestNotes

NO_SIGNATURE = "skip_thought_signature_validator"
"""What the vendor takes instead of a signature that nobody has."""
_BEGINNING = "[the conversation begins with your message]"
_DROPPED = "thought_signature"


class _Call(msgspec.Struct):
    """A call of an earlier answer, for its result; `part` is how it is written."""

    id: str
    name: str
    upstream_id: str
    part: dict[str, Any]


class _Step(msgspec.Struct):
    """Neighbouring turns of one role. `parts` has a model's calls in it; a user's `results` are by
    the call's id."""

    role: str
    parts: list[dict[str, Any] | _Call] = []
    results: dict[str, list[ToolResultPart]] = {}
    asks: bool = False
    """Does the user say something beside results?"""


class MessageWriter:
    """The contents of one request."""

    def __init__(
        self, draft: RequestNotes, neutral: NeutralRequest, row: ModelRow, names: Names
    ) -> None:
        self._draft, self._neutral, self._row, self._names = draft, neutral, row, names
        self._results = provider_history.results_of(neutral.turns)

    def system(self) -> list[dict[str, Any]]:
        """Return the parts of the instructions."""
        parts: list[dict[str, Any]] = []
        for turn in self._neutral.system:
            self._draft.note("system[]", turn.extra)
            for part in turn.parts:
                if not isinstance(part, TextPart):
                    misplaced(part)
                self._draft.note("system[]", part.extra)
                parts += text_parts(part.text)
        return parts

    def contents(self) -> list[dict[str, Any]]:
        """Return the contents, [] where all are empty. Raises InvalidRequest naming what cannot be
        expressed."""
        steps = self._steps()
        # text after results continues the turn: the vendor checks the calls before them, too
        asked = max(
            (i for i, step in enumerate(steps) if step.asks and not step.results), default=-1
        )
        written: list[dict[str, Any]] = []
        answered: list[_Call] = []
        for position, step in enumerate(steps):
            if step.role == "model":
                follows = steps[position + 1].results if position + 1 < len(steps) else {}
                parts, answered = self._model(step, follows, is_current=position > asked)
            else:
                parts, answered = self._user(step, answered), []
            if parts and written and written[-1]["role"] == step.role:
                # what stood between them was left out
                written[-1]["parts"] += parts
            elif parts:
                written.append({"role": step.role, "parts": parts})
        if written and written[0]["role"] == "model":
            written.insert(0, {"role": "user", "parts": text_parts(_BEGINNING)})
        return written

    def _steps(self) -> list[_Step]:
        asked = last_asked(self._neutral.turns)
        steps: list[_Step] = []
        for position, turn in enumerate(self._neutral.turns):
            self._draft.note("messages[]", turn.extra)
            role = "model" if turn.role == "assistant" else "user"
            answer = self._answer(turn, is_current=position > asked) if role == "model" else []
            if role == "model" and not answer:
                # only reasoning, which is left out: the user's turns around it are one content
                continue
            if not steps or steps[-1].role != role:
                steps.append(_Step(role))
            step = steps[-1]
            match turn.role:
                case "assistant":
                    step.parts += answer
                case "system":
                    step.parts += self._later_system(turn)
                case _:
                    self._asked(turn, step)
        return steps

    # --- what the user says ---

    def _later_system(self, turn: AnyTurn) -> Iterator[dict[str, Any]]:
        for part in turn.parts:
            if not isinstance(part, TextPart):
                misplaced(part)
            self._draft.note("messages[]", part.extra)
            yield from text_parts(f"{SYSTEM_MARK}{part.text}" if part.text else "")

    def _asked(self, turn: AnyTurn, step: _Step) -> None:
        step.asks = step.asks or asks(turn)
        for part in turn.parts:
            if isinstance(part, ToolResultPart):
                step.results.setdefault(part.tool_call_id, []).append(part)
        step.parts += WRITER.asked(self._draft, turn.parts)

    def _user(self, step: _Step, calls: Sequence[_Call]) -> list[dict[str, Any]]:
        responses: list[dict[str, Any]] = []
        after: list[dict[str, Any]] = []
        for call in calls:
            response, more = self._response(call, step.results[call.id].pop(0))
            responses.append(response)
            after += more
        if any(step.results.values()):
            self._draft.drop("messages[].tool_result")
        return [*responses, *after, *(part for part in step.parts if isinstance(part, dict))]

    def _response(
        self, call: _Call, part: ToolResultPart
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The result, and the parts that stand after all results."""
        self._draft.note("messages[]", part.extra)
        text, media = part.text, []
        if isinstance(part, ResultPart):
            written = WRITER.all(self._draft, part.parts)
            media = [written_part for written_part in written if "text" not in written_part]
            text = "".join(written_part.get("text", "[file]") for written_part in written)
        response: dict[str, Any] = {
            "name": call.name,
            "response": _result_object(text, is_error=part.is_error),
        }
        if call.upstream_id:
            response["id"] = call.upstream_id
        if (
            media
            and self._row.result_media
            and all("inlineData" in written_part for written_part in media)
        ):
            response["parts"] = media
            media = []
        after = [*text_parts(f"[from the result of {call.name}]"), *media] if media else []
        return {"functionResponse": response}, after

    # --- the model's output ---

    def _answer(self, turn: AnyTurn, *, is_current: bool) -> list[dict[str, Any] | _Call]:
        # what the record has is better than what the client tells of it
        is_recorded = any(isinstance(p, OtherPart) and p.dialect == "gemini" for p in turn.parts)
        parts: list[dict[str, Any] | _Call] = []
        for part in turn.parts:
            match part:
                case TextPart():
                    self._draft.note("messages[]", part.extra)
                    parts += text_parts(part.text)
                case ToolUsePart():
                    self._draft.note("messages[]", part.extra)
                    parts.append(self._call(part.id, part.name, part.arguments, {}, ""))
                case OtherPart(dialect="gemini"):
                    parts += self._recorded(part)
                case RefusalPart() | SummaryPart():
                    parts += text_parts(part.text)
                case ThinkingPart():
                    if is_current and not is_recorded and part.text:
                        self._draft.drop("messages[].thinking")
                case ProviderCallPart():
                    if not is_recorded:
                        parts += text_parts(
                            provider_history.describe_call(part, self._results.pop(part.id, None))
                        )
                        self._draft.drop(f"messages[].{part.kind}")
                case ProviderResultPart():
                    if not is_recorded:
                        self._draft.drop(f"messages[].{part.kind}")
                case ToolResultPart() | MediaPart() | OtherPart():
                    misplaced(part)
                case _:
                    assert_never(part)
        return parts

    def _recorded(self, part: OtherPart) -> list[dict[str, Any] | _Call]:
        if part.kind == PARTS:
            return [*part.body[PARTS]]
        if part.kind != CALL:
            misplaced(part)
        call, signature = part.body["call"], {SEAL: part.body[SEAL]} if SEAL in part.body else {}
        return [self._call(call["id"], call["name"], call["arguments"], signature, part.body["id"])]

    def _call(
        self, identity: str, name: str, arguments: str, signature: dict[str, Any], upstream_id: str
    ) -> _Call:
        written = self._names.upstream(name)
        call: dict[str, Any] = {"name": written, "args": read_input(identity, arguments)}
        if upstream_id:
            call["id"] = upstream_id
        return _Call(identity, written, upstream_id, {"functionCall": call, **signature})

    def _model(
        self, step: _Step, results: dict[str, list[ToolResultPart]], *, is_current: bool
    ) -> tuple[list[dict[str, Any]], list[_Call]]:
        """The parts, and the calls among them, which all have a result."""
        left = {identity: len(call_results) for identity, call_results in results.items()}
        parts: list[dict[str, Any]] = []
        calls: list[_Call] = []
        for part in step.parts:
            if isinstance(part, dict):
                parts.append(part)
                continue
            if not left.get(part.id):
                self._draft.drop("messages[].tool_calls")
                continue
            left[part.id] -= 1
            if not calls and is_current and self._row.signed and SEAL not in part.part:
                part.part[SEAL] = NO_SIGNATURE
                self._draft.drop(_DROPPED)
            calls.append(part)
            parts.append(part.part)
        return parts, calls


def _result_object(text: str, *, is_error: bool) -> Any:
    """The dialect wants an object: a result that is one stays it."""
    if is_error:
        return {"error": text}
    if text.lstrip()[:1] == "{":
        try:
            loads_arguments(text)
            return msgspec.Raw(text.encode())
        except AmbiguousJson:
            pass
    return {"output": text}
