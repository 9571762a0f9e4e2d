"""The only way for text into a page. Nothing else makes Markup, which a test checks.

HTML escaping alone lets U+202E turn a line round and a zero width space hide in a command. So what
a reader would not see, or would see in another place, is spelled out: `\\u202e` in a span that says
its name. What is shown is never what is copied: copies are exact.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from markupsafe import Markup, escape

_CLASSES = {"": "", "key": "tk", "string": "ts", "number": "tn", "word": "tw"}
"""What a coloured piece may be, and its class in the style sheet."""
_PLAIN = bytes({*range(0x20, 0x7F), 0x09, 0x0A})
"""ASCII that is shown as it is. Newline and tab are for `<pre>`; elsewhere they are a blank."""
_SPELLED = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_BLANKS = "\u034f\u115f\u1160\u1680\u17b4\u17b5\u2000-\u200a\u202f\u205f\u2800\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef"
"""Letters, marks and blanks that show nothing, or a blank that is none."""
_UNSEEN = re.compile(f"[{_BLANKS}]")
_MARK_KINDS = frozenset({"Mn", "Me"})
_ASSIGNED = (range(0x40000), range(0xE0000, 0xE0200))
"""Where characters are; all others are unassigned or private."""
_PICTURE = re.compile("[\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001faff#*0-9]")
"""U+FE0F behind one of these only asks for colours."""
_MARKS = 4
"""So many combining marks on one letter are shown; languages need three."""
_ESCAPES = {"\r": "\\r", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\t": "\\t"}
_NAMES = {
    "\x00": "NULL",
    "\x07": "BELL",
    "\r": "CARRIAGE RETURN",
    "\x1b": "ESCAPE",
    "\x7f": "DELETE",
    "\n": "NEWLINE",
    "\t": "TAB",
}
_BYTE = range(0xDC80, 0xDD00)
"""How `surrogateescape` holds a byte that is no UTF-8."""
_NAMED = 4
"""So many names stand in a title; a run may be long."""


class Piece(NamedTuple):
    """A piece of text with its kind: one of `key`, `string`, `number`, `word`, or nothing."""

    kind: str
    text: str


def text_of(value: object) -> str:
    """Return a value as text: bytes as UTF-8, with those that are none kept apart; None is
    nothing."""
    match value:
        case None:
            return ""
        case str():
            return value
        case bytes():
            return value.decode(errors="surrogateescape")
        case _:
            return str(value)


def seen(value: object, *, line: bool = False) -> Markup:
    """Return text as a page shows it: escaped, and what nobody would see spelled out. `line`:
    newlines and tabs too."""
    if isinstance(value, Markup):
        return value
    text = text_of(value)
    escaped = str(escape(text))
    if line and ("\n" in text or "\t" in text):
        escaped = _IN_LINE.sub(_blank, escaped)
    return Markup(escaped if is_plain(text) else _ODD.sub(_span, escaped))


def spelled(value: object) -> str:
    """Return the same as text alone, for titles, labels and plain text: no element stands round
    what is spelled out."""
    text = text_of(value)
    return text if is_plain(text) else _ODD.sub(_text, text)


def exact(value: object) -> Markup:
    """Return text escaped and otherwise as it is, for attributes that are sent or copied and never
    shown."""
    return escape(text_of(value).encode(errors="replace").decode())


def coloured(pieces: Iterable[Piece]) -> Markup:
    """Return pieces of text one after the other, each in the colour of what it is."""
    return Markup("").join(
        (
            Markup('<span class="{}">{}</span>').format(_CLASSES[kind], seen(text))
            if _CLASSES[kind]
            else seen(text)
        )
        for kind, text in pieces
    )


def moment(at: str, day: str, clock: str) -> Markup:
    """Return a time as an element; the day may be left out."""
    before = Markup('<span class="day">{}</span> ').format(day) if day else Markup("")
    return Markup('<time datetime="{}">{}{}</time>').format(at, before, clock)


def beginning(text: str, length: int, whole: str) -> Markup:
    """Return the first characters of a text on one line, and how long all of it is where that is
    more."""
    if len(text) <= length:
        return seen(text, line=True)
    return seen(text[:length], line=True) + Markup(
        '<span class="cut">… {}, first {} characters</span>'
    ).format(whole, length)


def is_plain(text: str) -> bool:
    """Is it of printable ASCII alone, with newlines and tabs? Fast: this is asked of megabytes,
    most of which are."""
    return text.isascii() and not text.encode().translate(None, _PLAIN)


_IN_LINE = re.compile(r"[\n\t]+")


def _blank(match: re.Match[str]) -> str:
    return (
        '<span class="c"'
        f' title="{_titles(match[0])}">{"".join(_ESCAPES[character] for character in match[0][:_NAMED])}</span>'
    )


def _span(match: re.Match[str]) -> str:
    """Spans round what is spelled out of a run: one for many of them, so that they cost few
    nodes."""
    return "".join(
        (
            f'<span class="c" title="{_titles(part[: _NAMED + 1])}">{_word(part)}</span>'
            if hides
            else part
        )
        for hides, part in _parts(match)
    )


def _text(match: re.Match[str]) -> str:
    return "".join(_word(part) if hides else part for hides, part in _parts(match))


def _word(part: str) -> str:
    return "".join(map(_spell, part))


def _parts(match: re.Match[str]) -> Iterator[tuple[bool, str]]:
    """A run in parts that are spelled out, or not: a few combining marks, and the sign that asks
    for a picture in colours, are not."""
    run, start = match[0], match.start()
    before = match.string[start - 1] if start else ""
    marks = 0
    begun, hides = 0, False
    for at, character in enumerate(run):
        is_mark = _is_mark(character)
        marks = marks + 1 if is_mark else 0
        now = marks > _MARKS if is_mark else character != "\ufe0f" or not _PICTURE.match(before)
        if now != hides and at:
            yield hides, run[begun:at]
            begun = at
        hides, before = now, character
    yield hides, run[begun:]


@lru_cache(1000)
def _titles(run: str) -> str:
    names = [_name(character) for character in dict.fromkeys(run[:_NAMED])]
    return str(escape(", ".join(names) + (" and more" if len(run) > _NAMED else "")))


def _name(character: str) -> str:
    if (code := ord(character)) in _BYTE:
        return f"byte {code - 0xDC00:02x}, no UTF-8"
    unnamed = {"Cs": "half a surrogate pair", "Co": "private use", "Cn": "not assigned"}.get(
        unicodedata.category(character), "control character"
    )
    return f"U+{code:04X} {_NAMES.get(character) or unicodedata.name(character, unnamed)}"


def _spell(character: str) -> str:
    code = ord(character)
    if code in _BYTE:
        return f"\\x{code - 0xDC00:02x}"
    return _ESCAPES.get(character) or (f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")


@lru_cache(4096)
def _is_mark(character: str) -> bool:
    return unicodedata.category(character) in _MARK_KINDS and not _UNSEEN.match(character)


def _class_of(kinds: frozenset[str]) -> str:
    """What a regular expression has between brackets for characters of these kinds and `_BLANKS`,
    newline and tab left out.

    In ranges, and once for all texts: past U+FFFF a class is compared one by one, so that one made
    of a text's own characters takes quadratic time. The largest come first.
    """
    ranges = [(0x40000, 0xDFFFF), (0xE0200, 0x10FFFF)]
    for codes in _ASSIGNED:
        for is_in, run in groupby(
            codes,
            lambda code: code not in (0x09, 0x0A) and unicodedata.category(chr(code)) in kinds,
        ):
            if is_in:
                whole = list(run)
                ranges.append((whole[0], whole[-1]))
    return _BLANKS + "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)


UNSEEN = _class_of(_SPELLED)
"""Between brackets of a regular expression: characters that show nothing, or stand elsewhere than
they are shown."""
_ODD = re.compile(f"[{_class_of(_SPELLED | _MARK_KINDS)}]+")
"""Runs of what may have to be spelled out."""
