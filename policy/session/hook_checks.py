"""Checks the types in what a hook returned: msgspec structs are not validated when they are made.

A wrong type would travel on until it breaks something that knows nothing of policies: an encoder,
or the record of other calls. Must not know: what the values mean.
"""

import functools
import math
import types
import typing
from collections.abc import Callable
from typing import Any

import msgspec

from policy.base import Allow, Ask, AskJudge, Block, Defer, Replace
from policy.scores import ProtocolChoice
from protocol.bounds import (
    MAX_CHANGED_ITEMS,
    MAX_DIMS,
    MAX_MESSAGE_CHARS,
    MAX_MONITORS,
    MAX_NAME_CHARS,
    MAX_REASON_CHARS,
    MAX_WHY_CHARS,
)
from protocol.bytes.json_strict import MAX_BODY_DEPTH
from protocol.request import NOTHING, ChatRequest

_Check = Callable[[Any], str]
"""Returns what is wrong, or an empty string; never the value itself, which may be a prompt."""


def problem(value: msgspec.Struct) -> str:
    """Return what is wrong with a struct of ours, field by field, or an empty string."""
    wrong = _struct(type(value))(value)
    if wrong:
        return f"{type(value).__name__}{wrong}"
    match value:
        case Block() if len(value.detail) > MAX_MESSAGE_CHARS:
            return f"Block: a detail has at most {MAX_MESSAGE_CHARS} characters"
        case Block() | Ask() if (
            len(value.reason) > MAX_REASON_CHARS
            or len(value.message) > MAX_MESSAGE_CHARS
            or len(value.why) > MAX_WHY_CHARS
        ):
            return (
                f"{type(value).__name__}: a reason has at most {MAX_REASON_CHARS} characters, a"
                f" message {MAX_MESSAGE_CHARS}, `why` {MAX_WHY_CHARS}"
            )
        case Ask() if len(value.mark) > MAX_NAME_CHARS or not f"{value.mark}0".isalnum():
            return f"Ask: a mark has at most {MAX_NAME_CHARS} letters and digits"
        case Block() | Replace() | Defer() | Ask() if (
            len(value.rule) > MAX_NAME_CHARS or not value.rule.isprintable()
        ):
            return (
                f"{type(value).__name__}: a rule's name is at most {MAX_NAME_CHARS} characters that"
                " can be printed"
            )
        case Replace() | Defer() if len(value.reason) > MAX_REASON_CHARS:
            return f"{type(value).__name__}: a reason has at most {MAX_REASON_CHARS} characters"
        case Allow() | Block() | Replace() | Defer() | Ask() if value.choice is not None and (
            wrong := _problem_of_choice(value.choice)
        ):
            return f"{type(value).__name__}.choice{wrong}"
        case AskJudge() if value.question.deadline_s is not None and value.question.deadline_s <= 0:
            return "AskJudge.question.deadline_s is not above 0"
    return ""


def _problem_of_choice(choice: ProtocolChoice) -> str:
    """A choice of somebody's own goes into the record as one of ours does: it is bounded, and its
    numbers are shares."""
    if len(choice.scores) > MAX_MONITORS:
        return f" has more than {MAX_MONITORS} scores"
    numbers = [choice.score, choice.threshold, *(score.value for score in choice.scores)]
    if choice.audit is not None:
        numbers += [choice.audit.rate, choice.audit.at]
    if not all(number is None or 0 <= number <= 1 for number in numbers):
        return " has a score, threshold or rate that is not from 0 to 1"
    names = [choice.protocol, choice.action, *(score.monitor for score in choice.scores)]
    if any(len(name) > MAX_NAME_CHARS or not name.isprintable() for name in names):
        return f": names are at most {MAX_NAME_CHARS} characters that can be printed"
    # they stay when a call is redacted: no place for text of a model or a client
    codes = [
        choice.protocol,
        choice.action,
        *(score.error for score in choice.scores if score.error),
    ]
    if not all(code.isascii() and code.isidentifier() for code in codes):
        return ": protocol, action and errors are words of letters, digits and `_`"
    words = [
        choice.reason,
        *(text for score in choice.scores for text in (score.why, score.error, *score.dims)),
    ]
    if max(map(len, words)) > MAX_WHY_CHARS or any(
        len(score.dims) > MAX_DIMS for score in choice.scores
    ):
        return f": words have at most {MAX_WHY_CHARS} characters, and a score {MAX_DIMS} dimensions"
    return ""


def problem_of_change(before: ChatRequest, after: ChatRequest) -> str:
    """Return what is wrong with a request that was made of another; turns that are the very same
    are not looked at again."""
    if type(after.turns) is tuple:
        known = set(map(id, before.turns))
        after = msgspec.structs.replace(
            after, turns=tuple(t for t in after.turns if id(t) not in known)
        )
    return problem(after)


@functools.cache
def _struct(kind: type[msgspec.Struct]) -> _Check:
    # by name and not at once: structs may hold each other
    hints = typing.get_type_hints(kind)
    checks: list[tuple[str, _Check]] = [
        (name, _check(hints[name])) for name in kind.__struct_fields__
    ]

    def check(value: Any) -> str:
        if type(value) is not kind:
            return f" is not a {kind.__name__}"
        for name, field in checks:
            if wrong := field(getattr(value, name)):
                return f".{name}{wrong}"
        return ""

    return check


def _check(hint: Any) -> _Check:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return lambda value: (
            ""
            if type(value) is str and value in arguments
            else f" is none of {', '.join(map(repr, arguments))}"
        )
    if origin in (typing.Union, types.UnionType):
        return _any_of(
            [_check(a) for a in arguments], [getattr(a, "__name__", str(a)) for a in arguments]
        )
    if origin is tuple:
        return _all_of(_check(arguments[0]))
    if origin is dict:
        return (
            _json
            if arguments[1] is Any
            else _all_numbers
            if arguments[1] is float
            else _all_strings
        )
    if hint is str:
        return _text
    if hint is float:
        return lambda value: (
            ""
            if type(value) in (int, float) and math.isfinite(value)
            else " is not a finite number"
        )
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _struct(hint)
    return lambda value: "" if type(value) is hint else f" is not {hint.__name__}"


def _any_of(checks: list[_Check], names: list[str]) -> _Check:
    def check(value: Any) -> str:
        problems = [c(value) for c in checks]
        if not all(problems):
            return ""
        # of what it is one of, the field that is wrong
        return next((f for f in problems if f.startswith(".")), f" is none of {', '.join(names)}")

    return check


def _all_of(item: _Check) -> _Check:
    def check(value: Any) -> str:
        if type(value) is not tuple:
            return " is not a tuple"
        return next(
            (f"[{position}]{wrong}" for position, v in enumerate(value) if (wrong := item(v))), ""
        )

    return check


def _text(value: Any) -> str:
    if type(value) is not str:
        return " is not str"
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            return " holds a lone surrogate"
    return ""


def _all_strings(value: Any) -> str:
    if type(value) is not dict:
        return " is not a dict"
    return next((wrong for pair in value.items() for v in pair if (wrong := _text(v))), "")


def _all_numbers(value: Any) -> str:
    if type(value) is not dict:
        return " is not a dict"
    wrong = next((f" has a key that{wrong}" for key in value if (wrong := _text(key))), "")
    finite = all(type(v) in (int, float) and math.isfinite(v) for v in value.values())
    return wrong or ("" if finite else " holds something that is not a finite number")


def _json(value: Any) -> str:
    """Is this a JSON object, as the encoders take it? Level by level: hooks can nest at will, or
    make a ring."""
    if value is NOTHING:
        return ""
    if type(value) is not dict:
        return " is not a dict"
    level: list[Any] = [value]
    count = 0
    for _ in range(MAX_BODY_DEPTH + 1):
        if not level:
            return ""
        below: list[Any] = []
        for item in level:
            if type(item) is dict:
                if wrong := next((w for key in item if (w := _text(key))), ""):
                    return f" has a key that{wrong}"
                below += item.values()
            elif type(item) is list:
                below += item
            elif type(item) is str:
                if wrong := _text(item):
                    return wrong
            elif not _is_scalar(item):
                return f" holds a {type(item).__name__}, which is not JSON"
        level = below
        # one list, put twice into the next one, and that again, is 2^128 of them
        count += len(level)
        if count > MAX_CHANGED_ITEMS:
            return f" holds more than {MAX_CHANGED_ITEMS:,} items"
    return f" is nested deeper than {MAX_BODY_DEPTH}"


def _is_scalar(item: Any) -> bool:
    return (
        item is None
        or type(item) in (bool, int, msgspec.Raw)
        or (type(item) is float and math.isfinite(item))
    )
