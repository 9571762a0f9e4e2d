"""Text as a lenient reader may take it: compatibility forms folded, and what nobody sees removed.
Linear, whatever the text.

`unicodedata.normalize` sorts combining marks by insertion: marks of two classes in turn take it
quadratic time, in one step of C. So runs of marks are cut (UAX 15, "Stream-Safe Text Format",
allows 30), and long texts are folded in pieces. Linear pieces also let other threads run in
between.

Must not know: what the text is compared with.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache

_MAX_MARKS = 30
_PIECE = 32_768
"""Characters of one step of C: a few milliseconds."""
_LONGEST = "\ufdfa"
"""Becomes 18 letters, none of them of a script that commands are written in; no other becomes more
than 8."""
_SEPARATORS = "\x0b\x0c\x1c\x1d\x1e\x1f\x85\u1680\u180e\u2028\u2029\ufeff"
"""White space to some reader (Python's `split`, JavaScript's `\\s`) and to RE2's `\\s` not; NFKC
makes blanks of the others."""
_UNSEEN = (
    (0x00, 0x08),
    (0x0B, 0x0C),
    (0x0E, 0x1F),
    (0x7F, 0x9F),
    (0xAD, 0xAD),
    (0x34F, 0x34F),
    (0x61C, 0x61C),
    (0x115F, 0x1160),
    (0x1680, 0x1680),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x200B, 0x200F),
    (0x2028, 0x202E),
    (0x2060, 0x206F),
    (0x3164, 0x3164),
    (0xD800, 0xDFFF),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFFB),
    (0xFFFE, 0xFFFF),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
)
"""Controls but tab and line ends, zero-width, direction, variation and tag characters, and the
separators above."""
_NOT_PLAIN = bytes(c for c in range(128) if c < 0x20 and chr(c) not in "\t\n\r") + b"\x7f"


@cache
def _tables() -> tuple[
    dict[int, str | None], dict[int, str | None], re.Pattern[str], re.Pattern[str]
]:
    gone: dict[int, str | None] = {
        c: None for first, last in _UNSEEN for c in range(first, last + 1)
    }
    blanks = gone | {ord(c): " " for c in _SEPARATORS}
    unseen = re.compile("[" + "".join(f"{chr(a)}-{chr(b)}" for a, b in _UNSEEN) + "]")
    marks = _ranges(mark_points())
    return gone, blanks, unseen, re.compile(f"[{marks}]")


def _ranges(points: Iterable[int]) -> str:
    """The points as ranges: past plane 0 a pattern tries each member of a class in turn."""
    runs: list[list[int]] = []
    for point in points:
        if runs and point == runs[-1][1] + 1:
            runs[-1][1] = point
        else:
            runs.append([point, point])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in runs)


def mark_points() -> Iterable[int]:
    """The characters whose compatibility form begins with a mark that normalization sorts; there
    are none past plane 1."""
    return (
        c
        for c in range(0x300, 0x20000)
        if unicodedata.combining(unicodedata.normalize("NFKD", chr(c))[0])
    )


def is_plain(text: str) -> bool:
    """Is it ASCII without controls but tab and line ends, so that folding changes nothing?"""
    # no copy of it is made where there is no line end either
    return text.isascii() and (text.isprintable() or not _has_controls(text))


def _has_controls(text: str) -> bool:
    if len(text) <= _PIECE:
        data = text.encode("ascii")
        return len(data.translate(None, _NOT_PLAIN)) != len(data)
    # without a copy of all of it
    return any(_has_controls(text[start : start + _PIECE]) for start in range(0, len(text), _PIECE))


def nfkc(text: str) -> str:
    """Return the compatibility form (NFKC); of more than 30 combining marks in a row only the first
    30."""
    if text.isascii():
        return text
    return "".join(piece if piece.isascii() else _nfkc(piece) for piece in _pieces(text))


def _nfkc(piece: str) -> str:
    marks = _tables()[3]
    # a run of more has one at each 30th place
    if marks.search(piece[::_MAX_MARKS]) is not None:
        piece = re.sub(
            f"{marks.pattern}{{{_MAX_MARKS + 1},}}", lambda run: run[0][:_MAX_MARKS], piece
        )
    return unicodedata.normalize("NFKC", piece.replace(_LONGEST, ""))


def _pieces(text: str) -> Iterator[str]:
    """Cut before an ASCII character, which never joins with what is before it, if there is one
    near."""
    start, end = 0, 0
    while end < len(text):
        end = min(start + _PIECE, len(text))
        limit = end + 64
        while end < len(text) and end < limit and text[end] >= "\x80":
            end += 1
        yield text[start:end]
        start = end


def without_unseen(text: str) -> list[str]:
    """Return the compatibility forms without what nobody sees: separators gone, and, where that
    differs, as blanks."""
    gone, blanks, unseen, _ = _tables()
    if unseen.search(text) is None:
        return [nfkc(text)]
    both = [
        nfkc("".join(piece.translate(table) for piece in _pieces(text))) for table in (gone, blanks)
    ]
    return both[:1] if both[0] == both[1] else both


def fold(word: str) -> str:
    """Return what a reader that matches names leniently takes `word` for: without case,
    compatibility forms, blanks around, the unseen."""
    if is_plain(word):
        return word.strip().lower()
    return without_unseen(word)[0].casefold().strip()
