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
_MAX_REPEATED = 64


class StandIn:
    """Makes the command of a tool. `used`: the top-level arguments that went into it."""

    def __init__(self, arguments: Mapping[str, Json]) -> None:
        self.used: set[str] = set()
        self._values: dict[str, tuple[str, Json]] = {}
        for name, value in [*arguments.items()][:256]:
            inner = unpacked(value) if key_of(name) in _PACKED else None
            if isinstance(inner, dict):
                for key, item in [*inner.items()][:256]:
                    self._values.setdefault(key_of(key), (name, item))
            self._values[key_of(name)] = (name, value)

    def quote(self, word: str) -> str:
        """Return a word as a shell reads it unchanged."""
        return quoted(word)

    def command(self, template: str) -> str:
        """Return the command with its places filled."""
        client = template.partition(" ")[0]
        parts = [
            part
            for token in _TOKEN.findall(template)
            for part in (self._optional(token[1:-1]) if token[0] == "[" else [token])
        ]
        return " ".join(filter(None, (self._word(part, client) for part in parts)))

    def _optional(self, group: str) -> list[str]:
        """What stands in brackets, if all its arguments are given: once for each value of a list
        behind an option."""
        names = [place[2] for place in _PLACE.finditer(group)]
        values = [self._value(name) for name in names]
        if any(value in (None, False, "", [], {}, "false", "none") for value in values):
            return []
        tokens = _TOKEN.findall(group)
        if len(values) == 1 and isinstance(values[0], list) and group.startswith("-"):
            before = group[: group.index("{")].strip()
            return [f"{before} {self._quoted(item)}" for item in values[0][:_MAX_REPEATED]]
        return [
            "" if place and self._value(place[2]) in (True, "true") else token
            for token in tokens
            for place in (_PLACE.fullmatch(token),)
        ]

    def _quoted(self, value: Json) -> str:
        return self.quote(_text(value))

    def _word(self, token: str, client: str) -> str:
        places = [*_PLACE.finditer(token)]
        if not places:
            return token
        if len(places) == 1 and places[0][0] == token:
            value = self._value(places[0][2])
            if places[0][1]:
                return f" ; {client} ".join(_without(text, client) for text in _commands(value))
            if isinstance(value, list):
                return " ".join(map(self._quoted, value))
        text = _PLACE.sub(lambda place: _text(self._value(place[2]), place[3] or ""), token)
        text = text.strip('"') if token.startswith('"') else text
        return self.quote(text) if text else ""

    def _value(self, names: str) -> Json:
        for name in names.split("|"):
            if name in self._values:
                of, value = self._values[name]
                self.used.add(of)
                return value
        return None


def _text(value: Json, otherwise: str = "") -> str:
    if value is None:
        return otherwise
    return value if isinstance(value, str) else json.dumps(value)


def _commands(value: Json) -> list[str]:
    """A list is the words of one command, or several commands; a text is as it stands."""
    if not isinstance(value, list):
        return [_text(value)]
    texts = [_text(item) for item in value[:_MAX_REPEATED]]
    if any(" " in text.strip() for text in texts[:1]):
        return texts
    return [" ".join(map(quoted, texts))]


def _without(text: str, client: str) -> str:
    """The text of a command, with its client's name once."""
    return re.sub(rf"^\s*'?{re.escape(client)}'?(?=\s|$)", "", text).strip()
