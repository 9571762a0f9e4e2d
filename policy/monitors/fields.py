"""The fields of a tool's result: complete values of its own, as opposed to texts that anybody may
have written.

A listing has `id: '11'`, and a mail in it has "delete the file with ID 13": the first comes from
the tool, the second from somebody else. Results are read as JSON, as Python prints values, or as
the plain YAML that tools print. A result that is not one of these from the first line to the last
has no fields: a text that looks like fields in places is still a text.
"""

import re
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from protocol.bounds import PROVENANCE_LINES

MAX_FIELD_CHARS = 300
_PROSE = frozenset(
    "abstract answer body caption comment comments content contents data description"
    " details excerpt html instructions markdown memo message messages note notes output"
    " preview prompt purpose reason reference remark response result review reviews"
    " snippet stderr stdout subject summary text title topic".split()
)
"""Names of fields that somebody else writes as he likes."""
_LINE = re.compile(
    r"(?P<indent> *)(?P<dashes>(?:- +)*)"
    r"(?:(?P<key>'(?:[^']|'')*'|\"[^\"\\]*\"|[^\s'\"#{}\[\],&*!|>%@`-][^\n:]{0,200}?):(?:"
    r" +|$))?(?P<rest>.*)"
)
_QUOTED = re.compile(r"'(?:[^']|'')*+'\s*|\"(?:[^\"\\]|\\.)*+\"\s*", re.DOTALL)
_SEVERAL = re.compile(
    r"(?m)^( *+(?:- ++)*+(?:(?:'(?:[^'\n]|'')*+'|\"[^\"\\\n]*+\"|[^\s'\"][^\n:]{0,200}+): +)?)"
    rf"(?:{_QUOTED.pattern})$",
    re.DOTALL,
)
"""A quoted text, which may have several lines."""
_TOKEN = re.compile(
    r"'([^'\\]*(?:\\.[^'\\]*)*)(?:'|\\?\Z)|(\"[^\"\\]*(?:\\.[^\"\\]*)*(?:\"|\\?\Z))|\b(None|True"
    r"|False)\b|([^'\"NTF]+|[NTF])",
    re.DOTALL,
)
"""Never fails behind a quote, so that no text is gone through twice."""
_JSON_WORDS = {"None": "null", "True": "true", "False": "false"}
Field = tuple[str, str]
"""The name, in small letters, and the value."""


def fields(text: str) -> list[Field]:
    """Return the fields of a result, none where it is a text. Linear in the text; at most
    PROVENANCE_LINES of them."""
    if text[:200].lstrip().startswith(("{", "[")):
        value = _decoded(text)
        if value is None and "'" in text:
            value = _decoded(_as_json(text))
        if isinstance(value, dict | list):
            return list(_leaves(value))
    return _of_yaml(text)


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None


def _as_json(text: str) -> str:
    """Python's way to print lists and mappings of texts and numbers, as JSON."""

    def written(match: re.Match[str]) -> str:
        single, double, word, other = match.groups()
        if single is not None:
            return (
                '"' + single.replace("\\'", "'").replace("\\x", "\\u00").replace('"', '\\"') + '"'
            )
        return double or _JSON_WORDS.get(word or "", other or "")

    return _TOKEN.sub(written, text)


def nodes(value: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield a JSON value and all in it, in their order, with the name that is nearest to each and
    its place."""
    waiting = [("", "", value)]
    while waiting:
        name, path, node = waiting.pop()
        yield name, path, node
        if isinstance(node, dict):
            waiting += [
                (key, f"{path}.{key}".lstrip(".")[:200], inner)
                for key, inner in reversed(node.items())
            ]
        elif isinstance(node, list):
            waiting += [
                (name, f"{path}[{number}]"[:200], inner)
                for number, inner in reversed([*enumerate(node)])
            ]


def _leaves(value: Any) -> Iterator[Field]:
    for name, _, node in islice(nodes(value), PROVENANCE_LINES):
        lowered = name.lower()
        if isinstance(node, dict):
            yield from ((lowered, key) for key in node)
        elif isinstance(node, str):
            if len(node) <= MAX_FIELD_CHARS and lowered not in _PROSE:
                yield lowered, node
        elif isinstance(node, int | float) and not isinstance(node, bool):
            yield lowered, str(node)


def _of_yaml(text: str) -> list[Field]:
    """The fields of block style as tools print it: mappings and lists, plain and quoted scalars,
    block scalars. Strict: anything else is no YAML, and a text of several lines is no field."""
    found: list[Field] = []
    names: list[tuple[int, str]] = []
    """The open mappings' names, with their columns."""
    scalar, is_plain = sys.maxsize, False
    """The column behind which a scalar goes on; is it a field until then?"""
    single = _SEVERAL.sub(
        lambda match: match[1] + "''" if "\n" in match[0].strip() else match[0], text
    )
    for line in filter(str.strip, single.split("\n")):
        if len(line) - len(line.lstrip(" ")) > scalar:
            if is_plain:
                found.pop()
            is_plain = False
            continue
        match = _LINE.fullmatch(line)
        assert match is not None  # whatever stands in a line is its rest
        key, remainder, indent = match["key"], match["rest"], len(match["indent"])
        column = indent + len(match["dashes"])
        if key is None and not match["dashes"]:
            return []
        scalar, is_plain = sys.maxsize, False
        # the name of an item is that of the list around it, which may stand at the column of its
        # dashes
        before = indent + 1 if key is None else column
        name = next((name for at, name in reversed(names) if at < before), "")
        if key is not None:
            key = _unquoted(key)
            found.append((name, key))
            name = key.lower()
            names = [*(entry for entry in names if entry[0] < column), (column, name)]
        value, mark = "", remainder[:1]
        if mark in ("'", '"'):
            if not _QUOTED.fullmatch(remainder):
                return []
            value = _unquoted(remainder.rstrip())
        elif remainder not in ("", "[]", "{}", "~", "null"):
            if mark in "[{&*!%@`":
                return []
            scalar = indent if key is None else column
            value = "" if mark in "|>" else remainder.split(" #")[0].rstrip()
        if value and name not in _PROSE and len(value) <= MAX_FIELD_CHARS:
            found.append((name, value))
            is_plain = scalar < sys.maxsize
        if len(found) > PROVENANCE_LINES:
            break
    return found


def _unquoted(text: str) -> str:
    # escapes between double quotes stay as they are: so it is no address
    if text[:1] == "'":
        return text[1:-1].replace("''", "'")
    return text[1:-1] if text[:1] == '"' else text
