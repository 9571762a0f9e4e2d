"""What the parts of a JSON Schema hold that is made to fit a provider: its definitions, properties
and references, read strictly."""

import re
from typing import Any

from protocol import bounds

MAX_DEPTH = bounds.MAX_SCHEMA_DEPTH
_REF = re.compile(r"#/(\$defs|definitions)/([A-Za-z0-9_.\-\[\], ]+)")
COMBINED = ("allOf", "anyOf", "oneOf")


class Unsupported(ValueError):
    """The provider cannot be given this schema; the message says why."""


def name_in_ref(ref: Any) -> str:
    """Return the name of the definition that `ref` means."""
    match = _REF.fullmatch(ref) if isinstance(ref, str) else None
    if match is None:
        raise Unsupported("a $ref must name a definition of the same schema")
    return match[2]


def definitions_of(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the definitions by name. Raises Unsupported."""
    definitions: dict[str, Any] = {}
    for key in ("definitions", "$defs"):
        value = schema.get(key, {})
        if not isinstance(value, dict):
            raise Unsupported(f"{key} must be an object")
        if definitions.keys() & value.keys():
            raise Unsupported("a definition has two places")
        definitions |= value
    return definitions


def properties_of(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the properties by name. Raises Unsupported."""
    value = schema.get("properties", {})
    if not isinstance(value, dict):
        raise Unsupported("properties must be an object")
    return value


def required_of(schema: dict[str, Any]) -> list[str]:
    """Return the names of required properties. Raises Unsupported."""
    value = schema.get("required", [])
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise Unsupported("required must be a list of names")
    return value


def described(description: Any, more: str) -> str:
    """Return a description with `more` behind it."""
    return f"{description}\n\n{more}" if isinstance(description, str) and description else more
