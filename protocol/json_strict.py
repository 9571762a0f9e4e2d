"""JSON where two parsers must not read two things: tool arguments and request bodies.

Duplicate keys, NaN and Infinity, numbers that overflow, lone surrogates, trailing data and deep nesting are refused
(faults.md, parser differentials: every fast parser keeps the last of two equal keys; a client may keep the first).
"""

import json
import math
import re
from typing import Any, NoReturn

from protocol.errors import InvalidRequest

MAX_DEPTH = 64
_SURROGATE = re.compile("[\ud800-\udfff]")


class AmbiguousJson(ValueError):
    """The text is not one JSON object that every parser reads alike; the message says why, without its content."""


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


_decoder = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant, parse_float=_float)


def _depth(text: str) -> int:
    """The deepest nesting, not counting brackets in strings."""
    depth = deepest = 0
    for token in _STRUCTURE.finditer(text):
        first = token[0][0]
        if first in "{[":
            depth += 1
            deepest = max(deepest, depth)
        elif first in "}]":
            depth -= 1
    return deepest


_STRUCTURE = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


def loads_arguments(text: str) -> dict[str, Any]:
    """Return the object that `text` is. Raises AmbiguousJson."""
    value = _loads(text)
    if not isinstance(value, dict):
        raise AmbiguousJson("the arguments are not an object")
    return value


def _loads(text: str) -> Any:
    # depth first: the decoder recurses
    if _depth(text) > MAX_DEPTH:
        raise AmbiguousJson(f"nesting is deeper than {MAX_DEPTH}")
    try:
        value = _decoder.decode(text)
    except AmbiguousJson:
        raise
    except (ValueError, RecursionError) as error:
        raise AmbiguousJson("it is not valid JSON") from error
    if ("\\u" in text or not text.isascii()) and _has_surrogate(value):
        raise AmbiguousJson("a lone surrogate")
    return value


def _has_surrogate(value: Any) -> bool:
    if isinstance(value, str):
        return _SURROGATE.search(value) is not None
    if isinstance(value, dict):
        return any(_has_surrogate(k) or _has_surrogate(v) for k, v in value.items())
    return isinstance(value, list) and any(map(_has_surrogate, value))


def loads_body(body: bytes) -> dict[str, Any]:
    """Return the object in a request body. Raises InvalidRequest saying what is wrong."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest("the request body is not UTF-8") from error
    try:
        value = _loads(text)
    except AmbiguousJson as error:
        raise InvalidRequest(f"the request body cannot be read: {error}", code="invalid_json") from error
    if not isinstance(value, dict):
        raise InvalidRequest("the request body must be a JSON object", code="invalid_json")
    return value
