"""What upstream sends beyond the fields that a decoder models: found, named and left out.

The fast decoders refuse unknown fields, so the common case pays nothing; only a chunk that they
refuse comes here.
"""

from typing import Any

from msgspec import Struct

_EMPTY: tuple[Any, ...] = (None, "", [], {}, False, 0)
_MAX_NAME = 60

Unknown = dict[str, dict[str, Any]]
"""Unmodelled fields with content: where they were ("message field", ...), then name and value."""


class WireStruct(Struct, gc=False, forbid_unknown_fields=True):
    """A JSON object of an upstream's answer: a field that nobody listed is an error. It can be in
    no cycle, so the collector does not look at it."""


def named(at: str, name: str) -> str:
    """Return what `Opaque.what` and the setting `unknown` call the field `name`: where it was and
    its name, shortened."""
    return f"{at} {name[:_MAX_NAME]}"


def take_unknown(value: Any, model: type[Struct]) -> dict[str, Any]:
    """Take out of the JSON object `value` the fields that `model` lacks; returns those with
    content."""
    if not isinstance(value, dict):
        return {}
    unknown = [name for name in value if name not in model.__struct_fields__]
    return {name: content for name in unknown if (content := value.pop(name)) not in _EMPTY}


def split_unknown(unknown_fields: Unknown, allowed: frozenset[str]) -> tuple[Unknown, list[str]]:
    """Split unknown fields into those that the setting `unknown` (`allowed`) lets pass and the
    names of the others."""
    passed: Unknown = {}
    withheld: list[str] = []
    for at, fields in unknown_fields.items():
        for name, value in fields.items():
            if named(at, name) in allowed:
                passed.setdefault(at, {})[name] = value
            else:
                withheld.append(named(at, name))
    return passed, withheld
