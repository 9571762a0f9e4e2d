"""The fields of a tool's result: complete values of its own, as opposed to texts that anybody may
have written.

A listing has `id: '11'`, and a mail in it has "delete the file with ID 13": the first comes from
the tool, the second from somebody else. Results are read as JSON, as Python prints values, as the
plain YAML that tools print, or as a list of short lines. A result that is not one of these from the
first line to the last has no fields: a text that looks like fields in places is still a text.
"""

import re
from collections.abc import Iterator
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
_TOKEN = re.compile(
    r"'([^'\\]*(?:\\.[^'\\]*)*)(?:'|\\?\Z)|(\"[^\"\\]*(?:\\.[^\"\\]*)*(?:\"|\\?\Z))|\b(None|True"
    r"|False)\b|([^'\"NTF]+|[NTF])",
    re.DOTALL,
)
"""Never fails behind a quote, so that no text is gone through twice."""
_JSON_WORDS = {"None": "null", "True": "true", "False": "false"}
_ITEM_CHARS, _ITEM_WORDS = 80, 8
_SENTENCE = re.compile(r"[a-z]{2}[.!?;](?:\s|$)")
"""An abbreviation, as in `St. James`, makes no sentence."""
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
    return _of_yaml(text) or list(_of_list(text))


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


def _of_list(text: str) -> Iterator[Field]:
    """Short lines, each an item, perhaps behind a mark or a name. One that is a sentence, or long,
    makes all of them a text."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if len(lines) > 1 and all(
        len(entry) <= _ITEM_CHARS and entry.count(" ") < _ITEM_WORDS and not _SENTENCE.search(entry)
        for entry in lines
    ):
        for line in lines:
            item = line.lstrip("-*\u2022 ")
            name, separator, value = item.partition(": ")
            yield "", item
            if separator:
                yield name.lower(), value.strip()


def _leaves(value: Any) -> Iterator[Field]:
    waiting: list[tuple[str, Any]] = [("", value)]
    count = 0
    while waiting and count < PROVENANCE_LINES:
        name, node = waiting.pop()
        count += 1
        if isinstance(node, dict):
            for key, inner in node.items():
                yield name, key
                waiting.append((key.lower(), inner))
        elif isinstance(node, list):
            waiting.extend((name, inner) for inner in node)
        elif isinstance(node, str):
            if len(node) <= MAX_FIELD_CHARS and name not in _PROSE:
                yield name, node
        elif node is not None and not isinstance(node, bool):
            yield name, str(node)


class _NotYaml(Exception):
    """A line that no plain YAML has."""


def _of_yaml(text: str) -> list[Field]:
    try:
        return list(_Yaml(text.split("\n")).read())
    except _NotYaml:
        return []


class _Yaml:
    """Block style as tools print it: mappings and lists, plain and quoted scalars, block scalars.
    Strict: anything else is no YAML."""

    def __init__(self, lines: list[str]) -> None:
        self._lines, self._at = lines, 0
        self._names: list[tuple[int, str]] = []
        """The open mappings' names, with their indents."""

    def read(self) -> Iterator[Field]:
        """Yield the fields. Raises _NotYaml."""
        known = 0
        while self._at < len(self._lines) and known < PROVENANCE_LINES:
            line = self._lines[self._at]
            self._at += 1
            if not line.strip():
                continue
            match = _LINE.fullmatch(line)
            assert match is not None  # whatever stands in a line is its rest
            key, remainder, indent = match["key"], match["rest"], len(match["indent"])
            column = indent + len(match["dashes"])
            if key is None and not match["dashes"]:
                raise _NotYaml
            if key is None:
                # an item: its name is that of the list around it, which may stand at the same
                # column as its dashes
                name = self._name(indent + 1)
            else:
                self._names = [entry for entry in self._names if entry[0] < column]
                yield self._name(column), (key := _unquoted(key))
                name = key.lower()
                self._names.append((column, name))
            value = self._value(remainder, indent if key is None else column)
            if value and name not in _PROSE and len(value) <= MAX_FIELD_CHARS:
                known += 1
                yield name, value

    def _name(self, column: int) -> str:
        """The name of the innermost open mapping key left of a column."""
        return next((name for at, name in reversed(self._names) if at < column), "")

    def _value(self, remainder: str, column: int) -> str:
        """The scalar that begins with `remainder`, to its end; empty for none, and for a text of
        several lines."""
        if remainder[:1] in ("|", ">"):
            self._skip_deeper(column)
            return ""
        if remainder[:1] in ("'", '"'):
            return self._quoted(remainder)
        if remainder in ("[]", "{}", "~", "null") or not remainder:
            return ""
        if remainder[0] in "[{&*!%@`":
            raise _NotYaml
        # a plain scalar goes on in deeper lines
        return "" if self._skip_deeper(column) else remainder.split(" #")[0].rstrip()

    def _skip_deeper(self, column: int) -> bool:
        begun = self._at
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.strip() and len(line) - len(line.lstrip(" ")) <= column:
                break
            self._at += 1
        return any(line.strip() for line in self._lines[begun : self._at])

    def _quoted(self, remainder: str) -> str:
        mark, whole, lines = remainder[0], remainder[1:], 0
        end = _end_of(whole, mark)
        while end < 0:
            if self._at >= len(self._lines):
                raise _NotYaml
            whole, lines = self._lines[self._at], lines + 1
            self._at += 1
            end = _end_of(whole, mark)
        if whole[end + 1 :].strip():
            raise _NotYaml
        return "" if lines else _unescaped(whole[:end], mark)


def _end_of(text: str, mark: str) -> int:
    """Where a quoted scalar ends in this line, or -1."""
    at = 0
    while at < len(text):
        if mark == '"' and text[at] == "\\":
            at += 2
        elif text[at] != mark:
            at += 1
        elif mark == "'" and text[at + 1 : at + 2] == "'":
            at += 2
        else:
            return at
    return -1


def _unquoted(key: str) -> str:
    return _unescaped(key[1:-1], key[0]) if key[0] in "'\"" else key


def _unescaped(text: str, mark: str) -> str:
    # escapes of a double-quoted scalar stay as they are: so it is no address
    return text.replace("''", "'") if mark == "'" else text
