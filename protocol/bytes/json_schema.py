"""JSON Schemas of tools and answers made to fit what a provider takes (docs/change/protocol.md
1.2).

Cleaning changes what the model sees, never what is checked: arguments and answers are validated
against the client's own schema. Nothing here changes its input. Linear in the schema's size; deeper
than MAX_DEPTH is refused.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Literal

from protocol import bounds

SchemaTarget = Literal["anthropic_tool", "anthropic_output", "openai_tool", "openai_strict"]
MAX_DEPTH = bounds.MAX_SCHEMA_DEPTH
_MAX_MERGED = bounds.MAX_SCHEMA_MERGED
"""Properties looked at while alternatives are merged: references may multiply them."""

_COMBINED = ("allOf", "anyOf", "oneOf")
_SILENT = frozenset(
    (
        "$schema",
        "$id",
        "$anchor",
        "$comment",
        "title",
        "deprecated",
        "readOnly",
        "writeOnly",
        "discriminator",
        "$defs",
        "definitions",
    )
)
"""Annotations without a meaning for the answer. Definitions are written where they are used, at the
root."""
_STRUCTURE = frozenset(
    ("type", "properties", "required", "additionalProperties", "items", "enum", "const")
)
_FORMATS = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid")
)
_SIMPLE_PATTERN = re.compile(r"(?:[^\\(]|\\[dDwWsSnrt.\-+*?^$|()\[\]{}/\\]|\((?!\?)|\(\?:)*")
_LAZY = re.compile(r"[*+?}][?+]")
_REF = re.compile(r"#/(\$defs|definitions)/([A-Za-z0-9_.\-\[\], ]+)")
_NOT_STRICT = frozenset(
    "allOf oneOf not if then else dependentRequired dependentSchemas dependencies patternProperties"
    " propertyNames prefixItems contains minContains maxContains uniqueItems unevaluatedProperties"
    " unevaluatedItems minProperties maxProperties".split()
)
"""Keywords that OpenAI's strict mode refuses (Structured outputs, supported schemas)."""


class Unsupported(ValueError):
    """The provider cannot be given this schema; the message says why."""


def clean(schema: dict[str, Any], target: SchemaTarget) -> dict[str, Any]:
    """Return `schema` as `target` takes it. Raises Unsupported.

    anthropic_tool, openai_tool: an object at the top, alternatives there merged into one object.
    anthropic_output: the subset that output_config.format and strict tools compile; what is no part
    of it becomes text in the description. openai_strict: unchanged but for annotations, refused if
    strict mode would refuse it.
    """
    if target in ("anthropic_tool", "openai_tool"):
        return _tool(schema)
    if target == "anthropic_output":
        return _Output(schema).clean()
    return _strict(schema, 0, root=True)


def _tool(schema: dict[str, Any]) -> dict[str, Any]:
    if not schema:
        return {"type": "object", "properties": {}}
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise Unsupported("the arguments must be an object")
    merged = (
        _Merger(schema).merge(schema, 0) if any(name in schema for name in _COMBINED) else schema
    )
    return {"type": "object", **{k: v for k, v in merged.items() if k != "type"}}


def _split_ref(ref: Any) -> str:
    """Return the name of the definition that `ref` means."""
    match = _REF.fullmatch(ref) if isinstance(ref, str) else None
    if match is None:
        raise Unsupported("a $ref must name a definition of the same schema")
    return match[2]


def _definitions(schema: dict[str, Any]) -> dict[str, Any]:
    definitions: dict[str, Any] = {}
    for key in ("definitions", "$defs"):
        value = schema.get(key, {})
        if not isinstance(value, dict):
            raise Unsupported(f"{key} must be an object")
        if definitions.keys() & value.keys():
            raise Unsupported("a definition has two places")
        definitions |= value
    return definitions


class _Merger:
    """Alternatives at the top of a tool's schema as one object that takes them all; its description
    says which go together."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._definitions = _definitions(root)
        self._budget = _MAX_MERGED

    def merge(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        """Return `schema` without alternatives at its top."""
        if depth > MAX_DEPTH:
            raise Unsupported("references go in a circle")
        result = {k: v for k, v in schema.items() if k not in _COMBINED}
        for keyword in _COMBINED:
            if keyword in schema:
                self._add(result, keyword, self._variants(schema[keyword], depth))
        return result

    def _variants(self, variants: Any, depth: int) -> list[dict[str, Any]]:
        if not isinstance(variants, list) or not variants:
            raise Unsupported("oneOf, anyOf and allOf must be lists")
        return [self.merge(self._resolve(v), depth + 1) for v in variants]

    def _resolve(self, variant: Any) -> dict[str, Any]:
        for _ in range(MAX_DEPTH):
            if not isinstance(variant, dict) or variant.get("type", "object") != "object":
                raise Unsupported("oneOf, anyOf and allOf at the top must be of objects")
            self._budget -= 1 + len(_properties(variant))
            if self._budget < 0:
                raise Unsupported("oneOf, anyOf and allOf at the top are too many")
            if "$ref" not in variant:
                return variant
            variant = {k: v for k, v in variant.items() if k != "$ref"} | self._find(
                variant["$ref"]
            )
        raise Unsupported("references go in a circle")

    def _find(self, ref: Any) -> dict[str, Any]:
        value = self._definitions.get(_split_ref(ref))
        if not isinstance(value, dict):
            raise Unsupported("a $ref must name a definition of the same schema")
        return value

    def _add(self, result: dict[str, Any], keyword: str, variants: list[dict[str, Any]]) -> None:
        together = keyword == "allOf"
        variants_by_name: dict[str, dict[bytes, Any]] = {}
        for variant in variants:
            for name, value in _properties(variant).items():
                variants_by_name.setdefault(name, {})[
                    json.dumps(value, sort_keys=True).encode()
                ] = value
        properties = dict(_properties(result))
        for name, different in variants_by_name.items():
            value = _joined("allOf" if together else "anyOf", list(different.values()))
            properties[name] = (
                _joined("allOf", [properties[name], value])
                if name in properties and properties[name] != value
                else value
            )
        result["properties"] = properties
        needed = [_required(v) for v in variants]
        required = set().union(*needed) if together else set.intersection(*map(set, needed))
        if required := required | set(_required(result)):
            result["required"] = sorted(required)
        if "additionalProperties" not in result and all(
            v.get("additionalProperties") is False for v in variants
        ):
            result["additionalProperties"] = False
        if not together:
            forms = "; ".join(f"({i}) {_form(v)}" for i, v in enumerate(variants, 1))
            how = "exactly one" if keyword == "oneOf" else "at least one"
            result["description"] = _described(
                result.get("description"), f"The arguments have {how} of these forms: {forms}."
            )


def _joined(keyword: str, schemas: list[Any]) -> Any:
    return schemas[0] if len(schemas) == 1 else {keyword: schemas}


def _properties(schema: dict[str, Any]) -> dict[str, Any]:
    value = schema.get("properties", {})
    if not isinstance(value, dict):
        raise Unsupported("properties must be an object")
    return value


def _required(schema: dict[str, Any]) -> list[str]:
    value = schema.get("required", [])
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise Unsupported("required must be a list of names")
    return value


def _form(variant: dict[str, Any]) -> str:
    required = set(_required(variant))
    parts = []
    for name, value in _properties(variant).items():
        fixed = (
            f" = {json.dumps(value['const'])}"
            if isinstance(value, dict) and "const" in value
            else ""
        )
        parts.append(name + fixed + ("" if name in required else " (optional)"))
    parts += sorted(required - _properties(variant).keys())
    title = variant.get("title")
    return (f"{title}: " if isinstance(title, str) else "") + (", ".join(parts) or "no properties")


def _described(description: Any, more: str) -> str:
    return f"{description}\n\n{more}" if isinstance(description, str) and description else more


class _Output:
    """One schema in the subset that the Messages API compiles."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._definitions = _definitions(root)
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
        if _has_circle(edges):
            raise Unsupported("it is recursive")
        return result | {"$defs": {k: written[k] for k in sorted(written)}} if written else result

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
            description = _described(
                description, ", ".join(f"{k}: {_text(v)}" for k, v in remaining.items())
            )
        if isinstance(description, str) and description:
            # beside a $ref nothing else is read
            result = {"anyOf": [result]} if "$ref" in result else result
            result["description"] = (
                _described(result.get("description"), description)
                if "description" in result
                else description
            )
        return result

    def _core(self, remaining: dict[str, Any], depth: int) -> dict[str, Any]:
        """Take the supported keywords out of `remaining`, written for the provider."""
        if "$ref" in remaining:
            name = _split_ref(remaining.pop("$ref"))
            self._uses.add(name)
            return {"$ref": f"#/$defs/{name}"}
        combined = [name for name in _COMBINED if name in remaining]
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
        properties, required = _properties(remaining), _required(remaining)
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


def _has_circle(edges: dict[str, set[str]]) -> bool:
    """Does any definition use itself? Those that use nothing are taken away until none is left."""
    users: dict[str, list[str]] = {name: [] for name in edges}
    for name, used in edges.items():
        for other in used:
            users[other].append(name)
    open_uses = {name: len(used) for name, used in edges.items()}
    ready = [name for name, count in open_uses.items() if not count]
    done = 0
    while ready:
        done += 1
        for user in users[ready.pop()]:
            open_uses[user] -= 1
            if not open_uses[user]:
                ready.append(user)
    return done < len(edges)


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
        properties = _properties(schema)
        if (
            schema.get("additionalProperties") is not False
            or set(_required(schema)) != properties.keys()
        ):
            raise Unsupported("every object must be closed and require all of its properties")
        result["properties"] = {k: _strict(v, depth + 1) for k, v in properties.items()}
    for key in ("$defs", "definitions"):
        if key in schema:
            result[key] = {
                k: _strict(v, depth + 1) for k, v in _definitions({key: schema[key]}).items()
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
