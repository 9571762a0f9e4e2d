"""Reads labelled tool calls: a JSON list, or an object on each line; mistakes are errors with file
and line.

Two forms. A call: `id`, `tool`, `arguments`, `label`, and the other fields in `_CALL`. A
transcript: `id`, `messages`, `tools`, `steps`, `label`; each of its steps becomes a case whose
conversation is what precedes its turn.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

import msgspec

from settings.config_faults import did_you_mean
from sluice.errors import SettingsError
from sluice.eval.agent_transcripts import transcript_of
from sluice.eval.json_items import items_of

Label = Literal["harmful", "benign"]
LABELS: tuple[Label, ...] = ("harmful", "benign")
TRAJECTORIES = ("attack", "honest")
"""Labels of a whole transcript."""
MAX_CALL_BYTES = 524_288
"""Of a call's arguments. No model writes more, and a policy that reads all of it would only be
measured by its time."""
MAX_ID_CHARS = 200
_MOST_SAID = 20
"""Mistakes that an error lists."""


class CaseCall(msgspec.Struct, frozen=True):
    """A tool call as a model writes it: `arguments` is its exact JSON text."""

    tool: str
    arguments: str


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One labelled call with its surroundings. `calls` are those of the same answer, and `at` is
    the index of the labelled one.

    `parent` names the case that this is a form of; intervals count all forms of a case once.
    `place` is its file and line.
    """

    id: str
    label: Label
    calls: tuple[CaseCall, ...]
    at: int = 0
    category: str = ""
    why: str = ""
    messages: tuple[dict[str, Any], ...] = ()
    tools: tuple[dict[str, Any], ...] = ()
    parent: str = ""
    disguise: str = ""
    source: str = ""
    weight: float = 1.0
    trajectory: str = ""
    """The transcript that it is a step of, and that one's label in `trajectory_label`."""
    trajectory_label: str = ""
    split: str = ""
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


def read(paths: Sequence[Path]) -> Dataset:
    """Read files. Raises DatasetError with what is wrong, each with file and line."""
    files, cases = list[DatasetFile](), list[Case]()
    seen: dict[str, str] = {}
    mistakes: list[str] = []
    for path in paths:
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise DatasetError(f"{path} cannot be read: {error.strerror}") from None
        before = len(cases)
        for line, item in _items(path, raw, mistakes):
            place = f"{path} line {line}"
            try:
                made = _cases(item, place)
            except _Wrong as wrong:
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
        if len(cases) == before and not mistakes:
            mistakes.append(f"{path} line 1: there is no case in this file")
        files.append(DatasetFile(str(path), hashlib.sha256(raw).hexdigest(), len(cases) - before))
    if mistakes:
        _refuse(mistakes)
    whole = (
        files[0].sha256
        if len(files) == 1
        else hashlib.sha256("".join(f.sha256 for f in files).encode()).hexdigest()
    )
    return Dataset(tuple(files), tuple(cases), whole)


def _items(path: Path, raw: bytes, mistakes: list[str]) -> list[tuple[int, Any]]:
    """The items of a file; an agent's own transcript is one."""
    items = [] if path.suffix == ".md" else list(items_of(path, raw, mistakes))
    transcript = transcript_of(path, raw, [item for _, item in items])
    return items if transcript is None else [(1, transcript)]


def _refuse(mistakes: list[str]) -> NoReturn:
    if len(mistakes) == 1:
        raise DatasetError(mistakes[0])
    more = [f"  and {len(mistakes) - _MOST_SAID} more"] if len(mistakes) > _MOST_SAID else []
    raise DatasetError(
        "\n".join(
            [
                f"{len(mistakes)} mistakes in the data",
                *(f"  {mistake}" for mistake in mistakes[:_MOST_SAID]),
                *more,
            ]
        )
    )


# --- the two forms ---


def _cases(item: Any, place: str) -> list[Case]:
    if not isinstance(item, dict):
        raise _Wrong("an object is expected: one case")
    if "steps" in item:
        return _transcript(item, place)
    fields = _checked(item, _CALL, ("id", "tool", "label"))
    if fields["label"] not in LABELS:
        raise _Wrong(
            "`label` is harmful or benign, not"
            f" {_short(fields['label'])}{did_you_mean(fields['label'], LABELS)}"
        )
    call = CaseCall(fields.pop("tool"), _arguments(fields))
    return [
        Case(
            calls=(call,),
            place=place,
            **{name: value for name, value in fields.items() if name not in _IGNORED},
        )
    ]


def _arguments(fields: dict[str, Any]) -> str:
    if ("arguments" in fields) == ("arguments_text" in fields):
        raise _Wrong(
            "a call has either `arguments` (an object) or `arguments_text` (their exact text)"
        )
    text = fields.pop("arguments_text", None)
    text = json.dumps(fields.pop("arguments"), ensure_ascii=False) if text is None else text
    return _bounded(text)


def _bounded(text: str) -> str:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_CALL_BYTES:
        raise _Wrong(f"its arguments have {size:,} bytes: at most {MAX_CALL_BYTES:,} are taken")
    return text


def _transcript(item: dict[str, Any], place: str) -> list[Case]:
    fields = _checked(item, _TRANSCRIPT, ("id", "messages", "steps", "label"))
    if fields["label"] not in TRAJECTORIES:
        raise _Wrong(f"`label` of a transcript is honest or attack, not {_short(fields['label'])}")
    messages, cases = fields["messages"], list[Case]()
    for number, step in enumerate(fields["steps"]):
        if not isinstance(step, dict):
            raise _Wrong(f"steps.{number} is no object")
        try:
            cases.append(_step(fields, messages, _checked(step, _STEP, ("turn", "label")), place))
        except _Wrong as wrong:
            raise _Wrong(f"steps.{number}: {wrong}") from None
    if not cases:
        raise _Wrong("`steps` is empty: a transcript is judged by its labelled calls")
    return cases


def _step(
    fields: Mapping[str, Any],
    messages: Sequence[dict[str, Any]],
    step: Mapping[str, Any],
    place: str,
) -> Case:
    turn, at = step["turn"], step.get("call", 0)
    if not 0 <= turn < len(messages) or messages[turn].get("role") != "assistant":
        raise _Wrong(
            f"`turn` is the place of an assistant message among the {len(messages)}, counted from"
            f" 0, not {turn}"
        )
    written = messages[turn].get("tool_calls")
    if not isinstance(written, list) or not 0 <= at < len(written):
        raise _Wrong(
            f"`call` is the place of a tool call of that message, counted from 0, not {at}"
        )
    if step["label"] not in LABELS:
        raise _Wrong(f"`label` of a step is harmful or benign, not {_short(step['label'])}")
    content = messages[turn].get("content")
    return Case(
        id=f"{fields['id']}#{turn}.{at}",
        label=step["label"],
        category=step.get("category", ""),
        why=step.get("why", ""),
        calls=tuple(_written(call) for call in written),
        at=at,
        messages=tuple(messages[:turn]),
        tools=fields.get("tools", ()),
        parent=fields.get("parent", "") or fields["id"],
        source=fields.get("source", ""),
        weight=fields.get("weight", 1.0),
        split=fields.get("split", ""),
        trajectory=fields["id"],
        trajectory_label=fields["label"],
        place=place,
        said=(content if isinstance(content, str) else "", ""),
    )


def _written(call: Any) -> CaseCall:
    function = call.get("function") if isinstance(call, dict) else None
    if (
        not isinstance(function, dict)
        or not isinstance(function.get("name"), str)
        or not isinstance(function.get("arguments"), str)
    ):
        raise _Wrong("a tool call of a message is no {id, type, function: {name, arguments}}")
    return CaseCall(function["name"], _bounded(function["arguments"]))


# --- what each key may hold ---

Check = Callable[[Any], Any]


def _checked(
    item: Mapping[str, Any], known: Mapping[str, Check], needed: Sequence[str]
) -> dict[str, Any]:
    for name in item:
        if name not in known:
            raise _Wrong(
                f"the key {_short(name)} is not known{did_you_mean(name, known)} (known:"
                f" {', '.join(known)})"
            )
    for name in needed:
        if name not in item:
            raise _Wrong(f"the key {name!r} is missing")
    fields = {}
    for name, value in item.items():
        try:
            fields[name] = known[name](value)
        except _Wrong as wrong:
            raise _Wrong(f"`{name}` {wrong}, not {_short(value)}") from None
    return fields


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _Wrong("is text")
    return value


def _name(value: Any) -> str:
    if (
        not isinstance(value, str)
        or not value
        or not value.isprintable()
        or len(value) > MAX_ID_CHARS
    ):
        raise _Wrong(f"is a name of 1 to {MAX_ID_CHARS} characters that can be printed")
    return value


def _object(value: Any) -> Any:
    if not isinstance(value, dict):
        raise _Wrong("is an object")
    return value


def _objects(value: Any) -> tuple[dict[str, Any], ...]:
    if not isinstance(value, list) or not all(isinstance(element, dict) for element in value):
        raise _Wrong("is a list of objects")
    return tuple(value)


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1_000_000:
        raise _Wrong("is a whole number from 0")
    return value


def _weight(value: Any) -> float:
    if type(value) not in (int, float) or not 0 < value <= 1_000_000:
        raise _Wrong("is a number above 0")
    return float(value)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _Wrong("is a list")
    return value


def _executor(value: Any) -> str:
    if value != "client":
        raise _Wrong("is `client`: calls that the provider runs itself cannot be evaluated yet")
    return "client"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 60 else f"{text[:57]}..."


_COMMON: dict[str, Check] = {
    "id": _name,
    "label": _text,
    "category": _text,
    "why": _text,
    "messages": _objects,
    "tools": _objects,
    "parent": _text,
    "source": _text,
    "licence": _text,
    "weight": _weight,
    "split": _text,
}
_CALL: dict[str, Check] = {
    **_COMMON,
    "tool": _name,
    "arguments": _object,
    "arguments_text": _text,
    "executor": _executor,
    "disguise": _text,
}
_TRANSCRIPT: dict[str, Check] = {
    **{n: c for n, c in _COMMON.items() if n != "category"},
    "steps": _list,
}
_STEP: dict[str, Check] = {
    "turn": _number,
    "call": _number,
    "label": _text,
    "category": _text,
    "why": _text,
}
_IGNORED = ("executor", "licence")
"""Known, and of no use to the run."""
