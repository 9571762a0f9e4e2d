"""Strict JSON for tool arguments and request bodies: input that two parsers may read differently is
refused.

Refused are duplicate keys, NaN and Infinity, numbers that overflow, lone surrogates, trailing data
and deep nesting. For example, every fast parser keeps the last of two equal keys; a client may keep
the first and run another command. Whole numbers are kept exactly, up to the interpreter's 4,300
digits. Linear time: 5 MB of the worst text take well under a second.

These are the differences that the syntax allows. A tool call must also mean one thing to the
programs behind the parsers (`loads_call`): Go and .NET match names without case and keep the last,
JavaScript treats `__proto__` as more than a name and rounds whole numbers past 2^53, C ends a name
at NUL.
"""

import json
import math
import re
from decimal import Decimal
from hashlib import sha256
from typing import Any, NoReturn

import msgspec
from jiter import from_json

from protocol.bounds import MAX_ARGUMENT_VALUES, MAX_ODD_KEY_CHARS
from protocol.bytes.folding import is_plain, nfkc
from protocol.bytes.value_count import count_values
from protocol.errors import InvalidRequest

MAX_DEPTH = 64
"""Of tool arguments."""
MAX_BODY_DEPTH = 128
"""Of request bodies, which hold earlier arguments some levels down."""
_MAX_EXACT = 2**53 - 1
"""JavaScript's Number.MAX_SAFE_INTEGER: RFC 8259 section 6 promises no more."""
_UNSURE: Any = object()
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class AmbiguousJson(ValueError):
    """The text is not one JSON object that every parser reads alike; the message says why, without
    its content."""


def loads_call(
    text: str, *, exact_keys: bool = False, exact_integers: bool = False
) -> dict[str, Any]:
    """Return what a tool call asks for, where every program reads the same (see above). Raises
    AmbiguousJson.

    `exact_keys` and `exact_integers` say that the tool tells keys apart by case and form, and reads
    integers of any size.
    """
    if _has_too_many_values(text):
        raise AmbiguousJson(f"more than {MAX_ARGUMENT_VALUES} values")
    value = loads_arguments(text)
    _refuse_doubtful(value, exact_keys=exact_keys, exact_integers=exact_integers)
    return value


def _has_too_many_values(text: str) -> bool:
    """Before they are made: 8 MB of `[],` take seconds to parse and walk. Text without so many
    commas and brackets is not copied."""
    if text.count(",") + text.count("[") + text.count("{") <= MAX_ARGUMENT_VALUES:
        return False
    return (
        count_values(text.encode("utf-8", "surrogatepass"), MAX_ARGUMENT_VALUES)
        > MAX_ARGUMENT_VALUES
    )


def _refuse_doubtful(value: dict[str, Any], *, exact_keys: bool, exact_integers: bool) -> None:
    odd = 0
    items: list[Any] = [value]
    level: list[Any]
    while items:
        level = []
        for item in items:
            if type(item) is list:
                level += item
                continue
            odd = _check_keys(item, odd, exact=exact_keys)
            level += item.values()
        if not exact_integers and any(
            type(v) is int and not -_MAX_EXACT <= v <= _MAX_EXACT for v in level
        ):
            raise AmbiguousJson("an integer is larger than programs read exactly")
        items = [v for v in level if type(v) is dict or type(v) is list]


def _check_keys(item: dict[str, Any], odd: int, *, exact: bool) -> int:
    """Refuse keys of one object: two that differ in case or form only (not where `exact`), NUL, and
    what reaches a prototype.

    That is `__proto__`, and `constructor` over `prototype`, by which a deep merge reaches all
    objects; either of those two alone is a plain word. `odd` counts the text in keys that are not
    plain, over all objects.
    """
    joined = "\0".join(item)
    if joined.count("\0") >= max(len(item), 1):
        raise AmbiguousJson("NUL in a key")
    if not is_plain(joined.replace("\0", "\n")):
        odd += len(joined)
        if odd > MAX_ODD_KEY_CHARS:
            raise AmbiguousJson("too much text in keys that are not plain ASCII")
    folded = nfkc(joined).casefold().split("\0")
    if "__proto__" in folded or (
        "constructor" in item
        and type(inner := item["constructor"]) is dict
        and "prototype" in inner
    ):
        raise AmbiguousJson("a key that JavaScript takes for an object's prototype")
    if not exact and len(set(folded)) < len(item):
        raise AmbiguousJson("two keys differ in case or form only")
    return odd


def normal_arguments(text: str) -> str:
    """Return `text`, or `{}` where a model sent no arguments at all."""
    return text if text.strip(" \t\r\n") else "{}"


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise AmbiguousJson("a key occurs twice")
    return value


def _constant(name: str) -> NoReturn:
    raise AmbiguousJson(f"{name} is not JSON")


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise AmbiguousJson("a number is too large")
    return value


_strict = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant, parse_float=_float)
_lenient = json.JSONDecoder(parse_constant=_constant, parse_float=_float)


def loads_arguments(text: str) -> dict[str, Any]:
    """Return the object that `text` is. Raises AmbiguousJson."""
    value = _loads(text, MAX_DEPTH)
    if not isinstance(value, dict):
        raise AmbiguousJson("it is not an object")
    return value


def is_cut(text: str) -> bool:
    """Is this the beginning of a JSON object?"""
    try:
        from_json(text.encode("utf-8", "replace"))
    except ValueError as error:
        return text.lstrip().startswith("{") and str(error).startswith("EOF while parsing")
    return False


def _loads(text: str | bytes, max_depth: int) -> Any:
    value = _loads_fast(text, max_depth)
    return (
        _loads_slow(text if isinstance(text, str) else text.decode("utf-8"), max_depth)
        if value is _UNSURE
        else value
    )


def _loads_fast(text: str | bytes, max_depth: int) -> Any:
    """Return the value, or `_UNSURE` where the slow way must look: it knows every fault by name.

    The fast parser takes what the slow one takes, and besides only numbers that overflow. 1 MB of
    an agent's history: 2.2 ms, not 5.3.
    """
    try:
        data = text.encode() if isinstance(text, str) else text
        value = from_json(data, allow_inf_nan=False, catch_duplicate_keys=True, cache_mode="keys")
    except ValueError:
        return _UNSURE
    items: list[Any] = [value]
    for _ in range(max_depth + 1):
        # nearly all values are leaves, and few are floats: comparing each with infinity takes three
        # times as long
        kinds = {*map(type, items)}
        if float in kinds and (math.inf in items or -math.inf in items):
            break
        if dict not in kinds and list not in kinds:
            return value
        level = [v for v in items if type(v) is dict or type(v) is list]
        items = []
        for v in level:
            items += v.values() if type(v) is dict else v
    return _UNSURE


def _loads_slow(text: str, max_depth: int) -> Any:
    try:
        value = _strict.decode(text)
    except AmbiguousJson:
        raise
    except RecursionError as error:
        raise AmbiguousJson(f"nesting is deeper than {max_depth}") from error
    except ValueError as error:
        raise AmbiguousJson("it is not valid JSON") from error
    if not _is_flatter(value, max_depth):
        raise AmbiguousJson(f"nesting is deeper than {max_depth}")
    if _ESCAPED_SURROGATE.search(text) or not text.isascii():
        try:
            msgspec.json.encode(value)
        except UnicodeEncodeError as error:
            raise AmbiguousJson("a lone surrogate") from error
    return value


def _is_flatter(value: Any, max_depth: int) -> bool:
    """Is `value` nested at most `max_depth` deep? Level by level, because recursion is what deep
    nesting attacks."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(max_depth):
        if not level:
            return True
        level = [
            c
            for v in level
            for c in (v.values() if type(v) is dict else v)
            if type(c) is dict or type(c) is list
        ]
    return not level


def loads_body(body: bytes) -> dict[str, Any]:
    """Return the object in a request body. Raises InvalidRequest saying what is wrong."""
    try:
        value = _loads(body, MAX_BODY_DEPTH)
    except UnicodeDecodeError as error:
        raise InvalidRequest("the request body is not UTF-8", code="invalid_json") from error
    except AmbiguousJson as error:
        raise InvalidRequest(
            f"the request body cannot be read: {error}", code="invalid_json"
        ) from error
    if not isinstance(value, dict):
        raise InvalidRequest("the request body must be a JSON object", code="invalid_json")
    return value


def loads_foreign(data: bytes) -> Any:
    """Return an upstream's JSON with lone surrogates passed through, which the fast parser refuses.
    Raises ValueError, RecursionError."""
    return _lenient.decode(data.decode("utf-8"))


def _exact_float(text: str) -> Any:
    value = float(text)
    return (
        value
        if math.isfinite(value) and Decimal(text) == Decimal(repr(value))
        else msgspec.Raw(text.encode())
    )


_exact = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_constant=_constant, parse_float=_exact_float
)


def loads_exact(data: bytes) -> Any:
    """Return JSON that `dumps` writes back with the same values: a number that no float holds
    exactly stays as `msgspec.Raw`.

    Lone surrogates pass through. Raises ValueError on duplicate keys, what is not JSON, and nesting
    deeper than that of bodies.
    """
    try:
        value = _exact.decode(data.decode("utf-8"))
    except RecursionError as error:
        raise AmbiguousJson(f"nesting is deeper than {MAX_BODY_DEPTH}") from error
    if not _is_flatter(value, MAX_BODY_DEPTH):
        raise AmbiguousJson(f"nesting is deeper than {MAX_BODY_DEPTH}")
    return value


_SHORT = 15


def _written_int(text: str) -> Any:
    return int(text) if len(text) <= _SHORT and text != "-0" else msgspec.Raw(text.encode())


def _written_float(text: str) -> Any:
    return msgspec.Raw(text.encode())


_written = json.JSONDecoder(
    object_pairs_hook=_pairs,
    parse_constant=_constant,
    parse_float=_written_float,
    parse_int=_written_int,
)


def loads_written(text: str) -> Any:
    """Return JSON that `dumps` writes back with each number as it stands in `text`: `1.10` is one
    to some, and other than `1.1` to others.

    Raises AmbiguousJson, or ValueError for what is not JSON.
    """
    try:
        value = _written.decode(text)
    except RecursionError as error:
        raise AmbiguousJson(f"nesting is deeper than {MAX_BODY_DEPTH}") from error
    if not _is_flatter(value, MAX_BODY_DEPTH):
        raise AmbiguousJson(f"nesting is deeper than {MAX_BODY_DEPTH}")
    return value


_encode = msgspec.json.encode
"""By a name of its own: every chunk is written with it."""


def dumps(value: Any) -> bytes:
    """Write compact JSON; `msgspec.Raw` goes in as it is. Lone surrogates, which the fast encoder
    refuses, go out as escapes."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _dumps_escaped(value)


def _dumps_escaped(value: Any) -> bytes:
    raws: list[str] = []

    def placed(raw: Any) -> str:
        if not isinstance(raw, msgspec.Raw):
            raise TypeError(f"{type(raw).__name__} is not JSON")
        raws.append(bytes(raw).decode())
        return mark

    # a word that is not in the value: raw numbers cannot be written by this encoder, so they are
    # put in afterwards
    mark = ""
    mark = sha256(json.dumps(value, default=placed).encode()).hexdigest()
    raws.clear()
    parts = json.dumps(value, separators=(",", ":"), default=placed).split(f'"{mark}"')
    return "".join(part + raw for part, raw in zip(parts, [*raws, ""], strict=True)).encode()
