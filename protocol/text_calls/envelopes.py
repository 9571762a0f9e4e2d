"""Objects that are calls, whichever names a model or a framework has for their keys
(docs/change/protocol.md 2.2)."""

import json
import re
from typing import Any

from protocol.text_calls.words import ARGUMENTS, ARGUMENTS_IN, NAME_IN, NAMES, WRAPPERS

_SURE = frozenset(ARGUMENTS) - {"parameters", "params", "input"}
"""Keys whose value is of a call whatever it is; documents use the others, too."""
_WRITTEN = "tool_calls"
"""Stands for arguments that are within a string with calls."""
_BESIDE = frozenset((*NAMES, "input", "id", "type"))
"""All that a call of a free-form tool has."""
_IDENTIFIER = re.compile(r"[A-Za-z_][\w.:/-]{0,127}")


class CallObject(dict[str, Any]):
    """An object with its place in the order in which objects end."""

    def __init__(self, pairs: list[tuple[str, Any]], number: int) -> None:
        super().__init__(pairs)
        self.number, self.is_ambiguous = number, len(self) != len(pairs)


def call_in(
    item: CallObject, names: frozenset[str] | None, last_name: str
) -> tuple[str, str] | None:
    """Name and JSON text of the arguments, if the object is a call. `last_name` is that of one
    without a name."""
    low = {k.lower(): v for k, v in item.items()}
    inner = low.get("function")
    if isinstance(inner, CallObject) and (call := call_in(inner, names, last_name)) is not None:
        return call
    name = next((low[k].strip() for k in NAMES if isinstance(low.get(k), str)), None)
    key = next((k for k in ARGUMENTS if k in low), None)
    if key is None and (written := _calls_in_string(low)):
        # JSON within JSON
        name, key = written, _WRITTEN
    if name is None and key is not None and last_name:
        name = last_name
    if (
        name is None
        or key is None
        or not _IDENTIFIER.fullmatch(name)
        or (names is not None and name not in names)
    ):
        return None
    value = low.get(key)
    if isinstance(value, CallObject):
        if item.is_ambiguous or _is_ambiguous(value):
            return name, ""
        return name, json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and (
        value.lstrip()[:1] == "{" or key == "action_input" or not value.strip()
    ):
        return name, value if value.strip() else "{}"
    if key == "input" and isinstance(value, str) and low.keys() <= _BESIDE:
        return name, json.dumps({"input": value}, ensure_ascii=False)
    if key in _SURE or key == _WRITTEN:
        return name, ""
    return None


def _calls_in_string(low: dict[str, Any]) -> str:
    """The name of the call in a string that stands where calls do, or empty."""
    for key in WRAPPERS:
        value = low.get(key)
        if (
            isinstance(value, str)
            and ARGUMENTS_IN.search(value)
            and (name := NAME_IN.search(value))
        ):
            return name[1]
    return ""


def _is_ambiguous(value: Any) -> bool:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, CallObject):
            if item.is_ambiguous:
                return True
            stack += item.values()
        elif isinstance(item, list):
            stack += item
    return False


def doubtful_names(item: dict[str, Any]) -> list[str]:
    """The names in an object that two parsers may run as two calls: it has two names, or arguments
    under two keys. Else none."""
    names = {
        n
        for k, n in item.items()
        if k.lower() in NAMES and isinstance(n, str) and _IDENTIFIER.fullmatch(n)
    }
    arguments = [k for k, v in item.items() if k.lower() in ARGUMENTS and isinstance(v, dict | str)]
    inner = item.get("function")
    if isinstance(inner, dict) and arguments and any(k in inner for k in ARGUMENTS):
        arguments.append("function")
        names |= {
            n for k in NAMES if isinstance(n := inner.get(k), str) and _IDENTIFIER.fullmatch(n)
        }
    return sorted(names) if names and arguments and (len(names) > 1 or len(arguments) > 1) else []
