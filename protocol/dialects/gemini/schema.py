"""JSON Schemas as the subset of OpenAPI that older Gemini models take (`parameters`,
`responseSchema`).

Cleaning changes what the model sees, never what is checked: arguments and answers are validated
against the client's own schema. What the subset cannot say becomes looser or is left out.
Definitions are written where they are used; one that uses itself is refused.
"""

from typing import Any

from protocol.bounds import MAX_SCHEMA_DEPTH, MAX_SCHEMA_EXPANSION
from protocol.bytes.json_schema_parts import Unsupported
from protocol.bytes.json_strict import dumps

_WORDS = ("description", "title", "format", "pattern")
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_NUMBERS = ("minimum", "maximum")
"""What is copied where it is a string, a whole number, or any number."""
_FORMATS = {
    "number": ("float", "double"),
    "integer": ("int32", "int64"),
    "string": ("enum", "date-time"),
}
"""The only formats that the API takes."""
_TYPES = frozenset(("string", "number", "integer", "boolean", "array", "object"))


def openapi(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema of a call's arguments; None where it describes no property, which the API
    refuses. Raises Unsupported."""
    written = _Writer(schema).write(schema, 0, ())
    if written.get("type") != "OBJECT":
        raise Unsupported("the arguments must be an object")
    return written if written.get("properties") else None


def answer(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an answer. Raises Unsupported."""
    return _Writer(schema).write(schema, 0, ())


class _Writer:
    def __init__(self, root: dict[str, Any]) -> None:
        self._root, self._left = root, MAX_SCHEMA_EXPANSION

    def write(self, schema: Any, depth: int, uses: tuple[str, ...]) -> dict[str, Any]:
        """Return one schema; `uses` are the definitions that it is inside of."""
        self._left -= 1
        if depth > MAX_SCHEMA_DEPTH or self._left < 0:
            raise Unsupported("it is too deep or too large when its references are written out")
        if schema is True:
            return {}
        if not isinstance(schema, dict):
            raise Unsupported("every schema in it must be an object")
        if "$ref" in schema:
            name, target = self._find(schema["$ref"])
            if name in uses:
                raise Unsupported("it is recursive")
            siblings = {k: v for k, v in schema.items() if k != "$ref"}
            return self.write({**target, **siblings}, depth + 1, (*uses, name))
        if "allOf" in schema:
            return self.write(self._merged(schema), depth + 1, uses)
        for word in ("anyOf", "oneOf"):
            if word in schema:
                return self._alternatives(schema, word, depth, uses)
        return self._typed(schema, depth, uses)

    def _find(self, ref: Any) -> tuple[str, dict[str, Any]]:
        if not isinstance(ref, str) or not ref.startswith("#"):
            raise Unsupported("a $ref must name a definition of the same schema")
        node: Any = self._root
        for step in ref[1:].split("/")[1:]:
            node = (
                node.get(step.replace("~1", "/").replace("~0", "~"))
                if isinstance(node, dict)
                else None
            )
        if not isinstance(node, dict):
            raise Unsupported("a $ref must name a definition of the same schema")
        return ref, node

    def _merged(self, schema: dict[str, Any]) -> dict[str, Any]:
        merged = {k: v for k, v in schema.items() if k != "allOf"}
        parts = schema["allOf"]
        if not isinstance(parts, list):
            raise Unsupported("allOf must be a list")
        for part in parts:
            for _ in range(MAX_SCHEMA_DEPTH):
                if not isinstance(part, dict) or "$ref" not in part:
                    break
                part = {
                    **self._find(part["$ref"])[1],
                    **{k: v for k, v in part.items() if k != "$ref"},
                }
            if not isinstance(part, dict) or "$ref" in part:
                raise Unsupported("allOf must be of objects")
            self._left -= 1 + len(part)
            if self._left < 0:
                raise Unsupported("allOf is too large")
            for name, value in part.items():
                if name == "properties" and isinstance(value, dict):
                    merged[name] = {**merged.get(name, {}), **value}
                elif name == "required" and isinstance(value, list):
                    merged[name] = [*merged.get(name, []), *value]
                elif name == "allOf":
                    merged[name] = [
                        *merged.get(name, []),
                        *(value if isinstance(value, list) else []),
                    ]
                else:
                    merged.setdefault(name, value)
        return merged

    def _alternatives(
        self, schema: dict[str, Any], word: str, depth: int, uses: tuple[str, ...]
    ) -> dict[str, Any]:
        variants = schema[word]
        if not isinstance(variants, list) or not variants:
            raise Unsupported(f"{word} must be a list")
        siblings = {k: v for k, v in schema.items() if k not in ("anyOf", "oneOf")}
        non_null = [v for v in variants if not (isinstance(v, dict) and v.get("type") == "null")]
        described = {k: v for k, v in siblings.items() if k in ("description", "title")}
        nullable = {"nullable": True} if len(non_null) < len(variants) else {}
        written = [self.write(v, depth + 1, uses) for v in non_null]
        if siblings.keys() & {"type", "properties", "items", "enum", "const"}:
            # the subset has no both: what stands beside the alternatives is looser than they are
            return self._typed(siblings, depth, uses) | nullable
        if len(written) == 1:
            return written[0] | described | nullable
        return ({"anyOf": written} if written else {}) | described | nullable

    def _typed(self, schema: dict[str, Any], depth: int, uses: tuple[str, ...]) -> dict[str, Any]:
        kind, written = schema.get("type"), _copied(schema)
        if isinstance(kind, list):
            kinds = [k for k in kind if k != "null"]
            nullable = {"nullable": True} if len(kinds) < len(kind) else {}
            if len(kinds) != 1:
                base = {k: v for k, v in schema.items() if k not in ("description", "title")}
                several = [
                    self.write({**base, "type": type_name}, depth + 1, uses) for type_name in kinds
                ]
                about = {k: v for k, v in written.items() if k in ("description", "title")}
                return about | {"anyOf": several} | nullable
            return self.write({**schema, "type": kinds[0]}, depth + 1, uses) | nullable
        if kind is None:
            kind = "object" if "properties" in schema else "array" if "items" in schema else None
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(values, list) and values:
            return _listed(values, written)
        if kind not in (None, *_TYPES):
            raise Unsupported(f"it has the type {str(kind)[:40]!r}")
        if written.get("format") not in _FORMATS.get(str(kind), ()):
            written.pop("format", None)
        if kind == "object":
            written |= self._object(schema, depth, uses)
        if kind == "array":
            items = schema.get("items", {})
            written["items"] = self.write(items, depth + 1, uses) or {"type": "STRING"}
        return ({"type": kind.upper()} if kind else {}) | written

    def _object(self, schema: dict[str, Any], depth: int, uses: tuple[str, ...]) -> dict[str, Any]:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if not isinstance(properties, dict) or not isinstance(required, list):
            raise Unsupported("properties must be an object and required a list")
        if not properties:
            return {}
        walked = {name: self.write(value, depth + 1, uses) for name, value in properties.items()}
        needed = [name for name in dict.fromkeys(map(str, required)) if name in properties]
        return {"properties": walked} | ({"required": needed} if needed else {})


def _copied(schema: dict[str, Any]) -> dict[str, Any]:
    keywords = {n: schema[n] for n in _WORDS if isinstance(schema.get(n), str)}
    keywords |= {n: schema[n] for n in _COUNTS if type(schema.get(n)) is int}
    return keywords | {n: schema[n] for n in _NUMBERS if type(schema.get(n)) in (int, float)}


def _listed(values: list[Any], written: dict[str, Any]) -> dict[str, Any]:
    """Values of a list: the subset knows strings alone."""
    about = {k: v for k, v in written.items() if k in ("description", "title")}
    words = [v if isinstance(v, str) else dumps(v).decode() for v in values if v is not None]
    nullable = {"nullable": True} if len(words) < len(values) else {}
    return about | {"type": "STRING", "format": "enum", "enum": words} | nullable
