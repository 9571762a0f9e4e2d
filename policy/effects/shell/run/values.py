"""Values of a shell as far as they are known: texts in which one character stands for each unknown
part.

A part that is known only at run time (`$1`, the output of `curl`) is a single private-use
character; what it stands for is in the table. So a program with unknown parts is still a text,
which can be cut, joined, parsed and run like any other.
"""

import re
from collections.abc import Iterable

import msgspec

from policy.effects.shell.command import Word

FIRST, LAST = 0xE000, 0xF7FF
HOME = "\uf8f0"
"""Stands for the home folder, which is written `~` in the end; a `~` of the text itself is a file
of that name."""
HERE = "\uf8f1"
"""Stands for the folder in which the call begins."""
TOO_MUCH = chr(LAST)
"""What is not known any more, when there are too many unknown parts to tell them apart."""
UNKNOWN = re.compile(f"[{chr(FIRST)}-{chr(LAST)}]")
_SPECIAL = re.compile(f"[{chr(FIRST)}-\uf8ff]")
GLOB = re.compile(r"[*?\[]|[+@!]\(")
_BYTES = re.compile("[\ud800-\udfff]")
MAX_VALUE = 16 * 1024
"""Characters of one value: a text may double a variable in each of its lines."""


class Field(msgspec.Struct):
    """One word of a command, with its unknown parts."""

    text: str
    is_glob: bool = False
    is_many: bool = False


class Unknowns:
    """The table of what is not known: which variables and which commands' outputs a character
    stands for."""

    def __init__(self) -> None:
        self.table: list[tuple[tuple[str, ...], tuple[int, ...]]] = []
        self.seen: dict[tuple[tuple[str, ...], tuple[int, ...]], str] = {}

    def make(self, variables: Iterable[str] = (), outputs: Iterable[int] = ()) -> str:
        """Return the character that stands for these."""
        key = (tuple(variables)[:8], tuple(outputs)[:8])
        character = self.seen.get(key)
        if character is None:
            if FIRST + len(self.table) >= LAST:
                return TOO_MUCH
            character = self.seen[key] = chr(FIRST + len(self.table))
            self.table.append(key)
        return character

    def blur(self, *texts: str) -> str:
        """Return one character for all that the unknown parts of these texts stand for: something
        is made of them that nobody can know."""
        variables: dict[str, None] = {}
        outputs: dict[int, None] = {}
        for text in texts:
            for sign in dict.fromkeys(UNKNOWN.findall(text)):
                if sign != TOO_MUCH:
                    names, places = self.table[ord(sign) - FIRST]
                    variables |= dict.fromkeys(names)
                    outputs |= dict.fromkeys(places)
        return self.make(variables, outputs)

    def word(self, field: Field, home: str, here: str) -> Word:
        """Return the field as others see it."""
        text = field.text
        if text.startswith("~"):
            text = f"./{text}"
        if text.isascii():
            return Word(text, is_glob=field.is_glob, is_many=field.is_many)
        text = as_text(text).replace(HOME, home).replace(HERE, here)
        first = UNKNOWN.search(text)
        if first is None:
            return Word(text, is_glob=field.is_glob, is_many=field.is_many)
        sign = self.blur(text)
        variables, outputs = self.table[ord(sign) - FIRST] if sign != TOO_MUCH else ((), ())
        return Word(
            None,
            text[: first.start()],
            UNKNOWN.sub("", text),
            field.is_glob,
            field.is_many,
            variables,
            outputs,
            tuple(
                gap.start() - before
                for before, gap in enumerate(UNKNOWN.finditer(text, 0, MAX_VALUE))
            ),
        )


def is_known(text: str) -> bool:
    """Tell whether nothing in the text is unknown."""
    return text.isascii() or UNKNOWN.search(text) is None


def without_signs(text: str) -> str:
    """Take the characters that mean something here out of a client's text."""
    return text if text.isascii() else _SPECIAL.sub("\ufffd", text)


def as_text(text: str) -> str:
    """Make a text of what programs print: without NULs, and without bytes that are no text."""
    return (
        text
        if text.isascii() and "\0" not in text
        else _BYTES.sub("\ufffd", text).replace("\0", "")
    )


def glob_text(glob: str, *, is_greedy: bool = True) -> str | None:
    """Return a glob as a pattern for RE2, which is linear whatever the pattern; None where it is
    too long."""
    if len(glob) > 200:
        return None
    many = r"[\s\S]*" if is_greedy else r"[\s\S]*?"
    made: list[str] = []
    at = 0
    while at < len(glob):
        sign = glob[at]
        at += 1
        if sign == "*":
            if not made or made[-1] != many:
                made.append(many)
        elif sign == "?":
            made.append(r"[\s\S]")
        elif (
            sign == "["
            and (end := glob.find("]", at + 2 if glob[at : at + 1] in ("!", "^") else at + 1)) > 0
        ):
            inner = glob[at:end]
            is_not = inner[:1] in ("!", "^")
            inner = re.sub(r"\\?([\\\[\]^&~|])", r"\\\1", inner[is_not:])
            for name, members in _CLASSES.items():
                inner = inner.replace(f"\\[:{name}:", members)
            made.append(f"[{'^' if is_not else ''}{inner}]")
            at = end + 1
        else:
            made.append(re.escape(sign))
    return "".join(made)


_CLASSES = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r"\s",
    "punct": r"!-/:-@\[-`{-~",
}
