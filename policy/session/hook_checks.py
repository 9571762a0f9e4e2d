"""Checks what a hook returned: msgspec structs are not validated when they are made.

A wrong type would travel on until it breaks something that knows nothing of policies: an encoder,
or the record of other calls. Must not know: what the values mean.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from policy.base import Approval, AskJudge
from policy.scores import AuditRule, ProtocolChoice, Score
from protocol.bounds import (
    MAX_CHANGED_ITEMS,
    MAX_DIMS,
    MAX_MESSAGE_CHARS,
    MAX_MONITORS,
    MAX_NAME_CHARS,
    MAX_REASON_CHARS,
    MAX_RULES,
    MAX_WHY_CHARS,
)
from protocol.bytes.json_strict import MAX_BODY_DEPTH
from protocol.request import NOTHING, ChatRequest, Turn

_MOST_OF_VERDICT: Final[Mapping[str, int]] = {
    "reason": MAX_REASON_CHARS,
    "message": MAX_MESSAGE_CHARS,
    "detail": MAX_MESSAGE_CHARS,
    "why": MAX_WHY_CHARS,
    "rule": MAX_NAME_CHARS,
    "mark": MAX_NAME_CHARS,
}
_MOST: Final[Mapping[type, Mapping[str, int]]] = {
    ProtocolChoice: {
        "protocol": MAX_NAME_CHARS,
        "action": MAX_NAME_CHARS,
        "scores": MAX_MONITORS,
        "reason": MAX_WHY_CHARS,
    },
    Score: {
        "monitor": MAX_NAME_CHARS,
        "dims": MAX_DIMS,
        "why": MAX_WHY_CHARS,
        "error": MAX_WHY_CHARS,
    },
    AuditRule: {},
    Approval: {"approvers": MAX_RULES},
}
"""Characters or items of a field, at most; of a verdict where its type is not here."""
_NAMES = frozenset(("rule", "monitor", "mark"))
_CODES = frozenset(("protocol", "action", "error"))
"""They stay when a call is redacted: no place for text of a model or a client."""
_SHARES = frozenset(("score", "threshold", "value", "rate", "at"))
_OWN_LEVELS = 6
"""Levels of structs of ours above the JSON that they hold."""


def problem(value: msgspec.Struct) -> str:
    """Return what is wrong with a struct of ours, by its field, or an empty string; never the value
    itself, which may be a prompt."""
    wrong = _unlike_json(value) or _unlike_its_type(value) or _beyond_bounds(value)
    if not wrong and isinstance(value, AskJudge):
        deadline_s = value.question.deadline_s
        if deadline_s is not None and deadline_s <= 0:
            wrong = ".question.deadline_s is not above 0"
    return f"{type(value).__name__}{wrong}" if wrong else ""


def problem_of_change(before: ChatRequest, after: ChatRequest) -> str:
    """Return what is wrong with a request that was made of another; turns that are the very same
    are not looked at again."""
    if type(after.turns) is not tuple or any(type(turn) is not Turn for turn in after.turns):
        return "ChatRequest.turns has a wrong type"
    known = set(map(id, before.turns))
    # each by itself: a history is longer than what a hook makes up
    wrongs = (
        _unlike_json(turn) or _unlike_its_type(turn)
        for turn in after.turns
        if id(turn) not in known
    )
    if wrong := next(filter(None, wrongs), ""):
        return f"Turn{wrong}"
    return problem(msgspec.structs.replace(after, turns=()))


def _unlike_its_type(value: msgspec.Struct) -> str:
    """Are all fields of the types that they are declared with? A copy is made of them by these, and
    compared."""
    try:
        plain = msgspec.to_builtins(value, builtin_types=(msgspec.Raw,))
        copy = msgspec.convert(plain, type(value))
    except msgspec.ValidationError as error:
        # what stands before the place quotes the value
        place = str(error).rpartition(" - at `$")[2].removesuffix("`")
        return f"{place} has a wrong type"
    except TypeError:
        copy = None
    return "" if copy == value else " holds a value of a wrong type"


def _beyond_bounds(part: msgspec.Struct) -> str:
    most = _MOST.get(type(part), _MOST_OF_VERDICT)
    for name in part.__struct_fields__:
        item = getattr(part, name)
        if name in most and len(item) > most[name]:
            return f".{name} is longer than {most[name]}"
        if name in _NAMES and not item.isprintable():
            return f".{name} is not of characters that can be printed"
        is_code = name in _CODES and (item or name != "error")
        if is_code and not (item.isascii() and item.isidentifier()):
            return f".{name} is not a word of letters, digits and `_`"
        if name in _SHARES and item is not None and not 0 <= item <= 1:
            return f".{name} is not from 0 to 1"
        for inner in item if type(item) is tuple else (item,):
            # somebody's own choice goes into the record as one of ours does
            if type(inner) in _MOST and (wrong := _beyond_bounds(inner)):
                return f".{name}{wrong}"
    return ""


def _unlike_json(value: object) -> str:
    """Can an encoder take what this holds? Level by level: hooks can nest at will, or make a
    ring."""
    level: list[Any] = [value]
    count = 0
    for _ in range(MAX_BODY_DEPTH + _OWN_LEVELS):
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str and not _is_text(item):
                return " holds a lone surrogate"
            if kind is float and not math.isfinite(item):
                return " holds a number that is not finite"
            if isinstance(item, dict):
                if kind is not dict and item is not NOTHING:
                    return " holds a mapping that is not a dict"
                if not all(type(key) is str and _is_text(key) for key in item):
                    return " holds a key that is not text"
                below += item.values()
            elif kind in (list, tuple):
                below += item
            elif isinstance(item, msgspec.Struct):
                below += msgspec.structs.astuple(item)
        if not below:
            return ""
        level = below
        # one list, put twice into the next one, and that again, is 2^128 of them
        count += len(level)
        if count > MAX_CHANGED_ITEMS:
            return f" holds more than {MAX_CHANGED_ITEMS:,} items"
    return f" is nested deeper than {MAX_BODY_DEPTH}"


def _is_text(text: str) -> bool:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return False
    return True
