"""The rules by which secrets are known: gitleaks' (`policy/data/secret_rules.json`), in two stages.

One pattern finds whether a keyword of any rule stands in a text. Only then are the rules tried that
have a keyword there: one automaton of all rules would be too large to run. Must not know: where a
text comes from.
"""

import functools
import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from importlib import resources
from typing import Any, NamedTuple

from policy.patterns import compile_re2

CONTEXT_CHARS = 100
"""How far before a value its name may begin, in patterns of the form `name = value`."""
MIN_SECRET_CHARS = 12
"""The shortest secret of the rules."""
_SHORT = 3
_FIRST = 2
_BEHIND_SHORT = r"[\w.~+/=-]{16}"
"""What must stand behind a keyword of two or three letters: nearly every text has such letters."""


class SecretRule(NamedTuple):
    """A rule of the pack: the secret is its pattern's `group`, and has more than `entropy` bits a
    character."""

    name: str
    pattern: Any
    group: int
    entropy: float
    excluded: Any


class SecretRules:
    """All rules, ready to search."""

    def __init__(self, pack: dict[str, Any]) -> None:
        shared = pack["not"] + [re.escape(word) for word in pack["not_holding"]]
        self._rules: dict[str, list[SecretRule]] = {}
        """By keyword."""
        for rule in pack["rules"]:
            made = SecretRule(
                rule["name"],
                compile_re2(rule["pattern"]),
                rule["group"],
                rule["entropy"],
                compile_re2("|".join(f"(?:{p})" for p in (*shared, *rule["not"]))),
            )
            for word in rule["keywords"]:
                self._rules.setdefault(word, []).append(made)
        self._first: dict[str, list[str]] = {}
        for word in self._rules:
            self._first.setdefault(word[:_FIRST], []).append(word)
        self.beginning = "|".join(
            re.escape(word) + (_BEHIND_SHORT if len(word) <= _SHORT else "") for word in self._rules
        )
        """A pattern of RE2 for where a rule may match, in any case."""
        self._beginning = compile_re2(f"(?i:{self.beginning})")

    def may_match(self, text: str) -> bool:
        """Does a keyword stand in a text?"""
        return self._beginning.search(text) is not None

    def secrets(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield the secrets in a text of bounded length, each with the name of its rule."""
        lowered = text.lower()
        # by their first letters: to look for each of 240 words in a line takes five times as long
        pieces = {lowered[i : i + _FIRST] for i in range(len(lowered))}
        near = {
            rule.name: rule
            for piece in self._first.keys() & pieces
            for word in self._first[piece]
            if word in lowered
            for rule in self._rules[word]
        }
        for rule in near.values():
            for match in rule.pattern.finditer(text):
                start, end = match.span(rule.group)
                secret = text[start:end]
                if _entropy(secret) > rule.entropy and rule.excluded.search(secret) is None:
                    yield start, end, rule.name


@functools.cache
def secret_rules() -> SecretRules:
    """Return the rules that ship. Read once."""
    source = resources.files("policy").joinpath("data", "secret_rules.json")
    return SecretRules(json.loads(source.read_text(encoding="utf-8")))


def _entropy(text: str) -> float:
    """Shannon entropy, in bits a character."""
    size = len(text)
    return -sum(n / size * math.log2(n / size) for n in Counter(text).values())
