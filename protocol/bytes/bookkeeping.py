"""Limits a dialect's bookkeeping (usage, container, ...) to numbers and words before it passes the
policies: never prose.

These objects go to clients of the same dialect without being judged. A provider that put a model's
text there would bypass every policy, so everything that is not plainly a count, a name or a time is
withheld.
"""

import re
from math import isfinite
from typing import Any

from protocol import bounds

_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
# ids, models, tiers, paths like messages.1.content.0, times; no blank and no "//", so neither a
# sentence nor an address
_WORD = re.compile(r"(?!.*//)[A-Za-z0-9_][A-Za-z0-9_.:/@+=-]{0,127}")
_MAX_DEPTH = bounds.MAX_EXTRA_DEPTH
_MAX_VALUES = bounds.MAX_EXTRA_VALUES
_MAX_CHARACTERS = bounds.MAX_EXTRA_CHARS
_MAX_INT = 1 << 63
_MAX_NAME = 60


def is_tame(value: Any) -> bool:
    """Is the JSON `value` only numbers, booleans, nulls and short words, at bounded depth and size?
    Linear in that size."""
    level, values, characters = [value], 0, 0
    for _ in range(_MAX_DEPTH):
        values += len(level)
        if values > _MAX_VALUES:
            return False
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str:
                characters += len(item)
                if item and (len(item) > _MAX_CHARACTERS or not _WORD.fullmatch(item)):
                    return False
            elif kind is dict:
                characters += sum(map(len, item))
                if not all(map(_KEY.fullmatch, item)):
                    return False
                below += item.values()
            elif kind is list:
                below += item
            elif not _is_plain(item):
                return False
        if characters > _MAX_CHARACTERS:
            return False
        if not below:
            return True
        level = below
    return False


def _is_plain(item: Any) -> bool:
    if isinstance(item, float):
        return isfinite(item)
    return item is None or (isinstance(item, int) and -_MAX_INT <= item < _MAX_INT)


def tame_fields(
    holder: dict[str, Any], at: str, unknown: frozenset[str] = frozenset()
) -> tuple[dict[str, Any], list[str]]:
    """Split a JSON object: what of it may pass, and the names of the rest: `at` and the key, as
    `Opaque.what` has them.

    What `unknown` names passes as it is. When there is too much of the rest, none of it passes and
    its name is `at`.
    """
    named = {key: value for key, value in holder.items() if _name(at, key) in unknown}
    tame = {
        key: value for key, value in holder.items() if key not in named and is_tame({key: value})
    }
    withheld = [_name(at, key) for key in holder if key not in named and key not in tame]
    if len(withheld) > _MAX_VALUES or not is_tame(tame):
        return named, [at]
    return {key: value for key, value in holder.items() if key in named or key in tame}, withheld


def _name(at: str, key: str) -> str:
    return f"{at} {key[:_MAX_NAME]}"
