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


@functools.cache
def pack() -> dict[str, Any]:
    """Return the rules that ship by keyword (`rules`), a pattern for where one may match
    (`beginning`), and one for where anything may be in a text (`gate`). Read once."""
    source = resources.files("policy").joinpath("data", "secret_rules.json")
    loaded: dict[str, Any] = json.loads(source.read_text(encoding="utf-8"))
    by_keyword: dict[str, list[dict[str, Any]]] = {}
    for rule in loaded["rules"]:
        rule |= {name: compile_re2(rule[name]) for name in ("pattern", "not")}
        for word in rule["keywords"]:
            by_keyword.setdefault(word, []).append(rule)
    loaded["rules"] = by_keyword
    return loaded | {name: compile_re2(loaded[name]) for name in ("beginning", "gate")}


def secrets(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the secrets in a text of bounded length, each with the name of its rule."""
    if pack()["beginning"].search(text) is None:
        return
    lowered = text.lower()
    # each once: it may have several keywords
    near = {
        rule["name"]: rule
        for word, rules in pack()["rules"].items()
        if word in lowered
        for rule in rules
    }
    for rule in near.values():
        for match in rule["pattern"].finditer(text):
            start, end = match.span(rule["group"])
            secret = text[start:end]
            if _entropy(secret) > rule["entropy"] and rule["not"].search(secret) is None:
                yield start, end, rule["name"]


def _entropy(text: str) -> float:
    """Shannon entropy, in bits a character."""
    size = len(text)
    return math.log2(size) - sum(n * math.log2(n) for n in Counter(text).values()) / size
