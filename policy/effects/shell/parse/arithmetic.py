"""Evaluates `$((...))`, where all of it is known. Numbers have 64 bits, as in bash."""

import operator
import re
from collections.abc import Callable

_TOKEN = re.compile(
    r"\s*(?:(\d+)#([0-9a-zA-Z@_]+)|(0[xX][0-9a-fA-F]+)|(\d+)|([A-Za-z_]\w*)|(\*\*|<<|>>|<=|>=|=="
    r"|!=|&&|\|\||[-+*/%&|^~!<>()?:]))",
    re.ASCII,
)
_LEVELS = [ops.split(",") for ops in "|| && | ^ & ==,!= <,>,<=,>= <<,>> +,- *,/,% **".split()]
"""Operators, those first that bind least."""
_COMPUTES: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "**": operator.pow,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "&&": lambda left, right: bool(left and right),
    "||": lambda left, right: bool(left or right),
}
_MAX_TOKENS = 200


class NotCounted(ValueError):
    """The expression is not understood."""


def count(text: str, value: Callable[[str], str | None]) -> int:
    """Return the number; `value` gives a variable's text, None if it is not known. Raises
    NotCounted."""
    tokens: list[str | int] = []
    at = 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or len(tokens) > _MAX_TOKENS:
            raise NotCounted
        at = match.end()
        tokens.append(_token(match, value))
    if not tokens:
        return 0
    result, end = _ternary(tokens, 0, 0)
    if end != len(tokens):
        raise NotCounted
    return result


def _token(match: re.Match[str], value: Callable[[str], str | None]) -> str | int:
    base, digits, hexadecimal, number, name, sign = match.groups()
    try:
        if base:
            return int(digits, int(base))
        if hexadecimal:
            return int(hexadecimal, 16)
        if number:
            return int(number[:20], 8 if number[0] == "0" else 10)
        if name:
            known = value(name)
            if known is None:
                raise NotCounted
            return int(known[:20] or "0", 0)
    except ValueError:
        raise NotCounted from None
    return str(sign)


def _ternary(tokens: list[str | int], at: int, depth: int) -> tuple[int, int]:
    left, at = _binary(tokens, at, 0, depth)
    if at < len(tokens) and tokens[at] == "?":
        yes, at = _ternary(tokens, at + 1, depth + 1)
        if at >= len(tokens) or tokens[at] != ":" or depth > 8:
            raise NotCounted
        no, at = _ternary(tokens, at + 1, depth + 1)
        return (yes if left else no), at
    return left, at


def _binary(tokens: list[str | int], at: int, level: int, depth: int) -> tuple[int, int]:
    if level == len(_LEVELS):
        return _unary(tokens, at, depth)
    left, at = _binary(tokens, at, level + 1, depth)
    while at < len(tokens) and tokens[at] in _LEVELS[level]:
        op = str(tokens[at])
        right, at = _binary(tokens, at + 1, level + 1, depth)
        left = _apply(op, left, right)
    return left, at


def _unary(tokens: list[str | int], at: int, depth: int) -> tuple[int, int]:
    if at >= len(tokens) or depth > 8:
        raise NotCounted
    token = tokens[at]
    if isinstance(token, int):
        return token, at + 1
    if token == "(":
        inner, at = _ternary(tokens, at + 1, depth + 1)
        if at >= len(tokens) or tokens[at] != ")":
            raise NotCounted
        return inner, at + 1
    if token in ("-", "+", "!", "~"):
        inner, at = _unary(tokens, at + 1, depth + 1)
        return {"-": -inner, "+": inner, "!": int(not inner), "~": ~inner}[token], at
    raise NotCounted


def _apply(op: str, left: int, right: int) -> int:
    if (op in ("/", "%") and not right) or (op in ("**", "<<", ">>") and not 0 <= right < 64):
        raise NotCounted
    if op in ("/", "%"):
        # towards zero, as C has it
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        result = quotient if op == "/" else left - quotient * right
    else:
        result = _COMPUTES[op](left, right)
    return (int(result) + 2**63) % 2**64 - 2**63
