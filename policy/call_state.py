"""Gives each call its own copy of a policy object's state, so that no call sees another's changes.

Theory. A policy is made once, and each call works on a copy. Immutable values are shared (text,
numbers, patterns, tuples and frozensets of these, mapping proxies over them). A container of
immutable values is copied; any other object is copied with everything it holds. Class attributes
count too: a list there would be shared by all calls. State that cannot be copied is refused when
the policy is loaded. Two things stay invisible: module variables, and state that code outside the
policy keeps. Must not know: what a policy decides.
"""

import copy
import enum
import re
import types
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple, TypeVar

from protocol.bounds import MAX_STATE_OBJECTS

T = TypeVar("T")
_FIXED = (
    str,
    bytes,
    int,
    float,
    complex,
    types.NoneType,
    type,
    types.ModuleType,
    types.BuiltinFunctionType,
    types.EllipsisType,
    range,
    Decimal,
    re.Pattern,
    enum.Enum,
)
_FIXED_MODULES = frozenset(("re2", "jsonschema_rs"))
"""Their compiled patterns and validators never change, and cannot be copied or only by compiling
anew."""
_PLAIN = (dict, list, set, bytearray)
_PLAN = "_sluice_plan"


class NotCopyable(Exception):
    """A policy holds state that cannot be copied for a call; the message names it."""


class _Plan(NamedTuple):
    """Names of what is copied: containers of what never changes, and things to be copied with all
    they hold. `shared` stays as it is."""

    flat: tuple[tuple[str, Any], ...]
    deep: tuple[tuple[str, Any], ...]
    shared: dict[int, Any]


def copy_for_call(policy: T, *, last: type) -> T:
    """Return a copy that shares nothing with `policy` that can change. `last` is the base class,
    whose attributes are fixed."""
    plan = vars(policy).get(_PLAN)
    if plan is None:
        plan = vars(policy)[_PLAN] = _plan(policy, last)
    clone = copy.copy(policy)
    if not plan.flat and not plan.deep:
        return clone
    memo: dict[int, Any] = {id(policy): clone, **plan.shared}
    for name, value in plan.flat:
        if id(value) not in memo:
            memo[id(value)] = copy.copy(value)
        setattr(clone, name, memo[id(value)])
    for name, value in plan.deep:
        setattr(clone, name, copy.deepcopy(value, memo))
    return clone


def check(policy: object, *, last: type) -> None:
    """Raise NotCopyable where calls would share what one of them may change."""
    for kind in _classes(policy, last):
        for name, value in vars(kind).items():
            if isinstance(value, types.FunctionType) and name != "__init__":
                _check_defaults(f"{kind.__name__}.{name}", value)
    plan = _plan(policy, last)
    try:
        copy_for_call(policy, last=last)
    except Exception as error:
        names = ", ".join(name for name, _ in (*plan.flat, *plan.deep))
        raise NotCopyable(
            f"what it keeps cannot be copied for each call ({names}): {type(error).__name__}:"
            f" {error}"
        ) from error


def _check_defaults(name: str, function: types.FunctionType) -> None:
    for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        if not _is_fixed(value):
            raise NotCopyable(
                f"{name} has a default that can change, which all calls would share: use None"
            )


def _plan(policy: object, last: type) -> _Plan:
    flat, deep = [], []
    shared: dict[int, Any] = {}
    for name, value in _state(policy, last):
        if _is_fixed(value):
            continue
        if _is_flat(value):
            flat.append((name, value))
        else:
            deep.append((name, value))
            _look_through(name, value, shared, policy)
    return _Plan(tuple(flat), tuple(deep), shared)


def _classes(policy: object, last: type) -> list[type]:
    """The classes that somebody wrote, the nearest first."""
    mro = type(policy).__mro__
    return list(mro[: mro.index(last)])


def _state(policy: object, last: type) -> Iterator[tuple[str, Any]]:
    """What the policy holds: its own attributes, those in slots, and those of its classes that are
    no methods."""
    seen = set(vars(policy)) | {_PLAN}
    yield from ((name, value) for name, value in list(vars(policy).items()) if name != _PLAN)
    for kind in _classes(policy, last):
        for name, value in vars(kind).items():
            if name in seen or (name.startswith("__") and name.endswith("__")):
                continue
            seen.add(name)
            if isinstance(value, types.MemberDescriptorType):
                if hasattr(policy, name):
                    yield name, getattr(policy, name)
            elif not isinstance(value, types.FunctionType) and not hasattr(type(value), "__get__"):
                yield name, value


def _is_fixed(value: Any) -> bool:
    """Can this never change, nor what it holds?"""
    if isinstance(value, (tuple, frozenset)):
        return type(value).__hash__ is not None and all(map(_is_fixed, value))
    if type(value) is types.MappingProxyType:
        return all(_is_fixed(k) and _is_fixed(v) for k, v in value.items())
    if type(value) is types.FunctionType:
        return all(map(_is_fixed, _closed_over(value)))
    return isinstance(value, _FIXED) or type(value).__module__ in _FIXED_MODULES


def _closed_over(function: types.FunctionType) -> list[Any]:
    try:
        return [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:
        # a variable that has no value yet: it will change
        return [[]]


def _is_flat(value: Any) -> bool:
    """Is this a container of what never changes?"""
    if type(value) is dict:
        return all(_is_fixed(k) and _is_fixed(v) for k, v in value.items())
    return type(value) in _PLAIN and all(map(_is_fixed, value))


def _look_through(name: str, value: Any, shared: dict[int, Any], policy: object) -> None:
    """Note what stays shared within `value`. Raises NotCopyable for too much, and for what a copy
    would still share."""
    waiting, seen = [value], {id(policy)}
    while waiting:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if len(seen) > MAX_STATE_OBJECTS:
            raise NotCopyable(
                f"{name} holds more than {MAX_STATE_OBJECTS:,} objects, which each call would copy:"
                " make what does not change a tuple, frozenset or types.MappingProxyType"
            )
        if _is_fixed(item):
            shared[id(item)] = item
        elif type(item) is types.FunctionType:
            raise NotCopyable(
                f"{name} holds a function over variables that can change, which all calls would"
                " share"
            )
        elif type(item) is types.MappingProxyType:
            raise NotCopyable(
                f"{name} holds a mapping proxy over what can change, which all calls would share"
            )
        else:
            waiting += _held_by(item)


def _held_by(item: Any) -> list[Any]:
    if isinstance(item, dict):
        children: list[Any] = [*item.keys(), *item.values()]
    elif isinstance(item, (list, tuple, set, frozenset)) or type(item).__module__ == "collections":
        children = list(item)
    elif isinstance(item, types.MethodType):
        return [item.__self__]
    else:
        children = []
    if hasattr(item, "__dict__"):
        children += vars(item).values()
    for kind in type(item).__mro__:
        slots = vars(kind).get("__slots__", ())
        names = [slots] if isinstance(slots, str) else slots
        children += [getattr(item, n) for n in names if isinstance(n, str) and hasattr(item, n)]
    return children
