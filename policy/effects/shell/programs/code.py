"""A program text with its variables: what is found in it, and which places its expressions name."""

import re
from collections.abc import Callable
from itertools import islice

import msgspec

from policy.effects.effect import Effect, Scope
from policy.effects.paths import PathTarget
from policy.effects.places import Places
from policy.effects.shell.programs.patterns import (
    ALIASED,
    ASSIGNED,
    FOLDERS,
    HOME,
    JOINED,
    LITERAL,
    MANY,
    TEMPORARY,
    WORDS,
)
from policy.effects.shell.programs.quick_patterns import Sifted

_MAX_CALLS = 100


_TOO_MUCH = "size: a program text has more in it than is looked at"


Runner = Callable[[str], "tuple[Effect, ...]"]
"""Reads a shell text that the program would run."""


class CodeReading(msgspec.Struct, frozen=True):
    """What a program text does, and what about it is not sure."""

    effects: tuple[Effect, ...]
    unsure: tuple[str, ...] = ()
    is_sending: bool = False
    """Does it send something, of what it reads perhaps?"""


class Code:
    """One text, its variables, and what was found in it."""

    def __init__(self, language: str, text: str, places: Places, run: Runner | None) -> None:
        self.language, self.places, self.run = language, places, run
        joined = text
        for _ in range(4):
            joined, changes = JOINED.subn("", joined)
            if not changes:
                break
        joined = WORDS.sub(
            lambda match: ",".join(f'"{word}"' for word in match[match.lastindex or 0].split()),
            joined,
        )
        for match in list(islice(ALIASED.finditer(joined), 4)):
            joined = re.sub(
                rf"(?<![\w.]){match[match.lastindex or 1]}(?=\s{{0,9}}\()", "spawnSync", joined
            )
        self.text = joined
        self.effects: list[Effect] = []
        self.unsure: list[str] = []
        self.variables: dict[str, str] = {}
        for match in list(ASSIGNED.finditer(joined))[:500]:
            name, value = (
                (match[1], match[2])
                if match[1]
                else (match[3], match[4])
                if match[3]
                else (match[6], match[5])
            )
            if name and value:
                self.variables.setdefault(name, value)

    def add(self, kind: str, scope: Scope, target: str = "", *, wide: bool = False) -> None:
        """Add an effect."""
        self.take(Effect.of(kind, scope, target, wide=wide, by=self.language))  # type: ignore[arg-type]

    def take(self, effect: Effect) -> None:
        """Add an effect that was read elsewhere; too many are unsure."""
        if len(self.effects) < _MAX_CALLS * 3:
            self.effects.append(effect)
        else:
            self.unsure.append(_TOO_MUCH)

    def some(
        self, pattern: re.Pattern[str] | Sifted, most: int = _MAX_CALLS
    ) -> list[re.Match[str]]:
        """Return the first places of the text that match; where there are more, nobody looks at the
        rest."""
        matches = list(islice(pattern.finditer(self.text), most + 1))
        if len(matches) > most:
            self.unsure.append(_TOO_MUCH)
        return matches[:most]

    def place(self, expression: str, depth: int = 0) -> PathTarget:
        """Return the place that an expression names; unknown where that cannot be seen."""
        many = bool(MANY.search(expression))
        location = self._place(expression, depth)
        return PathTarget(
            location.path, location.scope, location.wide or many, location.secret, location.whole
        )

    def _place(self, expression: str, depth: int) -> PathTarget:
        literals = ["".join(match) for match in LITERAL.findall(expression)]
        literals = [
            literal.replace("\\\\", "\\")
            for literal in literals
            if literal not in ("utf-8", "utf8", "r", "w", "rb", "wb", "a")
        ]
        if TEMPORARY.search(expression):
            return PathTarget("/tmp/x", "temp")
        if HOME.search(expression):
            relative = "/".join(
                part.strip("/")
                for part in literals
                if part not in ("HOME", "~") and not part.startswith("~")
            )
            tilde = next((part for part in literals if part.startswith("~")), "~")
            return self.places.place(f"{tilde}/{relative}")
        if FOLDERS.search(expression):
            return self.places.place("./" + "/".join(literals))
        if literals and not re.match(r"\s*[$@%]?[A-Za-z_]\w*\s*(?:\+|\.\s*[\"']|/)", expression):
            first = literals[0]
            joined = (
                "/".join([first, *(part for part in literals[1:] if not part.startswith("/"))])
                if re.search(r"join|Path\(|/\s*[\"']", expression)
                else first
            )
            return self.places.place(joined.split("{")[0].split("${")[0] or joined)
        name = re.match(r"\s*[$@%]?([A-Za-z_]\w*)", expression)
        if name is not None and depth < 4 and name[1] in self.variables:
            return self.place(self.variables[name[1]], depth + 1)
        for other in re.findall(r"[A-Za-z_]\w*", expression)[:10]:
            if depth < 4 and other in self.variables and other not in ("os", "fs", "path"):
                return self.place(self.variables[other], depth + 1)
        return PathTarget("", "unknown")


def argument_at(text: str, start: int) -> str:
    """The argument that begins here, as far as the bracket or line that ends it."""
    depth = 0
    quote = ""
    end = min(len(text), start + 400)
    for index in range(start, end):
        char = text[index]
        if quote:
            if char == quote and text[index - 1] != "\\":
                quote = ""
        elif char in "\"'`":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            if depth == 0:
                return text[start:index]
            depth -= 1
        elif char in "\n;" and depth == 0:
            return text[start:index]
    return text[start:end]
