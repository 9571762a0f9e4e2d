"""Reads the items of a file of JSON, a list or an object on each line, with the line of each. Must
not know: what an item is."""

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

_BLANK = re.compile(r"[ \t\r\n]*")
_LIST_NEXT = re.compile(r"[ \t\r\n]*(?:,[ \t\r\n]*(?!\])|(?=\][ \t\r\n]*\Z))")
_LINE_NEXT = re.compile(r"[ \t\r]*(?:\n[ \t\r\n]*|\Z)")


class NotJson(Exception):
    """What stands in `line` is not JSON."""

    def __init__(self, line: int, why: str) -> None:
        self.line = line
        super().__init__(f"it is not JSON ({why}): the data is one JSON object a line, or a list")


def items_of(raw: bytes) -> Iterator[tuple[int, Any]]:
    """Yield each item with its line. Raises NotJson at the first that is none."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NotJson(raw.count(b"\n", 0, error.start) + 1, "it is not UTF-8") from None
    start = _end(_BLANK, text, 0)
    is_list = text.startswith("[", start)
    at, line, counted = _end(_BLANK, text, start + is_list), 1, 0
    while at < len(text) and not (is_list and text[at] == "]" and not text[at + 1 :].strip()):
        # the lines since the last item, so that the whole is linear
        line, counted = line + text.count("\n", counted, at), at
        try:
            item, end = _decoder.raw_decode(text, at)
        except RecursionError:
            raise NotJson(line, "it is nested too deeply") from None
        except ValueError as error:
            place = getattr(error, "pos", at)
            raise NotJson(line + text.count("\n", at, place), str(error)) from None
        yield line, item
        following = (_LIST_NEXT if is_list else _LINE_NEXT).match(text, end)
        if following is None:
            where = line + text.count("\n", at, _end(_BLANK, text, end))
            raise NotJson(where, "something stands behind an item")
        at = following.end()
    if is_list and at >= len(text):
        raise NotJson(line, "the end of the list is missing")


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    by_name = dict(pairs)
    if len(by_name) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in by_name if names.count(name) > 1)
        raise ValueError(
            f"the key {twice!r} is there twice; a call with such arguments is given as"
            " `arguments_text`"
        )
    return by_name


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


_decoder = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant)
