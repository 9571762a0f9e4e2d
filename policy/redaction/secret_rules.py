"""The rules by which secrets are known: gitleaks' (`policy/data/secret_rules.json`), in two stages.

One pattern finds whether a keyword of any rule stands in a text. Only then are the rules tried that
have a keyword there: one automaton of all rules would be too large to run. Must not know: where a
text comes from.
"""

import functools
import json
import math
from collections import Counter
from collections.abc import Iterator
from importlib import resources
from typing import Any

from policy.patterns import compile_re2

CONTEXT_CHARS = 100
"""How far before a value its name may begin, in patterns of the form `name = value`."""
MIN_SECRET_CHARS = 12
"""The shortest secret of the rules."""


class SecretRules:
    """All rules, ready to search."""

    def __init__(self, pack: dict[str, Any]) -> None:
        self._rules: dict[str, list[dict[str, Any]]] = {}
        """By keyword."""
        for rule in pack["rules"]:
            rule |= {name: compile_re2(rule[name]) for name in ("pattern", "not")}
            for word in rule["keywords"]:
                self._rules.setdefault(word, []).append(rule)
        self.beginning = f"(?i:{pack['beginning']})"
        """A pattern of RE2 for where a rule may match."""
        self._beginning = compile_re2(self.beginning)

    def secrets(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield the secrets in a text of bounded length, each with the name of its rule."""
        if self._beginning.search(text) is None:
            return
        lowered = text.lower()
        near = [rule for word in self._rules if word in lowered for rule in self._rules[word]]
        # each once: it may have several keywords
        for rule in {rule["name"]: rule for rule in near}.values():
            for match in rule["pattern"].finditer(text):
                start, end = match.span(rule["group"])
                secret = text[start:end]
                if _entropy(secret) > rule["entropy"] and rule["not"].search(secret) is None:
                    yield start, end, rule["name"]


@functools.cache
def secret_rules() -> SecretRules:
    """Return the rules that ship. Read once."""
    source = resources.files("policy").joinpath("data", "secret_rules.json")
    return SecretRules(json.loads(source.read_text(encoding="utf-8")))


def _entropy(text: str) -> float:
    """Shannon entropy, in bits a character."""
    size = len(text)
    return -sum(n / size * math.log2(n / size) for n in Counter(text).values())
