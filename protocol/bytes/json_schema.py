"""JSON Schemas of tools and answers made to fit what a provider takes (docs/change/protocol.md
1.2).

Cleaning changes what the model sees, never what is checked: arguments and answers are validated
against the client's own schema. Nothing here changes its input. Linear in the schema's size; deeper
than MAX_DEPTH is refused.
"""

import json
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Any, Literal

from protocol.bytes.json_schema_parts import (
    COMBINED,
    MAX_DEPTH,
    Unsupported,
    definitions_of,
    described,
    name_in_ref,
    properties_of,
    required_of,
)
from protocol.bytes.json_schema_tool import tool_schema

__all__ = ["MAX_DEPTH", "SchemaTarget", "Unsupported", "clean"]
SchemaTarget = Literal["anthropic_tool", "anthropic_output", "openai_tool", "openai_strict"]

_SILENT = frozenset(
    "$schema $id $anchor $comment title deprecated readOnly writeOnly discriminator $defs"
    " definitions".split()
)
"""Annotations without a meaning for the answer. Definitions are written where they are used, at the
root."""
_STRUCTURE = frozenset("type properties required additionalProperties items enum const".split())
_FORMATS = frozenset("date-time time date duration email hostname uri ipv4 ipv6 uuid".split())
_SIMPLE_PATTERN = re.compile(r"(?:[^\\(]|\\[dDwWsSnrt.\-+*?^$|()\[\]{}/\\]|\((?!\?)|\(\?:)*")
_LAZY = re.compile(r"[*+?}][?+]")
_NOT_STRICT = frozenset(
    "allOf oneOf not if then else dependentRequired dependentSchemas dependencies patternProperties"
    " propertyNames prefixItems contains minContains maxContains uniqueItems unevaluatedProperties"
    " unevaluatedItems minProperties maxProperties".split()
)
"""Keywords that OpenAI's strict mode refuses (Structured outputs, supported schemas)."""


def clean(schema: dict[str, Any], target: SchemaTarget) -> dict[str, Any]:
    """Return `schema` as `target` takes it. Raises Unsupported.

    anthropic_tool, openai_tool: an object at the top, alternatives there merged into one object.
    anthropic_output: the subset that output_config.format and strict tools compile; what is no part
    of it becomes text in the description. openai_strict: unchanged but for annotations, refused if
    strict mode would refuse it.
    """
    if target in ("anthropic_tool", "openai_tool"):
        return tool_schema(schema)
    if target == "anthropic_output":
        return _Output(schema).clean()
    return _strict(schema, 0, root=True)


class _Output:
    """One schema in the subset that the Messages API compiles."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._definitions = definitions_of(root)
        self._uses: set[str] = set()

    def clean(self) -> dict[str, Any]:
        """Return the root with the definitions that it uses."""
        result = self._walk(self._root, 0)
        written: dict[str, Any] = {}
        edges: dict[str, set[str]] = {}
        waiting = list(self._uses)
        while waiting:
            name = waiting.pop()
            if name not in written:
                self._uses = set()
                written[name] = self._walk(self._definitions.get(name), 0)
                edges[name] = self._uses
                waiting += self._uses
        if not written:
            return result
        try:
            TopologicalSorter(edges).prepare()
        except CycleError as error:
            raise Unsupported("it is recursive") from error
        return result | {"$defs": {name: written[name] for name in sorted(written)}}

    def _walk(self, schema: Any, depth: int) -> dict[str, Any]:
        if not isinstance(schema, dict):
            raise Unsupported("every schema in it must be an object")
        if depth > MAX_DEPTH:
            raise Unsupported(f"it is nested deeper than {MAX_DEPTH}")
        remaining = {k: v for k, v in schema.items() if k not in _SILENT and not k.startswith("x-")}
        description = remaining.pop("description", None)
        result = self._core(remaining, depth)
        if "default" in remaining and "$ref" not in result:
            result["default"] = remaining.pop("default")
        if remaining:
            description = described(
                description, ", ".join(f"{k}: {_text(v)}" for k, v in remaining.items())
            )
        if isinstance(description, str) and description:
            # beside a $ref nothing else is read
            result = {"anyOf": [result]} if "$ref" in result else result
            result["description"] = (
                described(result.get("description"), description)
                if "description" in result
                else description
            )
        return result

    def _core(self, remaining: dict[str, Any], depth: int) -> dict[str, Any]:
        """Take the supported keywords out of `remaining`, written for the provider."""
        if "$ref" in remaining:
            name = name_in_ref(remaining.pop("$ref"))
            self._uses.add(name)
            return {"$ref": f"#/$defs/{name}"}
        combined = [name for name in COMBINED if name in remaining]
        if combined:
            if len(combined) > 1 or remaining.keys() & _STRUCTURE:
                raise Unsupported(f"{combined[0]} has other keywords beside it")
            variants = remaining.pop(combined[0])
            if (
                not isinstance(variants, list)
                or not variants
                or (combined[0] == "allOf" and len(variants) > 1)
            ):
                raise Unsupported(
                    f"{combined[0]} must be a list"
                    if combined[0] != "allOf"
                    else "allOf has several parts"
                )
            walked = [self._walk(v, depth + 1) for v in variants]
            return walked[0] if combined[0] == "allOf" else {"anyOf": walked}
        return self._typed(remaining, depth)

    def _typed(self, remaining: dict[str, Any], depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for name in ("enum", "const"):
            if name in remaining:
                values = remaining[name] if name == "enum" else [remaining[name]]
                if (
                    not isinstance(values, list)
                    or not values
                    or not all(_is_plain(v) for v in values)
                ):
                    raise Unsupported(f"{name} must be of plain values")
                result[name] = remaining.pop(name)
        kind = remaining.pop("type", "object" if "properties" in remaining else None)
        kinds = kind if isinstance(kind, list) else [kind]
        if kind is not None:
            result["type"] = kind
        elif not result:
            raise Unsupported("a schema in it says no type")
        if "object" in kinds:
            result |= self._object(remaining, depth)
        if "array" in kinds:
            result |= self._array(remaining, depth)
        if remaining.get("format") in _FORMATS:
            result["format"] = remaining.pop("format")
        pattern = remaining.get("pattern")
        if (
            isinstance(pattern, str)
            and _SIMPLE_PATTERN.fullmatch(pattern)
            and not _LAZY.search(pattern)
        ):
            result["pattern"] = remaining.pop("pattern")
        return result

    def _object(self, remaining: dict[str, Any], depth: int) -> dict[str, Any]:
        properties, required = properties_of(remaining), required_of(remaining)
        closed = remaining.get("additionalProperties", False if properties else None) is False
        if not closed or remaining.get("patternProperties"):
            raise Unsupported("it has an open object")
        if not set(required) <= properties.keys():
            raise Unsupported("it requires a property that it does not describe")
        for name in ("properties", "required", "additionalProperties", "patternProperties"):
            remaining.pop(name, None)
        walked = {k: self._walk(v, depth + 1) for k, v in properties.items()}
        return {
            "properties": walked,
            **({"required": required} if required else {}),
            "additionalProperties": False,
        }

    def _array(self, remaining: dict[str, Any], depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {"items": self._walk(remaining.pop("items", None), depth + 1)}
        least = remaining.get("minItems")
        if least in (0, 1):
            result["minItems"] = remaining.pop("minItems")
        elif least is not None:
            result["minItems"] = 1
        return result


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float, bool))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _strict(schema: Any, depth: int, *, root: bool = False) -> dict[str, Any]:
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        raise Unsupported("every schema in it must be an object, and none too deep")
    if refused := sorted(schema.keys() & _NOT_STRICT):
        raise Unsupported(f"strict mode has no {refused[0]}")
    if root and schema.get("type") != "object":
        raise Unsupported("it must be an object")
    result = {k: v for k, v in schema.items() if k not in ("$schema", "$id", "$comment", "default")}
    kind = schema.get("type")
    if "properties" in schema or kind == "object" or (isinstance(kind, list) and "object" in kind):
        properties = properties_of(schema)
        if (
            schema.get("additionalProperties") is not False
            or set(required_of(schema)) != properties.keys()
        ):
            raise Unsupported("every object must be closed and require all of its properties")
        result["properties"] = {k: _strict(v, depth + 1) for k, v in properties.items()}
    for key in ("$defs", "definitions"):
        if key in schema:
            result[key] = {
                k: _strict(v, depth + 1) for k, v in definitions_of({key: schema[key]}).items()
            }
    if "items" in schema:
        result["items"] = _strict(schema["items"], depth + 1)
    if "anyOf" in schema:
        result["anyOf"] = [_strict(v, depth + 1) for v in _list(schema["anyOf"])]
    return result


def _list(value: Any) -> Iterator[Any]:
    if not isinstance(value, list):
        raise Unsupported("anyOf must be a list")
    return iter(value)
