"""Mistakes in a configuration, in plain words: what is wrong, at which place of the file and in
which line.

Must not know: which checks there are. It turns pydantic's errors for a model into findings, and
findings into sentences.
"""

import re
import types
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ValidationError

from settings import approvals, login, pages
from settings.config_faults import Faults, Place, did_you_mean
from sluice.errors import SettingsError

Level = Literal["error", "warning", "note"]
"""error: the product does not start with it. warning: it starts, and something will not work. note:
worth knowing."""
MAX_KNOWN = 24
"""Names that are listed where one is not known."""
_MUST: dict[str, str] = {
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping (name: value)",
    "model_type": "a mapping (name: value)",
    "model_attributes_type": "a mapping (name: value)",
    "string_type": "text (put it in quotes where it looks like something else)",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    **dict.fromkeys(
        ("timezone_aware", "datetime_type", "datetime_parsing", "datetime_from_date_parsing"),
        "a time with its zone: 2027-01-31T00:00:00Z",
    ),
}
_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}
_FORMS = {
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$": (
        "a name: 1 to 64 letters, digits, `.`, `_` and `-`, the first a letter or digit"
    ),
    r"^[0-9a-f]{64}$": "the SHA-256 of a key's text: 64 hex digits in lower case",
    r"^[0-9a-f]{12}$": "12 hex digits in quotes, as `sluice doctor` shows a policy set",
    r"^[A-Za-z0-9._-]{1,100}$": "1 to 100 letters, digits, `.`, `_` and `-`",
    r"^[a-z]{2}(-[a-z]{1,20}){1,3}-[0-9]{1,2}$": "the id of a region, as in eu-central-1",
    r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$": (
        "1 to 128 letters, digits, `.`, `_`, `:` and `-`, the first a letter or digit"
    ),
    r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}$": "the name of a header",
    r"^[a-z0-9_]{1,64}$": "1 to 64 lower-case letters, digits and `_`",
    login.ISSUER: (
        "the provider's issuer, https:// and a host (http:// on this machine alone), without a query"
    ),
    pages.URL: "an address without a path: https://HOST[:PORT]",
    approvals.PUBLIC_URL: "an address that does not end in a slash: https://HOST[:PORT]",
}
"""What the patterns of the configuration's texts mean."""
_WORD = re.compile(r"[A-Za-z0-9_.:]{1,100}")


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of a check. `line` counts from 1; 0 where there is none."""

    level: Level
    place: Place
    text: str
    line: int = 0

    @property
    def sentence(self) -> str:
        """The place and what is wrong there."""
        return f"{shown_place(self.place)}: {self.text}" if self.place else self.text

    def within(self, file: str) -> str:
        """The sentence after the file and the line it is about."""
        line = f" line {self.line}" if self.line else ""
        return f"{file}{line}: {self.sentence}"


class Mistakes(SettingsError):
    """A configuration file with errors, all of them. As text: one sentence for one mistake, else a
    line for each."""

    def __init__(self, file: str, findings: Sequence[Finding]) -> None:
        self.file, self.findings = file, tuple(findings)
        if len(findings) == 1:
            super().__init__(findings[0].within(file))
        else:
            lines = [
                f"  line {f.line}: {f.sentence}" if f.line else f"  {f.sentence}" for f in findings
            ]
            super().__init__("\n".join([f"{file}: {len(findings)} mistakes", *lines]))


def shown_place(place: Place) -> str:
    """Return a place as it is written: `policies.default.1.threshold`. Names that could be read as
    something else are quoted."""
    return ".".join(
        str(part) if str(part).replace("-", "").replace("_", "").isalnum() else repr(part)
        for part in place
    )


def locate(root: yaml.Node | None, place: Place) -> tuple[Place, int]:
    """Return how much of `place` is in the file, leaving out what is not, and its line (0 without a
    file)."""
    parts: list[str | int] = []
    node, line = root, 1 if root is not None else 0
    for part in place:
        child = _child(node, part)
        if child is None:
            # a form of a union, or something that is missing
            continue
        parts.append(part)
        node, line = child
    return tuple(parts), line


def _child(node: yaml.Node | None, part: str | int) -> tuple[yaml.Node, int] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == str(part):
                return value, key.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        item = node.value[part]
        return item, item.start_mark.line + 1
    return None


def findings(
    error: ValidationError,
    model: type[BaseModel] | None,
    root: yaml.Node | None,
    within: Place = (),
) -> list[Finding]:
    """Return what pydantic found wrong with a `model` that stands at `within` in the file."""
    raw: list[tuple[Place, bool, int, str]] = []
    for problem in error.errors(include_url=False):
        loc: Place = tuple(problem["loc"])
        cause = problem.get("ctx", {}).get("error")
        if isinstance(cause, Faults):
            for place, message in cause.faults:
                raw.append((within + place, False, locate(root, within + place)[1], message))
            continue
        place, line = locate(root, within + loc) if root is not None else (within + loc, 0)
        is_form = root is not None and len(place) < len(within + loc) - (
            problem["type"] == "missing"
        )
        if problem["type"] == "missing" and root is not None:
            place = (*place, loc[-1])
        raw.append((place, is_form, line, _words(problem, model, loc)))
    return _without_doubles(raw)


def plain(error: ValidationError) -> str:
    """Return what pydantic found wrong with one value, in plain words."""
    return _words(error.errors(include_url=False)[0], None, ())


def _without_doubles(raw: list[tuple[Place, bool, int, str]]) -> list[Finding]:
    """One finding a place: of the forms that a value may have, what is wrong with the one that was
    meant."""
    merged: dict[Place, tuple[int, list[str]]] = {}
    for place, is_form, line, message in raw:
        deeper = any(len(other) > len(place) and other[: len(place)] == place for other, *_ in raw)
        if not (is_form and deeper):
            merged.setdefault(place, (line, []))[1].append(message)
    return [
        Finding("error", place, _either(message), line) for place, (line, message) in merged.items()
    ]


def _either(messages: list[str]) -> str:
    messages = list(dict.fromkeys(messages))
    must = [text.removeprefix("must be ") for text in messages if text.startswith("must be ")]
    other = [text for text in messages if not text.startswith("must be ")]
    if other:
        # the content was looked at, so this form was meant
        return "; ".join(other)
    return "must be " + (f"{', '.join(must[:-1])} or {must[-1]}" if len(must) > 1 else must[0])


def _words(problem: Any, model: type[BaseModel] | None, loc: Place) -> str:
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return _unknown(str(loc[-1]), _names_at(model, loc[:-1]))
    if (
        kind == "model_type"
        and context.get("class_name") == "PolicyStep"
        and _WORD.fullmatch(str(problem["input"]))
    ):
        return f"must be a mapping: `use: {problem['input']}`"
    if kind in _MUST:
        return (
            "is empty: put something there, or take the line out"
            if problem["input"] is None
            else f"must be {_MUST[kind]}"
        )
    if kind == "literal_error":
        near = did_you_mean(
            str(problem["input"])[:64],
            context["expected"].replace("'", "").replace(" or ", ", ").split(", "),
        )
        return f"must be {context['expected']}{near}"
    if kind in _BOUNDS:
        words, name = _BOUNDS[kind]
        return f"must be {words} {context[name]}"
    if kind == "too_short" and context["min_length"] == 1:
        return "is empty: put something there, or take the line out"
    if kind in ("too_long", "too_short"):
        name, words = (
            ("max_length", "at most") if kind == "too_long" else ("min_length", "at least")
        )
        return f"must have {words} {context[name]} item{'s' if context[name] != 1 else ''}"
    if kind == "string_too_short":
        return "must not be empty"
    if kind == "string_pattern_mismatch":
        return f"must be {_FORMS.get(context['pattern'], 'of the form ' + context['pattern'])}"
    message = problem["msg"].removeprefix("Value error, ").splitlines()[0]
    return str(message[:1].lower() + message[1:])


def _unknown(name: str, known: Sequence[str]) -> str:
    near = did_you_mean(name, known)
    listed = (
        f" (known: {', '.join(known)})" if known and not near and len(known) <= MAX_KNOWN else ""
    )
    return f"is not known{near or listed}"


def _names_at(model: type[BaseModel] | None, loc: Place) -> list[str]:
    """The names that may stand at a place of a model."""
    here: list[Any] = [model]
    for part in loc:
        here = [inner for hint in here for inner in _inside(hint, part)]
    return [
        field.alias or name
        for hint in here
        if (kind := _model_of(hint))
        for name, field in kind.model_fields.items()
    ]


def _inside(hint: Any, part: str | int) -> Iterator[Any]:
    """The types that what stands under `part` of a value may have."""
    for form in _forms(hint):
        if (kind := _model_of(form)) is not None:
            yield from (
                f.annotation for name, f in kind.model_fields.items() if (f.alias or name) == part
            )
            if part == kind.__name__:
                # the form of a union by its name
                yield form
        origin, arguments = typing.get_origin(form), typing.get_args(form)
        if origin is dict:
            yield arguments[1]
        elif origin in (tuple, list):
            yield arguments[0] if isinstance(part, int) else form


def _forms(hint: Any) -> Iterator[Any]:
    """A type, or the types of a union, without what is annotated."""
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        yield from _forms(typing.get_args(hint)[0])
    elif origin in (typing.Union, types.UnionType):
        for inner in typing.get_args(hint):
            yield from _forms(inner)
    else:
        yield hint


def _model_of(hint: Any) -> type[BaseModel] | None:
    return next((f for f in _forms(hint) if isinstance(f, type) and issubclass(f, BaseModel)), None)
