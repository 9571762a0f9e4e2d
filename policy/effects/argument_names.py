"""What the names of tools and arguments say: which hold text for a shell, code, paths, addresses,
SQL.

Every agent names its tools and arguments differently, so words count.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from policy.effects.argument_values import every_text
from policy.effects.sql import ANY
from policy.patterns import names_of
from policy.word_tables import by_word, sections
from protocol.bytes.folding import fold

Json = Any


_DATA = {name: by_word(text) for name, text in sections("arguments.txt").items()}
KEYS, WORDS = (
    {name: frozenset(words.split()) for name, words in _DATA[part].items()}
    for part in ("keys", "words")
)
LANGUAGES, RUNS, _DIALECTS = _DATA["languages"], _DATA["runs"], _DATA["dialects"]


def tool_words(name: str) -> frozenset[str]:
    """Return the words in a tool's name in lower case, whatever joins them: `runShellCommand`,
    `run-shell-command`, `mcp__x__run`."""
    return (_known_words if len(name) <= 128 else _words_of)(name)


def _words_of(name: str) -> frozenset[str]:
    words: set[str] = set()
    for form in names_of(name):
        apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", form[:256])
        words.update(word.lower() for word in re.split(r"[^A-Za-z0-9]+", apart) if word)
    return frozenset(words)


_known_words = lru_cache(maxsize=256)(_words_of)
"""An agent's tools are few, and called again and again."""


def dialect_of_tool(name: str) -> str:
    """Return the dialect of SQL that a tool's name says, `ANY` where it says none or several."""
    dialects = {_DIALECTS[word] for word in tool_words(name) if word in _DIALECTS}
    return dialects.pop() if len(dialects) == 1 else ANY


def key_of(name: str) -> str:
    """Return an argument's name in one form: `filePath`, `file-path` and `File_Path` are
    `file_path`."""
    return _form(name[:128])


@lru_cache(maxsize=1024)
def _form(name: str) -> str:
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return fold(apart).strip().replace("-", "_").replace(" ", "_").lower()


class ArgumentGroup(NamedTuple):
    """The arguments in one object: their values, and their names in one form, by the name.
    `within`: the top-level argument that holds the object."""

    values: Mapping[str, Json]
    keys: Mapping[str, str]
    within: str

    def named(self, forms: frozenset[str]) -> dict[str, Json]:
        """Return those with such a name."""
        return {name: self.values[name] for name, key in self.keys.items() if key in forms}

    def text(self, forms: frozenset[str]) -> str:
        """Return the texts in those, a line each."""
        values = self.named(forms).values()
        return "\n".join(text for value in values for text in every_text(value))

    def choice(self, forms: frozenset[str]) -> str:
        """Return the word in the first of those, in lower case."""
        values = self.named(forms).values()
        return next((str(value).lower() for value in values if value is not None), "")
