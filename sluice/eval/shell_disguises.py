"""Disguises of a shell command's text: other texts that do the same, from a table of forms
(`data/shell_disguises.toml`).

Where a disguise does not apply to a text it returns the text as it is. Most keep what a real shell
prints, which a test checks with harmless twins; the others are read the same only by a reader more
lenient than a shell, as a client or a terminal may be.
"""

import base64
import functools
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

_TABLE = Path(__file__).with_name("data") / "shell_disguises.toml"
_NAME = re.compile(r"[a-z][a-z0-9_-]*(?=[ \t]|$)")
_PLAIN = re.compile(r"[A-Za-z0-9_./~:=@%+,-]+(?: [A-Za-z0-9_./~:=@%+,-]+)*")
"""Plain words with one blank between them."""
_FIELD = re.compile(r"<([a-z0-9-]+)>")
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ROT13 = str.maketrans(_LETTERS, "NOPQRSTUVWXYZABCDEFGHIJKLMnopqrstuvwxyzabcdefghijklm")
_WORDS_OF_GRAMMAR = frozenset(
    "if then else elif fi for while until do done case esac select function time coproc in".split()
)
_BUILTINS = frozenset(
    "cd export set unset alias source eval exec read shift local declare readonly trap exit return"
    " test pushd popd".split()
)
_IN_BIN = frozenset(
    "rm cat cp mv ln ls chmod chown dd mkdir echo kill touch grep sed tar sh bash find env".split()
)


def _name(text: str) -> str:
    """The first word, where it is the plain name of a command; "" where it is not."""
    match = _NAME.match(text)
    return match[0] if match and match[0] not in _WORDS_OF_GRAMMAR else ""


def _escapes(prefix: str, form: str) -> Callable[[str], str]:
    return lambda text: "".join(prefix + format(byte, form) for byte in text.encode())


def _blanks(other: str) -> Callable[[str], str]:
    return lambda text: text.replace(" ", other)


FIELDS: Mapping[str, Callable[[str], str]] = {
    "text": str,
    "quoted": shlex.quote,
    "quoted-twice": lambda text: shlex.quote(shlex.quote(text)),
    "bash-quoted": lambda text: shlex.quote(f"bash -c {shlex.quote(text)}"),
    "bang-quoted": lambda text: shlex.quote(f"!{text}"),
    "escaped-quotes": lambda text: text.replace('"', '\\"'),
    "reversed": lambda text: shlex.quote(text[::-1]),
    "rot13": lambda text: shlex.quote(text.translate(_ROT13)),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "hex": lambda text: text.encode().hex(),
    "octal-escapes": _escapes("\\", "03o"),
    "hex-escapes": _escapes("\\x", "02x"),
    "ifs": _blanks("${IFS}"),
    "commas": _blanks(","),
    "broken-lines": _blanks(" \\\n  "),
    "wide-blanks": _blanks("\u00a0"),
    "windows-lines": lambda text: text.replace("\n", "\r\n") + "\r\n",
    "name": _name,
    "rest": lambda text: text[len(_name(text)) :],
    "first": lambda text: _name(text)[:1],
    "middle": lambda text: _name(text)[1:-1],
    "tail": lambda text: _name(text)[1:],
    "last": lambda text: _name(text)[-1:],
    "length": lambda text: str(len(_name(text))),
    "backslashed-name": lambda text: _escapes("\\", "c")(_name(text)),
    "octal-name": lambda text: _escapes("\\", "03o")(_name(text)),
    "full-width-name": lambda text: "".join(chr(ord(c) + 0xFEE0) for c in _name(text)),
    "zero-width-name": lambda text: "\u200b".join(_name(text)),
}
"""What stands for `<field>` in a form, of the command's text."""
NEEDS: Mapping[str, Callable[[str], object]] = {
    "name": _name,
    "long-name": lambda text: len(_name(text)) > 1,
    "program": lambda text: _name(text) not in ("", *_BUILTINS),
    "in-bin": lambda text: _name(text) in _IN_BIN,
    "plain": _PLAIN.fullmatch,
    "words": lambda text: " " in text,
}


class ShellDisguise(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of the table, whose head describes the keys."""

    about: str
    form: str
    needs: tuple[str, ...] = ()
    unless: str = "(?!)"
    for_shells: bool = True

    def __call__(self, text: str) -> str:
        """Return the disguised text; the text itself where the disguise does not apply."""
        if re.search(self.unless, text) or not all(NEEDS[need](text) for need in self.needs):
            return text
        return _FIELD.sub(lambda field: FIELDS[field[1]](text), self.form)


@functools.cache
def table() -> Mapping[str, ShellDisguise]:
    """All of them, by the names of `--disguise`."""
    return msgspec.convert(tomllib.loads(_TABLE.read_text()), dict[str, ShellDisguise])
