"""Reads the items of a file of JSON, a list or an object on each line, with the line of each. Must
not know: what an item is."""

import json
from collections.abc import Iterator
from json.decoder import WHITESPACE  # type: ignore[attr-defined]
from pathlib import Path
from typing import Any, NoReturn


def items_of(path: Path, raw: bytes, mistakes: list[str]) -> Iterator[tuple[int, Any]]:
    """Yield each item with its line; what is not JSON is added to `mistakes`."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        mistakes.append(f"{path} line {raw[: error.start].count(bytes([10])) + 1}: it is not UTF-8")
        return
    is_list = text.lstrip()[:1] == "["
    for line, item in _listed(text) if is_list else _lines(text):
        if isinstance(item, str) and line:
            mistakes.append(f"{path} line {line}: {item}")
            if is_list:
                return
        else:
            yield line, item


def _lines(text: str) -> Iterator[tuple[int, Any]]:
    # not splitlines: that also splits at characters that may stand in JSON text
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            item, end = _decoder.raw_decode(line, WHITESPACE.match(line, 0).end())
            if line[end:].strip():
                yield number, "there is more than one JSON value in this line"
            else:
                yield number, item if not isinstance(item, str) else [item]
        except (ValueError, RecursionError) as error:
            yield number, _not_json(error, "one JSON object a line, or a JSON list")


def _listed(text: str) -> Iterator[tuple[int, Any]]:
    """Items of a list, each parsed by itself, so that its line is known."""
    at, line, counted = text.index("[") + 1, 1, 0
    while True:
        at = WHITESPACE.match(text, at).end()
        # the lines since the last item, so that the whole is linear
        line, counted = line + text.count("\n", counted, at), at
        if text[at : at + 1] == "]":
            behind = WHITESPACE.match(text, at + 1).end()
            if behind < len(text):
                yield (
                    line + text.count("\n", at, behind),
                    "something stands behind the end of the list",
                )
            return
        try:
            item, at = _decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            here = line + text.count("\n", counted, getattr(error, "pos", counted))
            yield here, _not_json(error, "a JSON list")
            return
        yield line, item if not isinstance(item, str) else [item]
        at = WHITESPACE.match(text, at).end()
        if text[at : at + 1] == ",":
            at += 1
        elif text[at : at + 1] != "]":
            yield (
                line + text.count("\n", counted, at),
                "it is not JSON: a comma or the end of the list is missing",
            )
            return


def _not_json(error: Exception, wanted: str) -> str:
    why = (
        error.msg
        if isinstance(error, json.JSONDecodeError)
        else "it is nested too deeply"
        if isinstance(error, RecursionError)
        else error
    )
    return f"it is not JSON ({why}): the data is {wanted}"


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    by_name = dict(pairs)
    if len(by_name) != len(pairs):
        twice = next(
            key
            for number, (key, _) in enumerate(pairs)
            if any(key == other for other, _ in pairs[:number])
        )
        raise ValueError(
            f"the key {twice!r} is there twice; a call with such arguments is given as"
            " `arguments_text`"
        )
    return by_name


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


_decoder = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant)
