"""What upstream sends beyond the fields that a decoder models: found, named and left out.

The fast decoders refuse unknown fields, so the common case pays nothing; only a chunk that they refuse comes here.
"""

from typing import Any

from msgspec import Struct

_EMPTY: tuple[Any, ...] = (None, "", [], {}, False, 0)
_MAX_NAME = 60


def strip_unknown(value: Any, model: type[Struct], at: str) -> list[str]:
    """Take out of the JSON object `value` the fields that `model` lacks; returns the names of those with content."""
    if not isinstance(value, dict):
        return []
    unknown = [name for name in value if name not in model.__struct_fields__]
    return [f"{at} {name[:_MAX_NAME]}" for name in unknown if value.pop(name) not in _EMPTY]
