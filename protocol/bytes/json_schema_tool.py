"""The schema of a tool's arguments as providers take it: one object, without alternatives at its
top."""

import json
from typing import Any

from protocol import bounds
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

_MAX_MERGED = bounds.MAX_SCHEMA_MERGED
"""Properties looked at while alternatives are merged: references may multiply them."""


def tool_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema as an object without alternatives at its top. Raises Unsupported."""
    if not schema:
        return {"type": "object", "properties": {}}
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise Unsupported("the arguments must be an object")
    merged = (
        _Merger(schema).merge(schema, 0) if any(name in schema for name in COMBINED) else schema
    )
    return {"type": "object", **{k: v for k, v in merged.items() if k != "type"}}


class _Merger:
    """Alternatives at the top of a tool's schema as one object that takes them all; its description
    says which go together."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._definitions = definitions_of(root)
        self._budget = _MAX_MERGED

    def merge(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        """Return `schema` without alternatives at its top."""
        if depth > MAX_DEPTH:
            raise Unsupported("references go in a circle")
        result = {k: v for k, v in schema.items() if k not in COMBINED}
        for keyword in COMBINED:
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
            self._budget -= 1 + len(properties_of(variant))
            if self._budget < 0:
                raise Unsupported("oneOf, anyOf and allOf at the top are too many")
            if "$ref" not in variant:
                return variant
            variant = {k: v for k, v in variant.items() if k != "$ref"} | self._find(
                variant["$ref"]
            )
        raise Unsupported("references go in a circle")

    def _find(self, ref: Any) -> dict[str, Any]:
        value = self._definitions.get(name_in_ref(ref))
        if not isinstance(value, dict):
            raise Unsupported("a $ref must name a definition of the same schema")
        return value

    def _add(self, result: dict[str, Any], keyword: str, variants: list[dict[str, Any]]) -> None:
        together = keyword == "allOf"
        variants_by_name: dict[str, dict[bytes, Any]] = {}
        for variant in variants:
            for name, value in properties_of(variant).items():
                variants_by_name.setdefault(name, {})[
                    json.dumps(value, sort_keys=True).encode()
                ] = value
        properties = dict(properties_of(result))
        for name, different in variants_by_name.items():
            value = _joined("allOf" if together else "anyOf", list(different.values()))
            properties[name] = (
                _joined("allOf", [properties[name], value])
                if name in properties and properties[name] != value
                else value
            )
        result["properties"] = properties
        needed = [required_of(v) for v in variants]
        required = set().union(*needed) if together else set.intersection(*map(set, needed))
        if required := required | set(required_of(result)):
            result["required"] = sorted(required)
        if "additionalProperties" not in result and all(
            v.get("additionalProperties") is False for v in variants
        ):
            result["additionalProperties"] = False
        if not together:
            forms = "; ".join(f"({i}) {_form(v)}" for i, v in enumerate(variants, 1))
            how = "exactly one" if keyword == "oneOf" else "at least one"
            result["description"] = described(
                result.get("description"), f"The arguments have {how} of these forms: {forms}."
            )


def _joined(keyword: str, schemas: list[Any]) -> Any:
    return schemas[0] if len(schemas) == 1 else {keyword: schemas}


def _form(variant: dict[str, Any]) -> str:
    required = set(required_of(variant))
    parts = []
    for name, value in properties_of(variant).items():
        fixed = (
            f" = {json.dumps(value['const'])}"
            if isinstance(value, dict) and "const" in value
            else ""
        )
        parts.append(name + fixed + ("" if name in required else " (optional)"))
    parts += sorted(required - properties_of(variant).keys())
    title = variant.get("title")
    return (f"{title}: " if isinstance(title, str) else "") + (", ".join(parts) or "no properties")
