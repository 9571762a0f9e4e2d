"""Builds a small instance of a JSON Schema, for structured answers and tool arguments of the demo
model.

Schemas come from clients and may be infinite through references, or larger than memory. So each
value, each character of names and texts, and each schema item read costs one unit, also when it is
read again, and making stops when the budget of the answer is spent. Patterns are not run; `not`,
`if`, dependencies, anchors and ids are ignored.
"""

import json
import math
from collections.abc import Sized
from typing import Any
from urllib.parse import unquote

from protocol.bounds import DEMO_MADE_CHARS, DEMO_READ, DEMO_VALUES

_MAX_DEPTH = 50
_LOOKED_AT = 10
"""Of a list of types."""
_MERGED = ("properties", "$defs", "definitions", "required")
_TEXT = "demo"
_FORMATS = {
    "date-time": "2026-01-01T00:00:00Z",
    "date": "2026-01-01",
    "time": "00:00:00Z",
    "duration": "P1D",
    "email": "demo@example.com",
    "hostname": "example.com",
    "uri": "https://example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


_MOST = (
    f"the demo model makes at most {DEMO_VALUES} values and {DEMO_MADE_CHARS} characters for the"
    " schemas of a request"
)


class TooMuch(ValueError):
    """The schema asks for more than the demo model makes, or for what has no end."""


class _NoEnd(TooMuch):
    """This way through the schema has no end, or no instance; another alternative may have one."""


class SizeBudget:
    """What one answer may still hold."""

    def __init__(self) -> None:
        self._values, self._chars, self._read = DEMO_VALUES, DEMO_MADE_CHARS, DEMO_READ

    def take(self, values: int = 1, *, made: Any = None) -> None:
        """Use up so many values, and the characters of `made` as JSON. Raises TooMuch; ValueError
        where it is no JSON."""
        self._values -= values
        if made is not None:
            self._chars -= len(json.dumps(made, allow_nan=False))
        if self._values < 0 or self._chars < 0:
            raise TooMuch(_MOST)

    def read(self, *gone_through: Sized) -> None:
        """Use up as many items as these have. Raises TooMuch."""
        self._read -= sum(map(len, gone_through))
        if self._read < 0:
            raise TooMuch(
                f"the demo model reads at most {DEMO_READ} items of the schemas of a request"
            )


def instance(schema: Any, budget: SizeBudget) -> Any:
    """Return a value with what `schema` requires and little else. Raises TooMuch; ValueError and
    its like where it is no schema."""
    return _Maker(schema, budget).make(schema, 0)


def required(schema: dict[str, Any], known: dict[str, Any], budget: SizeBudget) -> dict[str, Any]:
    """Return the arguments `known` with what else `schema` requires of an object. Raises as
    `instance` does."""
    budget.take(made=known)
    value = _Maker(schema, budget).make(schema | {"type": "object"}, 0, known)
    return value if isinstance(value, dict) else known


class _Maker:
    """Makes values by one schema, whose references it follows."""

    def __init__(self, root: Any, budget: SizeBudget) -> None:
        self._root, self._budget = root, budget
        self._open = list[str]()
        """The references on the way to here: one that comes again would never end."""

    def make(self, schema: Any, depth: int, known: dict[str, Any] | None = None) -> Any:
        self._budget.take()
        if depth > _MAX_DEPTH or schema is False:
            raise _NoEnd("the schema is nested too deep for the demo model, or nothing fits it")
        if schema is True:
            return self._text({})
        if not isinstance(schema, dict):
            raise TypeError("no schema")
        self._budget.read(schema)
        if "allOf" in schema:
            schema = self._merged(schema)
        if "$ref" in schema:
            return self._follow(schema["$ref"], depth, known)
        for name in ("anyOf", "oneOf"):
            if schema.get(name):
                return self._first(schema, schema[name], depth, known)
        for name in ("const", "default"):
            if name in schema and known is None:
                return self._given(schema[name])
        if schema.get("enum"):
            return self._given(schema["enum"][0])
        return self._typed(schema, depth, known or {})

    def _given(self, value: Any) -> Any:
        self._budget.take(made=value)
        return value

    def _typed(self, schema: dict[str, Any], depth: int, known: dict[str, Any]) -> Any:
        match _kind(schema):
            case "object":
                return self._object(schema, depth, known)
            case "array":
                return self._array(schema, depth)
            case "string":
                return self._text(schema)
            case "integer" | "number" as kind:
                return self._given(_number(schema, is_whole=kind == "integer"))
            case "boolean":
                return True
            case _:
                return None

    def _object(self, schema: dict[str, Any], depth: int, known: dict[str, Any]) -> dict[str, Any]:
        properties, made = schema.get("properties") or {}, dict(known)
        self._budget.read(wanted := schema.get("required") or ())
        for name in wanted:
            if name not in made:
                self._budget.take(made=name)
                made[name] = self.make(properties.get(name, True), depth + 1)
        return made

    def _array(self, schema: dict[str, Any], depth: int) -> list[Any]:
        made, first = list[Any](), schema.get("prefixItems") or []
        least = int(schema.get("minItems") or 0)
        while len(made) < least:
            item = first[len(made)] if len(made) < len(first) else schema.get("items", True)
            made.append(self.make(item, depth + 1))
        return made

    def _text(self, schema: dict[str, Any]) -> str:
        least, most = int(schema.get("minLength") or 0), schema.get("maxLength")
        if least > DEMO_MADE_CHARS:
            # before it is made
            raise TooMuch(_MOST)
        form = schema.get("format")
        text = (_FORMATS.get(form) if isinstance(form, str) else None) or _TEXT.ljust(least, ".")
        return str(self._given(text if most is None else text[: max(int(most), 0)]))

    def _first(
        self,
        schema: dict[str, Any],
        alternatives: list[Any],
        depth: int,
        known: dict[str, Any] | None,
    ) -> Any:
        """The first alternative that has an end, together with what stands beside them."""
        siblings = {
            name: value
            for name, value in schema.items()
            if name not in ("anyOf", "oneOf", "default")
        }
        self._budget.take(len(siblings))
        for alternative in alternatives:
            opened = len(self._open)
            try:
                is_whole = not isinstance(alternative, dict) or not set(siblings) & {
                    *_MERGED,
                    "type",
                    "enum",
                    "const",
                }
                merged = alternative if is_whole else {"allOf": [siblings, alternative]}
                return self.make(merged, depth + 1, known)
            except _NoEnd:
                del self._open[opened:]
        raise _NoEnd("no alternative of the schema has an end")

    def _follow(self, reference: str, depth: int, known: dict[str, Any] | None) -> Any:
        schema = self._target(reference)
        self._open.append(reference)
        value = self.make(schema, depth + 1, known)
        self._open.pop()
        return value

    def _target(self, reference: str) -> Any:
        self._budget.take(made=reference)
        if reference in self._open:
            raise _NoEnd("the schema requires itself")
        if not reference.startswith("#"):
            raise ValueError("a reference to another document")
        target = self._root
        for step in reference[1:].split("/")[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            target = target[int(name)] if isinstance(target, list) else target[name]
        return target

    def _merged(self, schema: dict[str, Any]) -> dict[str, Any]:
        """One schema for `allOf`: objects and lists of the same keyword are joined, of other
        keywords the last counts."""
        made: dict[str, Any] = {}
        self._budget.read(schema, schema["allOf"])
        for part in [
            *schema["allOf"],
            {name: value for name, value in schema.items() if name != "allOf"},
        ]:
            if part is True:
                continue
            opened = len(self._open)
            while part is not False and "$ref" in part:
                target = self._target(part["$ref"])
                self._open.append(part["$ref"])
                self._budget.read(target, part)
                part = {**target, **{name: value for name, value in part.items() if name != "$ref"}}
            del self._open[opened:]
            if part is False:
                raise _NoEnd("nothing fits the schema")
            if "allOf" in part:
                part = self._merged(part)
            for name, value in part.items():
                self._budget.take(1 + (len(value) if name in _MERGED else 0))
                if name in _MERGED and name in made:
                    self._budget.read(made[name])
                    value = (
                        {**made[name], **value}
                        if isinstance(value, dict)
                        else [*made[name], *value]
                    )
                made[name] = value
        return made


def _kind(schema: dict[str, Any]) -> str:
    """The type of an instance: the first that is not null, else what other keywords speak of."""
    declared = schema.get("type")
    if isinstance(declared, list):
        declared = next((kind for kind in declared[:_LOOKED_AT] if kind != "null"), "null")
    if isinstance(declared, str):
        return declared
    if declared is not None:
        raise TypeError("no type")
    if "properties" in schema or "required" in schema:
        return "object"
    return "array" if "items" in schema or "prefixItems" in schema else "string"


def _number(schema: dict[str, Any], *, is_whole: bool) -> int | float:
    """The smallest number from 0 on that the bounds allow, else the largest below."""
    step = schema.get("multipleOf") or (1 if is_whole else 0)
    # in old drafts the exclusive ones are booleans
    above, below = (
        (None if isinstance(n, bool) else n)
        for n in (schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum"))
    )
    least = max((n for n in (schema.get("minimum"), above) if n is not None), default=None)
    most = min((n for n in (schema.get("maximum"), below) if n is not None), default=None)
    wide = step or (1 if most is None or least is None else (most - least) / 2 or 1)
    value: int | float = 0
    if least is not None and (least > 0 or least == above == 0):
        value = math.ceil(least / step) * step if step else least
        value = value + wide if value == above else value
    elif most is not None and (most < 0 or most == below == 0):
        value = math.floor(most / step) * step if step else most
        value = value - wide if value == below else value
    return int(value) if is_whole else value
