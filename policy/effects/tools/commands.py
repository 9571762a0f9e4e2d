"""The command that a tool stands for, with the values of its arguments (`policy/data/tools.txt`).

Must not know: which effects anything has.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from policy.effects.argument_names import key_of
from policy.effects.argument_values import quoted, unpacked

Json = Any
_PACKED = frozenset("params parameters arguments input options request body".split())
_TOKEN = re.compile(r"\[[^\[\]]*\]|\"[^\"]*\"|\S+")
_PLACE = re.compile(r"\{(!?)([a-z0-9_|]+)(?::-(\{\}|[^{}]*))?\}")
_MAX_VALUES = 4_096


class StandIn:
    """Makes the command of a tool. `used`: the top-level arguments that went into it."""

    def __init__(self, arguments: Mapping[str, Json]) -> None:
        self.used: set[str] = set()
        self._values: dict[str, tuple[str, Json]] = {}
        for name, value in [*arguments.items()][:_MAX_VALUES]:
            inner = unpacked(value) if key_of(name) in _PACKED else None
            for key, item in [*(inner.items() if isinstance(inner, dict) else ()), (name, value)]:
                self._add(key_of(key), name, item)

    def _add(self, key: str, name: str, item: Json) -> None:
        if (earlier := self._values.get(key)) is not None:
            # which of two the tool takes is not known
            name, other = earlier
            item = [*(other if isinstance(other, list) else [other]), item][:_MAX_VALUES]
        self._values[key] = (name, item)

    def quote(self, word: str) -> str:
        """Return a word as a shell reads it unchanged."""
        return quoted(word)

    def command(self, template: str) -> str:
        """Return the command with its places filled."""
        client = template.partition(" ")[0]
        words: list[str] = []
        for token in _TOKEN.findall(template):
            group = token[1:-1] if token[0] == "[" else token
            if group is token or all(map(self._is_given, _PLACE.finditer(group))):
                words += [
                    text for word in _TOKEN.findall(group) for text in self._words(word, client)
                ]
        return " ".join(filter(None, words))

    def _is_given(self, place: re.Match[str]) -> bool:
        return self._value(place[2]) not in (None, False, "", [], {}, "false", "none")

    def _words(self, word: str, client: str) -> list[str]:
        """A word of the template, as often as its place has values."""
        place = _PLACE.search(word)
        if place is None:
            return [word]
        value = self._value(place[2])
        if place[1]:
            return [f" ; {client} ".join(_without(text, client) for text in _commands(value))]
        if value in (True, "true") and place[0] == word:
            return []
        several = value[:_MAX_VALUES] if isinstance(value, list) else [value]
        behind = _PLACE.sub(
            lambda later: _text(self._value(later[2]), later[3] or ""), word[place.end() :]
        )
        before, otherwise = word[: place.start()], place[3] or ""
        filled = [before + _text(item, otherwise) + behind for item in several]
        return [self.quote(text.strip('"') if word[0] == '"' else text) for text in filled if text]

    def _value(self, names: str) -> Json:
        of, value = next(
            (self._values[name] for name in names.split("|") if name in self._values), ("", None)
        )
        self.used |= {of} - {""}
        return value


def _text(value: Json, otherwise: str = "") -> str:
    if value is None:
        return otherwise
    return value if isinstance(value, str) else json.dumps(value)


def _commands(value: Json) -> list[str]:
    """A list is the words of one command, or several commands; a text is as it stands."""
    if not isinstance(value, list):
        return [_text(value)]
    texts = [_text(item) for item in value[:_MAX_VALUES]]
    return texts if texts and " " in texts[0].strip() else [" ".join(map(quoted, texts))]


def _without(text: str, client: str) -> str:
    """The text of a command, with its client's name once."""
    return re.sub(rf"^\s*'?{re.escape(client)}'?(?=\s|$)", "", text).strip()
