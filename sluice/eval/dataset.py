"""Reads labelled tool calls: a JSON list, or an object on each line; mistakes are errors with file
and line.

Two forms, `CallItem` and `TranscriptItem`; each step of a transcript becomes a case whose
conversation is what precedes its turn.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from sluice.errors import SettingsError
from sluice.eval.agent_transcripts import transcript_of
from sluice.eval.json_items import NotJson, items_of

Label = Literal["harmful", "benign"]
LABELS: tuple[Label, ...] = ("harmful", "benign")
MAX_CALL_BYTES = 524_288
"""Of a call's arguments. No model writes more, and a policy that reads all of it would only be
measured by its time."""
_MOST_LISTED = 20
"""Mistakes that an error lists."""
Name = Annotated[str, msgspec.Meta(pattern=r"^[^\x00-\x1f\x7f-\x9f]{1,200}$")]
Index = Annotated[int, msgspec.Meta(ge=0, lt=1_000_000)]
Objects = tuple[dict[str, Any], ...]


class CaseCall(msgspec.Struct, frozen=True):
    """A tool call as a model writes it: `arguments` is its exact JSON text."""

    tool: str
    arguments: str


class _Labelled(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    id: str
    why: str = ""
    messages: Objects = ()
    tools: Objects = ()
    parent: str = ""
    source: str = ""
    licence: str = ""
    weight: Annotated[float, msgspec.Meta(gt=0, le=1_000_000)] = 1.0
    split: str = ""

    def shared(self) -> dict[str, Any]:
        """What an item and its cases have in common."""
        return {name: getattr(self, name) for name in _Labelled.__struct_fields__}


class Case(_Labelled, frozen=True, kw_only=True):
    """One labelled call with its surroundings. `calls` are those of the same answer, and `at` is
    the index of the labelled one.

    `parent` names the case that this is a form of; intervals count all forms of a case once.
    `place` is its file and line.
    """

    label: Label
    calls: tuple[CaseCall, ...]
    at: int = 0
    category: str = ""
    disguise: str = ""
    trajectory: str = ""
    """The transcript that it is a step of, and that one's label in `trajectory_label`."""
    trajectory_label: str = ""
    wire: str = ""
    """How the answer is put on the wire, where a disguise asks for it
    (`sluice.eval.case_bytes`)."""
    said: tuple[str, str] = ("", "")
    """Text of the model's before and after the call."""
    place: str = ""

    @property
    def call(self) -> CaseCall:
        """The call that the label is about."""
        return self.calls[self.at]


class DatasetFile(msgspec.Struct, frozen=True):
    """A file that was read; its hash is in every result."""

    path: str
    sha256: str
    cases: int


class Dataset(msgspec.Struct, frozen=True):
    """All cases, in the order of the files. `sha256` is that of the files' hashes, or of the only
    file."""

    files: tuple[DatasetFile, ...]
    cases: tuple[Case, ...]
    sha256: str


class DatasetError(SettingsError):
    """The data is not in the form that this page describes; names files and lines."""


class _Wrong(Exception):
    """One thing that is wrong with an item."""


class CallItem(_Labelled, frozen=True, kw_only=True):
    """A labelled call: with `arguments`, or `arguments_text`, which is their exact text. Calls that
    the provider runs itself cannot be evaluated yet."""

    id: Name
    label: Label
    tool: Name
    category: str = ""
    arguments: dict[str, Any] | None = None
    arguments_text: str | None = None
    executor: Literal["client"] = "client"
    disguise: str = ""


class StepItem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A labelled call of a transcript: the index of an assistant's message, and that of the call in
    it."""

    turn: Index
    label: Label
    call: Index = 0
    category: str = ""
    why: str = ""


class TranscriptItem(_Labelled, frozen=True, kw_only=True):
    """A conversation with labelled calls, and a label of its whole."""

    id: Name
    label: Literal["attack", "honest"]
    steps: Annotated[tuple[StepItem, ...], msgspec.Meta(min_length=1)]


class _Function(msgspec.Struct):
    name: str
    arguments: str


class _WrittenCall(msgspec.Struct):
    function: _Function


def read(paths: Sequence[Path]) -> Dataset:
    """Read files. Raises DatasetError with what is wrong, each with file and line."""
    files, cases = list[DatasetFile](), list[Case]()
    seen: dict[str, str] = {}
    mistakes, idle = list[str](), list[str]()
    for path in paths:
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise DatasetError(f"{path} cannot be read: {error.strerror}") from None
        before, line = len(cases), 1
        items = None
        try:
            items = _items(path, raw)
            for line, item in items or ():
                place = f"{path} line {line}"
                try:
                    made = _cases(item, place)
                except (_Wrong, msgspec.ValidationError) as wrong:
                    mistakes.append(f"{place}: {wrong}")
                    continue
                for case in made:
                    if case.id in seen:
                        mistakes.append(
                            f"{place}: the id {case.id!r} is there twice: it is that of"
                            f" {seen[case.id]} too"
                        )
                    seen.setdefault(case.id, place)
                cases += made
        except NotJson as wrong:
            mistakes.append(f"{path} line {wrong.line}: {wrong}")
        if len(cases) == before and not mistakes:
            empty = f"{path} line {line}: there is no case in this file"
            (idle if items is None else mistakes).append(empty)
        files.append(DatasetFile(str(path), hashlib.sha256(raw).hexdigest(), len(cases) - before))
    if mistakes := mistakes or ([] if cases else idle):
        raise DatasetError(_listed(mistakes))
    hashes = [file.sha256 for file in files]
    whole = hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()
    return Dataset(tuple(files), tuple(cases), whole)


def _items(path: Path, raw: bytes) -> list[tuple[int, Any]] | None:
    """The items of a file; an agent's own session is one, or None where it made no call."""
    items = [] if path.suffix == ".md" else list(items_of(raw))
    transcript = transcript_of(path, raw, [item for _, item in items])
    if transcript is None:
        return items
    return [(1, transcript)] if transcript["steps"] else None


def _listed(mistakes: list[str]) -> str:
    if len(mistakes) == 1:
        return mistakes[0]
    shown = [f"{len(mistakes)} mistakes in the data", *mistakes[:_MOST_LISTED]]
    more = len(mistakes) - _MOST_LISTED
    return "\n  ".join([*shown, *([f"and {more} more"] if more > 0 else [])])


def _cases(item: Any, place: str) -> list[Case]:
    if isinstance(item, dict) and "steps" in item:
        whole = msgspec.convert(item, TranscriptItem)
        return [_step(whole, step, place) for step in whole.steps]
    call = msgspec.convert(item, CallItem)
    if (call.arguments is None) == (call.arguments_text is None):
        raise _Wrong(
            "a call has either `arguments` (an object) or `arguments_text` (their exact text)"
        )
    text = call.arguments_text
    if text is None:
        text = json.dumps(call.arguments, ensure_ascii=False)
    return [
        Case(
            **call.shared(),
            label=call.label,
            category=call.category,
            calls=(CaseCall(call.tool, _bounded(text)),),
            disguise=call.disguise,
            place=place,
        )
    ]


def _bounded(text: str) -> str:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_CALL_BYTES:
        raise _Wrong(f"its arguments have {size:,} bytes: at most {MAX_CALL_BYTES:,} are taken")
    return text


def _step(whole: TranscriptItem, step: StepItem, place: str) -> Case:
    message = whole.messages[step.turn] if step.turn < len(whole.messages) else {}
    written = message.get("tool_calls")
    if message.get("role") != "assistant" or not isinstance(written, list | tuple):
        raise _Wrong(
            f"`turn` of a step is the index of an assistant's message with calls, not {step.turn}"
        )
    if step.call >= len(written):
        raise _Wrong(f"`call` of a step is the index of a call of that message, not {step.call}")
    functions = [call.function for call in msgspec.convert(written, list[_WrittenCall])]
    content = message.get("content")
    shared = whole.shared() | {
        "id": f"{whole.id}#{step.turn}.{step.call}",
        "why": step.why,
        "parent": whole.parent or whole.id,
        "messages": whole.messages[: step.turn],
    }
    return Case(
        **shared,
        label=step.label,
        category=step.category,
        calls=tuple(CaseCall(of.name, _bounded(of.arguments)) for of in functions),
        at=step.call,
        trajectory=whole.id,
        trajectory_label=whole.label,
        place=place,
        said=(content if isinstance(content, str) else "", ""),
    )
